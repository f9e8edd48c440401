//! What the promise tests share.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "each test file uses its part of it; a test may panic"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callboard::actors::events::{StreamMode, Watched};
use callboard::env::{Clock, Env, Now};
use callboard::messages::{Durability, RunEvent, RunResult, Timestamp};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::{Memory, Storage};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;

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
            Some(Watched::Event(published)) if fits(&published.event) => return (*published.event).clone(),
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
            let builder = Callboard::builder().env(env).shared_storage(storage).durability(Durability::Sync);
            let result = main(builder).await;
            let stopped = self.clock.now().monotonic;
            *self.clock.0.lock() = (stopped, None);
            result
        })
    }
}
