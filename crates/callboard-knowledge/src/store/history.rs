//! The history of facts: one entry for each revision.

use callboard::messages::Timestamp;
use rusqlite::{Connection, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KnowledgeBase;
use super::error::KnowledgeError;
use super::facts::{item_of, state};
use super::items::{ItemId, millis, timestamp};
use crate::facts::{FactId, FactState};

/// A change of a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Revision {
    /// Which; the first is 1.
    pub revision: u64,
    /// When.
    #[serde(with = "crate::times")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// What was done.
    pub change: String,
    /// The state after it.
    pub state: FactState,
    /// Who did it.
    pub by: String,
    /// The run in which it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Why.
    pub reason: String,
}

/// A change of a fact that is to be remembered.
pub(super) struct Entry<'a> {
    pub(super) change: &'a str,
    pub(super) by: &'a str,
    pub(super) run: Option<&'a str>,
    pub(super) reason: &'a str,
}

/// Gives a fact its next revision.
pub(super) fn add(
    connection: &Connection,
    item: ItemId,
    entry: &Entry<'_>,
    now: Timestamp,
) -> Result<(), KnowledgeError> {
    let Entry { change, by, run, reason } = *entry;
    connection.prepare_cached("UPDATE kb_facts SET revision = revision + 1 WHERE item = ?1")?.execute([item])?;
    connection
        .prepare_cached(
            "INSERT INTO kb_history (item, revision, at, change, state, changer, run, reason)
             SELECT item, revision, ?2, ?3, state, ?4, ?5, ?6 FROM kb_facts WHERE item = ?1",
        )?
        .execute(params![item, millis(now), change, by, run, reason])?;
    Ok(())
}

impl KnowledgeBase {
    /// The changes of a fact, oldest first.
    ///
    /// # Errors
    /// There is no fact of this id, or the base cannot be read.
    pub async fn log(&self, fact: FactId) -> Result<Vec<Revision>, KnowledgeError> {
        self.read(move |connection| of_item(connection, item_of(connection, fact)?)).await
    }
}

/// The changes of the fact of a row, oldest first.
pub(super) fn of_item(connection: &Connection, item: ItemId) -> Result<Vec<Revision>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT revision, at, change, state, changer, run, reason FROM kb_history WHERE item = ?1 ORDER BY revision",
    )?;
    let rows = find.query_map([item], |row| {
        Ok(Revision {
            revision: row.get(0)?,
            at: timestamp(row.get(1)?),
            change: row.get(2)?,
            state: state(row, 3)?,
            by: row.get(4)?,
            run: row.get(5)?,
            reason: row.get(6)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
