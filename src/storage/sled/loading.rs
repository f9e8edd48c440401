//! What the writer has to know of a stream that it has not touched for a while.

use sled::{IVec, Tree};

use super::read_error::ReadError;
use super::rows;
use crate::storage::recent::Recent;
use crate::storage::stream_head::StreamHead;
use crate::storage::{Key, StorageError};

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

pub(super) fn load_head(tree: &Tree, stream: &Key) -> Result<StreamHead, ReadError> {
    let mut records = tree.range(rows::record(stream, 0)..=rows::record(stream, u64::MAX)).keys();
    let sequence = |row: sled::Result<IVec>| rows::number_of(&row?).ok_or(ReadError::from("a row has no number"));
    let Some(first) = records.next().map(sequence).transpose()? else { return Ok(StreamHead::default()) };
    let last = records.next_back().map(sequence).transpose()?.unwrap_or(first);
    Ok(StreamHead { last, purged: first - 1 })
}
