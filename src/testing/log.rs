//! What came, in order, and how to wait for it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

/// Entries that some add and others wait for.
pub(super) struct Log<T> {
    entries: Mutex<Vec<T>>,
    news: watch::Sender<()>,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { entries: Mutex::default(), news: watch::Sender::new(()) }
    }
}

impl<T> Log<T> {
    pub(super) fn push(&self, entry: T) {
        self.change(|entries| entries.push(entry));
    }

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let changed = change(&mut self.entries.lock());
        self.news.send_replace(());
        changed
    }

    pub(super) fn read<R>(&self, read: impl FnOnce(&[T]) -> R) -> R {
        read(&self.entries.lock())
    }

    /// Waits until `find` finds something; `None` when the time is up. `find` may take out what it finds.
    pub(super) async fn wait<R>(&self, within: Duration, mut find: impl FnMut(&mut Vec<T>) -> Option<R>) -> Option<R> {
        let mut news = self.news.subscribe();
        let found = async {
            loop {
                if let Some(found) = find(&mut self.entries.lock()) {
                    return found;
                }
                news.changed().await.expect("the log itself sends the news");
            }
        };
        timeout(within, found).await.ok()
    }
}
