//! The history of facts: one entry for each revision.

use callboard::messages::Timestamp;
use rusqlite::{Connection, Row, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KnowledgeBase;
use super::error::KnowledgeError;
use super::facts::{item_of, state};
use super::items::{ItemId, millis, timestamp};
use crate::facts::{FactId, FactState, kept_reason};

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
    pub change: RevisionChange,
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

/// What was done to a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "&'static str", try_from = "String")]
#[schemars(with = "String")]
pub enum RevisionChange {
    /// It was submitted for the first time.
    Submitted,
    /// It was submitted after it had become invalid, or by a trusted source after untrusted ones alone, and was compared anew.
    SubmittedAgain,
    /// It was submitted, and got another source.
    AnotherSource,
    /// A fact took its place.
    Superseded,
    /// It no longer holds.
    Invalidated,
    /// A person has decided that it holds.
    Accepted,
}

impl RevisionChange {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Submitted,
        Self::SubmittedAgain,
        Self::AnotherSource,
        Self::Superseded,
        Self::Invalidated,
        Self::Accepted,
    ];

    /// Its name, as in JSON and in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::SubmittedAgain => "submitted again",
            Self::AnotherSource => "another source",
            Self::Superseded => "superseded",
            Self::Invalidated => "invalidated",
            Self::Accepted => "accepted",
        }
    }
}

impl From<RevisionChange> for &'static str {
    fn from(change: RevisionChange) -> Self {
        change.name()
    }
}

impl TryFrom<String> for RevisionChange {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::ALL.into_iter().find(|change| change.name() == name).ok_or_else(|| {
            let name: String = name.chars().take(40).collect();
            format!("{name:?} is no change of a fact: these are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// A change of a fact that is to be remembered.
pub(super) struct Entry<'a> {
    pub(super) change: RevisionChange,
    pub(super) by: &'a str,
    pub(super) run: Option<&'a str>,
    pub(super) reason: &'a str,
}

/// The time of a change of a fact: now, or that of its last change, if the clock was set back since then. Its history never goes back in time.
pub(super) fn time_of_change(
    connection: &Connection,
    item: ItemId,
    now: Timestamp,
) -> Result<Timestamp, KnowledgeError> {
    let mut find = connection.prepare_cached("SELECT max(at) FROM kb_history WHERE item = ?1")?;
    let last: Option<i64> = find.query_row([item], |row| row.get(0))?;
    Ok(last.map_or(now, |last| now.max(timestamp(last))))
}

/// Gives a fact its next revision.
pub(super) fn add(
    connection: &Connection,
    item: ItemId,
    entry: &Entry<'_>,
    now: Timestamp,
) -> Result<(), KnowledgeError> {
    let Entry { change, by, run, reason } = *entry;
    let at = time_of_change(connection, item, now)?;
    connection.prepare_cached("UPDATE kb_facts SET revision = revision + 1 WHERE item = ?1")?.execute([item])?;
    connection
        .prepare_cached(
            "INSERT INTO kb_history (item, revision, at, change, state, changer, run, reason)
             SELECT item, revision, ?2, ?3, state, ?4, ?5, ?6 FROM kb_facts WHERE item = ?1",
        )?
        .execute(params![item, millis(at), change.name(), by, run, kept_reason(reason)])?;
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
            change: change(row, 2)?,
            state: state(row, 3)?,
            by: row.get(4)?,
            run: row.get(5)?,
            reason: row.get(6)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What was done to a fact, in a column.
fn change(row: &Row<'_>, column: usize) -> rusqlite::Result<RevisionChange> {
    RevisionChange::try_from(row.get::<_, String>(column)?)
        .map_err(|why| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, why.into()))
}
