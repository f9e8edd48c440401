//! The list of failures about which nobody has decided: it follows from the journals, whatever a crash has lost of it.

use std::sync::Arc;

use callboard::messages::{Action, Durability, OpenFailure, RunId, SendTo};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::storage::{Delete, Journal, Key};
use serde_json::json;

use crate::common::{World, finish};

/// `down` fails, `asks` is denied, `lead` has two judges write the same, and `calm` handles what `down` could not do and waits.
fn agents(builder: Builder) -> Builder {
    let judge = |turn: Turn| async move { Ok(Command::update("verdict", turn.input_json().clone())) };
    builder
        .agent("down", |_: Turn| async { Err::<Command, _>(TurnError::terminal("the service is down")) })
        .agent("asks", |turn: Turn| async move {
            turn.people().approve(Action::new("deploy", "", "")).await?;
            Ok(Command::new())
        })
        .agent("lead", |_: Turn| async {
            Ok(Command::new().goto_many([SendTo::new("strict", "reject"), SendTo::new("kind", "accept")]))
        })
        .agent("strict", judge)
        .agent("kind", judge)
        .agent("calm", |turn: Turn| async move {
            let failed = turn.delegate("down", "try").await.is_err();
            turn.people().ask("and now?").await?;
            Ok(Command::output(failed))
        })
}

async fn open(board: &Callboard) -> Vec<OpenFailure> {
    let mut failures = board.dead_letters().open(None, 50).await.unwrap();
    failures.sort_by_key(|failure| (failure.turn.run, failure.turn.number));
    failures
}

/// Removes what the list has, and with `whole` that it has everything: a store of an earlier version.
async fn lose_notes(world: &World, whole: bool) {
    for (key, entry) in world.storage.scan(&Key::new(["failures"]).children(), None, 100).await.unwrap() {
        // The key itself notes that the list is complete.
        if whole || key.segments().len() > 1 {
            world.storage.delete_if_revision(Delete::new(key, entry.revision, Durability::Memory)).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_waits_until_it_is_retried_dropped_or_overwritten() {
    let world = World::new();
    let board = agents(world.board()).start().await.unwrap();
    let mut failed: Vec<RunId> = Vec::new();
    for _ in 0..3 {
        let run = board.submit(Task::new("x").to("down")).await.unwrap();
        run.result().await.unwrap();
        failed.push(run.id());
    }
    let conflict = board.submit(Task::new("judge").to("lead")).await.unwrap();
    conflict.result().await.unwrap();
    let asks = board.submit(Task::new("x").to("asks")).await.unwrap();
    let asked = board.people().next().await.unwrap();
    board.people().answer(&asked, callboard::messages::Response::Deny { reason: String::new() }, "ann").await.unwrap();
    asks.result().await.unwrap();

    let listed = open(&board).await;
    let runs = |is_conflict| listed.iter().filter(move |it| it.is_conflict == is_conflict).map(|it| it.turn.run);
    failed.sort();
    assert_eq!(runs(false).collect::<Vec<_>>(), failed, "the denied one was decided: {listed:#?}");
    assert_eq!(runs(true).collect::<Vec<_>>(), [conflict.id()]);
    let place = |run| listed.iter().find(|it| it.turn.run == run).unwrap();
    assert_eq!(place(failed[0]).failure.text, "the service is down");
    assert!(place(conflict.id()).failure.text.contains("concurrent writes to verdict"));
    let first = board.dead_letters().open(None, 1).await.unwrap().remove(0);
    let rest = board.dead_letters().open(Some((first.at, first.turn)), 9).await.unwrap();
    assert_eq!(rest.len(), 3, "a page continues after the last one of the page before");

    assert!(board.dead_letters().discard(place(failed[0]).turn).await.unwrap());
    let again = board.dead_letters().retry(place(failed[1]).turn).await.unwrap();
    again.result().await.unwrap();
    conflict.resume_with([("verdict", json!("accept"))], "ann").await.unwrap();
    conflict.result().await.unwrap();
    let mut left = [again.id(), failed[2]];
    left.sort();
    assert_eq!(open(&board).await.iter().map(|it| it.turn.run).collect::<Vec<_>>(), left);
    board.shutdown().await;

    for whole in [false, true] {
        let before = listed.iter().find(|it| it.turn.run == failed[2]).unwrap();
        lose_notes(&world, whole).await;
        let board = agents(world.board()).start().await.unwrap();
        let found = open(&board).await;
        assert_eq!(found.contains(before), whole, "a store that was written without the list is read once");
        assert_eq!(found.len(), if whole { 2 } else { 0 }, "what was decided about stays decided: {found:#?}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn notes_that_a_crash_has_lost_are_there_after_the_next_start() {
    let world = World::new();
    let board = agents(world.board()).start().await.unwrap();
    let handled = board.submit(Task::new("x").to("calm")).await.unwrap();
    board.people().next().await.unwrap();
    let ended = finish_failed(&board, "down").await;
    let conflict = finish_failed(&board, "lead").await;
    let before = open(&board).await;
    assert_eq!(before.len(), 3, "{before:#?}");
    let dropped = before.iter().find(|it| it.turn.run == ended).unwrap().turn;
    board.shutdown().await;

    // A crash keeps the open notes of runs whose other notes it loses.
    let journal = Journal::new(Arc::clone(&world.storage));
    for run in [ended, conflict] {
        journal.mark_open(run, "board").await.unwrap();
    }
    lose_notes(&world, false).await;
    let board = agents(world.board()).start().await.unwrap();
    board.recovered().await;
    assert_eq!(open(&board).await, before);
    assert!(board.dead_letters().discard(dropped).await.unwrap());
    board.shutdown().await;
    for run in [ended, conflict] {
        journal.mark_open(run, "board").await.unwrap();
    }
    let board = agents(world.board()).start().await.unwrap();
    board.recovered().await;
    let left: Vec<_> = before.into_iter().filter(|it| it.turn != dropped).collect();
    assert_eq!(open(&board).await, left, "a letter that was dropped does not come back");
    assert!(left.iter().any(|it| it.turn.run == handled.id()));
    board.shutdown().await;
}

async fn finish_failed(board: &Callboard, agent: &str) -> RunId {
    finish(board, Task::new("x").to(agent)).await.run
}
