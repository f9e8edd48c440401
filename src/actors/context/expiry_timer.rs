//! When the context-store actor is to look for expired entries, so that those who watch a namespace receive an expiry when it
//! happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ractor::ActorRef;

use crate::actors::periodic::Ended;
use crate::messages::Timestamp;
use crate::supervision::Mailbox;

/// What the context-store actor reacts to.
#[derive(Debug)]
pub(crate) enum ExpiryMsg {
    /// The interval is over.
    Expire,
    /// What the interval was over for has ended.
    Expired(Ended),
    /// Something expires at this time.
    DueAt(Timestamp),
    /// Something has expired, or there is a new watcher.
    Look,
    /// What was looked for has been deleted, or could not be.
    Looked(Ended),
}

/// Shared by the handles of a context and its actor. While nobody watches, expired entries wait for the next interval.
#[derive(Default)]
pub(super) struct ExpiryTimer {
    watchers: AtomicUsize,
    /// The earliest time of which the actor has been notified and at which it has not looked yet.
    next: Mailbox<ExpiryMsg, Option<Timestamp>>,
}

/// Counts one watcher until it is dropped.
pub(super) struct Watching(Arc<ExpiryTimer>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ExpiryTimer {
    /// A new life of the actor begins. It knows of no time yet.
    pub(super) fn attach(&self, actor: ActorRef<ExpiryMsg>) {
        self.next.attach(actor);
        *self.next.lock() = None;
    }

    /// Counts a watcher until the guard is dropped, and has the actor look for what was written before.
    pub(super) fn watched(self: &Arc<Self>) -> Watching {
        self.watchers.fetch_add(1, Ordering::AcqRel);
        // An actor that is down looks when it is back.
        self.next.wake(ExpiryMsg::Look);
        Watching(Arc::clone(self))
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Acquire) > 0
    }

    /// Something expires at a time.
    pub(super) fn is_due_at(&self, at: Option<Timestamp>) {
        let Some(at) = at.filter(|_| self.is_watched()) else { return };
        let mut next = self.next.lock();
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.next.wake(ExpiryMsg::DueAt(at));
        }
    }

    /// The actor looks now: what is found, or written meanwhile, counts from here.
    pub(super) fn looks(&self) {
        *self.next.lock() = None;
    }
}

impl std::fmt::Debug for ExpiryTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExpiryTimer").field("watchers", &self.watchers).finish_non_exhaustive()
    }
}
