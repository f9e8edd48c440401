//! The requests to the writer, and their answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::payloads::MAX_INLINE;
use crate::messages::Timestamp;
use crate::storage::{Append, Delete, Durability, Key, NewSession, Put, Rider, Sequence, SessionId, StorageError};

/// The sender of an answer.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StorageError>>;

/// One request to the writer.
pub(super) struct Request {
    pub(super) write: Write,
    /// The caller's clock when it asked.
    pub(super) now: Timestamp,
    /// Its permit of the queue, released when the request is applied.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// The operation of a request.
pub(super) enum Write {
    /// A change that is answered with a number: a sequence, a revision, the id of a session, or 0.
    Change(Change, Reply<u64>),
    /// Wakes the writer: what callers have applied has to be synced.
    Wake,
    /// Sync, give the folder back and end.
    Close(oneshot::Sender<()>),
}

/// A change of the store.
pub(super) enum Change {
    Append(Append),
    Purge { stream: Key, up_to: Sequence },
    Put(Put),
    Delete(Delete),
    BeginSession(NewSession, Duration),
    ResumeSession(SessionId, NewSession, Duration),
    RenewSession(SessionId, Arc<[u8]>, Duration),
    EndSession { id: SessionId, only_if_expired: bool, now: Duration },
    ForgetSession(SessionId),
}

impl Change {
    /// Whether it changes a row or two and needs no payload file.
    pub(super) fn is_short(&self) -> bool {
        match self {
            Self::Append(append) => append.payload.len() <= MAX_INLINE && append.riders.iter().all(is_short),
            Self::Put(put) => put.value.len() <= MAX_INLINE && put.ttl_secs.is_none(),
            Self::Delete(_) => true,
            Self::Purge { .. }
            | Self::BeginSession(..)
            | Self::ResumeSession(..)
            | Self::RenewSession(..)
            | Self::EndSession { .. }
            | Self::ForgetSession(_) => false,
        }
    }

    pub(super) fn durability(&self) -> Durability {
        match self {
            Self::Append(append) => append.durability,
            Self::Put(put) => put.durability,
            Self::Delete(delete) => delete.durability,
            Self::Purge { .. } => Durability::Buffered,
            // Nothing of them is on disk.
            Self::BeginSession(..)
            | Self::ResumeSession(..)
            | Self::RenewSession(..)
            | Self::EndSession { .. }
            | Self::ForgetSession(_) => Durability::Memory,
        }
    }
}

fn is_short(rider: &Rider) -> bool {
    match rider {
        Rider::Put { value, .. } => value.len() <= MAX_INLINE,
        Rider::Delete { .. } => true,
    }
}

/// An answer that is held until the change is applied or synced.
pub(super) struct Answer {
    pub(super) reply: Reply<u64>,
    pub(super) answer: Result<u64, StorageError>,
}

impl Answer {
    /// Sends the answer; a caller that is gone is ignored.
    pub(super) fn send(self) {
        let _ = self.reply.send(self.answer);
    }
}
