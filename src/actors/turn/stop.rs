//! The stop signal of a turn.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::task::AtomicWaker;
use parking_lot::Mutex;

/// Has a worker drop its turn's future.
#[derive(Default)]
pub(in crate::actors) struct StopSignal {
    /// The first reason is kept.
    reason: Mutex<Option<StopReason>>,
    /// `reason` is set. Read at each poll, without the lock.
    is_set: AtomicBool,
    /// The waker of the worker that polls the turn.
    pub(in crate::actors) waker: AtomicWaker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::actors) enum StopReason {
    /// The result is no longer needed.
    Cancelled,
    /// The turn exceeded its time.
    TimedOut,
}

impl StopSignal {
    pub(in crate::actors) fn set(&self, why: StopReason) {
        self.reason.lock().get_or_insert(why);
        self.is_set.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(in crate::actors) fn reason(&self) -> Option<StopReason> {
        if self.is_set.load(Ordering::Acquire) { *self.reason.lock() } else { None }
    }
}
