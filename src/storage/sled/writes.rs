//! The requests to the writer, and their answers.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::payloads::MAX_INLINE;
use crate::messages::Timestamp;
use crate::storage::{Append, Delivery, DeliveryId, Durability, Fence, Key, Put, Revision, Sequence, StorageError};

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
    /// A change that is answered with a number: a sequence, a revision, a fence, or 0.
    Change(Change, Reply<u64>),
    /// The next item of a queue.
    Next { queue: Key, lease_secs: u64, reply: Reply<Option<Delivery>> },
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
    Delete { key: Key, revision: Revision, durability: Durability },
    Claim { stream: Key, owner: String, ttl_secs: u64 },
    Renew { stream: Key, fence: Fence, ttl_secs: u64 },
    Release { stream: Key, fence: Fence },
    Enqueue { queue: Key, dedupe_id: String, payload: Arc<[u8]>, durability: Durability },
    Extend { delivery: DeliveryId, lease_secs: u64 },
    Ack { delivery: DeliveryId },
    Nack { delivery: DeliveryId, delay_secs: u64 },
}

impl Change {
    /// Whether it changes a row or two and needs no payload file.
    pub(super) fn is_short(&self) -> bool {
        match self {
            Self::Append(append) => append.payload.len() <= MAX_INLINE,
            Self::Put(put) => put.value.len() <= MAX_INLINE && put.ttl_secs.is_none(),
            Self::Delete { .. } => true,
            Self::Purge { .. }
            | Self::Claim { .. }
            | Self::Renew { .. }
            | Self::Release { .. }
            | Self::Enqueue { .. }
            | Self::Extend { .. }
            | Self::Ack { .. }
            | Self::Nack { .. } => false,
        }
    }

    pub(super) fn durability(&self) -> Durability {
        match self {
            Self::Append(append) => append.durability,
            Self::Put(put) => put.durability,
            Self::Delete { durability, .. } | Self::Enqueue { durability, .. } => *durability,
            Self::Purge { .. }
            | Self::Claim { .. }
            | Self::Renew { .. }
            | Self::Release { .. }
            | Self::Extend { .. }
            | Self::Ack { .. }
            | Self::Nack { .. } => Durability::Buffered,
        }
    }
}

/// An answer that is held until the change is applied or synced.
pub(super) enum Answer {
    Number(Reply<u64>, Result<u64, StorageError>),
    Item(Reply<Option<Delivery>>, Result<Option<Delivery>, StorageError>),
}

impl Answer {
    /// Sends the answer; a caller that is gone is ignored.
    pub(super) fn send(self) {
        match self {
            Self::Number(reply, answer) => drop(reply.send(answer)),
            Self::Item(reply, answer) => drop(reply.send(answer)),
        }
    }
}
