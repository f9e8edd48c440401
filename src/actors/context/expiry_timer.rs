//! When the context-store actor is to look for expired entries, so that watchers of a namespace receive an expiry when it
//! happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ractor::ActorRef;

use crate::actors::periodic::Ended;
use crate::messages::Timestamp;
use crate::supervision::Mailbox;

/// A message to the context-store actor.
#[derive(Debug)]
pub(crate) enum ExpiryMsg {
    /// The interval has passed.
    Expire,
    /// The deletion that the interval started has ended.
    Expired(Ended),
    /// An entry expires at this time.
    DueAt(Timestamp),
    /// An entry has expired, or there is a new watcher.
    DeleteDue,
    /// The deletion that `DeleteDue` started has ended.
    DueDeleted(Ended),
}

/// Shared by the handles of a context and its actor. Without watchers, expired entries wait for the next interval.
#[derive(Default)]
pub(super) struct ExpiryTimer {
    watchers: AtomicUsize,
    /// The earliest time that was sent to the actor and at which it has not looked yet.
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
    /// Sets the address of an actor that starts, without a time.
    pub(super) fn attach(&self, actor: ActorRef<ExpiryMsg>) {
        self.next.attach(actor);
        *self.next.lock() = None;
    }

    /// Counts a watcher until the guard is dropped, and has the actor look for entries that were written before.
    pub(super) fn watched(self: &Arc<Self>) -> Watching {
        self.watchers.fetch_add(1, Ordering::AcqRel);
        // An actor that is down looks when it restarts.
        self.next.wake(ExpiryMsg::DeleteDue);
        Watching(Arc::clone(self))
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Acquire) > 0
    }

    /// Notifies the actor of an expiry.
    pub(super) fn is_due_at(&self, at: Option<Timestamp>) {
        let Some(at) = at.filter(|_| self.is_watched()) else { return };
        let mut next = self.next.lock();
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.next.wake(ExpiryMsg::DueAt(at));
        }
    }

    /// The actor looks now: expiries that it finds, and those of later writes, are sent again.
    pub(super) fn looks(&self) {
        *self.next.lock() = None;
    }
}

impl std::fmt::Debug for ExpiryTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExpiryTimer").field("watchers", &self.watchers).finish_non_exhaustive()
    }
}
