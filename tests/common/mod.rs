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
pub(crate) mod stores;
mod waiting;
mod worlds;

use std::io::Write as _;
use std::time::Duration;

use callboard::actors::{StreamMode, Watched};
use callboard::env::Env;
use callboard::messages::{RunEvent, RunResult};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use futures::StreamExt;

pub(crate) use counts::{Counter, Peak};
pub(crate) use shaky::Shaky;
pub(crate) use waiting::{comes_true, found};
pub(crate) use worlds::{Processes, World};

/// Reports that a test cannot run on this machine, so that it does not count as passed unseen: `cargo xtask test` lists those
/// tests. On CI every test has to run.
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

/// Any error that is not the library's.
pub(crate) fn broken() -> std::io::Error {
    std::io::Error::other("broken")
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
