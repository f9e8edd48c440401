//! The watchers of a store with their key prefixes, and the bounded queue of each. Every store feeds this after a write.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;

use super::{Change, KeyPrefix, Watch};

/// Changes that wait for one watcher; more are counted and reported as [`Change::Missed`].
pub(crate) const WATCH_BOUND: usize = 256;

/// The watchers of one store. Dropping it ends their streams.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    watchers: Mutex<Vec<Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    prefix: KeyPrefix,
    mailbox: Weak<Mutex<Mailbox>>,
}

#[derive(Debug, Default)]
struct Mailbox {
    changes: VecDeque<Change>,
    closed: bool,
    waker: Option<Waker>,
}

impl Watchers {
    /// A stream of the changes published from now on.
    pub(crate) fn watch(&self, prefix: &KeyPrefix) -> Watch {
        let mailbox = Arc::new(Mutex::new(Mailbox::default()));
        self.watchers.lock().push(Watcher { prefix: prefix.clone(), mailbox: Arc::downgrade(&mailbox) });
        stream::poll_fn(move |context| {
            let mut mailbox = mailbox.lock();
            match mailbox.changes.pop_front() {
                Some(change) => Poll::Ready(Some(change)),
                None if mailbox.closed => Poll::Ready(None),
                None => {
                    mailbox.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .boxed()
    }

    /// Sends a change to the watchers of its key.
    pub(crate) fn publish(&self, change: &Change) {
        let (Change::Put(key, _) | Change::Deleted(key)) = change else { return };
        self.watchers.lock().retain(|watcher| {
            let Some(mailbox) = watcher.mailbox.upgrade() else { return false };
            if key.starts_with(&watcher.prefix) {
                mailbox.lock().push(change.clone());
            }
            true
        });
    }

    /// Ends all streams after what they already hold.
    pub(crate) fn close(&self) {
        for watcher in self.watchers.lock().drain(..) {
            if let Some(mailbox) = watcher.mailbox.upgrade() {
                mailbox.lock().close();
            }
        }
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Mailbox {
    fn push(&mut self, change: Change) {
        // The marker stands where the lost changes would, so what comes after it is whole again.
        if self.changes.len() < WATCH_BOUND {
            self.changes.push_back(change);
        } else if let Some(Change::Missed(lost)) = self.changes.back_mut() {
            *lost += 1;
        } else {
            self.changes.push_back(Change::Missed(1));
        }
        self.wake();
    }

    fn close(&mut self) {
        self.closed = true;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
