//! Why a call of a store fails.

use super::{Expected, Key, Revision, Sequence};
use crate::messages::Timestamp;

/// Why a storage call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Another writer was first.
    #[error("stream {stream} is at sequence {actual}, not {expected}")]
    WrongSequence {
        /// The stream.
        stream: Key,
        /// The sequence that the append expected.
        expected: Sequence,
        /// The sequence of the stream.
        actual: Sequence,
    },
    /// The value is not the one that the writer has seen.
    #[error("key {key} is at revision {actual:?}, not as expected ({expected:?})")]
    WrongRevision {
        /// The key.
        key: Key,
        /// What the write expected.
        expected: Expected,
        /// The revision of the value; `None` if it is absent.
        actual: Option<Revision>,
    },
    /// The fence or delivery is not the current one: there is a newer one, the claim was released, the stream was forgotten, or
    /// the item was returned or acknowledged.
    #[error("not the current fence or delivery of {key} (current: {current})")]
    Fenced {
        /// The stream or queue.
        key: Key,
        /// The current fence of the stream, or the last delivery of the item; 0 if there is none.
        current: u64,
    },
    /// Another owner's claim has not expired.
    #[error("{stream} is held by {owner} until {until}")]
    Held {
        /// The stream.
        stream: Key,
        /// The owner of the claim.
        owner: String,
        /// When the claim expires, unless it is renewed.
        until: Timestamp,
    },
    /// What is stored is not what was written: it does not decode, its checksum is wrong, or a part of it is missing. Only this
    /// key or stream is affected.
    #[error("{key} cannot be read: {detail}")]
    Corrupt {
        /// The stream or key of the record.
        key: Key,
        /// What is wrong with it.
        detail: String,
    },
    /// Too long for this store; nothing was written.
    #[error("{what} is {size} bytes long; at most {max} are allowed")]
    TooLarge {
        /// What is too long: a key, a record, an owner …
        what: String,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The store could not answer now: its disk has failed a read, or an acknowledgement was lost. What was asked may have been
    /// done, or not.
    #[error("the store did not answer: {detail}")]
    Unavailable {
        /// The cause, for people.
        detail: String,
    },
    /// The folder cannot be opened.
    #[error("cannot open the store at {path}: {detail}")]
    Open {
        /// The folder.
        path: String,
        /// Why, and what to do.
        detail: String,
    },
    /// Another process has the store open, or is closing it.
    #[error(
        "cannot open the store at {path}: {} has it open; one process at a time can use a store: stop that one first",
        .holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The folder.
        path: String,
        /// The id of the process, if it has written it down.
        holder: Option<u32>,
    },
    /// The store has stopped acknowledging, because a sync failed or because it was closed.
    #[error("the store has stopped: {detail}")]
    Stopped {
        /// The cause, for people.
        detail: String,
    },
    /// The board of the handle has shut down and released the store.
    #[error("the board has stopped and released its store; start a board on the store, and ask that one")]
    Closed,
}

impl StorageError {
    /// The same call may work later, and whether this one did is not known.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
