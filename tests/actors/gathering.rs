//! What turns leave for their run that it takes together.

use std::sync::Arc;

use crate::common::{builder, secs, until};
use callboard::messages::{RunEvent, RunId, SendTo, Usage};
use callboard::prelude::*;
use callboard::storage::{Journal, Memory, Storage};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

const PARTS: u64 = 40;

/// How many records the journal of a run has in a store in memory.
async fn records_of(store: &Memory, run: RunId) -> usize {
    store.read(&Journal::stream(run), 1, 100).await.unwrap().len()
}

async fn lead(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::new().goto_many((1..=PARTS).map(|part| SendTo::new("part", part))))
}

fn fan() -> Task {
    Task::new("x").to("lead").limits(Limits { handoffs: u32::MAX, ..Limits::default() })
}

#[tokio::test(start_paused = true)]
async fn ends_of_parts_that_take_no_time_are_few_records() {
    let store = Arc::new(Memory::default());
    let part = |turn: Turn| async move { Ok(Command::output(turn.input::<u64>()? + 1)) };
    let storage: Arc<dyn Storage> = Arc::clone(&store) as _;
    let board = builder().storage(storage).agent("lead", lead).agent("part", part).start().await.unwrap();
    let run = board.submit(fan()).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.output, serde_json::json!((2..=PARTS + 1).collect::<Vec<_>>()));
    let records = records_of(&store, run.id()).await;
    assert!(records <= 10, "{records} records of {PARTS} parts");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn parts_begin_once_and_those_of_an_agent_in_the_order_of_their_sends() {
    // More in a row than are dispatched together, and rows of two agents.
    let agent_of = |part: u64| if part < 150 || part.is_multiple_of(7) { "part" } else { "other" };
    let begun: Arc<Mutex<Vec<(&str, u64)>>> = Arc::default();
    let lead = move |_: Turn| async move {
        Ok(Command::new().goto_many((0..200_u64).map(|part| SendTo::new(agent_of(part), part))))
    };
    let note = |agent: &'static str| {
        let begun = Arc::clone(&begun);
        move |turn: Turn| {
            let begun = Arc::clone(&begun);
            async move {
                begun.lock().push((agent, turn.input::<u64>()?));
                Ok(Command::new())
            }
        }
    };
    let board = builder().pool(1).agent("lead", lead).agent("part", note("part")).agent("other", note("other"));
    let board = board.start().await.unwrap();
    let run = board.submit(fan()).await.unwrap();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    let begun = std::mem::take(&mut *begun.lock());
    for agent in ["part", "other"] {
        let parts = begun.iter().filter(|(by, _)| *by == agent).map(|(_, part)| *part);
        assert!(parts.eq((0..200).filter(|part| agent_of(*part) == agent)), "{agent}: {begun:?}");
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn ends_before_a_part_that_waits_are_there_while_it_waits() {
    let go = Arc::new(Notify::new());
    let going = Arc::clone(&go);
    let part = move |turn: Turn| {
        let go = Arc::clone(&going);
        async move {
            if turn.input::<u64>()? == PARTS {
                go.notified().await;
            }
            Ok(Command::new())
        }
    };
    // One worker takes all parts, the last one that waits too.
    let board = builder().pool(1).agent("lead", lead).agent("part", part).start().await.unwrap();
    let run = board.submit(fan()).await.unwrap();
    let before = PARTS as u32;
    let is_one_before = |event: &RunEvent| matches!(event, RunEvent::TurnEnded { turn, .. } if *turn == before);
    timeout(secs(9), until(&run, is_one_before)).await.unwrap();
    go.notify_one();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_call_has_used_is_one_record_with_the_result_of_its_step() {
    let store = Arc::new(Memory::default());
    let storage: Arc<dyn Storage> = Arc::clone(&store) as _;
    let calling = |turn: Turn| async move {
        let reserved = turn.reserve(10).await?;
        let call = async move {
            drop(reserved.settle(Usage::of(3, 4)));
            Ok::<_, TurnError>("seven".to_owned())
        };
        Ok(Command::output(turn.step("model", call).await?))
    };
    let board = builder().storage(storage).agent("caller", calling).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.metrics.tokens_spent, result.output), (7, "seven".into()));
    assert_eq!(records_of(&store, run.id()).await, 4, "submitted, reserved, settled with the step, ended");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_call_has_used_counts_while_its_step_waits_or_fails() {
    let calling = |turn: Turn| async move {
        let reserved = turn.reserve(10).await?;
        let waits = async move {
            reserved.settle(Usage::of(3, 4)).await?;
            Ok::<_, TurnError>(())
        };
        turn.step("waits", waits).await?;
        let reserved = turn.reserve(10).await?;
        let fails = async move {
            drop(reserved.settle(Usage::of(5, 6)));
            Err::<(), _>(TurnError::terminal("no"))
        };
        let failed = turn.step("fails", fails).await;
        // The run has it before it has anything else of the turn.
        std::future::pending::<()>().await;
        failed.map(|()| Command::new())
    };
    let board = builder().agent("caller", calling).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let used = |event: &RunEvent| matches!(event, RunEvent::Settled { usage: Some(usage), .. } if usage.total() == 11);
    timeout(secs(9), until(&run, used)).await.unwrap();
    board.shutdown().await;
}
