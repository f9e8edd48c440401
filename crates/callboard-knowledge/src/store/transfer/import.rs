//! Writes the lines of an export into an empty base, in one transaction.

use std::collections::HashMap;
use std::io::BufRead;

use callboard_text::visible;
use rusqlite::{Connection, OptionalExtension, params};

use super::Transferred;
use super::lines::{Contradiction, Document, Entity, Fact, Graph, Line, Passage, Predicate, bytes_of};
use super::whole::WholeExport;
use crate::facts::{FactState, Statement};
use crate::store::KnowledgeBase;
use crate::store::error::{KnowledgeError, reported};
use crate::store::facts::item_of;
use crate::store::graph::join;
use crate::store::items::{self, ItemId, millis};
use crate::store::staging::parent;
use crate::store::submission::{FactRow, MAX_SOURCES, insert_row, insert_source};
use crate::store::upkeep::{self, Broken};
use crate::words::normalised;

/// The most bytes of a namespace.
const MAX_NAMESPACE: usize = 1 << 10;

/// The highest row.
const MAX_ITEM: ItemId = 1 << 53;

impl KnowledgeBase {
    /// Imports an export into this base, which has to be empty, in one transaction: what is wrong with it is an error with the line, and
    /// the base is as it was. It is read to its end first, into a file in the folder of the base. Other changes wait while it is written.
    ///
    /// # Errors
    /// The base is not empty, the export is no sound one, or the base cannot be changed.
    pub async fn import<R: BufRead + Send + 'static>(&self, from: R) -> Result<Transferred, KnowledgeError> {
        self.read(|connection| if is_empty(connection)? { Ok(()) } else { Err(KnowledgeError::NotEmpty) }).await?;
        let folder = parent(self.path()).to_owned();
        let reading = tokio::task::spawn_blocking(move || WholeExport::read(from, &folder));
        let export = reading.await.map_err(|_| KnowledgeError::Closed)??;
        self.import_whole(export).await
    }

    /// As [`KnowledgeBase::import`], of an export that was read.
    ///
    /// # Errors
    /// The base is not empty, the export is no sound one, or the base cannot be changed.
    pub async fn import_whole(&self, export: WholeExport) -> Result<Transferred, KnowledgeError> {
        self.write(move |connection, _| import(connection, export)).await
    }
}

/// Why a line is refused.
enum Wrong {
    Line(String),
    /// The row of a line before it breaks a rule of bases.
    Row(ItemId, String),
    Base(KnowledgeError),
}

impl<E: Into<KnowledgeError>> From<E> for Wrong {
    fn from(error: E) -> Self {
        match error.into() {
            KnowledgeError::Sqlite(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) =>
            {
                Self::Line(format!("it repeats or contradicts a line before it ({})", reported(&error)))
            }
            error @ (KnowledgeError::Fact(_) | KnowledgeError::NoSuchFact { .. }) => {
                Self::Line(visible(&error.to_string()))
            }
            error => Self::Base(error),
        }
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong::Line(why.into()))
}

/// What was read so far.
#[derive(Default)]
struct Importing {
    counts: Transferred,
    /// The row and the namespace of the last document.
    document: Option<(i64, String)>,
}

/// Whether a base has nothing.
pub(in crate::store) fn is_empty(connection: &Connection) -> Result<bool, KnowledgeError> {
    let rows = "SELECT EXISTS (SELECT 1 FROM kb_items) OR EXISTS (SELECT 1 FROM kb_documents)
        OR EXISTS (SELECT 1 FROM kb_predicates) OR EXISTS (SELECT 1 FROM kb_graph_entities) OR EXISTS (SELECT 1 FROM kb_done)";
    Ok(!connection.query_row(rows, [], |row| row.get::<_, bool>(0))?)
}

fn import(connection: &Connection, mut export: WholeExport) -> Result<Transferred, KnowledgeError> {
    if !is_empty(connection)? {
        return Err(KnowledgeError::NotEmpty);
    }
    let (mut importing, mut refused) = (Importing::default(), None);
    export.for_each(|line, number| {
        let added = importing.add(connection, line);
        added.or_else(|wrong| match wrong {
            Wrong::Line(why) => Err(KnowledgeError::Export { line: number, why }),
            Wrong::Row(item, why) => {
                refused = Some((item, why));
                Ok(())
            }
            Wrong::Base(error) => Err(error),
        })
    })?;
    let Some((item, why)) = refused else { return Ok(importing.counts) };
    let mut refused_at = export.lines();
    export.for_each(|line, number| {
        let of_line = match &line {
            Line::Passage(it) => Some(it.item),
            Line::Fact(it) => Some(it.item),
            Line::Version(_) | Line::Entity(_) | Line::Document(_) => None,
            Line::Contradiction(_) | Line::Predicate(_) | Line::End(_) => None,
        };
        if of_line == Some(item) {
            refused_at = number;
        }
        Ok(())
    })?;
    Err(KnowledgeError::Export { line: refused_at, why })
}

impl Importing {
    fn add(&mut self, connection: &Connection, line: Line) -> Result<(), Wrong> {
        let counts = &mut self.counts;
        match line {
            Line::Version(_) => {}
            Line::End(end) if end.counts == *counts => is_sound(connection)?,
            Line::End(_) => return wrong("its counts are not those of the lines before it"),
            Line::Entity(it) => (counts.entities, ()) = (counts.entities + 1, entity(connection, &it)?),
            Line::Document(it) => {
                counts.documents += 1;
                self.document = Some((document(connection, &it)?, it.namespace));
            }
            Line::Passage(it) => {
                counts.passages += 1;
                let Some((document, namespace)) = &self.document else { return wrong("no document is before it") };
                passage(connection, *document, namespace, &it)?;
            }
            Line::Fact(it) => (counts.facts, ()) = (counts.facts + 1, fact(connection, &it)?),
            Line::Contradiction(it) => {
                (counts.contradictions, ()) = (counts.contradictions + 1, contradiction(connection, &it)?);
            }
            Line::Predicate(it) => (counts.predicates, ()) = (counts.predicates + 1, predicate(connection, &it)?),
        }
        Ok(())
    }
}

fn check_namespace(namespace: &str) -> Result<(), Wrong> {
    let bytes = namespace.len();
    if bytes > MAX_NAMESPACE {
        wrong(format!("its namespace has {bytes} bytes; at most {MAX_NAMESPACE} are allowed"))
    } else {
        Ok(())
    }
}

/// Rows get higher ids later, so there have to be some.
fn check_item(item: ItemId) -> Result<(), Wrong> {
    if (1..=MAX_ITEM).contains(&item) {
        Ok(())
    } else {
        wrong(format!("its item {item} is not between 1 and {MAX_ITEM}"))
    }
}

fn entity(connection: &Connection, entity: &Entity) -> Result<(), Wrong> {
    let Entity { namespace, name, kind } = entity;
    check_namespace(namespace)?;
    let form = normalised(name);
    if form.is_empty() {
        return wrong("the name of the entity is empty");
    }
    connection
        .prepare_cached("INSERT INTO kb_graph_entities (namespace, form, name, kind) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![namespace, form, name, kind.name()])?;
    Ok(())
}

fn document(connection: &Connection, document: &Document) -> Result<i64, Wrong> {
    let Document { namespace, path, title, hash, read_at, is_untrusted } = document;
    check_namespace(namespace)?;
    let hash = match hash.as_deref().map(bytes_of) {
        None => Vec::new(),
        Some(Some(hash)) => hash,
        Some(None) => return wrong("the hash of the document is not 64 hexadecimal digits"),
    };
    connection
        .prepare_cached(
            "INSERT INTO kb_documents (namespace, path, title, hash, read_at, is_untrusted) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![namespace, path, title, hash, millis(*read_at), is_untrusted])?;
    Ok(connection.last_insert_rowid())
}

fn passage(connection: &Connection, document: i64, namespace: &str, passage: &Passage) -> Result<(), Wrong> {
    let Passage { item, ordinal, anchor, lines: [first, last], title, text, since, ended_at, graph: named } = passage;
    check_item(*item)?;
    if first > last || *first == 0 {
        return wrong(format!("its lines {first} to {last} are none"));
    }
    let row = items::NewItem { namespace, title, body: text };
    items::restore(connection, *item, &row, *since, *ended_at)?;
    connection
        .prepare_cached(
            "UPDATE kb_items SET document = ?2, ordinal = ?3, anchor = ?4, first_line = ?5, last_line = ?6 WHERE id = ?1",
        )?
        .execute(params![item, document, ordinal, anchor, first, last])?;
    graph(connection, *item, namespace, named, ended_at.is_some())
}

fn fact(connection: &Connection, fact: &Fact) -> Result<(), Wrong> {
    let Fact { item, id, namespace, state, valid_from, since, ended_at, revision, source_count, .. } = fact;
    check_namespace(namespace)?;
    check_item(*item)?;
    let statement = Statement::new(&fact.statement, fact.triple.clone())?;
    if statement.text() != fact.statement || statement.id(namespace) != *id {
        return wrong(format!("{id} is not the id of its statement"));
    }
    if !fact.forms.contains(id) {
        return wrong(format!("the forms of {id} lack its own"));
    }
    let is_ended = match state {
        FactState::Invalid => true,
        FactState::Current | FactState::Disputed => false,
    };
    if is_ended != ended_at.is_some() {
        return wrong(format!("{id} is {state}, and that does not agree with when it ended"));
    }
    let kept = u64::try_from(fact.sources.len()).unwrap_or(u64::MAX);
    if kept == 0 || kept != (*source_count).min(MAX_SOURCES.unsigned_abs()) {
        return wrong(format!("{id} has {kept} sources, and counts {source_count}"));
    }
    let is_numbered = fact.history.iter().map(|entry| entry.revision).eq(1..=*revision);
    if !is_numbered || fact.history.last().is_none_or(|last| last.state != *state) {
        return wrong(format!("the history of {id} does not lead to its revision and state"));
    }
    let title = statement.triple().map_or("", |triple| &triple.subject);
    let row = items::NewItem { namespace, title, body: statement.text() };
    items::restore(connection, *item, &row, *since, *ended_at)?;
    let row =
        FactRow { item: *item, id: *id, namespace, statement: &statement, state: *state, valid_from: *valid_from };
    insert_row(connection, &row, *revision, *source_count)?;
    for form in &fact.forms {
        connection
            .prepare_cached("INSERT INTO kb_forms (form, item) VALUES (?1, ?2)")?
            .execute(params![form.0.as_bytes(), item])?;
    }
    for (source, ordinal) in fact.sources.iter().zip(1_i64..) {
        insert_source(connection, *item, ordinal, source)?;
    }
    for entry in &fact.history {
        connection
            .prepare_cached(
                "INSERT INTO kb_history (item, revision, at, change, state, changer, run, reason)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                item,
                entry.revision,
                millis(entry.at),
                entry.change.name(),
                entry.state.name(),
                entry.by,
                entry.run,
                entry.reason
            ])?;
    }
    graph(connection, *item, namespace, &fact.graph, is_ended)
}

fn graph(connection: &Connection, item: ItemId, namespace: &str, graph: &Graph, is_ended: bool) -> Result<(), Wrong> {
    let Graph { names, edges } = graph;
    if is_ended && !(names.is_empty() && edges.is_empty()) {
        return wrong("what has ended names nothing");
    }
    let entity = |form: &str| -> Result<i64, Wrong> {
        let mut find =
            connection.prepare_cached("SELECT id FROM kb_graph_entities WHERE namespace = ?1 AND form = ?2")?;
        match find.query_row([namespace, form], |row| row.get(0)).optional()? {
            Some(entity) => Ok(entity),
            None => wrong(format!("no line before it has the entity {:?}", form.chars().take(100).collect::<String>())),
        }
    };
    for (form, relation) in names {
        connection
            .prepare_cached("INSERT INTO kb_graph_mentions (entity, item, relation) VALUES (?1, ?2, ?3)")?
            .execute(params![entity(form)?, item, relation.name()])?;
    }
    for (source, relation, target) in edges {
        let (source, target) = (entity(source)?, entity(target)?);
        if source == target {
            return wrong("an edge joins an entity to itself");
        }
        join(connection, item, source, target, *relation)?;
    }
    Ok(())
}

fn contradiction(connection: &Connection, contradiction: &Contradiction) -> Result<(), Wrong> {
    let Contradiction { fact, other, reason, at } = contradiction;
    if fact == other {
        return wrong(format!("{fact} contradicts itself"));
    }
    connection
        .prepare_cached("INSERT INTO kb_contradictions (item, other, reason, at) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![item_of(connection, *fact)?, item_of(connection, *other)?, reason, millis(*at)])?;
    Ok(())
}

fn predicate(connection: &Connection, predicate: &Predicate) -> Result<(), Wrong> {
    let Predicate { namespace, form, is_single } = predicate;
    check_namespace(namespace)?;
    if *form != normalised(form) {
        return wrong("the predicate is not in normal form");
    }
    connection
        .prepare_cached("INSERT INTO kb_predicates (namespace, form, is_single) VALUES (?1, ?2, ?3)")?
        .execute(params![namespace, form, is_single])?;
    Ok(())
}

/// Checks what no line shows alone.
fn is_sound(connection: &Connection) -> Result<(), Wrong> {
    if let Some(Broken { what, item }) = upkeep::broken_rules(connection)?.into_iter().next() {
        let why = format!("{what}; correct it in the base that was exported, and export that again");
        return Err(match item {
            Some(item) => Wrong::Row(item, why),
            None => Wrong::Line(why),
        });
    }
    let mut each = connection.prepare("SELECT source, target FROM kb_graph_edges WHERE relation = 'supersedes'")?;
    let edges: Vec<(i64, i64)> = each.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    if has_cycle(&edges) { wrong("facts of the lines before it supersede each other in a circle") } else { Ok(()) }
}

/// Whether edges lead from a node back to it: what is left once all nodes without an edge to them were removed, again and again.
fn has_cycle(edges: &[(i64, i64)]) -> bool {
    let (mut targets, mut incoming) = (HashMap::<i64, Vec<i64>>::new(), HashMap::<i64, usize>::new());
    for &(source, target) in edges {
        targets.entry(source).or_default().push(target);
        *incoming.entry(target).or_default() += 1;
    }
    let mut free: Vec<i64> = targets.keys().copied().filter(|node| !incoming.contains_key(node)).collect();
    let mut removed = 0;
    while let Some(node) = free.pop() {
        for target in targets.remove(&node).into_iter().flatten() {
            removed += 1;
            if let Some(left) = incoming.get_mut(&target) {
                *left -= 1;
                if *left == 0 {
                    free.push(target);
                }
            }
        }
    }
    removed < edges.len()
}
