//! Sizes that every store refuses alike, so that a run which works in memory also works on disk.

use super::{Append, Key, Put, StorageError, codec};

/// The longest [`Key`], in encoded bytes.
pub const MAX_KEY: usize = 1024;

/// The longest dedupe id or owner, in bytes.
pub const MAX_NAME: usize = 512;

/// The longest record, value or queued item, in bytes.
pub const MAX_RECORD: usize = codec::MAX_PAYLOAD + codec::HEADER;

fn check(what: &str, size: usize, max: usize) -> Result<(), StorageError> {
    if size <= max { Ok(()) } else { Err(StorageError::TooLarge { what: what.to_owned(), size, max }) }
}

pub(crate) fn check_key(key: &Key) -> Result<(), StorageError> {
    check("a key", key.as_bytes().len(), MAX_KEY)
}

pub(crate) fn check_append(append: &Append) -> Result<(), StorageError> {
    check_key(&append.stream)?;
    check("a record", append.payload.len(), MAX_RECORD)
}

pub(crate) fn check_put(put: &Put) -> Result<(), StorageError> {
    check_key(&put.key)?;
    check("a value", put.value.len(), MAX_RECORD)
}

pub(crate) fn check_claim(stream: &Key, owner: &str) -> Result<(), StorageError> {
    check_key(stream)?;
    check("an owner", owner.len(), MAX_NAME)
}

pub(crate) fn check_enqueue(queue: &Key, dedupe_id: &str, payload: &[u8]) -> Result<(), StorageError> {
    check_key(queue)?;
    check("a dedupe id", dedupe_id.len(), MAX_NAME)?;
    check("a queued item", payload.len(), MAX_RECORD)
}
