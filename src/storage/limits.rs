//! Sizes that every store refuses alike, so that a run which works in memory also works on disk.

use super::{Append, Delivery, Fence, Key, Put, Record, StorageError};

fn check(what: &str, size: usize, max: usize) -> Result<(), StorageError> {
    if size <= max { Ok(()) } else { Err(StorageError::TooLarge { what: what.to_owned(), size, max }) }
}

pub(crate) fn check_key(key: &Key) -> Result<(), StorageError> {
    check("a key", key.as_bytes().len(), Key::MAX)
}

pub(crate) fn check_append(append: &Append) -> Result<(), StorageError> {
    check_key(&append.stream)?;
    check("a record", append.payload.len(), Record::MAX)
}

pub(crate) fn check_put(put: &Put) -> Result<(), StorageError> {
    check_key(&put.key)?;
    check("a value", put.value.len(), Record::MAX)
}

pub(crate) fn check_claim(stream: &Key, owner: &str) -> Result<(), StorageError> {
    check_key(stream)?;
    check("an owner", owner.len(), Fence::MAX_OWNER)
}

pub(crate) fn check_enqueue(queue: &Key, dedupe_id: &str, payload: &[u8]) -> Result<(), StorageError> {
    check_key(queue)?;
    check("a dedupe id", dedupe_id.len(), Delivery::MAX_DEDUPE_ID)?;
    check("a queued item", payload.len(), Record::MAX)
}
