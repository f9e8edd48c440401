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
use futures::FutureExt;
use serde_json::json;

use crate::common::faults::FaultPlan;
use crate::common::{World, comes_true, people};
use crate::shared_store::Shared;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// The lease, the interval of scans, and what the calls take.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(15 + 2 + 1);

/// A board with an agent that asks for a name, and answers with it.
pub(crate) fn asker(board: Builder) -> Builder {
    board.agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) })
}

async fn submit(board: &Callboard, to: &str) -> RunHandle {
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

/// What boards are called that are gone, or shut down, one after the other.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Starts a board of a process that is stopped for a minute, once the one before is gone.
async fn next_that_hangs(
    (store, env): (&Arc<Shared>, &Env),
    name: &str,
    agents: impl FnOnce(Builder) -> Builder,
) -> Callboard {
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    agents(store.board(&hangs(env)).name(name)).start().await.unwrap()
}

/// An agent whose turns are under way for ever, and the number of times that they have begun.
fn stuck(begun: &Arc<AtomicU32>) -> impl Fn(Builder) -> Builder + use<> {
    let begun = Arc::clone(begun);
    move |board| {
        let begun = Arc::clone(&begun);
        board.agent("stuck", move |_: Turn| {
            begun.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<Command, TurnError>>()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_which_three_boards_have_ended_is_not_executed_by_a_fourth_until_a_person_restarts_it() {
    let (env, begun) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let first = next_that_hangs((&store, &env), NAMES[0], stuck(&begun)).await;
    let run = submit(&first, "stuck").await.id();
    let mut gone = vec![first];
    for name in &NAMES[1..3] {
        gone.push(next_that_hangs((&store, &env), name, stuck(&begun)).await);
    }
    comes_true(async || begun.load(Ordering::Relaxed) == 3).await;
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    let last = stuck(&begun)(store.board(&env).name(NAMES[3])).start().await.unwrap();
    last.recovered().await;
    let (turn, why) = people::attention(&last.run(run)).await.remove(0);
    assert_eq!(turn.number, 1);
    assert!(why.starts_with("poison run: the boards a, b, c ended while they worked on it"), "{why}");
    tokio::time::sleep(HOUR).await;
    assert_eq!(begun.load(Ordering::Relaxed), 3, "it is not executed again");
    assert_eq!(people::restart_turns(&last, &last.run(run)).await, 1);
    comes_true(async || begun.load(Ordering::Relaxed) == 4).await;
    last.shutdown().await;
    for board in gone {
        board.shutdown().await;
    }
}

/// A store with so many runs of a board that is gone.
async fn with_stuck_runs(runs: usize) -> (Env, Arc<Shared>, Callboard) {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    let first = next_that_hangs((&store, &env), "first", stuck(&Arc::default())).await;
    for _ in 0..runs {
        submit(&first, "stuck").await;
    }
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    (env, store, first)
}

#[tokio::test(start_paused = true)]
async fn many_runs_are_taken_over_with_few_calls() {
    const RUNS: usize = 700;
    let (env, store, first) = with_stuck_runs(RUNS).await;
    store.reads.store(0, Ordering::Relaxed);
    store.reads_of_many.store(0, Ordering::Relaxed);
    let second = stuck(&Arc::default())(store.board(&env)).start().await.unwrap();
    second.recovered().await;
    assert_eq!(second.runs_at_work().len(), RUNS);
    let reads = store.reads.load(Ordering::Relaxed);
    assert!(reads < 20, "{reads} journals of {RUNS} are read by calls of their own");
    let calls = store.reads_of_many.load(Ordering::Relaxed);
    assert!(calls <= 30, "{calls} calls for notes, snapshots and journals of {RUNS} runs");
    for board in [second, first] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn runs_that_cannot_be_read_together_are_read_one_by_one() {
    const RUNS: usize = 20;
    let (env, store, first) = with_stuck_runs(RUNS).await;
    store.panics_at_many.store(true, Ordering::Relaxed);
    let second = stuck(&Arc::default())(store.board(&env)).start().await.unwrap();
    second.recovered().await;
    assert_eq!(second.runs_at_work().len(), RUNS);
    for board in [second, first] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn boards_that_are_shut_down_are_no_losses_of_their_runs() {
    let (env, begun) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let mut board = stuck(&begun)(store.board(&env)).start().await.unwrap();
    let run = submit(&board, "stuck").await.id();
    for number in 1..6 {
        comes_true(async || begun.load(Ordering::Relaxed) == number).await;
        let next = stuck(&begun)(store.board(&env)).start().await.unwrap();
        board.shutdown().await;
        board = next;
    }
    comes_true(async || begun.load(Ordering::Relaxed) == 6).await;
    assert_eq!(people::attention(&board.run(run)).await, []);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_gets_further_or_waits_for_people_outlives_any_number_of_boards() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    // One step further on each board.
    let steps = Arc::new(AtomicU32::new(0));
    let agents = |board: Builder| {
        let steps = Arc::clone(&steps);
        asker(board).agent("walker", move |turn: Turn| {
            let steps = Arc::clone(&steps);
            async move {
                let before = steps.load(Ordering::Relaxed);
                while steps.load(Ordering::Relaxed) == before {
                    turn.step("one", async { Ok::<_, TurnError>(steps.fetch_add(1, Ordering::Relaxed)) }).await?;
                }
                std::future::pending().await
            }
        })
    };
    let first = next_that_hangs((&store, &env), "first", agents).await;
    let (walks, waits) = (submit(&first, "walker").await.id(), submit(&first, "asker").await.id());
    question(&first.run(waits)).await;
    let mut gone = vec![first];
    for name in NAMES {
        comes_true(async || steps.load(Ordering::Relaxed) as usize == gone.len()).await;
        gone.push(next_that_hangs((&store, &env), name, agents).await);
    }
    comes_true(async || steps.load(Ordering::Relaxed) == 5).await;
    let last = gone.last().unwrap();
    assert_eq!(people::attention(&last.run(walks)).await, []);
    question(&last.run(waits)).await;
    for board in gone {
        board.shutdown().await;
    }
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
async fn an_effect_does_not_begin_when_the_lease_has_run_low_since_its_intent() {
    let (env, done) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let stopped = FaultPlan::default();
    stopped.arm("step.begin", Fault::Wait(Duration::from_secs(12)), 1);
    let counted = Arc::clone(&done);
    let charger = move |turn: Turn| {
        let counted = Arc::clone(&counted);
        async move {
            let charge = async { Ok::<_, TurnError>(counted.fetch_add(1, Ordering::Relaxed)) };
            Ok(Command::output(turn.effect("charge").run(charge).await?))
        }
    };
    let board = store.board(&env.clone().with_faults(Arc::new(stopped))).agent("charger", charger);
    let board = board.start().await.unwrap();
    submit(&board, "charger").await;
    store.is_mute.store(true, Ordering::Relaxed);
    board.ended().await;
    assert_eq!(done.load(Ordering::Relaxed), 0);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_board_that_loses_its_lease_does_not_cancel_what_another_one_does_for_it() {
    let env = Env::repeatable(1);
    let store = Shared::new(&env);
    // It renews its own lease seldom.
    let back = asker(store.board(&env)).timings(|timings| timings.lease(HOUR)).start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "ask").await?)) };
    let front = store.board(&env).agent("lead", lead).start().await.unwrap();
    let run = submit(&front, "lead").await;
    comes_true(async || !back.runs_at_work().is_empty()).await;
    let placed = back.runs_at_work().remove(0);
    let name = question(&placed).await;
    store.is_mute.store(true, Ordering::Relaxed);
    front.ended().await;
    store.is_mute.store(false, Ordering::Relaxed);
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    assert_eq!(people::questions(&placed).await.len(), 1, "the turn continues");
    let heir = store.board(&env).agent("lead", lead).start().await.unwrap();
    back.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(heir.run(run.id()).result().await.unwrap().output, json!("ann"));
    for board in [heir, back, front] {
        board.shutdown().await;
    }
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
