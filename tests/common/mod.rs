//! What the promise tests share.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "each test file uses its part of it; a test may panic"
)]

mod counts;
pub(crate) mod diary;
pub(crate) mod faults;
pub(crate) mod models;
pub(crate) mod people;
mod shaky;
mod skipping;
pub(crate) mod stores;
mod waiting;
mod worlds;

use std::time::Duration;

use callboard::actors::{StreamMode, Watched};
use callboard::env::Env;
use callboard::messages::{RunEvent, RunResult};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use futures::StreamExt;

pub(crate) use counts::{Counter, Peak};
pub(crate) use shaky::Shaky;
pub(crate) use skipping::skip;
pub(crate) use waiting::{comes_true, found};
pub(crate) use worlds::{Processes, World};

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

/// Any error that is not the library's.
pub(crate) fn broken() -> std::io::Error {
    std::io::Error::other("broken")
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
