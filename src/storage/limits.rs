//! Sizes that every store refuses alike, so that a run which works in memory also works on disk.

use super::{Append, Key, Put, Record, Rider, StorageError};

fn check(what: &str, size: usize, max: usize) -> Result<(), StorageError> {
    if size <= max { Ok(()) } else { Err(StorageError::TooLarge { what: what.to_owned(), size, max }) }
}

pub(crate) fn check_key(key: &Key) -> Result<(), StorageError> {
    check("a key", key.as_bytes().len(), Key::MAX)
}

/// Refuses an append that is too large for any store. For makers of stores.
///
/// # Errors
/// [`StorageError::TooLarge`].
pub fn check_append(append: &Append) -> Result<(), StorageError> {
    check_key(&append.stream)?;
    check("a record", append.payload.len(), Record::MAX)?;
    append.riders.iter().try_for_each(|rider| match rider {
        Rider::Put { key, value, .. } => check_value(key, value),
        Rider::Delete { key } => check_key(key),
    })
}

/// As [`check_append`], of a value.
///
/// # Errors
/// [`StorageError::TooLarge`].
pub fn check_put(put: &Put) -> Result<(), StorageError> {
    check_value(&put.key, &put.value)
}

fn check_value(key: &Key, value: &[u8]) -> Result<(), StorageError> {
    check_key(key)?;
    check("a value", value.len(), Record::MAX)
}
