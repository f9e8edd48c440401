//! What reads ask and how their answers are read.

use std::time::Duration;

use callboard::messages::Timestamp;
use callboard::storage::{Entry, Key, KeyPrefix, Record, Sequence, SessionId, SessionInfo, StorageError};
use tokio_postgres::Row;

use crate::PostgresConfig;
use crate::operation::from_server;

/// The tables of values and of streams, with their columns of names.
pub(crate) const TABLES: [(&str, &str); 2] = [("entries", "key"), ("streams", "stream")];

/// The statements of one store.
pub(crate) struct Statements {
    pub(crate) read: String,
    pub(crate) streams: String,
    pub(crate) get: String,
    pub(crate) scan: String,
    /// The names in each of [`TABLES`].
    pub(crate) names: [String; 2],
    pub(crate) get_many: String,
    pub(crate) read_many: String,
    pub(crate) begin_session: String,
    pub(crate) renew_session: String,
    pub(crate) session_is_of_timeline: String,
    pub(crate) end_session: String,
    pub(crate) sessions: String,
    pub(crate) forget_session: String,
}

impl Statements {
    pub(crate) fn new(config: &PostgresConfig) -> Self {
        let make = |sql| config.in_schema(sql);
        Self {
            read: make(
                "SELECT sequence, body FROM callboard.journal WHERE stream = $1 AND sequence >= $2 ORDER BY sequence LIMIT $3",
            ),
            streams: make(
                "SELECT stream FROM callboard.streams WHERE stream >= $1 AND ($2::bytea IS NULL OR stream < $2) \
                     AND ($3::bytea IS NULL OR stream > $3) AND last > purged \
                 ORDER BY stream LIMIT $4",
            ),
            get: make(
                "SELECT key, revision, expires, value FROM callboard.entries \
                 WHERE key = $1 AND (expires IS NULL OR expires > callboard.millis($2))",
            ),
            scan: make(
                "SELECT key, revision, expires, value FROM callboard.entries \
                 WHERE key >= $1 AND ($2::bytea IS NULL OR key < $2) AND ($3::bytea IS NULL OR key > $3) \
                     AND (expires IS NULL OR expires > callboard.millis($5)) \
                 ORDER BY key LIMIT $4",
            ),
            names: TABLES.map(|(table, name)| {
                config.in_schema(&format!(
                    "SELECT {name} FROM callboard.{table} WHERE {name} > $1 ORDER BY {name} LIMIT $2"
                ))
            }),
            get_many: make(
                "SELECT key, revision, expires, value FROM callboard.entries \
                 WHERE key = ANY($1) AND (expires IS NULL OR expires > callboard.millis($2))",
            ),
            read_many: make(
                "SELECT found.sequence, found.body, wanted.number \
                 FROM unnest($1::bytea[], $2::bigint[]) WITH ORDINALITY AS wanted (stream, first, number) \
                 CROSS JOIN LATERAL (SELECT sequence, body FROM callboard.journal \
                     WHERE stream = wanted.stream AND sequence >= wanted.first ORDER BY sequence LIMIT $3) AS found \
                 ORDER BY wanted.number, found.sequence",
            ),
            begin_session: make(
                "SELECT session, taken_about, taken_left FROM callboard.begin_session($1, $2, $3, $4, $5)",
            ),
            renew_session: make(
                "UPDATE callboard.sessions SET about = $2, until = callboard.millis($3) + lease \
                 WHERE id = $1 AND until IS NOT NULL AND timeline = callboard.timeline() RETURNING id",
            ),
            session_is_of_timeline: make(
                "SELECT timeline = callboard.timeline() FROM callboard.sessions WHERE id = $1",
            ),
            end_session: make("SELECT callboard.end_session($1, $2, $3)"),
            sessions: make(
                "SELECT id, name, about, callboard.session_left(until, timeline, $1) FROM callboard.sessions ORDER BY id",
            ),
            forget_session: make("DELETE FROM callboard.sessions WHERE id = $1 AND until IS NULL"),
        }
    }
}

/// The first bytes in the order of keys that no key under the prefix has; `None` if there are none.
pub(crate) fn end_of(prefix: &KeyPrefix) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

fn damaged(key: Key, error: impl std::fmt::Display) -> StorageError {
    StorageError::Corrupt { key, detail: error.to_string() }
}

pub(crate) fn record(stream: &Key, row: &Row) -> Result<Record, StorageError> {
    let read = || Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, &[u8]>(1)?));
    let (sequence, body) = read().map_err(|error: tokio_postgres::Error| damaged(stream.clone(), error))?;
    Ok(Record { sequence: from_server(sequence), payload: body.into() })
}

/// The records of each of these streams, of rows that have the number of the stream in the third column, from 1.
pub(crate) fn records_of(streams: &[(Key, Sequence)], rows: &[Row]) -> Result<Vec<Vec<Record>>, StorageError> {
    let mut records = vec![Vec::new(); streams.len()];
    for row in rows {
        let number: i64 = row.try_get(2).map_err(|error| damaged(Key::new([]), error))?;
        let at = usize::try_from(number - 1).ok().filter(|at| *at < streams.len());
        let at = at.ok_or_else(|| damaged(Key::new([]), "a row of a stream that was not asked for"))?;
        records[at].push(record(&streams[at].0, row)?);
    }
    Ok(records)
}

/// The name in the first column; `None` if it is not that of a key.
pub(crate) fn name(row: &Row) -> Result<Option<Key>, StorageError> {
    let bytes: &[u8] = row.try_get(0).map_err(|error| damaged(Key::new([]), error))?;
    Ok(Key::from_bytes(bytes))
}

pub(crate) fn entry(key: &Key, row: &Row) -> Result<Entry, StorageError> {
    let read = || Ok((row.try_get::<_, i64>(1)?, row.try_get::<_, Option<i64>>(2)?, row.try_get::<_, &[u8]>(3)?));
    let (revision, expires, value) = read().map_err(|error: tokio_postgres::Error| damaged(key.clone(), error))?;
    let expires_at = expires.map(|at| Timestamp::from_millis(from_server(at)));
    Ok(Entry { value: value.into(), revision: from_server(revision), expires_at })
}

pub(crate) fn session(row: &Row) -> SessionInfo {
    let (name, left): (&[u8], Option<i64>) = (row.get(1), row.get(3));
    SessionInfo {
        id: SessionId(from_server(row.get(0))),
        name: String::from_utf8_lossy(name).into(),
        about: row.get::<_, &[u8]>(2).into(),
        left: Duration::from_millis(from_server(left.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_every_key_under_it() {
        for (prefix, end) in [
            (&b""[..], None),
            (b"a", Some(&b"b"[..])),
            (b"a\x00", Some(b"a\x01")),
            (b"a\xff", Some(b"b")),
            (b"\xff\xff", None),
        ] {
            assert_eq!(end_of(&KeyPrefix::from_bytes(prefix)).as_deref(), end);
        }
    }
}
