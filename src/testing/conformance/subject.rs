//! The store that a rule is checked on, with its clock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::env::{Clock, Now};
use crate::messages::Timestamp;
use crate::storage::{Append, Durability, Expected, Key, Put, Sequence, Storage, StorageError};

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock {
    elapsed: Mutex<Duration>,
}

impl ManualClock {
    /// 2026-01-01 00:00:00 UTC, where every manual clock starts.
    pub const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    /// Creates a clock that stands at [`ManualClock::START`], with a monotonic time of zero.
    #[must_use]
    pub fn new() -> Self {
        Self { elapsed: Mutex::default() }
    }

    /// Moves the clock forward by this time: the date and the monotonic time alike.
    pub fn advance(&self, by: Duration) {
        *self.elapsed.lock() += by;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        let monotonic = *self.elapsed.lock();
        Now { monotonic, wall: Self::START + monotonic }
    }
}

/// How long a rule may take, of the machine's time.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a change may take to a watch of another handle, by default.
const WATCHED_WITHIN: Duration = Duration::from_secs(10);

type Open = Box<dyn Fn(Arc<dyn Clock>) -> BoxFuture<'static, Arc<dyn Storage>> + Send>;

/// A backend under test: an open store, its clock, and how to open it again.
pub struct Subject {
    open: Open,
    clock: Arc<ManualClock>,
    store: Option<Arc<dyn Storage>>,
    patience: Duration,
    watched_within: Duration,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Subject {
    /// A backend that `open` opens with the clock it has to expire by.
    pub fn new<F>(open: impl Fn(Arc<dyn Clock>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Arc<dyn Storage>> + Send + 'static,
    {
        let open: Open = Box::new(move |clock| Box::pin(open(clock)));
        Self {
            open,
            clock: Arc::new(ManualClock::new()),
            store: None,
            patience: PATIENCE,
            watched_within: WATCHED_WITHIN,
        }
    }

    /// Sets how long a change may take until another handle's watch reports it (10 s), of the machine's time.
    #[must_use]
    pub fn watched_within(self, time: Duration) -> Self {
        Self { watched_within: time, ..self }
    }

    /// Runs one rule on an empty store; panics if the backend breaks it, or does not answer for two minutes.
    #[allow(clippy::disallowed_methods, reason = "a backend that never answers has to be reported")]
    pub(super) fn check_with<F: Future<Output = ()>>(mut self, rule: impl FnOnce(Self) -> F) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("cannot start a runtime: {error}"),
        };
        let patience = self.patience;
        runtime.block_on(async move {
            let checked = async {
                self.reopen().await;
                rule(self).await;
            };
            let Ok(()) = tokio::time::timeout(patience, checked).await else {
                panic!("the store has kept this rule waiting for {patience:?}: a call never returned")
            };
        });
    }

    /// The open store.
    pub(super) fn store(&self) -> &dyn Storage {
        match &self.store {
            Some(store) => &**store,
            None => panic!("the store is open while a rule runs"),
        }
    }

    /// Drops the store's only handle and opens it again.
    pub(super) async fn reopen(&mut self) {
        drop(self.store.take());
        self.store = Some((self.open)(Arc::<ManualClock>::clone(&self.clock)).await);
    }

    /// Another handle of the store, beside the open one.
    pub(super) async fn another(&self) -> Arc<dyn Storage> {
        (self.open)(Arc::<ManualClock>::clone(&self.clock)).await
    }

    /// What a watch reports in one of so many parts of the time that was set.
    #[allow(clippy::disallowed_methods, reason = "the time is the machine's")]
    pub(super) async fn within<T>(&self, parts: usize, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(self.watched_within / parts as u32, awaited).await.ok()
    }

    pub(super) fn advance_secs(&self, secs: u64) {
        self.clock.advance(Duration::from_secs(secs));
    }

    pub(super) async fn append(
        &self,
        stream: &Key,
        expected: Sequence,
        payload: &str,
    ) -> Result<Sequence, StorageError> {
        self.store().append(Append::new(stream.clone(), expected, payload.as_bytes().into())).await
    }

    /// The records of a stream as (sequence, text).
    pub(super) async fn records(&self, stream: &Key) -> Vec<(Sequence, String)> {
        let records = expect(self.store().read(stream, 0, usize::MAX).await);
        records.iter().map(|record| (record.sequence, text(&record.payload))).collect()
    }

    pub(super) async fn put(&self, key: &Key, value: &str, expected: Expected) -> Result<u64, StorageError> {
        let (key, value, durability) = (key.clone(), value.as_bytes().into(), Durability::Sync);
        self.store().put_if_revision(Put { expected, durability, ..Put::new(key, value) }).await
    }

    pub(super) async fn put_for(&self, key: &Key, value: &str, ttl_secs: u64) -> u64 {
        let (key, value, expected) = (key.clone(), value.as_bytes().into(), Expected::Any);
        let put = Put { expected, ttl_secs: Some(ttl_secs), ..Put::new(key, value) };
        expect(self.store().put_if_revision(put).await)
    }

    pub(super) async fn value(&self, key: &Key) -> Option<String> {
        expect(self.store().get(key).await).map(|entry| text(&entry.value))
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(super) fn expect<T>(result: Result<T, StorageError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the store refused: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::storage::Memory;
    use crate::supervision::panic_text;

    #[test]
    fn a_store_that_never_answers_fails_its_rule() {
        let open = |clock| async move { Arc::new(Memory::new(clock)) as Arc<dyn Storage> };
        let subject = Subject { patience: Duration::from_millis(1), ..Subject::new(open) };
        let rule = |_: Subject| std::future::pending();
        let failed = catch_unwind(AssertUnwindSafe(|| subject.check_with(rule)));
        let text = failed.map_or_else(|panic| panic_text(&*panic), |()| "it passed".to_owned());
        assert_eq!(text, "the store has kept this rule waiting for 1ms: a call never returned");
    }
}
