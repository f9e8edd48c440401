//! Documents of a base: their passages are searched, and what they name is in the graph.

use std::collections::BTreeMap;
use std::ops::{AddAssign, RangeInclusive};

use callboard::messages::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::KnowledgeBase;
use super::error::KnowledgeError;
use super::graph;
use super::items::{self, ItemId, NewItem, millis};
use crate::documents::{Document, Link, Mention};
use crate::entities::{EntityKind, Named, Relation};

/// What paths of documents begin with that a model wrote, so that none is a file's.
pub(crate) const SUMMARY: &str = "summary:";

/// A document that is to be indexed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDocument {
    /// Its name in the base, such as its path below the folder that was read.
    pub path: String,
    /// Its title.
    pub title: String,
    /// The SHA-256 of what was read: a document with the hash that the base has is left as it is.
    pub hash: [u8; 32],
    /// Whether nobody vouches for it: what a query finds in it is untrusted input.
    pub is_untrusted: bool,
    /// Its passages, in order.
    pub passages: Vec<NewPassage>,
}

/// A passage of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPassage {
    /// The headings above it, from the outermost.
    pub title: String,
    /// The anchor of its heading, if it has one.
    pub anchor: String,
    /// Its text.
    pub text: String,
    /// Its lines in the document; the first is 1.
    pub lines: RangeInclusive<u32>,
    /// What it names.
    pub named: Vec<Named>,
    /// The documents that it links to, by their paths.
    pub links: Vec<String>,
}

impl NewDocument {
    /// A document that was read.
    #[must_use]
    pub fn of(document: Document, is_untrusted: bool) -> Self {
        let Document { path, title, hash, passages, mut links, leaves_out: _ } = document;
        let passages = passages.into_iter().map(|passage| {
            let entities = passage.entities.into_iter();
            let is_here = |link: &mut Link| link.passage == passage.ordinal;
            NewPassage {
                title: passage.title,
                anchor: passage.anchor,
                text: passage.text,
                lines: passage.lines,
                named: entities
                    .map(|Mention { kind, entity, relation }| Named { name: entity, kind, relation })
                    .collect(),
                links: links.extract_if(.., is_here).map(|link| link.to).collect(),
            }
        });
        Self { path, title, hash, is_untrusted, passages: passages.collect() }
    }
}

/// Whether files that are indexed are trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// As before: what is untrusted stays so, and so does what is new in a folder that was indexed as untrusted. Anything else that is new is
    /// trusted.
    #[default]
    AsBefore,
    /// Nobody vouches for them, nor for what is in their folder later.
    Untrusted,
    /// Somebody vouches for them, and for what is in their folder later, whatever they were before.
    Trusted,
}

/// What a document changed in the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Passages that are new.
    pub added: usize,
    /// Passages that are as they were.
    pub kept: usize,
    /// Passages that are no longer in the document.
    pub ended: usize,
}

impl AddAssign for Written {
    fn add_assign(&mut self, Self { added, kept, ended }: Self) {
        self.added += added;
        self.kept += kept;
        self.ended += ended;
    }
}

impl KnowledgeBase {
    /// Indexes documents, in one transaction. Of a document that was indexed before, the passages that it still has are kept.
    ///
    /// # Errors
    /// The base cannot be changed.
    pub async fn write_documents(
        &self,
        namespace: &str,
        documents: Vec<NewDocument>,
    ) -> Result<Written, KnowledgeError> {
        let namespace = namespace.to_owned();
        self.write(move |connection, now| {
            let mut written = Written::default();
            for document in &documents {
                written += write(connection, &namespace, document, now)?;
            }
            Ok(written)
        })
        .await
    }

    /// Indexes files as [`KnowledgeBase::write_documents`] does, whatever their own fields have of trust. Returns how many are untrusted because
    /// they were so before.
    pub(crate) async fn write_files(
        &self,
        namespace: &str,
        mut files: Vec<NewDocument>,
        trust: Trust,
    ) -> Result<(Written, usize), KnowledgeError> {
        let namespace = namespace.to_owned();
        self.write(move |connection, now| {
            let (mut written, mut kept_untrusted) = (Written::default(), 0);
            for file in &mut files {
                file.is_untrusted = match trust {
                    Trust::AsBefore => was_untrusted(connection, &namespace, &file.path)?,
                    Trust::Untrusted => true,
                    Trust::Trusted => false,
                };
                kept_untrusted += usize::from(trust == Trust::AsBefore && file.is_untrusted);
                written += write(connection, &namespace, file, now)?;
            }
            Ok((written, kept_untrusted))
        })
        .await
    }

    /// The hashes of the documents below a folder, by their paths.
    pub(crate) async fn hashes_below(
        &self,
        namespace: &str,
        folder: &str,
    ) -> Result<BTreeMap<String, Vec<u8>>, KnowledgeError> {
        let (namespace, folder) = (namespace.to_owned(), folder.to_owned());
        self.read(move |connection| {
            let mut find =
                connection.prepare("SELECT path, hash FROM kb_documents WHERE namespace = ?1 AND hash <> x''")?;
            let rows = find.query_map([&namespace], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let documents: BTreeMap<String, Vec<u8>> = rows.collect::<Result<_, _>>()?;
            Ok(documents.into_iter().filter(|(path, _)| is_below(path, &folder)).collect())
        })
        .await
    }

    /// Keeps whether files are trusted that are indexed in a folder later. Its path ends with a slash; the one of the project is empty.
    pub(crate) async fn set_trust_of_folder(
        &self,
        namespace: &str,
        folder: &str,
        is_untrusted: bool,
    ) -> Result<(), KnowledgeError> {
        let (namespace, folder) = (namespace.to_owned(), folder.to_owned());
        self.write(move |connection, now| {
            let mut find = connection.prepare("SELECT id, path FROM kb_documents WHERE namespace = ?1 AND path LIKE '%/'")?;
            let rows = find.query_map([&namespace], |row| Ok((row.get(0)?, row.get(1)?)))?;
            for row in rows.collect::<Result<Vec<(i64, String)>, _>>()? {
                if is_below(&row.1, &folder) {
                    connection
                        .prepare_cached("UPDATE kb_documents SET is_untrusted = ?2 WHERE id = ?1")?
                        .execute(params![row.0, is_untrusted])?;
                }
            }
            let path = if folder.is_empty() { PROJECT } else { &*folder };
            connection
                .prepare_cached(
                    "INSERT INTO kb_documents (namespace, path, title, hash, read_at, is_untrusted) VALUES (?1, ?2, '', x'', ?3, ?4)
                     ON CONFLICT (namespace, path) DO UPDATE SET is_untrusted = excluded.is_untrusted",
                )?
                .execute(params![namespace, path, millis(now), is_untrusted])?;
            Ok(())
        })
        .await
    }

    /// Ends a document with its passages: they are found in the past alone. Returns whether there was one.
    ///
    /// # Errors
    /// The base cannot be changed.
    pub async fn end_document(&self, namespace: &str, path: &str) -> Result<bool, KnowledgeError> {
        let (namespace, path) = (namespace.to_owned(), path.to_owned());
        self.write(move |connection, now| {
            let Some((document, ..)) = find(connection, &namespace, &path)? else { return Ok(false) };
            end_all(connection, document, now)?;
            Ok(true)
        })
        .await
    }
}

/// What has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// How many documents.
    pub documents: usize,
    /// How many passages they had.
    pub passages: usize,
}

impl KnowledgeBase {
    /// Ends the documents below a folder of a namespace that are not to be kept. What a model wrote is below no folder of files.
    pub(crate) async fn end_documents_below(
        &self,
        namespace: &str,
        folder: &str,
        keep: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Removed, KnowledgeError> {
        let (namespace, folder) = (namespace.to_owned(), folder.to_owned());
        self.write(move |connection, now| {
            let mut ended = Removed::default();
            for (document, path) in below(connection, &namespace, &folder)? {
                if !keep(&path) {
                    ended.passages += end_all(connection, document, now)?;
                    ended.documents += 1;
                }
            }
            Ok(ended)
        })
        .await
    }

    /// The paths of the documents below a folder of a namespace, as for [`KnowledgeBase::end_documents_below`].
    pub(crate) async fn documents_below(&self, namespace: &str, folder: &str) -> Result<Vec<String>, KnowledgeError> {
        let (namespace, folder) = (namespace.to_owned(), folder.to_owned());
        self.read(move |connection| {
            let found = below(connection, &namespace, &folder)?;
            Ok(found.into_iter().map(|(_, path)| path).collect())
        })
        .await
    }
}

/// The documents below a folder, with their paths.
fn below(connection: &Connection, namespace: &str, folder: &str) -> Result<Vec<(i64, String)>, KnowledgeError> {
    let mut find =
        connection.prepare("SELECT id, path FROM kb_documents WHERE namespace = ?1 AND hash <> x'' ORDER BY id")?;
    let rows = find.query_map([namespace], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut documents: Vec<(i64, String)> = rows.collect::<Result<_, _>>()?;
    documents.retain(|(_, path)| is_below(path, folder));
    Ok(documents)
}

/// Whether a document is below a folder. What is elsewhere, and what a model wrote, is not below the folder without a name.
fn is_below(path: &str, folder: &str) -> bool {
    let is_apart = |apart| path.starts_with(apart) != folder.starts_with(apart);
    path.starts_with(folder) && !is_apart(SUMMARY) && !is_apart("/")
}

/// What a passage adds to the graph beside what was found when it was indexed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassageGraph {
    /// The text of the passage.
    pub(crate) text: String,
    /// What it names.
    pub(crate) entities: Vec<String>,
    /// How what it names is joined.
    pub(crate) edges: Vec<(String, Relation, String)>,
    /// The documents that it refers to, by their paths.
    pub(crate) links: Vec<String>,
}

impl KnowledgeBase {
    /// Adds to the graph what passages of a document name, in one transaction. It may be repeated.
    pub(crate) async fn add_to_graph(
        &self,
        namespace: &str,
        path: &str,
        graph: Vec<PassageGraph>,
    ) -> Result<(), KnowledgeError> {
        let (namespace, path) = (namespace.to_owned(), path.to_owned());
        self.write(move |connection, _| {
            let Some((document, ..)) = find(connection, &namespace, &path)? else { return Ok(()) };
            let items = passages(connection, document)?;
            for PassageGraph { text, entities, edges, links } in &graph {
                let Some((item, ..)) = items.iter().find(|(_, _, body)| body == text) else { continue };
                let thing =
                    |name| graph::mention(connection, *item, &namespace, name, EntityKind::Thing, Relation::Mentions);
                for name in entities {
                    thing(name)?;
                }
                for (source, relation, target) in edges {
                    if let (Some(source), Some(target)) = (thing(source)?, thing(target)?) {
                        graph::join(connection, *item, source, target, *relation)?;
                    }
                }
                link(connection, *item, &namespace, &path, links)?;
            }
            Ok(())
        })
        .await
    }
}

/// The path of the row of the project's own folder, where it was indexed as trusted or untrusted. The paths of rows of folders end with a slash.
/// They have no passages and no hash, as the rows of documents that have ended.
const PROJECT: &str = "./";

/// Whether a file was untrusted when it was indexed last. Of one that is new, whether its folder was, or the nearest folder above that was indexed
/// as trusted or untrusted.
fn was_untrusted(connection: &Connection, namespace: &str, path: &str) -> Result<bool, KnowledgeError> {
    let project = (!path.starts_with('/')).then_some(PROJECT);
    let folders = path.match_indices('/').rev().map(|(end, _)| &path[..=end]);
    for known in std::iter::once(path).chain(folders).chain(project) {
        if let Some((_, _, is_untrusted)) = find(connection, namespace, known)? {
            return Ok(is_untrusted);
        }
    }
    Ok(false)
}

fn write(
    connection: &Connection,
    namespace: &str,
    document: &NewDocument,
    now: Timestamp,
) -> Result<Written, KnowledgeError> {
    let NewDocument { path, title, hash, is_untrusted, passages: new } = document;
    let known = find(connection, namespace, path)?;
    // A document that is no longer trusted, or is trusted now, is written again.
    if let Some((_, has, was_untrusted)) = &known
        && has.as_slice() == hash
        && was_untrusted == is_untrusted
    {
        return Ok(Written { kept: new.len(), ..Written::default() });
    }
    connection
        .prepare_cached(
            "INSERT INTO kb_documents (namespace, path, title, hash, read_at, is_untrusted) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (namespace, path) DO UPDATE SET title = excluded.title, hash = excluded.hash,
                 read_at = excluded.read_at, is_untrusted = excluded.is_untrusted",
        )?
        .execute(params![namespace, path, title, hash, millis(now), is_untrusted])?;
    let id = match known {
        Some((id, ..)) => id,
        None => connection.last_insert_rowid(),
    };
    let mut old = passages(connection, id)?;
    let mut written = Written::default();
    for (ordinal, passage) in new.iter().enumerate() {
        let same = old.iter().position(|(_, title, body)| *title == passage.title && *body == passage.text);
        let item = if let Some(same) = same {
            written.kept += 1;
            old.remove(same).0
        } else {
            written.added += 1;
            let row = NewItem { namespace, title: &passage.title, body: &passage.text };
            let item = items::insert(connection, &row, now)?;
            name(connection, item, namespace, path, passage)?;
            item
        };
        connection
            .prepare_cached(
                "UPDATE kb_items SET document = ?2, ordinal = ?3, anchor = ?4, first_line = ?5, last_line = ?6 WHERE id = ?1",
            )?
            .execute(params![item, id, ordinal, passage.anchor, passage.lines.start(), passage.lines.end()])?;
    }
    written.ended = old.len();
    for (item, _, _) in old {
        end(connection, item, now)?;
    }
    Ok(written)
}

/// Adds to the graph what a passage names, and joins its document to those that it links to.
fn name(
    connection: &Connection,
    item: ItemId,
    namespace: &str,
    path: &str,
    passage: &NewPassage,
) -> Result<(), KnowledgeError> {
    let own = graph::mention(connection, item, namespace, path, EntityKind::Document, Relation::PartOf)?;
    for Named { name, kind, relation } in &passage.named {
        let named = graph::mention(connection, item, namespace, name, *kind, *relation)?;
        if let (Relation::Defines, Some(own), Some(named)) = (relation, own, named) {
            graph::join(connection, item, named, own, Relation::PartOf)?;
        }
    }
    link(connection, item, namespace, path, &passage.links)
}

/// Joins the document of a passage to those that the passage refers to.
fn link(
    connection: &Connection,
    item: ItemId,
    namespace: &str,
    path: &str,
    links: &[String],
) -> Result<(), KnowledgeError> {
    let document = |path, relation| graph::mention(connection, item, namespace, path, EntityKind::Document, relation);
    for link in links {
        let (own, target) = (document(path, Relation::PartOf)?, document(link, Relation::Links)?);
        if let (Some(own), Some(target)) = (own, target) {
            graph::join(connection, item, own, target, Relation::Links)?;
        }
    }
    Ok(())
}

fn end(connection: &Connection, item: ItemId, now: Timestamp) -> Result<(), KnowledgeError> {
    items::end(connection, item, now)?;
    graph::end_item(connection, item, now)
}

/// Ends all passages of a document. Returns how many there were.
fn end_all(connection: &Connection, document: i64, now: Timestamp) -> Result<usize, KnowledgeError> {
    let passages = passages(connection, document)?;
    for (item, _, _) in &passages {
        end(connection, *item, now)?;
    }
    connection.prepare_cached("UPDATE kb_documents SET hash = x'' WHERE id = ?1")?.execute([document])?;
    Ok(passages.len())
}

/// The row of a document, its hash, and whether it is untrusted.
fn find(connection: &Connection, namespace: &str, path: &str) -> Result<Option<(i64, Vec<u8>, bool)>, KnowledgeError> {
    let mut find = connection
        .prepare_cached("SELECT id, hash, is_untrusted FROM kb_documents WHERE namespace = ?1 AND path = ?2")?;
    Ok(find.query_row([namespace, path], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?)
}

/// The passages that a document has now, with titles and texts.
fn passages(connection: &Connection, document: i64) -> Result<Vec<(ItemId, String, String)>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT id, title, body FROM kb_items WHERE document = ?1 AND ended_at IS NULL ORDER BY ordinal",
    )?;
    let rows = find.query_map([document], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
