//! When the sweeper is to look next, so that those who watch a namespace receive an expiry when it happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use ractor::ActorRef;

use crate::messages::Timestamp;

use super::sweeper::Msg;

/// Shared by the handles of a context and its sweeper. While nobody watches, expired entries wait for the next sweep.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    watchers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sweeper: Option<ActorRef<Msg>>,
    /// The earliest time at which the sweeper knows that it is to look.
    next: Option<Timestamp>,
}

/// One who watches.
pub(super) struct Watching(Arc<Alarm>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Alarm {
    /// From now on that actor looks.
    pub(super) fn wakes(&self, sweeper: ActorRef<Msg>) {
        *self.state.lock() = State { sweeper: Some(sweeper), next: None };
    }

    /// Somebody watches, until the guard is dropped. What has been written before is looked for.
    pub(super) fn watched(self: &Arc<Self>) -> Watching {
        self.watchers.fetch_add(1, Ordering::AcqRel);
        if let Some(sweeper) = &self.state.lock().sweeper {
            // One that is down looks when it is back.
            let _ = sweeper.cast(Msg::Look);
        }
        Watching(Arc::clone(self))
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Acquire) > 0
    }

    /// Something expires at a time.
    pub(super) fn is_due_at(&self, at: Option<Timestamp>) {
        let Some(at) = at.filter(|_| self.is_watched()) else { return };
        let mut state = self.state.lock();
        if state.next.is_none_or(|next| at < next) {
            state.next = Some(at);
            if let Some(sweeper) = &state.sweeper {
                let _ = sweeper.cast(Msg::DueAt(at));
            }
        }
    }

    /// The sweeper looks now: what is found, or written meanwhile, counts from here.
    pub(super) fn looks(&self) {
        self.state.lock().next = None;
    }
}
