//! The watches of one handle, and what keeps a change from being shown twice.
//!
//! A handle's own writes come from its lane, those of other handles from the feed, which is later. So that a watch never ends with an
//! older value of a key than it has shown, and shows none twice, changes that are not newer than the newest that was published of their
//! key are left out.

use std::collections::HashMap;

use callboard::storage::{self, Change, Key, KeyPrefix, Revision, Watch};
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct Watchers {
    watchers: storage::Watchers,
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    /// The newest revisions that were published since the last turn, and since the turn before that.
    newest: HashMap<Key, Revision>,
    newest_before: HashMap<Key, Revision>,
    /// The batches that the lane has begun, and how many it had at the last turn.
    batches: u64,
    batches_at_turn: u64,
    is_writing: bool,
}

impl Watchers {
    pub(crate) fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.watchers.watch(prefix)
    }

    /// The prefixes that are watched, each once.
    pub(crate) fn prefixes(&self) -> Vec<KeyPrefix> {
        self.watchers.prefixes()
    }

    /// Sends a change to those who watch its key. It is not made while nobody does.
    pub(crate) fn publish(&self, key: &Key, revision: Revision, change: impl FnOnce() -> Change) {
        if !self.watchers.is_watched(key) {
            return;
        }
        let mut shown = self.shown.lock();
        let newest = shown.newest.get(key).max(shown.newest_before.get(key));
        if newest.is_none_or(|newest| *newest < revision) {
            shown.newest.insert(key.clone(), revision);
            self.watchers.publish(&change());
        }
    }

    /// All watches have missed something; how much is not known.
    pub(crate) fn miss(&self) {
        self.watchers.miss();
    }

    /// The lane sends a batch.
    pub(crate) fn begin_batch(&self) {
        let mut shown = self.shown.lock();
        shown.batches += 1;
        shown.is_writing = true;
    }

    /// What the batch has changed is published.
    pub(crate) fn end_batch(&self) {
        self.shown.lock().is_writing = false;
    }

    /// The feed is about to look: what was published before it looked last is no longer needed. A batch whose answer is late may hold
    /// older changes than the feed has seen: nothing is forgotten until it is published.
    pub(crate) fn turn(&self) {
        let mut shown = self.shown.lock();
        if !shown.is_writing || shown.batches != shown.batches_at_turn {
            shown.newest_before = std::mem::take(&mut shown.newest);
            shown.batches_at_turn = shown.batches;
        }
    }

    /// Ends all watches after what they already hold.
    pub(crate) fn close(&self) {
        self.watchers.close();
    }
}

#[cfg(test)]
mod tests {
    use callboard::storage::Entry;
    use futures::{FutureExt as _, StreamExt as _};

    use super::*;

    fn publish(watchers: &Watchers, revision: Revision) {
        let (key, entry) = (Key::new(["a"]), Entry { value: [][..].into(), revision, expires_at: None });
        watchers.publish(&key, revision, || Change::Put(key.clone(), entry));
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
        publish(&watchers, 2);
        publish(&watchers, 2);
        watchers.end_batch();
        assert_eq!(shown(&mut watch), [2]);
    }

    #[test]
    fn a_batch_whose_answer_is_late_shows_nothing_older_than_the_feed_has_shown() {
        let watchers = Watchers::default();
        let mut watch = watchers.watch(&Key::new([]).children());
        watchers.begin_batch();
        watchers.turn();
        publish(&watchers, 3);
        for _ in 0..4 {
            watchers.turn();
        }
        publish(&watchers, 2);
        watchers.end_batch();
        assert_eq!(shown(&mut watch), [3]);
    }

    #[test]
    fn what_no_look_and_no_batch_can_bring_again_is_forgotten() {
        let watchers = Watchers::default();
        let _watch = watchers.watch(&Key::new([]).children());
        for revision in 0..4 {
            watchers.begin_batch();
            publish(&watchers, revision);
            watchers.end_batch();
        }
        watchers.turn();
        assert_eq!(watchers.shown.lock().newest_before.len(), 1);
        watchers.turn();
        let state = watchers.shown.lock();
        assert!(state.newest.is_empty() && state.newest_before.is_empty());
    }
}
