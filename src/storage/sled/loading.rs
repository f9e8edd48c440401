//! What the writer has to know of a stream that it has not touched for a while.

use sled::IVec;

use super::overlay::Stored;
use super::read_error::ReadError;
use super::rows::{self, PayloadRow};
use crate::storage::recent::Recent;
use crate::storage::stream_head::StreamHead;
use crate::storage::{Key, Sequence, StorageError};

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

/// What is stored of a stream; `has_latest` is whether the tree may not have all of it.
pub(super) fn load_head(stored: Stored<'_>, stream: &Key, has_latest: bool) -> Result<StreamHead, ReadError> {
    let (mut first, mut last) = (None, 0);
    let mut read = |row: &[u8], sealed: &IVec| {
        let begins = rows::number_of(row).ok_or("a row has no number")?;
        first = first.or(Some(begins));
        last = begins + PayloadRow::unseal(row, sealed)?.records() - 1;
        Ok(true)
    };
    if has_latest {
        stored.scan_at_once(rows::records(stream, 0, Sequence::MAX), read)?;
    } else {
        // Without what is between them.
        let mut records = stored.tree.range::<Vec<u8>, _>(rows::records(stream, 0, Sequence::MAX));
        for end in [records.next(), records.next_back()].into_iter().flatten() {
            let (row, sealed) = end?;
            read(&row, &sealed)?;
        }
    }
    Ok(first.map_or_else(StreamHead::default, |first| StreamHead { last, purged: first - 1 }))
}
