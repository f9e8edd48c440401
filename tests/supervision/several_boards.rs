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
    Append, Entry, Journal, Key, KeyPrefix, Memory, Put, Record, Revision, Sequence, SessionId, StorageError,
    StorageFuture, Watch,
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
    world.board().env(hangs(&world.env))
}

fn hangs(env: &Env) -> Env {
    let hangs = FaultPlan::default();
    hangs.arm("storage.handle", Fault::Wait(Duration::from_secs(60)), 1);
    env.clone().with_faults(Arc::new(hangs))
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

#[tokio::test(start_paused = true)]
async fn many_runs_are_taken_over_with_few_calls() {
    const RUNS: usize = 700;
    let (env, begun) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let first = next_that_hangs((&store, &env), "first", stuck(&begun)).await;
    for _ in 0..RUNS {
        submit(&first, "stuck").await;
    }
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    store.reads.store(0, Ordering::Relaxed);
    store.reads_of_many.store(0, Ordering::Relaxed);
    let second = stuck(&begun)(store.board(&env)).start().await.unwrap();
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
    let (env, begun) = (Env::repeatable(1), Arc::new(AtomicU32::new(0)));
    let store = Shared::new(&env);
    let first = next_that_hangs((&store, &env), "first", stuck(&begun)).await;
    for _ in 0..RUNS {
        submit(&first, "stuck").await;
    }
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    store.panics_at_many.store(true, Ordering::Relaxed);
    let second = stuck(&begun)(store.board(&env)).start().await.unwrap();
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
    let run = submit(&first, "asker").await;
    let name = question(&run).await;
    let journal = Journal::new(Arc::clone(&world.storage) as _);
    assert!(journal.board_of(run.id()).await.unwrap().is_some());
    tokio::time::sleep(TAKEN_OVER_WITHIN).await;
    assert_eq!(journal.board_of(run.id()).await, Ok(None), "its lease has run out");
    first.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("ann"), "it lives, and nobody has taken it for gone");
    first.shutdown().await;
}

/// A store that several processes share, whose sessions cannot be renewed while it is mute. Counts the looks at all notes of open
/// runs, the reads of journals, and the calls that read several things at once.
#[derive(Debug)]
struct Shared {
    inside: Memory,
    is_mute: AtomicBool,
    note_scans: AtomicU32,
    reads: AtomicU32,
    reads_of_many: AtomicU32,
    /// Whether a call that reads several journals at once panics.
    panics_at_many: AtomicBool,
}

impl Shared {
    fn new(env: &Env) -> Arc<Self> {
        let [note_scans, reads, reads_of_many] = [0; 3].map(AtomicU32::new);
        let [is_mute, panics_at_many] = [false; 2].map(AtomicBool::new);
        let inside = Memory::new(env.clock());
        Arc::new(Self { inside, is_mute, note_scans, reads, reads_of_many, panics_at_many })
    }

    fn board(self: &Arc<Self>, env: &Env) -> Builder {
        let builder = Callboard::builder().env(env.clone()).storage(Arc::clone(self));
        builder.durability(Durability::Sync).shutdown_grace(Duration::ZERO)
    }
}

impl Storage for Shared {
    pass_on!(
        inside: append, streams, purge, get, put_if_revision, delete_if_revision, watch,
        begin_session, end_session, list_sessions, forget_session
    );

    fn is_shared(&self) -> bool {
        true
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inside.read(stream, from, limit)
    }

    fn get_many(&self, keys: &[Key]) -> StorageFuture<Vec<Result<Option<Entry>, StorageError>>> {
        self.reads_of_many.fetch_add(1, Ordering::Relaxed);
        self.inside.get_many(keys)
    }

    fn read_many(
        &self,
        streams: &[(Key, Sequence)],
        limit: usize,
    ) -> StorageFuture<Vec<Result<Vec<Record>, StorageError>>> {
        self.reads_of_many.fetch_add(1, Ordering::Relaxed);
        assert!(streams.len() < 2 || !self.panics_at_many.load(Ordering::Relaxed), "a journal makes the store panic");
        self.inside.read_many(streams, limit)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        if *prefix == Key::new(["open"]).children() {
            self.note_scans.fetch_add(1, Ordering::Relaxed);
        }
        self.inside.scan(prefix, after, limit)
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
    without.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(without.run(run.id()).result().await.unwrap().output, json!("ann"));
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

#[tokio::test(start_paused = true)]
async fn a_run_whose_records_are_of_a_newer_format_is_left_to_others() {
    let world = World::new();
    let first = asker(world.board()).start().await.unwrap();
    let run = submit(&first, "asker").await;
    question(&run).await;
    let second = asker(world.board()).start().await.unwrap();
    let all = second.boards().await.unwrap();
    assert_eq!(all.iter().map(|board| board.info.reads).collect::<Vec<_>>(), [1, 1]);
    // As a board of a later build would write it.
    let key = Key::new(["open", &*run.id().0.as_simple().to_string()]);
    let note = world.storage.get(&key).await.unwrap().unwrap();
    let newer = [&*note.value, b"\n{\"format\":2,\"more\":\"x\"}"].concat();
    world.storage.put_if_revision(Put::new(key.clone(), newer.into())).await.unwrap();
    first.shutdown().await;
    tokio::time::sleep(HOUR).await;
    assert!(people::questions(&second.run(run.id())).await.is_empty() && second.quarantined().is_empty());
    let unfinished = second.unfinished_runs().await.unwrap();
    assert_eq!(unfinished.iter().map(RunHandle::id).collect::<Vec<_>>(), [run.id()], "it can be seen");
    let third = asker(world.board()).start().await.unwrap();
    third.recovered().await;
    assert!(people::questions(&third.run(run.id())).await.is_empty() && third.quarantined().is_empty());
    // Of the first format, as notes were that named none.
    world.storage.put_if_revision(Put::new(key, note.value)).await.unwrap();
    third.shutdown().await;
    let third = asker(world.board()).start().await.unwrap();
    question(&third.run(run.id())).await;
    for board in [second, third] {
        board.shutdown().await;
    }
}
