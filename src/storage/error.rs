//! Why a call of a store fails.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Expected, Key, Revision, Sequence};

/// Why a call of a [`Storage`](super::Storage) failed, or why a store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The last sequence of the stream is not the one that the append expected, for example because another writer was
    /// first. Nothing was written.
    #[error("stream {stream} is at sequence {actual}, not {expected}")]
    WrongSequence {
        /// The stream of the append.
        stream: Key,
        /// The sequence that the append expected.
        expected: Sequence,
        /// The sequence of the last record that was appended to the stream; 0 if there was none.
        actual: Sequence,
    },
    /// The value is not the one that the writer has seen.
    #[error("key {key} is at revision {actual:?}, not as expected ({expected:?})")]
    WrongRevision {
        /// The key that was to be written or deleted.
        key: Key,
        /// The condition of the write ([`Put::expected`](super::Put::expected)); of a delete, its revision.
        expected: Expected,
        /// The revision of the value; `None` if it is absent.
        actual: Option<Revision>,
    },
    /// A board of this name works on the store.
    #[error("a board named {name} works on the store already; stop it, or choose another name")]
    NameTaken {
        /// The name.
        name: String,
        /// What that board says about itself ([`NewSession::about`](super::NewSession::about)).
        about: Arc<[u8]>,
        /// How long its lease lasts, unless it is renewed.
        left: Duration,
    },
    /// The session's lease has not run out.
    #[error("the session's lease lasts {left:?} longer")]
    SessionLives {
        /// How long it lasts, unless it is renewed.
        left: Duration,
    },
    /// What is stored is not what was written: it does not decode, its checksum is wrong, or a part of it is missing. Only this
    /// key or stream is affected.
    #[error("{key} cannot be read: {detail}")]
    Corrupt {
        /// The stream or key that cannot be read; empty if its name cannot be read either.
        key: Key,
        /// What is wrong with the stored bytes, for people.
        detail: String,
    },
    /// Too long for this store; nothing was written.
    #[error("{what} is {size} bytes long; at most {max} are allowed")]
    TooLarge {
        /// What is too long: a key, a record, an owner …
        what: String,
        /// Its size in bytes. For the purged beginning of a stream in a [`Transfer`](super::Transfer): the number of
        /// its records.
        size: usize,
        /// The limit, in the unit of `size`.
        max: usize,
    },
    /// The store could not answer now: its disk has failed a read, or an acknowledgement was lost. What was asked may have been
    /// done, or not.
    #[error("the store did not answer: {detail}")]
    Unavailable {
        /// The cause, for people.
        detail: String,
    },
    /// The store in the folder cannot be opened, for example because it is damaged or a newer version of callboard
    /// wrote it.
    #[error("cannot open the store at {path}: {detail}")]
    Open {
        /// The folder that was to be opened.
        path: String,
        /// Why, and what to do.
        detail: String,
    },
    /// Another process, or this one, has the store open or is closing it.
    #[error(
        "cannot open the store at {path}: {} has it open; one process at a time can use a store: stop that one first",
        .holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The folder that was to be opened.
        path: String,
        /// The id of the process, if it has written it down.
        holder: Option<u32>,
    },
    /// The store has stopped acknowledging, because a sync failed or because it was closed; or it refuses a board whose session has
    /// ended.
    #[error("the store has stopped: {detail}")]
    Stopped {
        /// The cause, for people.
        detail: String,
    },
    /// The board of the handle has shut down and released the store.
    #[error("the board has stopped and released its store; start a board on the store, and ask that one")]
    Closed,
}

/// The text of the error, for another board. That reads it as [`StorageError::Unavailable`]: it was not its store that failed.
impl Serialize for StorageError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StorageError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|detail| Self::Unavailable { detail })
    }
}

impl StorageError {
    /// The same call may work later, and whether this one did is not known.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
