//! What the handle of a store, the futures that it returns, and the writer's thread share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use super::folder::Lock;
use super::overlay::Overlay;
use super::write_state::WriteState;
use super::writes::Request;
use crate::storage::StorageError;
use crate::storage::watchers::Watchers;

/// The capacity of the writer's queue; further writes wait for a permit.
pub(super) const QUEUE: usize = 16_384;

/// Why a store has stopped that was closed, with everything synced.
pub(super) const CLOSED: &str = "it was closed";

/// Why a store stops that was neither closed nor failed.
pub(super) const ENDED: &str = "its writer has ended unexpectedly";

/// What the handle, its futures and the writer share.
pub(super) struct Shared {
    /// `None` once the store has ended.
    pub(super) state: Mutex<Option<WriteState>>,
    pub(super) requests: Sender<Request>,
    /// One for each place in the writer's queue.
    pub(super) permits: Arc<Semaphore>,
    pub(super) overlay: Arc<Overlay>,
    /// Gone once the store is closed.
    pub(super) open: RwLock<Option<Open>>,
    /// Why nothing is acknowledged any more.
    pub(super) stopped: OnceLock<String>,
    pub(super) watchers: Watchers,
    pub(super) syncs: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) writes: AtomicU64,
}

/// What is dropped, in this order, before the folder can be opened again.
pub(super) struct Open {
    pub(super) db: sled::Db,
    pub(super) _lock: Lock,
}

/// Stops the store however the writer ends, by a panic as well, so that no caller waits for it.
pub(super) struct StopOnDrop(pub(super) Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(ENDED);
        drop(self.0.state.lock().take());
    }
}

impl Shared {
    /// Stops acknowledging; the first reason is kept.
    pub(super) fn stop(&self, reason: &str) {
        let _ = self.stopped.set(reason.to_owned());
        self.watchers.close();
    }

    pub(super) fn release(&self) {
        drop(self.open.write().take());
    }

    /// Whether the store has stopped because it was closed, and not before.
    pub(super) fn was_closed(&self) -> bool {
        self.stopped.get().is_some_and(|reason| reason == CLOSED)
    }

    pub(super) fn count_sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_batch(&self, writes: usize) {
        self.batches.fetch_add(u64::from(writes > 0), Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
    }

    pub(super) fn why_stopped(&self) -> StorageError {
        let detail = self.stopped.get().map_or(ENDED, String::as_str).to_owned();
        StorageError::Stopped { detail }
    }
}
