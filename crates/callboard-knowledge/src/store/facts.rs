//! Facts of a base: how they are found and read, and how their states change.

use callboard::messages::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::KnowledgeBase;
use super::error::KnowledgeError;
use super::graph;
use super::history::{self, Entry};
use super::items::{self, ItemId, millis, timestamp};
use crate::facts::{Fact, FactId, FactState, Source, Statement, Stored, Triple};

impl KnowledgeBase {
    /// Reads a fact.
    ///
    /// # Errors
    /// There is none of this id, or the base cannot be read.
    pub async fn fact(&self, id: FactId) -> Result<Fact, KnowledgeError> {
        self.read(move |connection| fact_of(connection, item_of(connection, id)?)).await
    }

    /// The facts that a text names: by its statement, by an id, or by the beginning of one (`fact-` and some digits). Ten at most.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn facts_named(&self, namespace: &str, text: &str) -> Result<Vec<Fact>, KnowledgeError> {
        let (namespace, text) = (namespace.to_owned(), text.trim().to_owned());
        self.read(move |connection| {
            let mut items: Vec<ItemId> = Vec::new();
            if let Ok(statement) = Statement::new(&text, None) {
                let mut find = connection.prepare_cached("SELECT item FROM kb_forms WHERE form = ?1")?;
                let found = find.query_row([statement.id(&namespace).0.as_bytes()], |row| row.get(0));
                items.extend::<Option<ItemId>>(found.optional()?);
            }
            if let (true, Some([first, last])) = (items.is_empty(), text.strip_prefix("fact-").and_then(range)) {
                let mut find = connection.prepare_cached(
                    "SELECT item FROM kb_facts WHERE fact BETWEEN ?1 AND ?2 AND namespace = ?3 ORDER BY fact LIMIT 10",
                )?;
                let found = find.query_map(params![first.as_bytes(), last.as_bytes(), namespace], |row| row.get(0))?;
                items = found.collect::<Result<_, _>>()?;
            }
            items.into_iter().map(|item| fact_of(connection, item)).collect()
        })
        .await
    }

    /// The facts that are compared with a statement, and whether its predicate has one value at a time.
    ///
    /// # Errors
    /// The base cannot be read.
    pub async fn compared(
        &self,
        namespace: &str,
        statement: &Statement,
    ) -> Result<(Vec<Stored>, bool), KnowledgeError> {
        let (namespace, statement) = (namespace.to_owned(), statement.clone());
        self.read(move |connection| {
            let compared = compared(connection, &namespace, &statement)?;
            Ok((compared, declared(connection, &namespace, &statement)?.unwrap_or(false)))
        })
        .await
    }
}

/// The first and the last id that begins with these digits.
fn range(digits: &str) -> Option<[uuid::Uuid; 2]> {
    let is_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let [first, last] = [format!("{digits:0<32}"), format!("{digits:f<32}")];
    if is_digits { Some([uuid::Uuid::parse_str(&first).ok()?, uuid::Uuid::parse_str(&last).ok()?]) } else { None }
}

/// The columns of a fact that is compared: the last ones are whether it is vouched for, and whether it is disputed and lacks trust.
const STORED: &str = "f.fact, f.revision, f.state, f.subject_form, f.predicate_form, f.value_form,
    f.state = 'current' OR EXISTS (SELECT 1 FROM kb_sources s WHERE s.item = f.item AND NOT s.is_untrusted),
    f.state = 'disputed' AND NOT EXISTS (
        SELECT 1 FROM kb_sources s WHERE s.item = f.item AND NOT s.is_untrusted AND s.at >= f.valid_from)";

/// The facts that state the same, and those about the same property of the same thing.
pub(super) fn compared(
    connection: &Connection,
    namespace: &str,
    statement: &Statement,
) -> Result<Vec<Stored>, KnowledgeError> {
    let form = statement.id(namespace);
    let mut stored = Vec::new();
    let sql = format!("SELECT {STORED} FROM kb_forms o JOIN kb_facts f ON f.item = o.item WHERE o.form = ?1");
    let mut find = connection.prepare_cached(&sql)?;
    if let Some(fact) = find.query_row([form.0.as_bytes()], |row| stored_of(row, true)).optional()? {
        // Untrusted sources alone give a fact no other words than its own.
        stored.extend(Some(fact).filter(|fact| fact.is_vouched || fact.id == form));
    }
    if let Some(triple) = statement.triple_form() {
        let sql = format!(
            "SELECT {STORED} FROM kb_facts f
             WHERE f.namespace = ?1 AND f.subject_form = ?2 AND f.predicate_form = ?3 ORDER BY f.item"
        );
        let mut find = connection.prepare_cached(&sql)?;
        let rows = find.query_map(params![namespace, triple.subject, triple.predicate], |row| stored_of(row, false))?;
        for row in rows {
            let fact = row?;
            if stored.iter().all(|known| known.id != fact.id) {
                stored.push(fact);
            }
        }
    }
    Ok(stored)
}

/// A fact of this namespace, to be compared with a statement.
pub(super) fn named(connection: &Connection, namespace: &str, id: FactId) -> Result<Option<Stored>, KnowledgeError> {
    let sql = format!("SELECT {STORED} FROM kb_facts f WHERE f.fact = ?1 AND f.namespace = ?2");
    let mut find = connection.prepare_cached(&sql)?;
    Ok(find.query_row(params![id.0.as_bytes(), namespace], |row| stored_of(row, false)).optional()?)
}

fn stored_of(row: &Row<'_>, has_form: bool) -> rusqlite::Result<Stored> {
    let (id, revision, state) = (fact_id(row, 0)?, row.get(1)?, state(row, 2)?);
    let (is_vouched, lacks_trust) = (row.get(6)?, row.get(7)?);
    Ok(Stored { id, revision, state, has_form, is_vouched, lacks_trust, triple_form: triple(row, 3)? })
}

/// The three parts in a column and those after it.
pub(super) fn triple(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Triple>> {
    Ok(match (row.get(first)?, row.get(first + 1)?, row.get(first + 2)?) {
        (Some(subject), Some(predicate), Some(value)) => Some(Triple { subject, predicate, value }),
        _ => None,
    })
}

/// Whether the predicate of a statement has one value at a time, if anything is declared of it.
pub(super) fn declared(
    connection: &Connection,
    namespace: &str,
    statement: &Statement,
) -> Result<Option<bool>, KnowledgeError> {
    let Some(triple) = statement.triple_form() else { return Ok(None) };
    let mut find =
        connection.prepare_cached("SELECT is_single FROM kb_predicates WHERE namespace = ?1 AND form = ?2")?;
    Ok(find.query_row([namespace, &triple.predicate], |row| row.get(0)).optional()?)
}

/// Changes a fact's state, with the index that finds it.
pub(super) fn set_state(
    connection: &Connection,
    item: ItemId,
    state: FactState,
    now: Timestamp,
) -> Result<(), KnowledgeError> {
    let now = history::time_of_change(connection, item, now)?;
    let mut before = connection.prepare_cached("SELECT state FROM kb_facts WHERE item = ?1")?;
    let was = before.query_row([item], |row| self::state(row, 0))?;
    if was == state {
        return Ok(());
    }
    match (was, state) {
        (FactState::Invalid, FactState::Current | FactState::Disputed) => items::revive(connection, item)?,
        (FactState::Current | FactState::Disputed, FactState::Invalid) => items::end(connection, item, now)?,
        (FactState::Invalid, FactState::Invalid)
        | (FactState::Current | FactState::Disputed, FactState::Current | FactState::Disputed) => {}
    }
    connection.prepare_cached("UPDATE kb_facts SET state = ?2, valid_from = ?3 WHERE item = ?1")?.execute(params![
        item,
        state.name(),
        millis(now)
    ])?;
    Ok(())
}

/// Has a fact no longer hold, with what only it supports in the graph.
pub(super) fn invalidate(
    connection: &Connection,
    fact: FactId,
    entry: &Entry<'_>,
    now: Timestamp,
) -> Result<(), KnowledgeError> {
    let item = item_of(connection, fact)?;
    set_state(connection, item, FactState::Invalid, now)?;
    graph::end_item(connection, item, now)?;
    history::add(connection, item, entry, now)
}

/// The row of a fact.
pub(crate) fn item_of(connection: &Connection, id: FactId) -> Result<ItemId, KnowledgeError> {
    let mut find = connection.prepare_cached("SELECT item FROM kb_facts WHERE fact = ?1")?;
    find.query_row([id.0.as_bytes()], |row| row.get(0)).optional()?.ok_or(KnowledgeError::NoSuchFact { id })
}

pub(super) fn id_of(connection: &Connection, item: ItemId) -> Result<FactId, KnowledgeError> {
    let mut find = connection.prepare_cached("SELECT fact FROM kb_facts WHERE item = ?1")?;
    Ok(find.query_row([item], |row| fact_id(row, 0))?)
}

pub(super) fn revision(connection: &Connection, item: ItemId) -> Result<u64, KnowledgeError> {
    let mut find = connection.prepare_cached("SELECT revision FROM kb_facts WHERE item = ?1")?;
    Ok(find.query_row([item], |row| row.get(0))?)
}

/// The fact of a row, with its sources.
pub(crate) fn fact_of(connection: &Connection, item: ItemId) -> Result<Fact, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT f.fact, f.namespace, i.body, f.subject, f.predicate, f.value, f.state, f.valid_from, f.revision
         FROM kb_facts f JOIN kb_items i ON i.id = f.item WHERE f.item = ?1",
    )?;
    let fact = find.query_row([item], |row| {
        Ok(Fact {
            id: fact_id(row, 0)?,
            namespace: row.get(1)?,
            statement: row.get(2)?,
            triple: triple(row, 3)?,
            sources: Vec::new(),
            state: state(row, 6)?,
            valid_from: timestamp(row.get(7)?),
            revision: row.get(8)?,
        })
    })?;
    let mut find = connection.prepare_cached(
        "SELECT submitter, place, run, turn, at, is_untrusted FROM kb_sources WHERE item = ?1 ORDER BY ordinal",
    )?;
    let sources = find.query_map([item], |row| {
        Ok(Source {
            by: row.get(0)?,
            place: row.get(1)?,
            run: row.get(2)?,
            turn: row.get(3)?,
            at: timestamp(row.get(4)?),
            is_untrusted: row.get(5)?,
        })
    })?;
    Ok(Fact { sources: sources.collect::<Result<_, _>>()?, ..fact })
}

/// The id of a fact in a column.
pub(crate) fn fact_id(row: &Row<'_>, column: usize) -> rusqlite::Result<FactId> {
    row.get::<_, [u8; 16]>(column).map(|bytes| FactId(uuid::Uuid::from_bytes(bytes)))
}

/// The state of a fact in a column.
pub(crate) fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<FactState> {
    let name: String = row.get(column)?;
    FactState::of(&name).ok_or_else(|| {
        let why = format!("the state {name:?} is unknown");
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, why.into())
    })
}
