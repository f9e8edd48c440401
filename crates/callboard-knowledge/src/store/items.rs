//! Rows that are searched, in step with the full-text index.

use callboard::messages::Timestamp;
use rusqlite::{Connection, params};

use super::error::KnowledgeError;
use crate::words::{is_identifier, parts, words};

/// The id of a row.
pub(crate) type ItemId = i64;

/// A row that is to be searched.
pub(super) struct NewItem<'a> {
    pub(super) namespace: &'a str,
    pub(super) title: &'a str,
    pub(super) body: &'a str,
}

/// Adds a row and indexes it.
pub(super) fn insert(connection: &Connection, item: &NewItem<'_>, now: Timestamp) -> Result<ItemId, KnowledgeError> {
    let NewItem { namespace, title, body } = *item;
    let names = names(title, body);
    connection
        .prepare_cached("INSERT INTO kb_items (namespace, title, names, body, since) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![namespace, title, names, body, millis(now)])?;
    let id = connection.last_insert_rowid();
    connection
        .prepare_cached("INSERT INTO kb_text (rowid, title, names, body) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![id, title, names, body])?;
    Ok(id)
}

/// Adds a row of an export under the id that it had, and indexes it with what holds or with what held.
pub(super) fn restore(
    connection: &Connection,
    id: ItemId,
    item: &NewItem<'_>,
    since: Timestamp,
    ended_at: Option<Timestamp>,
) -> Result<(), KnowledgeError> {
    let NewItem { namespace, title, body } = *item;
    let names = names(title, body);
    connection
        .prepare_cached(
            "INSERT INTO kb_items (id, namespace, title, names, body, since, ended_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![id, namespace, title, names, body, millis(since), ended_at.map(millis)])?;
    let index = if ended_at.is_none() { "kb_text" } else { "kb_text_past" };
    connection
        .prepare_cached(&format!("INSERT INTO {index} (rowid, title, names, body) VALUES (?1, ?2, ?3, ?4)"))?
        .execute(params![id, title, names, body])?;
    Ok(())
}

/// Ends a row: it is found in the past alone.
pub(super) fn end(connection: &Connection, item: ItemId, now: Timestamp) -> Result<(), KnowledgeError> {
    move_between(connection, item, "kb_text", "kb_text_past", Some(now))
}

/// Has a row that had ended hold again.
pub(super) fn revive(connection: &Connection, item: ItemId) -> Result<(), KnowledgeError> {
    move_between(connection, item, "kb_text_past", "kb_text", None)
}

fn move_between(
    connection: &Connection,
    item: ItemId,
    from: &str,
    to: &str,
    ended_at: Option<Timestamp>,
) -> Result<(), KnowledgeError> {
    let columns = "SELECT id, title, names, body FROM kb_items WHERE id = ?1";
    // An index of this kind finds what it deletes by the texts that were indexed.
    let delete = format!("INSERT INTO {from} ({from}, rowid, title, names, body) SELECT 'delete', * FROM ({columns})");
    connection.prepare_cached(&delete)?.execute([item])?;
    connection
        // The clock may have been set back since the row began.
        .prepare_cached("UPDATE kb_items SET ended_at = max(?2, since) WHERE id = ?1")?
        .execute(params![item, ended_at.map(millis)])?;
    connection.prepare_cached(&format!("INSERT INTO {to} (rowid, title, names, body) {columns}"))?.execute([item])?;
    Ok(())
}

/// Gives a row that has not ended other texts.
pub(super) fn rewrite(connection: &Connection, id: ItemId, title: &str, body: &str) -> Result<(), KnowledgeError> {
    // An index of this kind finds what it deletes by the texts that were indexed.
    connection
        .prepare_cached(
            "INSERT INTO kb_text (kb_text, rowid, title, names, body)
             SELECT 'delete', id, title, names, body FROM kb_items WHERE id = ?1",
        )?
        .execute([id])?;
    let names = names(title, body);
    connection
        .prepare_cached("UPDATE kb_items SET title = ?2, names = ?3, body = ?4 WHERE id = ?1")?
        .execute(params![id, title, names, body])?;
    connection
        .prepare_cached("INSERT INTO kb_text (rowid, title, names, body) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![id, title, names, body])?;
    Ok(())
}

/// The parts of the identifiers of a row, each once, so that `readFacts` is found by "read" and by "facts".
fn names(title: &str, body: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    for part in words(title).chain(words(body)).filter(|word| is_identifier(word)).flat_map(parts) {
        if !names.contains(&part) {
            names.push(part);
        }
        if names.len() == MAX_NAMES {
            break;
        }
    }
    names.join(" ")
}

/// The most parts of identifiers of a row.
const MAX_NAMES: usize = 200;

/// As it is stored.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// As it was stored.
pub(crate) fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}
