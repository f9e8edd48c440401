//! Streams of a store.

use callboard::storage::{Append, Durability, Key, Storage};

/// The stream of this name.
pub(crate) fn stream(name: &str) -> Key {
    Key::new(["run", name])
}

/// Appends a record durably, after so many others.
pub(crate) async fn append(store: &impl Storage, name: &str, expected: u64, payload: &[u8]) {
    let (stream, payload) = (stream(name), payload.into());
    let append = Append::new(stream, expected, payload);
    assert_eq!(store.append(append).await, Ok(expected + 1));
}
