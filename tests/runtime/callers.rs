//! The thread that enqueues a message does the run supervisor's work: callers of any kind, on any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::secs;
use callboard::SubmitError;
use callboard::env::{Env, Fault, Faults};
use callboard::messages::RunResult;
use callboard::prelude::*;
use callboard::runtime::Builder;
use futures::executor::block_on;
use serde_json::json;
use tokio::runtime::Runtime;

const CALLERS: usize = 8;
const EACH: usize = 25;

/// A chain with a delegation that has a time, so that every kind of step happens.
fn chain() -> Builder {
    Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            let helped = turn.delegate("helper", "help").deadline(secs(60)).await?;
            Ok(Command::output(helped).with("messages", "lead").goto("writer"))
        })
        .agent("helper", |_: Turn| async { Ok(Command::output("helped")) })
        .agent("writer", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
}

/// Submits from many threads that know no runtime, and looks at what comes of it.
fn on_threads(runtime: &Runtime, board: &Callboard, check: impl Fn(Result<RunResult, SubmitError>) + Sync) {
    let caller = || {
        for _ in 0..EACH {
            let submitted = block_on(board.submit(Task::new("x").to("lead").deadline(secs(60))));
            check(submitted.map(|run| runtime.block_on(run.result()).unwrap()));
        }
    };
    thread::scope(|scope| (0..CALLERS).for_each(|_| drop(scope.spawn(caller))));
}

fn assert_finished(result: RunResult) {
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("helped").into()));
}

#[test]
fn threads_without_a_runtime_submit_at_the_same_time_and_nothing_is_left_waiting() {
    let runtime = Runtime::new().unwrap();
    let board = runtime.block_on(chain().start()).unwrap();
    on_threads(&runtime, &board, |result| assert_finished(result.unwrap()));
    runtime.block_on(board.shutdown());
}

/// Fails now and then.
#[derive(Default)]
struct Sometimes(AtomicUsize);

impl Faults for Sometimes {
    fn at(&self, point: &'static str, _: &str) -> Option<Fault> {
        let count = if point == "runs.taken" { self.0.fetch_add(1, Ordering::Relaxed) } else { 0 };
        match count {
            150 => Some(Fault::Panic("injected".into())),
            450 => Some(Fault::Error("injected".into())),
            _ => None,
        }
    }
}

#[test]
fn what_fails_in_the_work_of_a_caller_fails_the_run_supervisor_and_never_the_caller() {
    let runtime = Runtime::new().unwrap();
    let env = Env::system().with_faults(Arc::new(Sometimes::default()));
    let board = runtime.block_on(chain().env(env).capacity(|capacity| capacity.run_supervisors(1)).start()).unwrap();
    on_threads(&runtime, &board, |result| match result {
        Ok(result) => assert_finished(result),
        Err(error) => assert!(matches!(error, SubmitError::Unacknowledged(_)), "{error}"),
    });
    let tree = runtime.block_on(board.tree()).unwrap();
    assert_eq!(tree.find(&["runs", "runs-0"]).unwrap().restarts, 2);
    runtime.block_on(board.shutdown());
}

/// A thousand callers that wait hold a thousand of these.
#[tokio::test]
async fn what_a_caller_holds_while_it_waits_is_small() {
    let board = chain().start().await.unwrap();
    let submission = board.submit(Task::new("x").to("lead"));
    // The task is moved into it.
    assert!(size_of_val(&submission) <= 656, "{} bytes", size_of_val(&submission));
    let run = submission.await.unwrap();
    let result = run.result();
    assert!(size_of_val(&result) <= 384, "{} bytes", size_of_val(&result));
    assert_finished(result.await.unwrap());
    board.shutdown().await;
}
