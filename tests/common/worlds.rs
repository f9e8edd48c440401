//! Stores that outlive the boards on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callboard::env::{Clock, Env, Now};
use callboard::messages::{Durability, Timestamp};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::storage::{Memory, Storage};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A store in memory that boards are started on, one after another or side by side, in one runtime on virtual time.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) storage: Arc<dyn Storage>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(Env::repeatable(1))
    }

    pub(crate) fn of(env: Env) -> Self {
        Self { storage: Arc::new(Memory::new(env.clock())), env }
    }

    /// A board that writes durably.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Callboard::builder().env(self.env.clone()).storage(Arc::clone(&self.storage));
        builder.durability(Durability::Sync)
    }

    /// A board whose shutdown waits for no turn: they stay leased, as after a crash.
    pub(crate) fn board(&self) -> Builder {
        self.builder().shutdown_grace(Duration::ZERO)
    }
}

/// One store and one clock, over several processes.
pub(crate) struct Processes {
    pub(crate) storage: Arc<Memory>,
    clock: RunningClock,
    seed: AtomicUsize,
}

/// Continues where the process before left it.
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

impl Processes {
    pub(crate) fn new() -> Self {
        let clock = RunningClock(Arc::default());
        Self { storage: Arc::new(Memory::new(Arc::new(clock.clone()))), clock, seed: AtomicUsize::new(1) }
    }

    /// A process on virtual time: what still runs when `main` returns is gone, as in a crash.
    pub(crate) fn run<T>(&self, main: impl AsyncFnOnce(Builder) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            self.clock.0.lock().1 = Some(Instant::now());
            let env = Env::new(self.clock.clone(), self.seed.fetch_add(1, Ordering::Relaxed) as u64);
            let storage: Arc<dyn Storage> = self.storage.clone();
            let builder = Callboard::builder().env(env).storage(storage).durability(Durability::Sync);
            let result = main(builder).await;
            // Until the next one comes, the claims of this one have run out.
            let next = self.clock.now().monotonic + Duration::from_secs(60);
            *self.clock.0.lock() = (next, None);
            result
        })
    }
}
