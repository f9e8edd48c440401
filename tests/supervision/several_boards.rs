//! Several boards on one store: who has which runs, and what a board that is gone can still do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use callboard::AnswerError;
use callboard::env::{Env, Fault};
use callboard::messages::{Durability, Question, RunId};
use callboard::prelude::*;
use callboard::runtime::{BuildError, Builder, RunHandle};
use callboard::storage::{
    Append, Entry, Key, KeyPrefix, Memory, Put, Record, Revision, Sequence, SessionId, StorageError, StorageFuture,
    Watch,
};
use futures::FutureExt;
use serde_json::json;

use crate::common::faults::FaultPlan;
use crate::common::{World, comes_true, people};
use crate::passing::pass_on;

const HOUR: Duration = Duration::from_secs(3600);
/// The lease, the interval of scans, and what the calls take.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(15 + 2 + 1);

/// A board with an agent that asks for a name, and answers with it.
fn asker(board: Builder) -> Builder {
    board.agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) })
}

async fn submit(board: &Callboard, to: &str) -> RunHandle {
    board.submit(Task::new("x").to(to)).await.unwrap()
}

async fn question(run: &RunHandle) -> Question {
    comes_true(async || !people::questions(run).await.is_empty()).await;
    people::questions(run).await.remove(0)
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
    let hangs = FaultPlan::default();
    hangs.arm("storage.handle", Fault::Wait(Duration::from_secs(60)), 1);
    world.board().env(world.env.clone().with_faults(Arc::new(hangs)))
}

#[tokio::test(start_paused = true)]
async fn a_running_board_takes_over_the_runs_of_one_that_is_gone() {
    let world = World::new();
    let second = asker(world.board()).start().await.unwrap();
    let first = asker(hanging(&world)).start().await.unwrap();
    let run = submit(&first, "asker").await;
    question(&run).await;
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
    let run = submit(&first, "asker").await;
    let name = question(&run).await;
    submit(&first, "writer").await;
    question_at(&second, run.id()).await;
    let by_then = writes.load(Ordering::Relaxed);
    let late = first.people().answer(name.id, "too late", "tester").await;
    assert!(matches!(late, Err(AnswerError::Storage(StorageError::Stopped { .. }))), "{late:?}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(writes.load(Ordering::Relaxed), by_then, "nothing was written after it was taken over");
    first.ended().await;
    second.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(second.run(run.id()).result().await.unwrap().output, json!("ann"));
    second.shutdown().await;
    first.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_board_that_lives_keeps_its_runs() {
    let world = World::new();
    let first = asker(world.board()).start().await.unwrap();
    let run = submit(&first, "asker").await;
    let name = question(&run).await;
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
    let run = submit(&first, "asker").await;
    question(&run).await;
    let second = asker(world.board()).start().await.unwrap();
    first.shutdown().await;
    let at = world.env.now().monotonic;
    let name = question_at(&second, run.id()).await;
    let took = world.env.now().monotonic - at;
    assert!(took <= Duration::from_secs(3), "{took:?}");
    second.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(second.run(run.id()).result().await.unwrap().output, json!("ann"));
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_several_heirs_each_run_has_one() {
    let world = World::new();
    let first = asker(hanging(&world)).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..100 {
        let run = submit(&first, "asker").await;
        question(&run).await;
        runs.push(run.id());
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

/// A store that several processes share, whose sessions cannot be renewed while it is mute.
#[derive(Debug)]
struct Shared {
    inside: Memory,
    is_mute: AtomicBool,
}

impl Shared {
    fn new(env: &Env) -> Arc<Self> {
        Arc::new(Self { inside: Memory::new(env.clock()), is_mute: AtomicBool::new(false) })
    }

    fn board(self: &Arc<Self>, env: &Env) -> Builder {
        let builder = Callboard::builder().env(env.clone()).storage(Arc::clone(self));
        builder.durability(Durability::Sync).shutdown_grace(Duration::ZERO)
    }
}

impl Storage for Shared {
    pass_on!(
        inside: append, read, streams, purge, get, put_if_revision, delete_if_revision, scan, watch,
        begin_session, end_session, list_sessions, forget_session
    );

    fn is_shared(&self) -> bool {
        true
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        if self.is_mute.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        self.inside.renew_session(id, about)
    }
}

/// Counts steps of a second each, until it is stopped.
fn stepper(board: Builder, steps: &Arc<AtomicU32>) -> Builder {
    let steps = Arc::clone(steps);
    board.agent("stepper", move |turn: Turn| {
        let steps = Arc::clone(&steps);
        async move {
            loop {
                let step = async {
                    steps.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok::<_, TurnError>(())
                };
                turn.step("one", step).await?;
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_board_that_cannot_renew_its_lease_begins_no_step_after_two_thirds_and_ends_with_it() {
    let (env, steps) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let board = stepper(store.board(&env), &steps).start().await.unwrap();
    submit(&board, "stepper").await;
    tokio::time::sleep(Duration::from_millis(12_500)).await;
    store.is_mute.store(true, Ordering::Relaxed);
    // It was renewed last when 10 s were over.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let begun = steps.load(Ordering::Relaxed);
    assert_eq!(begun, 20, "one each second, until 20 s were over");
    assert!(board.ended().now_or_never().is_none());
    tokio::time::sleep(Duration::from_millis(4_000)).await;
    assert_eq!(steps.load(Ordering::Relaxed), begun);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let ended = board.ended().now_or_never().unwrap().to_string();
    assert!(ended.contains("storage"), "{ended}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_late_lets_the_work_go_on() {
    let (env, steps) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let greeter = |_: Turn| async { Ok(Command::output("hello")) };
    let board = stepper(store.board(&env), &steps).agent("greeter", greeter).start().await.unwrap();
    submit(&board, "stepper").await;
    tokio::time::sleep(Duration::from_millis(12_500)).await;
    store.is_mute.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let begun = steps.load(Ordering::Relaxed);
    let waits = submit(&board, "greeter").await;
    store.is_mute.store(false, Ordering::Relaxed);
    assert_eq!(waits.result().await.unwrap().output, json!("hello"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(steps.load(Ordering::Relaxed) > begun + 250);
    assert!(board.ended().now_or_never().is_none());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_a_board_that_has_its_agent() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let first = asker(store.board(&env)).start().await.unwrap();
    let run = submit(&first, "asker").await;
    question(&run).await;
    let without = store.board(&env).agent("other", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap();
    first.shutdown().await;
    tokio::time::sleep(HOUR).await;
    assert!(people::questions(&without.run(run.id())).await.is_empty());
    assert!(without.runs_at_work().is_empty(), "it is left to others");
    let unfinished = without.unfinished_runs().await.unwrap();
    assert_eq!(unfinished.iter().map(RunHandle::id).collect::<Vec<_>>(), [run.id()], "and can be seen");
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
    without.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(without.run(run.id()).result().await.unwrap().output, json!("ann"));
    without.shutdown().await;
}
