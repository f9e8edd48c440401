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
    /// The newest revisions that were published since the last turn, and since the turn before that.
    newest: HashMap<Key, Revision>,
    newest_before: HashMap<Key, Revision>,
    /// The batches that the lane has begun, and how many it had at the last turn.
    batches: u64,
    batches_at_turn: u64,
    is_writing: bool,
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

    /// The prefixes that are watched, each once.
    pub(crate) fn prefixes(&self) -> Vec<KeyPrefix> {
        let mut prefixes = Vec::new();
        for Watcher { prefix, .. } in &self.0.lock().watchers {
            if !prefixes.contains(prefix) {
                prefixes.push(prefix.clone());
            }
        }
        prefixes
    }

    /// The lane sends a batch.
    pub(crate) fn begin_batch(&self) {
        let mut state = self.0.lock();
        state.batches += 1;
        state.is_writing = true;
    }

    /// What the batch has changed is published.
    pub(crate) fn end_batch(&self) {
        self.0.lock().is_writing = false;
    }

    /// The feed is about to look: what was published before it looked last is no longer needed. A batch whose answer is late may hold
    /// older changes than the feed has seen: nothing is forgotten until it is published.
    pub(crate) fn turn(&self) {
        let mut state = self.0.lock();
        if !state.is_writing || state.batches != state.batches_at_turn {
            state.newest_before = std::mem::take(&mut state.newest);
            state.batches_at_turn = state.batches;
        }
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

#[cfg(test)]
mod tests {
    use callboard::storage::Entry;
    use futures::FutureExt as _;

    use super::*;

    fn put(revision: Revision) -> Vec<(Revision, Change)> {
        let entry = Entry { value: [][..].into(), revision, expires_at: None };
        vec![(revision, Change::Put(Key::new(["a"]), entry))]
    }

    /// The revisions that a watch shows now.
    fn shown(watch: &mut Watch) -> Vec<Revision> {
        let shown = std::iter::from_fn(|| watch.next().now_or_never().flatten());
        let revision = |change| match change {
            Change::Put(_, entry) => entry.revision,
            Change::Deleted(_) | Change::Missed(_) => panic!("only puts are published"),
        };
        shown.map(revision).collect()
    }

    #[test]
    fn a_write_that_the_feed_has_read_before_its_lane_publishes_it_is_shown_once() {
        let watchers = Watchers::default();
        let mut watch = watchers.watch(&Key::new([]).children());
        watchers.begin_batch();
        watchers.turn();
        watchers.publish(|| put(2));
        watchers.publish(|| put(2));
        watchers.end_batch();
        assert_eq!(shown(&mut watch), [2]);
    }

    #[test]
    fn a_batch_whose_answer_is_late_shows_nothing_older_than_the_feed_has_shown() {
        let watchers = Watchers::default();
        let mut watch = watchers.watch(&Key::new([]).children());
        watchers.begin_batch();
        watchers.turn();
        watchers.publish(|| put(3));
        for _ in 0..4 {
            watchers.turn();
        }
        watchers.publish(|| put(2));
        watchers.end_batch();
        assert_eq!(shown(&mut watch), [3]);
    }

    #[test]
    fn what_no_look_and_no_batch_can_bring_again_is_forgotten() {
        let watchers = Watchers::default();
        let _watch = watchers.watch(&Key::new([]).children());
        for revision in 0..4 {
            watchers.begin_batch();
            watchers.publish(|| put(revision));
            watchers.end_batch();
        }
        watchers.turn();
        assert_eq!(watchers.0.lock().newest_before.len(), 1);
        watchers.turn();
        let state = watchers.0.lock();
        assert!(state.newest.is_empty() && state.newest_before.is_empty());
    }
}
