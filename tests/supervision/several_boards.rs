//! Several boards on one store: who has which runs, and what a board that is gone can still do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callboard::AnswerError;
use callboard::env::{Env, Fault};
use callboard::messages::{Question, RunId};
use callboard::prelude::*;
use callboard::runtime::{BuildError, Builder, RunHandle};
use callboard::storage::{Journal, Key, SessionId, Storage, StorageError};
use serde_json::json;

use crate::common::faults::FaultPlan;
use crate::common::{World, comes_true, people};
use crate::shared_store::Shared;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// The lease, the interval of scans, and what the calls take.
pub(crate) const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(15 + 2 + 1);

/// A board with an agent that asks for a name, and answers with it.
pub(crate) fn asker(board: Builder) -> Builder {
    board.agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) })
}

pub(crate) async fn submit(board: &Callboard, to: &str) -> RunHandle {
    board.submit(Task::new("x").to(to)).await.unwrap()
}

/// A run of the board that waits for the answer to its question.
pub(crate) async fn asked(board: &Callboard) -> (RunHandle, Question) {
    let run = submit(board, "asker").await;
    let name = question(&run).await;
    (run, name)
}

pub(crate) async fn question(run: &RunHandle) -> Question {
    comes_true(async || !people::questions(run).await.is_empty()).await;
    people::questions(run).await.remove(0)
}

/// Answers the question of a run at this board, which the run then ends with.
async fn ends_with_answer(board: &Callboard, run: RunId, name: Question) {
    board.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(board.run(run).result().await.unwrap().output, json!("ann"));
}

fn works_on(board: &Callboard, run: RunId) -> bool {
    board.runs_at_work().iter().any(|at_work| at_work.id() == run)
}

/// The question of a run, once a board works on it.
async fn question_at(board: &Callboard, run: RunId) -> Question {
    comes_true(async || works_on(board, run)).await;
    question(&board.run(run)).await
}

/// A board whose storage actor hangs for a minute, as that of a process that is stopped: it renews nothing and looks for nothing.
fn hanging(world: &World) -> Builder {
    world.board().env(hangs(&world.env))
}

pub(crate) fn hangs(env: &Env) -> Env {
    let hangs = FaultPlan::default();
    hangs.arm("storage.handle", Fault::Wait(Duration::from_secs(60)), 1);
    env.clone().with_faults(Arc::new(hangs))
}

#[tokio::test(start_paused = true)]
async fn a_running_board_takes_over_the_runs_of_one_that_is_gone() {
    let world = World::new();
    let second = asker(world.board()).start().await.unwrap();
    let first = asker(hanging(&world)).start().await.unwrap();
    let (run, _) = asked(&first).await;
    let at = world.env.now().monotonic;
    let taken = second.run(run.id());
    let name = question_at(&second, run.id()).await;
    let took = world.env.now().monotonic - at;
    assert!(took > Duration::from_secs(14) && took < TAKEN_OVER_WITHIN, "{took:?}");
    second.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(taken.result().await.unwrap().output, json!("ann"));
    tokio::time::sleep(HOUR).await;
    assert_eq!(second.boards().await.unwrap().len(), 1, "a session without runs is forgotten");
    second.shutdown().await;
    first.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_board_that_was_taken_over_writes_nothing_any_more_and_ends() {
    let world = World::new();
    let second = asker(world.board()).start().await.unwrap();
    let (writes, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (written, failed) = (Arc::clone(&writes), Arc::clone(&refused));
    let first = asker(hanging(&world))
        .agent("writer", move |turn: Turn| {
            let (written, failed) = (Arc::clone(&written), Arc::clone(&failed));
            async move {
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let count = match turn.context().set("run", "number", "1", None).await {
                        Ok(_) => &written,
                        Err(_) => &failed,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
        .start()
        .await
        .unwrap();
    let (run, name) = asked(&first).await;
    submit(&first, "writer").await;
    question_at(&second, run.id()).await;
    let by_then = writes.load(Ordering::Relaxed);
    let late = first.people().answer(name.id, "too late", "tester").await;
    assert!(matches!(late, Err(AnswerError::Storage(StorageError::Stopped { .. }))), "{late:?}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(writes.load(Ordering::Relaxed), by_then, "nothing was written after it was taken over");
    first.ended().await;
    ends_with_answer(&second, run.id(), name).await;
    second.shutdown().await;
    first.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_board_that_is_refused_while_it_takes_a_run_over_quarantines_nothing() {
    let world = World::new();
    let second = asker(world.board()).name("second").start().await.unwrap();
    let first = asker(hanging(&world)).start().await.unwrap();
    let (run, _) = asked(&first).await;
    // Between its renewal and its look at the other boards.
    tokio::time::sleep(Duration::from_millis(15_500)).await;
    let boards = second.boards().await.unwrap();
    let session = boards.iter().find(|board| &*board.name == "second").unwrap().session;
    world.storage.end_session(SessionId(session), false).await.unwrap();
    second.ended().await;
    assert!(second.quarantined().is_empty(), "{:?}", second.quarantined());
    let heir = asker(world.board()).start().await.unwrap();
    question_at(&heir, run.id()).await;
    for board in [heir, second, first] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_that_lives_keeps_its_runs() {
    let world = World::new();
    let first = asker(world.board()).start().await.unwrap();
    let (run, name) = asked(&first).await;
    let second = asker(world.board()).start().await.unwrap();
    tokio::time::sleep(HOUR).await;
    let there = second.run(run.id());
    assert!(!works_on(&second, run.id()));
    first.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(there.result().await.unwrap().output, json!("ann"), "the journal tells both");
    for board in [first, second] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn runs_change_hands_at_once_when_their_board_is_shut_down() {
    let world = World::new();
    let first = asker(world.board()).start().await.unwrap();
    let (run, _) = asked(&first).await;
    let second = asker(world.board()).start().await.unwrap();
    first.shutdown().await;
    let at = world.env.now().monotonic;
    let name = question_at(&second, run.id()).await;
    let took = world.env.now().monotonic - at;
    assert!(took <= Duration::from_secs(3), "{took:?}");
    ends_with_answer(&second, run.id(), name).await;
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_several_heirs_each_run_has_one() {
    let world = World::new();
    let first = asker(hanging(&world)).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..100 {
        runs.push(asked(&first).await.0.id());
    }
    let mut heirs = Vec::new();
    for _ in 0..3 {
        heirs.push(asker(world.board()).start().await.unwrap());
    }
    let owners = |run| heirs.iter().filter(|heir| works_on(heir, run)).count();
    tokio::time::sleep(2 * TAKEN_OVER_WITHIN).await;
    for run in runs {
        assert_eq!(owners(run), 1, "{run}");
    }
    for heir in heirs {
        heir.shutdown().await;
    }
    first.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_is_free_again_once_its_board_is_gone() {
    let world = World::new();
    let first = world.board().name("a").address("10.0.0.1:7000").start().await.unwrap();
    let taken = world.board().name("a").start().await;
    let Err(BuildError::Storage(StorageError::NameTaken { name, left, .. })) = taken else { panic!("{taken:?}") };
    assert!(&*name == "a" && left <= Duration::from_secs(15), "{name} {left:?}");
    let boards = first.boards().await.unwrap();
    assert_eq!(boards[0].info.address.as_deref(), Some("10.0.0.1:7000"));
    first.shutdown().await;
    let again = world.board().name("a").start().await.unwrap();
    again.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_look_at_the_board_of_a_run_ends_no_board() {
    let world = World::new();
    let first = asker(hanging(&world)).start().await.unwrap();
    let (run, name) = asked(&first).await;
    let journal = Journal::new(Arc::clone(&world.storage) as _);
    assert!(journal.board_of(run.id()).await.unwrap().is_some());
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    assert_eq!(journal.board_of(run.id()).await, Ok(None), "its lease has run out");
    first.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("ann"), "it lives, and nobody has taken it for gone");
    first.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_a_board_that_has_its_agent() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let first = asker(store.board(&env)).start().await.unwrap();
    let (run, _) = asked(&first).await;
    let without = store.board(&env).agent("other", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap();
    first.shutdown().await;
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    store.note_scans.store(0, Ordering::Relaxed);
    tokio::time::sleep(HOUR).await;
    assert_eq!(store.note_scans.load(Ordering::Relaxed), 0, "a run that waits costs no look at all open runs");
    assert!(people::questions(&without.run(run.id())).await.is_empty());
    assert!(without.runs_at_work().is_empty(), "it is left to others");
    let unfinished = without.unfinished_runs().await.unwrap();
    assert_eq!(unfinished.iter().map(RunHandle::id).collect::<Vec<_>>(), [run.id()], "and can be seen");
    let third = store.board(&env).start().await.unwrap();
    let at = env.now().monotonic;
    assert!(without.run(run.id()).pending().await.is_empty());
    assert_eq!(env.now().monotonic, at, "a look does not wait for a board that takes the run over");
    third.shutdown().await;
    // Its agent comes to the board that is there.
    without
        .agents()
        .spawn(AgentSpec::new(
            "asker",
            |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) },
        ))
        .await
        .unwrap();
    let name = question(&without.run(run.id())).await;
    ends_with_answer(&without, run.id(), name).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(without.boards().await.unwrap().len(), 1, "the session of the first board is forgotten");
    without.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn runs_in_the_memory_of_a_board_are_deleted_once_it_is_gone() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let board = || asker(store.board(&env)).agent("quick", |_: Turn| async { Ok(Command::new()) });
    let (first, second) = (board().start().await.unwrap(), board().start().await.unwrap());
    let in_memory = |to: &str| Task::new("x").to(to).durability(Durability::Memory);
    let ended = first.submit(in_memory("quick")).await.unwrap();
    ended.result().await.unwrap();
    let open = first.submit(in_memory("asker")).await.unwrap();
    question(&open).await;
    let kept = submit(&second, "asker").await;
    question(&kept).await;
    let runs = async || second.runs().await.unwrap().iter().map(RunHandle::id).collect::<Vec<_>>();
    assert_eq!(runs().await.len(), 3);
    first.shutdown().await;
    comes_true(async || runs().await == [kept.id()]).await;
    let notes = store.inside.scan(&Key::new(["memory"]).children(), None, 9).await.unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    second.shutdown().await;
}
