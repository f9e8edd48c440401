//! A board that does not notice that its lease is over, as one on a machine whose clock stood still, or one whose check of the lease is
//! wrong: from a moment on its monotonic time stands, and its renewals are lost. It works and writes on, until the store refuses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callboard::env::{Clock, Env, Now};
use callboard::storage::{
    Append, Entry, Key, KeyPrefix, Put, Record, Revision, Sequence, SessionId, Storage, StorageFuture, Watch,
};
use callboard_postgres::Postgres;

use super::passing::pass_on;

/// Whether the time of this process stands still. A cheap clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standstill(Arc<AtomicBool>);

impl Standstill {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The world of a board of this process.
    pub(crate) fn env(&self) -> Env {
        let env = Env::system();
        Env::new(
            Standing { clock: env.clock(), standstill: self.clone(), last: parking_lot::Mutex::default() },
            env.random(),
        )
    }

    /// The store of a board of this process.
    pub(crate) fn store(&self, inside: Postgres) -> impl Storage {
        Unrenewed { inside, standstill: self.clone() }
    }
}

struct Standing {
    clock: Arc<dyn Clock>,
    standstill: Standstill,
    /// The newest monotonic time that was read before it stood still.
    last: parking_lot::Mutex<Duration>,
}

impl Clock for Standing {
    fn now(&self) -> Now {
        let mut last = self.last.lock();
        let now = self.clock.now();
        if !self.standstill.has_begun() {
            *last = now.monotonic;
        }
        Now { monotonic: *last, ..now }
    }
}

#[derive(Debug)]
struct Unrenewed {
    inside: Postgres,
    standstill: Standstill,
}

impl Storage for Unrenewed {
    pass_on!(
        inside: append, read, streams, purge, get, put_if_revision, delete_if_revision, scan, watch,
        begin_session, end_session, list_sessions, forget_session
    );

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        if self.standstill.has_begun() {
            return Box::pin(std::future::pending());
        }
        self.inside.renew_session(id, about)
    }

    fn is_shared(&self) -> bool {
        self.inside.is_shared()
    }
}
