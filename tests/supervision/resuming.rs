//! A run that ended because of concurrent writes continues with a person's overwrite (SEMANTICS 6).

use crate::common::{World, assert_nothing_left, builder, finish, quiet, secs};
use callboard::OverwriteError;
use callboard::messages::{AgentName, Durability, RequestId, RunEvent, RunId, SendTo, StateError, Status};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunError, RunHandle};
use serde_json::json;

/// A lead that has two judges write what they were given, side by side.
fn judges(builder: Builder) -> Builder {
    let judge = |turn: Turn| async move {
        let verdict = turn.input_json().clone();
        Ok(Command::output(verdict.clone()).with("verdict", verdict.clone()).with("reason", verdict))
    };
    builder
        .agent("lead", |_: Turn| async {
            let sends = [SendTo::new("strict", "reject"), SendTo::new("kind", "accept")];
            Ok(Command::update("messages", "lead").goto_many(sends))
        })
        .agent("strict", judge)
        .agent("kind", judge)
}

async fn conflicted(board: &Callboard, to: &str) -> RunHandle {
    let run = board.submit(Task::new("judge").to(to)).await.unwrap();
    let Outcome::Failed { error } = run.result().await.unwrap().outcome else { panic!("no conflict") };
    assert!(error.contains("concurrent writes"), "{error}");
    run
}

#[tokio::test(start_paused = true)]
async fn what_a_person_writes_stands_in_the_place_of_both_writes() {
    let board = judges(builder()).start().await.unwrap();
    let run = conflicted(&board, "lead").await;
    let before = run.history().await.unwrap();
    assert_eq!(board.ended_runs(None, 9).await.unwrap().len(), 1);
    run.resume_with([("verdict", json!("accept")), ("reason", json!(null))], "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(["reject", "accept"]).into()));
    assert_eq!(result.state, json!({ "messages": ["lead"], "reason": null, "verdict": "accept" }));
    let after = run.history().await.unwrap();
    assert_eq!(after[..before.len()], before, "both updates are kept");
    let RunEvent::Overwritten { by, .. } = &after[before.len()] else { panic!("{after:?}") };
    assert_eq!((&**by, after.len()), ("ann", before.len() + 1));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegation_from_outside_that_continues_has_no_terminal_status_until_it_ends_again() {
    let world = World::new();
    let first = judges(world.builder()).start().await.unwrap();
    let task = Task::new("judge").to("lead").from_agent(AgentName::new("ann").unwrap());
    let run = first.submit(task).await.unwrap();
    run.result().await.unwrap();
    let id = RequestId::of_run(run.id());
    assert_eq!(first.status(id).await.unwrap().unwrap().status, Status::Fail);
    run.resume_with([("verdict", "accept"), ("reason", "kind")], "bob").await.unwrap();
    run.result().await.unwrap();
    let status = first.status(id).await.unwrap();
    assert_eq!(status.as_ref().unwrap().status, Status::Complete);
    first.shutdown().await;
    let second = judges(world.builder()).start().await.unwrap();
    assert_eq!(second.status(id).await.unwrap(), status);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_is_left_is_named_and_changes_nothing() {
    let board = judges(builder()).start().await.unwrap();
    let run = conflicted(&board, "lead").await;
    let before = (run.history().await.unwrap(), run.result().await.unwrap());
    let left = run.resume_with([("verdict", "accept")], "ann").await.unwrap_err();
    assert!(
        matches!(&left, OverwriteError::State(StateError::ConcurrentWrite { place, .. }) if place == "reason"),
        "{left}"
    );
    assert_eq!((run.history().await.unwrap(), run.result().await.unwrap()), before);
    run.resume_with([("verdict", "accept"), ("reason", "kind")], "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    board.shutdown().await;
}

/// An asker that has both judges work for it side by side, and hands on to a writer.
fn asker(builder: Builder) -> Builder {
    let asker = |turn: Turn| async move {
        let (one, other) = (turn.delegate("strict", "a"), turn.delegate("kind", "b"));
        let (one, other) = futures::future::join(one, other).await;
        Ok(Command::output(json!([one?.value(), other?.value()])).with("messages", "asker").goto("writer"))
    };
    judges(builder).agent("asker", asker).agent("writer", |turn: Turn| async move {
        let seen = turn.state().get("verdict").unwrap_or_default();
        Ok(Command::output(seen).with("messages", "writer"))
    })
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_children_conflicted_hands_on_as_it_wanted() {
    let board = asker(builder()).start().await.unwrap();
    let run = conflicted(&board, "asker").await;
    run.resume_with([("verdict", "accept"), ("reason", "ann says so")], "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("accept").into()));
    assert_eq!(result.state["messages"], json!(["asker", "writer"]));
    let flow = run.flow().await.unwrap().to_string();
    assert!(flow.contains("writer"), "{flow}");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_is_the_same_in_the_next_process() {
    let world = World::new();
    let start = || judges(world.builder()).start();
    let first = start().await.unwrap();
    let run = conflicted(&first, "lead").await.id();
    first.shutdown().await;

    let second = start().await.unwrap();
    second.run(run).resume_with([("verdict", "accept"), ("reason", "x")], "ann").await.unwrap();
    let result = second.run(run).result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished);
    quiet().await;
    assert!(second.unfinished_runs().await.unwrap().is_empty());
    second.shutdown().await;

    let third = start().await.unwrap();
    assert_eq!(third.run(run).result().await.unwrap(), result);
    third.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_is_kept_as_long_as_any_from_its_new_end_on() {
    let builder = asker(builder()).durability(Durability::Sync);
    let board = builder.retention(|retention| retention.runs(secs(3600)).every(secs(60))).start().await.unwrap();
    let run = conflicted(&board, "asker").await;
    tokio::time::sleep(secs(3000)).await;
    run.resume_with([("verdict", "accept"), ("reason", "x")], "ann").await.unwrap();
    let result = run.result().await;
    assert_eq!(result.as_ref().unwrap().outcome, Outcome::Finished);
    tokio::time::sleep(secs(3000)).await;
    assert_eq!(run.result().await, result);
    tokio::time::sleep(secs(900)).await;
    assert_eq!(run.result().await, Err(RunError::Unknown(run.id())));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn one_of_two_people_wins() {
    let board = judges(builder()).start().await.unwrap();
    let run = conflicted(&board, "lead").await;
    let [ann, bob] = ["ann", "bob"].map(|who| run.resume_with([("verdict", who), ("reason", who)], who));
    let (ann, bob) = futures::future::join(ann, bob).await;
    assert_eq!(ann, Ok(()));
    assert!(matches!(bob, Err(OverwriteError::NotEnded | OverwriteError::NoConflict)), "{bob:?}");
    assert_eq!(run.result().await.unwrap().state["verdict"], json!("ann"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn only_a_run_that_ended_in_a_conflict_can_be_written_over() {
    let board = judges(builder())
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) })
        .start()
        .await
        .unwrap();
    let write = [("verdict", "accept"), ("reason", "x")];
    let open = board.submit(Task::new("x").to("asker")).await.unwrap();
    quiet().await;
    assert_eq!(open.resume_with(write, "ann").await, Err(OverwriteError::NotEnded));
    let finished = finish(&board, Task::new("x").to("strict")).await.run;
    assert_eq!(board.run(finished).resume_with(write, "ann").await, Err(OverwriteError::NoConflict));
    let unknown = RunId(uuid::Uuid::from_u128(finished.0.as_u128() + 1));
    assert_eq!(board.run(unknown).resume_with(write, "ann").await, Err(OverwriteError::Unknown));
    let run = conflicted(&board, "lead").await;
    let read_only = run.resume_with([("verdict", "x"), ("reason", "x"), ("metrics", "x")], "ann").await;
    assert!(matches!(read_only, Err(OverwriteError::State(StateError::ReadOnly { .. }))), "{read_only:?}");
    run.cancel("done").await.unwrap();
    open.cancel("done").await.unwrap();
    board.shutdown().await;
}
