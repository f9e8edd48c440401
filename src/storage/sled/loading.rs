//! What the writer has to know of a stream that it has not touched for a while.

use sled::{IVec, Tree};

use super::read_error::ReadError;
use super::rows::{self, HeadRow};
use crate::storage::recent::Recent;
use crate::storage::stream_head::StreamHead;
use crate::storage::{Key, StorageError, codec};

/// What is remembered, or was just loaded.
pub(super) fn remembered<'a, V>(
    recent: &'a mut Recent<Key, V>,
    key: &Key,
    load: impl FnOnce() -> Result<V, ReadError>,
) -> Result<&'a mut V, StorageError> {
    if recent.get(key).is_none() {
        recent.insert(key.clone(), load().map_err(|error| error.of(key))?);
    }
    Ok(recent.get(key).expect("it is there or was put there"))
}

pub(super) fn load_head(tree: &Tree, stream: &Key, session: u64) -> Result<StreamHead, ReadError> {
    let stored = tree.get(rows::head(stream))?;
    let stored = stored.map(|row| codec::decode::<HeadRow>(&row)).transpose().map_err(|error| error.to_string())?;
    let mut records = tree.range(rows::record(stream, 0)..=rows::record(stream, u64::MAX)).keys();
    let sequence = |row: sled::Result<IVec>| rows::number_of(&row?).ok_or(ReadError::from("a row has no number"));
    let first = records.next().map(sequence).transpose()?;
    let last = records.next_back().map(sequence).transpose()?;
    Ok(HeadRow::head(stored, first.map(|first| (first, last.unwrap_or(first))), session))
}
