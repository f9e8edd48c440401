//! The watches of one handle: each has a bounded queue of changes, as the contract has it.
//!
//! A handle's own writes come from its lane, those of other handles from the feed, which is later. So that a watch never ends with an
//! older value of a key than it has shown, and shows none twice, changes that are not newer than the newest that was published of their
//! key are left out.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use callboard::storage::{Change, Key, KeyPrefix, Revision, Watch};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;

/// Changes that wait for one watch; more are counted, see [`Change::Missed`].
const BOUND: usize = 256;

#[derive(Default)]
pub(crate) struct Watchers(Mutex<State>);

#[derive(Default)]
struct State {
    watchers: Vec<Watcher>,
    /// The newest revisions that were published since the feed looked last, and since it looked before that.
    newest: HashMap<Key, Revision>,
    newest_before: HashMap<Key, Revision>,
    closed: bool,
}

struct Watcher {
    prefix: KeyPrefix,
    mailbox: Weak<Mutex<Mailbox>>,
}

#[derive(Default)]
struct Mailbox {
    changes: VecDeque<Change>,
    closed: bool,
    waker: Option<Waker>,
}

impl Watchers {
    pub(crate) fn watch(&self, prefix: &KeyPrefix) -> Watch {
        let mut state = self.0.lock();
        if state.closed {
            return stream::empty().boxed();
        }
        let mailbox = Arc::new(Mutex::new(Mailbox::default()));
        state.watchers.push(Watcher { prefix: prefix.clone(), mailbox: Arc::downgrade(&mailbox) });
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

    /// Whether anyone watches still.
    pub(crate) fn any(&self) -> bool {
        let mut state = self.0.lock();
        state.watchers.retain(|watcher| watcher.mailbox.strong_count() > 0);
        !state.watchers.is_empty()
    }

    /// Sends changes to those who watch their keys, in order. `changes` is not called while nobody watches.
    pub(crate) fn publish(&self, changes: impl FnOnce() -> Vec<(Revision, Change)>) {
        let mut state = self.0.lock();
        if !state.watchers.is_empty() {
            changes().into_iter().for_each(|(revision, change)| state.publish(revision, change));
        }
    }

    /// All watches have missed something; how much is not known.
    pub(crate) fn miss(&self) {
        for mailbox in self.0.lock().watchers.iter().filter_map(|watcher| watcher.mailbox.upgrade()) {
            mailbox.lock().miss();
        }
    }

    /// The feed is about to look: what was published before it looked last is no longer needed.
    pub(crate) fn turn(&self) {
        let mut state = self.0.lock();
        state.newest_before = std::mem::take(&mut state.newest);
    }

    /// Ends all watches after what they already hold.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        for mailbox in state.watchers.drain(..).filter_map(|watcher| watcher.mailbox.upgrade()) {
            let mut mailbox = mailbox.lock();
            mailbox.closed = true;
            mailbox.wake();
        }
    }
}

impl State {
    fn publish(&mut self, revision: Revision, change: Change) {
        let key = match &change {
            Change::Put(key, _) | Change::Deleted(key) => key.clone(),
            Change::Missed(_) => return,
        };
        let watching: Vec<_> = self
            .watchers
            .iter()
            .filter(|watcher| key.starts_with(&watcher.prefix))
            .filter_map(|watcher| watcher.mailbox.upgrade())
            .collect();
        let newest = self.newest.get(&key).max(self.newest_before.get(&key));
        if watching.is_empty() || newest.is_some_and(|newest| *newest >= revision) {
            return;
        }
        self.newest.insert(key, revision);
        for mailbox in watching {
            mailbox.lock().push(change.clone());
        }
    }
}

impl Mailbox {
    fn push(&mut self, change: Change) {
        // The marker stands where the lost changes would, so what comes after it is whole again.
        if self.changes.len() < BOUND {
            self.changes.push_back(change)
        } else {
            self.miss()
        }
        self.wake();
    }

    fn miss(&mut self) {
        match self.changes.back_mut() {
            Some(Change::Missed(lost)) => *lost += 1,
            Some(Change::Put(..) | Change::Deleted(_)) | None => self.changes.push_back(Change::Missed(1)),
        }
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
