//! Facts of a base: how they are read, and how a statement becomes one.

use callboard::messages::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KnowledgeBase;
use super::error::KnowledgeError;
use super::graph;
use super::history::{self, Entry};
use super::items::{self, ItemId, NewItem, millis, timestamp};
use crate::entities::Named;
use crate::facts::{
    Contradiction, Fact, FactId, FactState, OnContradiction, Placement, Source, Statement, Stored, Triple, place,
};

/// The most sources of a fact that are kept; more are counted.
const MAX_SOURCES: i64 = 100;

/// A statement that is submitted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Where it holds.
    pub namespace: String,
    /// What is known.
    pub statement: Statement,
    /// Where it comes from; the time is that of the change.
    pub source: Source,
    /// Declares that its predicate has one value at a time, if nothing is declared of the predicate so far.
    pub is_single: bool,
    /// What happens if it contradicts current facts.
    pub on_contradiction: OnContradiction,
    /// Contradictions that a model found.
    pub judged: Vec<Contradiction>,
    /// The facts that were read for that, with their revisions: if one has changed, the submission is refused.
    pub read: Vec<(FactId, u64)>,
    /// Entities and relations beside those that the statement itself has.
    pub named: Vec<Named>,
    /// A submission with a key that was made before is answered as then.
    pub key: Option<String>,
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submitted {
    /// The fact, as it is now.
    pub fact: Fact,
    /// Whether there was no such fact before.
    pub is_new: bool,
    /// What it contradicts.
    pub contradictions: Vec<Contradiction>,
    /// Facts that have become invalid by it.
    pub superseded: Vec<FactId>,
}

impl KnowledgeBase {
    /// Submits a statement: a new fact, or another source of the same one. Everything that follows from it is changed with it.
    ///
    /// # Errors
    /// It was to be refused if it contradicts current facts; a fact that was read for it has changed; its predicate is declared otherwise;
    /// the base cannot be changed.
    pub async fn submit(&self, submission: Submission) -> Result<Submitted, KnowledgeError> {
        self.write(move |connection, now| {
            once(connection, submission.key.as_deref(), now, || submit(connection, &submission, now))
        })
        .await
    }

    /// Reads a fact.
    ///
    /// # Errors
    /// There is none of this id, or the base cannot be read.
    pub async fn fact(&self, id: FactId) -> Result<Fact, KnowledgeError> {
        self.read(move |connection| fact_of(connection, item_of(connection, id)?)).await
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

    /// Declares whether a predicate has one value at a time. Facts that contradict each other by it stay as they are.
    ///
    /// # Errors
    /// The base cannot be changed.
    pub async fn declare_predicate(
        &self,
        namespace: &str,
        predicate: &str,
        is_single: bool,
    ) -> Result<(), KnowledgeError> {
        let (namespace, form) = (namespace.to_owned(), crate::words::normalised(predicate));
        self.write(move |connection, _| declare(connection, &namespace, &form, is_single)).await
    }
}

/// Makes a change, unless one with this key was made: then returns its result.
pub(super) fn once<T: Serialize + for<'de> Deserialize<'de>>(
    connection: &Connection,
    key: Option<&str>,
    now: Timestamp,
    change: impl FnOnce() -> Result<T, KnowledgeError>,
) -> Result<T, KnowledgeError> {
    let Some(key) = key else { return change() };
    let unreadable = |error: serde_json::Error| KnowledgeError::Unreadable(format!("the result of {key}: {error}"));
    let mut find = connection.prepare_cached("SELECT result FROM kb_done WHERE key = ?1")?;
    if let Some(result) = find.query_row([key], |row| row.get::<_, String>(0)).optional()? {
        return serde_json::from_str(&result).map_err(unreadable);
    }
    let made = change()?;
    let result = serde_json::to_string(&made).map_err(unreadable)?;
    connection.prepare_cached("INSERT INTO kb_done (key, at, result) VALUES (?1, ?2, ?3)")?.execute(params![
        key,
        millis(now),
        result
    ])?;
    Ok(made)
}

fn submit(connection: &Connection, submission: &Submission, now: Timestamp) -> Result<Submitted, KnowledgeError> {
    let Submission { namespace, statement, source, on_contradiction, judged, .. } = submission;
    for &(id, read) in &submission.read {
        let has = revision(connection, item_of(connection, id)?)?;
        if has != read {
            return Err(KnowledgeError::Changed { id, has, read });
        }
    }
    let is_single = match (declared(connection, namespace, statement)?, statement.triple_form()) {
        (Some(false), Some(triple)) if submission.is_single => {
            return Err(KnowledgeError::Predicate { predicate: triple.predicate.clone(), is_single: false });
        }
        (Some(is_single), _) => is_single,
        (None, Some(triple)) if submission.is_single => {
            declare(connection, namespace, &triple.predicate, true)?;
            true
        }
        (None, _) => false,
    };
    let mut stored = compared(connection, namespace, statement)?;
    for judged in judged {
        stored.extend(
            named(connection, namespace, judged.fact)?.filter(|fact| stored.iter().all(|known| known.id != fact.id)),
        );
    }
    let source = Source { at: now, ..source.clone() };
    let placed = place(statement, &stored, is_single, judged, source.is_untrusted, *on_contradiction);
    let (item, state, is_new, contradictions, supersedes) = match placed {
        Placement::Refused(contradictions) => return Err(KnowledgeError::Contradicts(contradictions)),
        Placement::New { state, contradictions, supersedes } => {
            (insert(connection, namespace, statement, state, now)?, Some(state), true, contradictions, supersedes)
        }
        Placement::Same { fact, becomes, contradictions, supersedes } => {
            let item = item_of(connection, fact)?;
            if let Some(state) = becomes {
                set_state(connection, item, state, now)?;
            }
            (item, becomes, false, contradictions, supersedes)
        }
    };
    if state.is_some() {
        graph::add_fact(connection, item, namespace, statement, &submission.named)?;
    }
    let is_kept = add_source(connection, item, &source)?;
    remember_form(connection, item, statement.id(namespace))?;
    let why = contradictions.iter().map(|contradiction| &*contradiction.reason).collect::<Vec<_>>().join("; ");
    if is_new || state.is_some() || is_kept {
        let change = match (is_new, state) {
            (true, _) => "submitted",
            (false, Some(_)) => "submitted again",
            (false, None) => "another source",
        };
        history::add(
            connection,
            item,
            &Entry { change, by: &source.by, run: source.run.as_deref(), reason: &why },
            now,
        )?;
    }
    for contradiction in &contradictions {
        let other = item_of(connection, contradiction.fact)?;
        connection
            .prepare_cached(
                "INSERT INTO kb_contradictions (item, other, reason, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            )?
            .execute(params![item, other, contradiction.reason, millis(now)])?;
    }
    let id = id_of(connection, item)?;
    for &superseded in &supersedes {
        let reason = format!("superseded by {id}");
        let entry = Entry { change: "superseded", by: &source.by, run: source.run.as_deref(), reason: &reason };
        invalidate(connection, superseded, &entry, now)?;
        graph::add_supersession(connection, item, namespace, id, superseded)?;
    }
    Ok(Submitted { fact: fact_of(connection, item)?, is_new, contradictions, superseded: supersedes })
}

/// The facts that state the same, and those about the same property of the same thing.
fn compared(connection: &Connection, namespace: &str, statement: &Statement) -> Result<Vec<Stored>, KnowledgeError> {
    let form = statement.id(namespace);
    let mut stored = Vec::new();
    let mut find = connection.prepare_cached(
        "SELECT f.item, f.fact, f.revision, f.state, f.subject_form, f.predicate_form, f.value_form
         FROM kb_forms o JOIN kb_facts f ON f.item = o.item WHERE o.form = ?1",
    )?;
    if let Some((_, fact)) = find.query_row([form.0.as_bytes()], |row| stored_of(row, true)).optional()? {
        stored.push(fact);
    }
    if let Some(triple) = statement.triple_form() {
        let mut find = connection.prepare_cached(
            "SELECT item, fact, revision, state, subject_form, predicate_form, value_form FROM kb_facts
             WHERE namespace = ?1 AND subject_form = ?2 AND predicate_form = ?3 ORDER BY item",
        )?;
        let rows = find.query_map(params![namespace, triple.subject, triple.predicate], |row| stored_of(row, false))?;
        for row in rows {
            let (_, fact) = row?;
            if stored.iter().all(|known| known.id != fact.id) {
                stored.push(fact);
            }
        }
    }
    Ok(stored)
}

/// A fact of this namespace, to be compared with a statement.
fn named(connection: &Connection, namespace: &str, id: FactId) -> Result<Option<Stored>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT item, fact, revision, state, subject_form, predicate_form, value_form FROM kb_facts
         WHERE fact = ?1 AND namespace = ?2",
    )?;
    let found = find.query_row(params![id.0.as_bytes(), namespace], |row| stored_of(row, false)).optional()?;
    Ok(found.map(|(_, fact)| fact))
}

fn stored_of(row: &Row<'_>, has_form: bool) -> rusqlite::Result<(ItemId, Stored)> {
    let parts: (Option<String>, Option<String>, Option<String>) = (row.get(4)?, row.get(5)?, row.get(6)?);
    let triple_form = match parts {
        (Some(subject), Some(predicate), Some(value)) => Some(Triple { subject, predicate, value }),
        _ => None,
    };
    let stored = Stored { id: fact_id(row, 1)?, revision: row.get(2)?, state: state(row, 3)?, has_form, triple_form };
    Ok((row.get(0)?, stored))
}

/// Whether the predicate of a statement has one value at a time, if anything is declared of it.
fn declared(connection: &Connection, namespace: &str, statement: &Statement) -> Result<Option<bool>, KnowledgeError> {
    let Some(triple) = statement.triple_form() else { return Ok(None) };
    let mut find =
        connection.prepare_cached("SELECT is_single FROM kb_predicates WHERE namespace = ?1 AND form = ?2")?;
    Ok(find.query_row([namespace, &triple.predicate], |row| row.get(0)).optional()?)
}

fn declare(connection: &Connection, namespace: &str, form: &str, is_single: bool) -> Result<(), KnowledgeError> {
    connection
        .prepare_cached(
            "INSERT INTO kb_predicates (namespace, form, is_single) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET is_single = excluded.is_single",
        )?
        .execute(params![namespace, form, is_single])?;
    Ok(())
}

fn insert(
    connection: &Connection,
    namespace: &str,
    statement: &Statement,
    state: FactState,
    now: Timestamp,
) -> Result<ItemId, KnowledgeError> {
    let title = statement.triple().map_or("", |triple| &triple.subject);
    let item = items::insert(connection, &NewItem { namespace, title, body: statement.text() }, now)?;
    let (written, forms) = (statement.triple(), statement.triple_form());
    connection
        .prepare_cached(
            "INSERT INTO kb_facts (item, fact, namespace, subject, predicate, value, subject_form, predicate_form,
                 value_form, state, valid_from, revision, source_count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 0, 0)",
        )?
        .execute(params![
            item,
            statement.id(namespace).0.as_bytes(),
            namespace,
            written.map(|triple| &triple.subject),
            written.map(|triple| &triple.predicate),
            written.map(|triple| &triple.value),
            forms.map(|triple| &triple.subject),
            forms.map(|triple| &triple.predicate),
            forms.map(|triple| &triple.value),
            state.name(),
            millis(now),
        ])?;
    Ok(item)
}

/// Adds a source; returns whether it is kept, or only counted.
fn add_source(connection: &Connection, item: ItemId, source: &Source) -> Result<bool, KnowledgeError> {
    let mut count = connection
        .prepare_cached("UPDATE kb_facts SET source_count = source_count + 1 WHERE item = ?1 RETURNING source_count")?;
    let count: i64 = count.query_row([item], |row| row.get(0))?;
    if count > MAX_SOURCES {
        return Ok(false);
    }
    let Source { by, place, run, turn, at, is_untrusted } = source;
    connection
        .prepare_cached(
            "INSERT INTO kb_sources (item, ordinal, submitter, place, run, turn, at, is_untrusted)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![item, count, by, place, run, turn, millis(*at), is_untrusted])?;
    Ok(true)
}

fn remember_form(connection: &Connection, item: ItemId, form: FactId) -> Result<(), KnowledgeError> {
    connection
        .prepare_cached("INSERT INTO kb_forms (form, item) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![form.0.as_bytes(), item])?;
    Ok(())
}

/// Changes a fact's state, with the index that finds it.
pub(super) fn set_state(
    connection: &Connection,
    item: ItemId,
    state: FactState,
    now: Timestamp,
) -> Result<(), KnowledgeError> {
    let mut before = connection.prepare_cached("SELECT state FROM kb_facts WHERE item = ?1")?;
    let was = before.query_row([item], |row| self::state(row, 0))?;
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
pub(super) fn item_of(connection: &Connection, id: FactId) -> Result<ItemId, KnowledgeError> {
    let mut find = connection.prepare_cached("SELECT item FROM kb_facts WHERE fact = ?1")?;
    find.query_row([id.0.as_bytes()], |row| row.get(0)).optional()?.ok_or(KnowledgeError::NoSuchFact { id })
}

fn id_of(connection: &Connection, item: ItemId) -> Result<FactId, KnowledgeError> {
    let mut find = connection.prepare_cached("SELECT fact FROM kb_facts WHERE item = ?1")?;
    Ok(find.query_row([item], |row| fact_id(row, 0))?)
}

fn revision(connection: &Connection, item: ItemId) -> Result<u64, KnowledgeError> {
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
        let parts: (Option<String>, Option<String>, Option<String>) = (row.get(3)?, row.get(4)?, row.get(5)?);
        let triple = match parts {
            (Some(subject), Some(predicate), Some(value)) => Some(Triple { subject, predicate, value }),
            _ => None,
        };
        Ok(Fact {
            id: fact_id(row, 0)?,
            namespace: row.get(1)?,
            statement: row.get(2)?,
            triple,
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
