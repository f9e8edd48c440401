//! Changes that are made once, however often they are asked for.

use callboard::messages::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::error::KnowledgeError;
use super::items::millis;

/// How many results are kept. A change whose result has been forgotten is harmless when it is asked for again: a turn that has submitted a
/// statement is its source already, and a fact that was changed no longer has the preview whose hash is named.
const KEPT: i64 = 100_000;

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
    let newest = connection.last_insert_rowid();
    connection.prepare_cached("DELETE FROM kb_done WHERE number <= ?1")?.execute([newest - KEPT])?;
    Ok(made)
}
