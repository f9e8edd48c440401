//! The watches of a store with their key prefixes, and the bounded queue of each. Every store feeds this after a write.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;

use super::{Change, Key, KeyPrefix, Watch};

/// Changes that wait for one watch; more are counted and reported as [`Change::Missed`].
pub(crate) const WATCH_BOUND: usize = 256;

/// The watches of one store, for makers of stores: what [`Storage::watch`](super::Storage::watch) returns, and the change after each
/// write. Dropping it ends the watches.
///
/// ```
/// use callboard::storage::{Change, Key, Watchers};
/// use futures::StreamExt as _;
/// # futures::executor::block_on(async {
/// let watchers = Watchers::default();
/// let mut watch = watchers.watch(&Key::new(["context"]).children());
/// let change = Change::Deleted(Key::new(["context", "a"]));
/// watchers.publish(&change);
/// watchers.publish(&Change::Deleted(Key::new(["elsewhere"])));
/// watchers.close();
/// assert_eq!(watch.next().await, Some(change));
/// assert_eq!(watch.next().await, None);
/// # });
/// ```
#[derive(Debug, Default)]
pub struct Watchers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    watchers: Vec<Watcher>,
    closed: bool,
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
    /// A stream of the changes under a prefix that are published from now on. After [`Watchers::close`] it has none.
    pub fn watch(&self, prefix: &KeyPrefix) -> Watch {
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

    /// Sends a change to those who watch its key.
    pub fn publish(&self, change: &Change) {
        let (Change::Put(key, _) | Change::Deleted(key)) = change else { return };
        self.0.lock().watchers.retain(|watcher| {
            let Some(mailbox) = watcher.mailbox.upgrade() else { return false };
            if key.starts_with(&watcher.prefix) {
                mailbox.lock().push(change.clone());
            }
            true
        });
    }

    /// Whether anyone watches a key, so that its change has to be published.
    #[must_use]
    pub fn is_watched(&self, key: &Key) -> bool {
        let watches = |watcher: &Watcher| key.starts_with(&watcher.prefix) && watcher.mailbox.strong_count() > 0;
        self.0.lock().watchers.iter().any(watches)
    }

    /// Has every watch show that it has missed something.
    pub fn miss(&self) {
        for mailbox in self.0.lock().watchers.iter().filter_map(|watcher| watcher.mailbox.upgrade()) {
            mailbox.lock().miss();
        }
    }

    /// The prefixes that are watched, each once.
    #[must_use]
    pub fn prefixes(&self) -> Vec<KeyPrefix> {
        let mut prefixes = Vec::new();
        self.0.lock().watchers.retain(|watcher| {
            let is_kept = watcher.mailbox.strong_count() > 0;
            if is_kept && !prefixes.contains(&watcher.prefix) {
                prefixes.push(watcher.prefix.clone());
            }
            is_kept
        });
        prefixes
    }

    /// Ends all watches after what they already hold.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        for mailbox in state.watchers.drain(..).filter_map(|watcher| watcher.mailbox.upgrade()) {
            mailbox.lock().close();
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
            self.wake();
        } else {
            self.miss();
        }
    }

    fn miss(&mut self) {
        if let Some(Change::Missed(lost)) = self.changes.back_mut() {
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

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn deleted(name: &str) -> Change {
        Change::Deleted(Key::new([name]))
    }

    #[test]
    fn what_was_missed_stands_where_it_would_have_been() {
        let watchers = Watchers::default();
        let watch = watchers.watch(&Key::new([]).children());
        watchers.publish(&deleted("a"));
        watchers.miss();
        watchers.miss();
        watchers.publish(&deleted("b"));
        watchers.close();
        let shown: Vec<Change> = watch.collect().now_or_never().unwrap();
        assert_eq!(shown, [deleted("a"), Change::Missed(2), deleted("b")]);
    }

    #[test]
    fn only_watches_that_are_kept_count() {
        let watchers = Watchers::default();
        let (a, b) = (Key::new(["a"]), Key::new(["b"]));
        let _kept = [watchers.watch(&a.children()), watchers.watch(&a.children())];
        drop(watchers.watch(&b.children()));
        assert!(watchers.is_watched(&a.child("x")) && !watchers.is_watched(&b));
        assert_eq!(watchers.prefixes(), [a.children()]);
    }

    #[test]
    fn a_watch_that_begins_after_the_end_has_nothing() {
        let watchers = Watchers::default();
        watchers.close();
        assert_eq!(watchers.watch(&Key::new([]).children()).next().now_or_never(), Some(None));
    }
}
