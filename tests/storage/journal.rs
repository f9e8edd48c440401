//! Journals: snapshots shorten replay and not history, and retention bounds what is kept (SEMANTICS 10).

use std::time::Duration;

use crate::common::{World, people, quiet};
use callboard::messages::{Durability, Reducer, RunEvent, Schema};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunError};
use callboard::storage::{Journal, Key};
use serde_json::json;

const LONG: Limits =
    Limits { handoffs: 100_000, tokens: 0, agents: 5, depth: 3, repeat_window: 3, attempts: 3, cost: None };

/// Counts up to its task's number, one turn each, and asks a question at `pause`.
async fn board(world: &World, durability: Durability, pause: Option<u64>) -> Callboard {
    described(world, durability, pause).start().await.unwrap()
}

fn described(world: &World, durability: Durability, pause: Option<u64>) -> Builder {
    world.builder().durability(durability).retention(|retention| retention.every(Duration::from_secs(600))).agent(
        "counter",
        move |turn: Turn| async move {
            let n: u64 = turn.input()?;
            if pause == Some(n) {
                turn.people().ask("go on?").await?;
            }
            let command = Command::output(n + 1).with("n", 1);
            let end: u64 = turn.task().body.parse().map_err(|_| TurnError::terminal("no number"))?;
            Ok(if n + 1 < end { command.goto("counter") } else { command })
        },
    )
}

fn count_to(end: u64) -> Task {
    let schema = Schema::swarm().channel("n", Reducer::Sum);
    Task::new(&end.to_string()).to("counter").input(0).limits(Limits { tokens: 10, ..LONG }).schema(schema)
}

#[tokio::test(start_paused = true)]
async fn a_long_run_continues_from_its_snapshot_after_a_restart() {
    let world = World::new();
    let first = board(&world, Durability::Sync, Some(1200)).await;
    let run = first.submit(count_to(1500)).await.unwrap().id();
    people::next_question(&first.run(run)).await.unwrap();
    first.shutdown().await;
    let snapshot = Key::new(["snapshot", &*run.0.as_simple().to_string()]);
    assert!(world.storage.get(&snapshot).await.unwrap().is_some(), "no snapshot was kept");

    let second = board(&world, Durability::Sync, Some(1200)).await;
    let handle = second.run(run);
    let question = people::question(&handle).await;
    second.people().answer(question.id, "yes", "tester").await.unwrap();
    let result = handle.result().await.unwrap();
    assert_eq!(
        (result.outcome, &result.state["n"], result.output),
        (Outcome::Finished, &json!(1500), json!(1500).into())
    );
    let ended =
        handle.history().await.unwrap().iter().filter(|event| matches!(event, RunEvent::TurnEnded { .. })).count();
    assert_eq!(ended, 1500, "a snapshot does not shorten history");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_follows_a_journal_gets_each_event_once() {
    let world = World::new();
    let board = board(&world, Durability::Sync, Some(700)).await;
    let run = board.submit(count_to(800)).await.unwrap();
    people::next_question(&run).await.unwrap();
    let journal = Journal::new(world.storage.clone());
    let (mut followed, record) = journal.events_after(run.id(), 0).await.unwrap();
    assert_eq!(followed, run.history().await.unwrap());
    assert_eq!(journal.events_after(run.id(), record).await.unwrap(), (Vec::new(), record));
    let question = people::question(&run).await;
    board.people().answer(question.id, "yes", "tester").await.unwrap();
    run.result().await.unwrap();
    let (added, last) = journal.events_after(run.id(), record).await.unwrap();
    assert!(added.len() < 400 && last > record, "{} {last}", added.len());
    followed.extend(added);
    assert_eq!(followed, run.history().await.unwrap());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_in_memory_keeps_its_last_thousand_turns() {
    let world = World::new();
    let board = board(&world, Durability::Memory, None).await;
    let run = board.submit(count_to(5000)).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.state["n"], json!(5000));
    let kept = run.history().await.unwrap().len();
    assert!((1000..2000).contains(&kept), "{kept} events are kept");
    assert_eq!(run.result().await.unwrap(), result, "the result is still known");
    assert_eq!(run.flow().await.unwrap_err(), RunError::Trimmed(run.id()), "a flow without its beginning is none");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn how_many_last_turns_a_run_in_memory_keeps_can_be_set() {
    let world = World::new();
    let board = described(&world, Durability::Memory, None)
        .retention(|retention| retention.memory_turns(3000))
        .start()
        .await
        .unwrap();
    let run = board.submit(count_to(5000)).await.unwrap();
    run.result().await.unwrap();
    let kept = run.history().await.unwrap().len();
    assert!((3000..4200).contains(&kept), "{kept} events are kept");
    board.shutdown().await;
}

/// Time passes at once, and what is due happens.
async fn advance(time: Duration) {
    tokio::time::advance(time).await;
    quiet().await;
}

#[tokio::test(start_paused = true)]
async fn runs_are_forgotten_thirty_days_after_their_end() {
    let world = World::new();
    let board = board(&world, Durability::Sync, None).await;
    let run = board.submit(count_to(3)).await.unwrap();
    let result = run.result().await;
    assert_eq!(result.as_ref().unwrap().output, json!(3));
    // By the hour, because each twenty seconds that pass by themselves are a renewal of the board's claim.
    for _ in 1..30 * 24 {
        advance(Duration::from_secs(3600)).await;
    }
    advance(Duration::from_secs(3600 - 600)).await;
    assert_eq!(run.result().await, result);
    advance(Duration::from_secs(1200)).await;
    assert_eq!(run.result().await, Err(RunError::Unknown(run.id())));
    assert_eq!(board.runs().await.unwrap().len(), 0);
    board.shutdown().await;
}
