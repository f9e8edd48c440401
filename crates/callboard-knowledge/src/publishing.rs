//! The static site of a base: its documents, facts and entities as they are at one moment.

use std::path::Path;
use std::pin::pin;

use callboard::messages::Timestamp;
use rusqlite::{Connection, params};
use tokio::sync::watch;

use crate::documents::is_markdown;
use crate::facts::Fact;
use crate::site::{
    Entity, FactCard, Outline, Page, Place, Published, Section, SiteError, SiteSettings, SiteWriter, SourceRef,
    StagedSite, TextFormat,
};
use crate::store::facts::fact_of;
use crate::store::items::ItemId;
use crate::store::{KnowledgeBase, KnowledgeError};

/// An entity with fewer places than these connects nothing, and has no page.
const CONNECTS: usize = 2;

/// The most places of an entity that are shown.
const MAX_PLACES: usize = 200;

/// Why a site was not written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The folder cannot be written.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The base cannot be read.
    #[error(transparent)]
    Base(#[from] KnowledgeError),
}

impl From<rusqlite::Error> for PublishError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Base(error.into())
    }
}

/// How far a site is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteProgress {
    /// Documents and facts that the site will have.
    pub all: usize,
    /// How many of them are read.
    pub read: usize,
    /// How many of them are written.
    pub written: usize,
}

/// Writes the site of a namespace into a folder, in place of the site that is there. It is complete when this returns; if it is interrupted before,
/// the old one is there.
///
/// # Errors
/// The folder has something else than a site or cannot be written, or the base cannot be read.
pub async fn publish(
    base: &KnowledgeBase,
    namespace: &str,
    folder: &Path,
    settings: SiteSettings,
) -> Result<Published, PublishError> {
    loop {
        // Another process may write there too: then this one begins again.
        let staged = stage(base, namespace, folder, settings.clone(), |_| {}).await?;
        if let Some(published) = put_in_place(staged).await? {
            return Ok(published);
        }
    }
}

/// Writes the site of a namespace beside a folder, whose place it takes by [`StagedSite::publish`]. `progress` is called now and then, and at the end.
///
/// # Errors
/// As [`publish`].
pub async fn stage(
    base: &KnowledgeBase,
    namespace: &str,
    folder: &Path,
    settings: SiteSettings,
    mut progress: impl FnMut(SiteProgress),
) -> Result<StagedSite, PublishError> {
    let (namespace, folder) = (namespace.to_owned(), folder.to_owned());
    let (sender, mut far) = watch::channel(SiteProgress::default());
    // One snapshot for both passes: what the outline has is what is written.
    let writing = base.read(move |connection| Ok(written(connection, &namespace, &folder, settings, &sender)));
    let mut writing = pin!(writing);
    loop {
        tokio::select! {
            biased;
            Ok(()) = far.changed() => progress(*far.borrow_and_update()),
            staged = &mut writing => {
                progress(*far.borrow());
                return staged?;
            }
        }
    }
}

/// As [`StagedSite::publish`], on a thread that may wait for the disk.
pub(crate) async fn put_in_place(staged: StagedSite) -> Result<Option<Published>, PublishError> {
    let publishing = tokio::task::spawn_blocking(move || staged.publish());
    Ok(publishing.await.map_err(|_| KnowledgeError::Closed)??)
}

fn written(
    connection: &Connection,
    namespace: &str,
    folder: &Path,
    settings: SiteSettings,
    far: &watch::Sender<SiteProgress>,
) -> Result<StagedSite, PublishError> {
    let mut outline = Outline::new();
    let (mut facts, mut entities) = (Vec::new(), Vec::new());
    let documents = documents(connection, namespace)?;
    let count = "SELECT count(*) FROM kb_facts WHERE namespace = ?1";
    let count: usize = connection.query_row(count, [namespace], |row| row.get(0))?;
    far.send_modify(|far| far.all = documents.len() + count);
    for document in &documents {
        outline.add_page(&page(connection, document)?);
        far.send_modify(|far| far.read += 1);
    }
    let mut find = connection
        .prepare("SELECT item FROM kb_facts WHERE namespace = ?1 ORDER BY fact")
        .map_err(KnowledgeError::from)?;
    for item in find.query_map([namespace], |row| row.get::<_, ItemId>(0))? {
        let item = item?;
        outline.add_fact(&card(connection, item)?);
        facts.push(item);
        far.send_modify(|far| far.read += 1);
    }
    let mut find = connection.prepare(
        "SELECT e.id, e.name, e.kind FROM kb_graph_entities e
         WHERE e.namespace = ?1 AND e.kind NOT IN ('document', 'fact') AND (
             SELECT count(*) FROM (SELECT 1 FROM kb_graph_mentions m WHERE m.entity = e.id AND m.deleted_at IS NULL LIMIT ?2)
         ) >= ?2 ORDER BY e.form",
    )?;
    let rows = find.query_map(params![namespace, CONNECTS], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    for row in rows {
        let (id, name, kind): (i64, String, String) = row?;
        outline.add_entity(&name, &kind);
        entities.push((id, name, kind));
    }
    let mut writer = SiteWriter::create(folder, settings, outline)?;
    for document in &documents {
        writer.add_page(&page(connection, document)?)?;
        far.send_modify(|far| far.written += 1);
    }
    for item in facts {
        writer.add_fact(&card(connection, item)?)?;
        far.send_modify(|far| far.written += 1);
    }
    for (id, name, kind) in entities {
        writer.add_entity(&entity(connection, id, name, kind)?)?;
    }
    Ok(writer.finish()?)
}

struct Document {
    id: i64,
    path: String,
    title: String,
    is_untrusted: bool,
}

fn documents(connection: &Connection, namespace: &str) -> Result<Vec<Document>, KnowledgeError> {
    let mut find = connection.prepare(
        "SELECT id, path, title, is_untrusted FROM kb_documents WHERE namespace = ?1 AND hash <> x'' ORDER BY path",
    )?;
    let rows = find.query_map([namespace], |row| {
        Ok(Document { id: row.get(0)?, path: row.get(1)?, title: row.get(2)?, is_untrusted: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn page(connection: &Connection, document: &Document) -> Result<Page, KnowledgeError> {
    let Document { id, path, title, is_untrusted } = document;
    let mut find = connection.prepare_cached(
        "SELECT title, anchor, body, first_line, last_line FROM kb_items WHERE document = ?1 AND ended_at IS NULL ORDER BY ordinal",
    )?;
    let parts = find.query_map([id], |row| {
        Ok(Section {
            title: row.get(0)?,
            anchor: row.get(1)?,
            other_anchors: Vec::new(),
            text: row.get(2)?,
            lines: row.get(3)?..=row.get(4)?,
        })
    })?;
    let parts: Vec<Section> = parts.collect::<Result<_, _>>()?;
    let format = if is_markdown(path) { TextFormat::Markdown } else { TextFormat::Plain };
    let sections = Section::joined(parts);
    Ok(Page { path: path.clone(), title: title.clone(), format, sections, is_untrusted: *is_untrusted })
}

fn card(connection: &Connection, item: ItemId) -> Result<FactCard, KnowledgeError> {
    let Fact { id, statement, triple, sources, state, valid_from, .. } = fact_of(connection, item)?;
    let mut find = connection.prepare_cached(
        "SELECT f.fact FROM kb_facts f WHERE f.item IN (
             SELECT other FROM kb_contradictions WHERE item = ?1 UNION SELECT item FROM kb_contradictions WHERE other = ?1
         ) ORDER BY f.fact",
    )?;
    let contradicts = find.query_map([item], |row| crate::store::facts::fact_id(row, 0).map(|id| id.to_string()))?;
    let contradicts: Vec<String> = contradicts.collect::<Result<_, _>>()?;
    let (subject, predicate, value) = match triple {
        Some(triple) => (Some(triple.subject), Some(triple.predicate), Some(triple.value)),
        None => (None, None, None),
    };
    let sources = sources.into_iter().map(|source| SourceRef {
        label: source.by,
        page: None,
        anchor: None,
        place: source.place.unwrap_or_default(),
    });
    Ok(FactCard {
        id: id.to_string(),
        statement,
        state,
        sources: sources.collect(),
        since: Timestamp::to_string(&valid_from),
        subject,
        predicate,
        value,
        contradicts,
    })
}

fn entity(connection: &Connection, id: i64, name: String, kind: String) -> Result<Entity, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT m.relation, d.path, i.anchor FROM kb_graph_mentions m JOIN kb_items i ON i.id = m.item
         JOIN kb_documents d ON d.id = i.document
         WHERE m.entity = ?1 AND m.deleted_at IS NULL ORDER BY d.path, i.ordinal LIMIT ?2",
    )?;
    let (mut defined, mut mentioned) = (Vec::new(), Vec::new());
    let rows = find.query_map(params![id, MAX_PLACES], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    for row in rows {
        let (relation, page, anchor): (String, String, Option<String>) = row?;
        let place = Place { page, anchor: anchor.filter(|anchor| !anchor.is_empty()) };
        let places = if relation == "defines" { &mut defined } else { &mut mentioned };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let mut find = connection.prepare_cached(
        "SELECT f.fact FROM kb_graph_mentions m JOIN kb_facts f ON f.item = m.item
         WHERE m.entity = ?1 AND m.deleted_at IS NULL ORDER BY f.fact LIMIT ?2",
    )?;
    let facts =
        find.query_map(params![id, MAX_PLACES], |row| crate::store::facts::fact_id(row, 0).map(|id| id.to_string()))?;
    let mut facts: Vec<String> = facts.collect::<Result<_, _>>()?;
    facts.dedup();
    let mut find = connection.prepare_cached(
        "SELECT e.relation, t.name FROM kb_graph_edges e JOIN kb_graph_entities t ON t.id = e.target
         WHERE e.source = ?1 AND t.kind NOT IN ('document', 'fact') ORDER BY 1, 2 LIMIT ?2",
    )?;
    let related = find.query_map(params![id, MAX_PLACES], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let related = related.collect::<Result<_, _>>()?;
    Ok(Entity { name, kind, defined, mentioned, facts, related })
}
