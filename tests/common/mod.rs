//! What the promise tests share.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "each test file uses its part of it; a test may panic"
)]

pub(crate) mod people;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use callboard::actors::{StreamMode, Watched};
use callboard::env::{Clock, Env, Now};
use callboard::messages::{Durability, RunEvent, RunResult, Timestamp};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::{
    Append, Delivery, DeliveryId, Entry, Fence, Key, KeyPrefix, Memory, Put, Record, Revision, Sequence, Storage,
    StorageError, StorageFuture, Watch,
};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Says that a test cannot run on this machine, so that it does not count as passed unseen: `cargo xtask test` lists those tests. On
/// CI every test has to run.
///
/// # Panics
/// On CI.
pub(crate) fn skip(why: &str) {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    assert!(!is_set("CI") && !is_set("CALLBOARD_CI"), "it cannot run: {why}");
    let thread = std::thread::current();
    let test = std::env::var("NEXTEST_TEST_NAME").ok().or(thread.name().map(str::to_owned)).unwrap_or_default();
    let line = format!("{test}: {why}\n");
    // Not by `eprintln!`, which the runner keeps to itself where a test passes.
    let _ = write!(std::io::stderr(), "SKIPPED, nothing was tested: {line}");
    if let Some(list) = std::env::var_os("CALLBOARD_SKIPPED") {
        let list = std::fs::OpenOptions::new().create(true).append(true).open(list);
        list.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// A board in a repeatable world, on virtual time.
pub(crate) fn builder() -> Builder {
    Callboard::builder().env(Env::repeatable(7))
}

/// Submits a task and waits for its end.
pub(crate) async fn finish(board: &Callboard, task: Task) -> RunResult {
    board.submit(task).await.unwrap().result().await.unwrap()
}

/// Waits for the run's first event that fits, past ones included.
pub(crate) async fn until(run: &RunHandle, fits: impl Fn(&RunEvent) -> bool) -> RunEvent {
    let mut events = run.events(1, &[StreamMode::Debug]).await.unwrap();
    loop {
        match events.next().await {
            Some(Watched::Event { event, .. }) if fits(&event) => return (*event).clone(),
            Some(_) => {}
            None => panic!("the run ended before that happened: {:#?}", run.history().await),
        }
    }
}

/// Lets virtual time pass in small steps, also while a thread is blocked.
pub(crate) async fn pass(time: Duration) {
    const STEP: Duration = Duration::from_millis(50);
    for _ in 0..time.as_millis() / STEP.as_millis() {
        tokio::time::advance(STEP).await;
        quiet().await;
    }
}

/// Lets everything run that can without time passing.
pub(crate) async fn quiet() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Nothing is under way and nothing is held.
pub(crate) async fn assert_nothing_left(board: &Callboard, pool: usize) {
    quiet().await;
    let load = board.load();
    let left = (load.runs, load.ready_turns, load.turns_at_work, load.waiting_turns, load.open_approvals, load.waits);
    assert_eq!(left, (0, 0, 0, 0, 0, 0), "{load:?}");
    assert_eq!(load.free_permits, pool, "{load:?}");
}

/// Counts calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    /// Counts one, and returns how many there were before.
    pub(crate) fn count(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// How many were inside at once, at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peak(Arc<(AtomicUsize, AtomicUsize)>);

impl Peak {
    pub(crate) fn enter(&self) -> Inside {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        Inside(self.clone())
    }

    pub(crate) fn highest(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }
}

/// Leaves when dropped.
pub(crate) struct Inside(Peak);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Any error that is not the library's.
pub(crate) fn broken() -> std::io::Error {
    std::io::Error::other("broken")
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// One store and one clock, over several processes.
pub(crate) struct World {
    pub(crate) storage: Arc<Memory>,
    clock: RunningClock,
    seed: AtomicUsize,
}

/// Goes on where the process before left it.
#[derive(Clone)]
struct RunningClock(Arc<Mutex<(Duration, Option<Instant>)>>);

impl Clock for RunningClock {
    fn now(&self) -> Now {
        const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
        let (before, started) = *self.0.lock();
        let monotonic = before + started.map(|started| started.elapsed()).unwrap_or_default();
        Now { monotonic, wall: START + monotonic }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = RunningClock(Arc::default());
        Self { storage: Arc::new(Memory::new(Arc::new(clock.clone()))), clock, seed: AtomicUsize::new(1) }
    }

    /// A process on virtual time: what still runs when `main` returns is gone, as in a crash.
    pub(crate) fn process<T>(&self, main: impl AsyncFnOnce(Builder) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            self.clock.0.lock().1 = Some(Instant::now());
            let env = Env::new(self.clock.clone(), self.seed.fetch_add(1, Ordering::Relaxed) as u64);
            let storage: Arc<dyn Storage> = self.storage.clone();
            let builder = Callboard::builder().env(env).storage(storage).durability(Durability::Sync);
            let result = main(builder).await;
            // Until the next one comes, the claims of this one have run out.
            let next = self.clock.now().monotonic + secs(60);
            *self.clock.0.lock() = (next, None);
            result
        })
    }
}

/// A store that takes its time, and whose appends fail now and then: with the record written, or without.
#[derive(Debug)]
pub(crate) struct Shaky {
    store: Memory,
    random: Mutex<u64>,
    /// One append in this many fails; 0 for none.
    one_in: u64,
    pub(crate) failed: Counter,
    pub(crate) has_stopped: AtomicBool,
    /// The next append is written, and reported as failed.
    pub(crate) loses_acknowledgement: AtomicBool,
    /// The next decisions about approvals fail: with the decision written, or without.
    pub(crate) decision_faults: Mutex<Vec<bool>>,
    /// How long it takes to read a decision about an approval.
    pub(crate) decision_reads_take: Mutex<Duration>,
}

impl Shaky {
    pub(crate) fn new(env: &Env, one_in: u64) -> Self {
        Self {
            store: Memory::new(env.clock()),
            random: Mutex::new(env.random()),
            one_in,
            failed: Counter::default(),
            has_stopped: false.into(),
            loses_acknowledgement: false.into(),
            decision_faults: Mutex::default(),
            decision_reads_take: Mutex::default(),
        }
    }

    fn random(&self) -> u64 {
        let mut random = self.random.lock();
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *random >> 33
    }

    /// What was handed over happens at once; its acknowledgement comes later.
    fn later<T: Send + 'static>(&self, done: StorageFuture<T>) -> StorageFuture<T> {
        let (wait, done) = (Duration::from_millis(self.random() % 20), done.now_or_never().unwrap());
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            done
        })
    }
}

/// Whether the write was made is not known to its caller.
fn no_acknowledgement() -> StorageError {
    StorageError::Unavailable { detail: "no acknowledgement".to_owned() }
}

fn is_decision(key: &Key) -> bool {
    key.starts_with(&Key::new(["approval"]).children())
}

impl Storage for Shaky {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        if self.has_stopped.load(Ordering::SeqCst) {
            return self.later(Box::pin(std::future::ready(Err(StorageError::Stopped { detail: "no disk".into() }))));
        }
        if self.loses_acknowledgement.swap(false, Ordering::SeqCst) {
            let _ = self.store.append(append).now_or_never();
            return self.later(Box::pin(std::future::ready(Err(no_acknowledgement()))));
        }
        let fails = self.one_in > 0 && append.expected > 0 && self.random().is_multiple_of(self.one_in);
        if !fails {
            return self.later(self.store.append(append));
        }
        self.failed.count();
        if self.random().is_multiple_of(2) {
            let _ = self.store.append(append).now_or_never();
        }
        self.later(Box::pin(std::future::ready(Err(no_acknowledgement()))))
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.later(self.store.read(stream, from, limit))
    }

    fn streams(&self, prefix: &KeyPrefix) -> StorageFuture<Vec<Key>> {
        self.store.streams(prefix)
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.later(self.store.purge(stream, up_to))
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        let (wait, entry) = (*self.decision_reads_take.lock(), self.later(self.store.get(key)));
        if !is_decision(key) {
            return entry;
        }
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            entry.await
        })
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        let Some(is_written) = self.decision_faults.lock().pop_if(|_| is_decision(&put.key)) else {
            return self.later(self.store.put_if_revision(put));
        };
        if is_written {
            let _ = self.store.put_if_revision(put).now_or_never();
        }
        self.later(Box::pin(std::future::ready(Err(no_acknowledgement()))))
    }

    fn delete_if_revision(&self, key: &Key, revision: Revision, durability: Durability) -> StorageFuture<()> {
        self.later(self.store.delete_if_revision(key, revision, durability))
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.store.scan(prefix, after, limit)
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.store.watch(prefix)
    }

    fn claim(&self, stream: &Key, owner: &str, ttl_secs: u64) -> StorageFuture<Fence> {
        self.later(self.store.claim(stream, owner, ttl_secs))
    }

    fn renew(&self, stream: &Key, fence: Fence, ttl_secs: u64) -> StorageFuture<()> {
        self.later(self.store.renew(stream, fence, ttl_secs))
    }

    fn release(&self, stream: &Key, fence: Fence) -> StorageFuture<()> {
        self.later(self.store.release(stream, fence))
    }

    fn enqueue(&self, queue: &Key, id: &str, payload: Arc<[u8]>, durability: Durability) -> StorageFuture<()> {
        self.later(self.store.enqueue(queue, id, payload, durability))
    }

    fn next(&self, queue: &Key, lease_secs: u64) -> StorageFuture<Option<Delivery>> {
        self.later(self.store.next(queue, lease_secs))
    }

    fn extend(&self, delivery: &DeliveryId, lease_secs: u64) -> StorageFuture<()> {
        self.later(self.store.extend(delivery, lease_secs))
    }

    fn ack(&self, delivery: &DeliveryId) -> StorageFuture<()> {
        self.later(self.store.ack(delivery))
    }

    fn nack(&self, delivery: &DeliveryId, delay_secs: u64) -> StorageFuture<()> {
        self.later(self.store.nack(delivery, delay_secs))
    }
}
