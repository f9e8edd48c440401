//! Turns that begin while the commit that starts them is in flight: what they do outside, and the end of their run, wait for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use callboard::actors::InboxMessage;
use callboard::env::Env;
use callboard::messages::{Action, AgentName, Durability, Reducer, RunEvent, RunResult, Schema, Status};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::storage::{
    Append, Delete, Entry, Key, KeyPrefix, Memory, NewSession, Put, Record, Revision, Sequence, SessionId, SessionInfo,
    Storage, StorageError, StorageFuture, Watch,
};
use futures::FutureExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, oneshot};

use crate::common::faults::FaultPlan;
use crate::common::{Counter, assert_nothing_left, comes_true, found, people, quiet, secs};

/// A store whose appends are made at once, and acknowledged when the test says so.
#[derive(Debug)]
struct Held {
    store: Memory,
    appends: Mutex<VecDeque<HeldAppend>>,
    /// The next append is not made: its acknowledgement is an error.
    loses_next: AtomicBool,
    acknowledged: AtomicUsize,
}

#[derive(Debug)]
struct HeldAppend {
    result: Result<Sequence, StorageError>,
    reply: oneshot::Sender<Result<Sequence, StorageError>>,
}

impl Held {
    fn new(env: &Env) -> Arc<Self> {
        Arc::new(Self {
            store: Memory::new(env.clock()),
            appends: Mutex::default(),
            loses_next: false.into(),
            acknowledged: 0.into(),
        })
    }

    /// Waits for the next append.
    async fn next(&self) -> HeldAppend {
        found(async || self.appends.lock().pop_front()).await
    }

    async fn acknowledge_next(&self) {
        let HeldAppend { result, reply } = self.next().await;
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        reply.send(result).unwrap();
    }

    /// As [`Held::next`], where it takes time until then.
    async fn next_later(&self) -> HeldAppend {
        comes_true(async || self.has_append()).await;
        self.next().await
    }

    /// The append is reported as failed, whether it was made or not.
    fn fail(&self, append: HeldAppend) {
        let error = StorageError::Unavailable { detail: "no acknowledgement".into() };
        append.reply.send(Err(error)).unwrap();
    }

    /// Acknowledges whatever comes, also what a run that is read again later writes.
    async fn acknowledge_all(&self) {
        loop {
            if self.has_append() {
                self.acknowledge_next().await;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    fn has_append(&self) -> bool {
        !self.appends.lock().is_empty()
    }
}

impl Storage for Held {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        let result = match self.loses_next.swap(false, Ordering::SeqCst) {
            true => Err(StorageError::Unavailable { detail: "not written".into() }),
            false => self.store.append(append).now_or_never().unwrap(),
        };
        let (reply, acknowledged) = oneshot::channel();
        self.appends.lock().push_back(HeldAppend { result, reply });
        Box::pin(async { acknowledged.await.unwrap() })
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.store.read(stream, from, limit)
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        self.store.streams(prefix, after, limit)
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.store.purge(stream, up_to)
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.store.get(key)
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        self.store.put_if_revision(put)
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        self.store.delete_if_revision(delete)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.store.scan(prefix, after, limit)
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.store.watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        self.store.begin_session(new)
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        self.store.renew_session(id, about)
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        self.store.end_session(id, only_if_expired)
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        self.store.sessions()
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.store.forget_session(id)
    }
}

/// A board on a store that holds its acknowledgements, with one run supervisor.
fn held(env: Env) -> (Builder, Arc<Held>) {
    let store = Held::new(&env);
    let storage: Arc<dyn Storage> = Arc::clone(&store) as _;
    let builder = Callboard::builder().env(env).storage(storage).durability(Durability::Sync);
    (builder.capacity(|capacity| capacity.run_supervisors(1)), store)
}

/// The agents that have begun turns, in order.
type Begun = Arc<Mutex<Vec<String>>>;

/// An agent that notes its turns, and hands control to the next one.
fn link(name: &str, next: Option<&'static str>, begun: &Begun) -> AgentSpec {
    let begun = Arc::clone(begun);
    AgentSpec::new(name, move |turn: Turn| {
        begun.lock().push(turn.agent().as_str().to_owned());
        async move {
            let command = Command::output(turn.agent().as_str()).with("messages", turn.agent().as_str());
            Ok(next.map_or(command.clone(), |next| command.goto(next)))
        }
    })
}

fn is_end(event: &RunEvent) -> bool {
    matches!(event, RunEvent::TurnEnded { .. })
}

#[tokio::test(start_paused = true)]
async fn turns_begin_and_end_while_the_submission_is_in_flight_and_one_record_has_their_ends() {
    for completes in [false, true] {
        let (builder, store) = held(Env::repeatable(7));
        let begun = Begun::default();
        let agents = [link("a", Some("b"), &begun), link("b", Some("c"), &begun), link("c", None, &begun)];
        let board = agents.map(AgentSpec::acts_through_steps).into_iter().fold(builder, Builder::with);
        let board = board.start().await.unwrap();
        let (caller, acknowledged) = (board.clone(), Arc::new(AtomicBool::new(false)));
        let is_acknowledged = Arc::clone(&acknowledged);
        let caller = tokio::spawn(async move {
            if completes {
                return caller.complete(Task::new("x").to("a")).await.unwrap();
            }
            let run = caller.submit(Task::new("x").to("a")).await.unwrap();
            is_acknowledged.store(true, Ordering::SeqCst);
            run.result().await.unwrap()
        });
        let submission = store.next().await;
        found(async || (begun.lock().len() == 3).then_some(())).await;
        quiet().await;
        assert_eq!(*begun.lock(), ["a", "b", "c"]);
        assert!(!store.has_append() && !acknowledged.load(Ordering::SeqCst), "one commit at a time");
        submission.reply.send(submission.result).unwrap();
        let turns = store.next().await;
        quiet().await;
        assert_eq!(acknowledged.load(Ordering::SeqCst), !completes);
        assert!(!caller.is_finished(), "the end waits for its own commit");
        turns.reply.send(turns.result).unwrap();
        let result = caller.await.unwrap();
        assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("c").into()));
        assert_eq!(result.state, json!({ "messages": ["a", "b", "c"] }));
        assert!(!store.has_append());
        let history = board.run(result.run).history().await.unwrap();
        assert_eq!(history.iter().filter(|event| is_end(event)).count(), 3);
        assert_nothing_left(&board, 5).await;
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_turns_of_other_agents_wait_for_their_commit() {
    let (builder, store) = held(Env::repeatable(7));
    let begun = Begun::default();
    let [a, b, c] = [link("a", Some("b"), &begun), link("b", Some("c"), &begun), link("c", None, &begun)];
    let board = builder.with(a).with(b.acts_through_steps()).with(c).start().await.unwrap();
    let caller = board.clone();
    let caller = tokio::spawn(async move { caller.complete(Task::new("x").to("a")).await.unwrap() });
    // Before each acknowledgement: `b` begins ahead of the commit with the end of `a`, and `c` not ahead of that with the end of `b`.
    for expected in [&[][..], &["a", "b"], &["a", "b"], &["a", "b", "c"]] {
        let append = store.next().await;
        quiet().await;
        assert_eq!(*begun.lock(), expected);
        append.reply.send(append.result).unwrap();
    }
    assert_eq!(caller.await.unwrap().outcome, Outcome::Finished);
    board.shutdown().await;
}

/// What a turn does, by name; what it did is noted with how much was acknowledged by then.
async fn act(turn: &Turn, what: &str, note: impl Fn() + Send + Sync) -> Result<(), TurnError> {
    let work = async {
        note();
        Ok::<_, TurnError>(())
    };
    match what {
        "step" => turn.step("outside", work).await?,
        "effect" => turn.effect("outside").run(work).await?,
        "delegation" => drop(turn.delegate("helper", "help").await?),
        "approval" => drop(turn.people().approve(Action::new("write", "file", "text")).await?),
        "question" => drop(turn.people().ask("well?").await?),
        "reservation" => drop(turn.reserve(10).await?),
        "set" => drop(turn.context().set("run", "key", "new", None).await?),
        "delete" => drop(turn.context().delete("memory:b", "old").await?),
        "touch" => drop(turn.context().touch("memory:b", "old", None).await?),
        "recall" => drop(turn.context().recall("memory:b", "old").await?),
        "committed" => turn.committed().await?,
        other => panic!("{other}"),
    }
    note();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_does_outside_waits_for_the_commit_that_starts_it() {
    let all = ["step", "effect", "delegation", "approval", "question", "reservation"];
    for what in all.into_iter().chain(["set", "delete", "touch", "recall", "committed"]) {
        let (builder, store) = held(Env::repeatable(7));
        let acted = Arc::new(Mutex::new(Vec::new()));
        let note = {
            let (store, acted) = (Arc::clone(&store), Arc::clone(&acted));
            move || acted.lock().push(store.acknowledged())
        };
        let helped = note.clone();
        let board = builder
            .with(AgentSpec::new("a", |_: Turn| async { Ok(Command::new().goto("b")) }).acts_through_steps())
            .with(
                AgentSpec::new("b", move |turn: Turn| {
                    let note = note.clone();
                    async move {
                        act(&turn, what, note).await?;
                        Ok(Command::output("done"))
                    }
                })
                .acts_through_steps(),
            )
            .agent("helper", move |_: Turn| {
                helped();
                async { Ok(Command::new()) }
            })
            .start()
            .await
            .unwrap();
        let owner = AgentName::new("b").unwrap();
        board.context().set("memory:b", "old", "old", &owner, Some(secs(60))).await.unwrap();
        let before = board.context().get("memory:b", "old").await.unwrap().unwrap();
        let caller = board.clone();
        let caller = tokio::spawn(async move { caller.complete(Task::new("x").to("a")).await.unwrap() });
        // The submission is acknowledged, the end of `a` is not.
        store.acknowledge_next().await;
        let end_of_a = store.next().await;
        quiet().await;
        assert_eq!(*acted.lock(), [0_usize; 0], "{what}");
        assert_eq!(people::approvals(&board).await.len(), 0, "{what}");
        assert_eq!(board.context().get("memory:b", "old").await.unwrap().unwrap(), before, "{what}");
        store.acknowledged.fetch_add(1, Ordering::SeqCst);
        end_of_a.reply.send(end_of_a.result).unwrap();
        let answers = async {
            loop {
                for open in board.people().pending().await {
                    match open {
                        Pending::Approval(envelope) => {
                            let _ = board.people().approve(envelope.id(), "me").await;
                        }
                        Pending::Question(question) => {
                            let _ = board.people().answer(question.id, 7, "me").await;
                        }
                        other => panic!("{other:?}"),
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let result = tokio::select! {
            result = caller => result.unwrap(),
            () = store.acknowledge_all() => unreachable!(),
            () = answers => unreachable!(),
        };
        assert_eq!(result.outcome, Outcome::Finished, "{what}");
        assert!(!acted.lock().is_empty() && acted.lock().iter().all(|acknowledged| *acknowledged >= 2), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn turns_ahead_of_a_lost_commit_begin_again_and_count_once() {
    for (lost, is_written) in [(0, false), (0, true), (1, false), (1, true)] {
        let (builder, store) = held(Env::repeatable(7));
        let begun = Begun::default();
        let agents = [link("a", Some("b"), &begun), link("b", Some("c"), &begun), link("c", None, &begun)];
        let board = agents.map(AgentSpec::acts_through_steps).into_iter().fold(builder, Builder::with);
        let board = board.start().await.unwrap();
        let caller = board.clone();
        store.loses_next.store(lost == 0 && !is_written, Ordering::SeqCst);
        let caller = tokio::spawn(async move { caller.complete(Task::new("x").to("a")).await });
        if lost == 1 {
            let submission = store.next().await;
            quiet().await;
            store.loses_next.store(!is_written, Ordering::SeqCst);
            submission.reply.send(submission.result).unwrap();
        }
        quiet().await;
        store.fail(store.next().await);
        let result = tokio::select! {
            result = caller => result.unwrap(),
            () = store.acknowledge_all() => unreachable!(),
        };
        let case = format!("commit {lost}, written: {is_written}");
        // Where the submission was lost, its caller gets the error, and may submit it again.
        if let Ok(result) = result {
            assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("c").into()), "{case}");
            assert_eq!(result.state, json!({ "messages": ["a", "b", "c"] }), "{case}");
            assert_eq!(result.metrics.turns, 3, "{case}");
        } else {
            assert_eq!(lost, 0, "{case}: {result:?}");
        }
        let ran = begun.lock().len();
        let expected = if lost == 1 && is_written { 3..=3 } else { 3..=6 };
        assert!(expected.contains(&ran), "{case}: {ran} turns");
        let rest = async {
            tokio::time::sleep(secs(20)).await;
            assert_nothing_left(&board, 5).await;
        };
        tokio::select! {
            () = rest => {},
            () = store.acknowledge_all() => unreachable!(),
        }
    }
}

/// A run of which the last turn blocks its thread when the commit ahead of which it began is lost, and what is sent to the thread of each of
/// its two turns; so many turns of its agent run at once.
async fn blocked(
    concurrency: usize,
) -> (Callboard, Arc<Held>, tokio::task::JoinHandle<RunResult>, Counter, [mpsc::Sender<()>; 2]) {
    // Agents that block their threads need threads.
    let (builder, store) = held(Env::system());
    let passes = Counter::default();
    let (first, last) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let ends = Arc::new(Mutex::new(VecDeque::from([first.1, last.1])));
    let waiting = Counter::default();
    let is_waiting = waiting.clone();
    let a = AgentSpec::new("a", move |_: Turn| {
        let pass = passes.count();
        async move { Ok(Command::output(pass).goto("b")) }
    });
    let b = AgentSpec::new("b", move |turn: Turn| {
        let end = ends.lock().pop_front().unwrap();
        is_waiting.count();
        async move {
            end.recv().unwrap();
            Ok(Command::output(turn.input_json().clone()))
        }
    });
    let builder = builder.timings(|timings| timings.stuck_after(Duration::from_millis(100)));
    let board = builder
        .with(a.acts_through_steps())
        .with(b.concurrency(concurrency).blocking().acts_through_steps())
        .start()
        .await
        .unwrap();
    let caller = board.clone();
    let caller = tokio::spawn(async move { caller.complete(Task::new("x").to("a")).await.unwrap() });
    let submission = store.next_later().await;
    comes_true(async || waiting.get() == 1).await;
    store.loses_next.store(true, Ordering::SeqCst);
    submission.reply.send(submission.result).unwrap();
    store.fail(store.next_later().await);
    (board, store, caller, waiting, [first.0, last.0])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_a_lost_commit_that_ignores_its_stop_is_not_taken_for_the_one_that_replaces_it() {
    let (board, store, caller, waiting, [first, last]) = blocked(5).await;
    let driven = async {
        // The turn that takes its place waits, and has the same number and attempt.
        comes_true(async || waiting.get() == 2).await;
        first.send(()).unwrap();
        quiet().await;
        last.send(()).unwrap();
        caller.await.unwrap()
    };
    let result = tokio::select! {
        result = driven => result,
        () = store.acknowledge_all() => unreachable!(),
    };
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(1).into()), "that of the second pass");
    board.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_a_lost_commit_that_never_returns_gives_its_slot_back() {
    let (board, store, caller, waiting, [first, last]) = blocked(1).await;
    let driven = async {
        comes_true(async || waiting.get() == 2).await;
        last.send(()).unwrap();
        caller.await.unwrap()
    };
    let result = tokio::select! {
        result = driven => result,
        () = store.acknowledge_all() => unreachable!(),
    };
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(1).into()));
    first.send(()).unwrap();
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn turns_ahead_of_a_commit_are_taken_again_when_their_supervisor_crashes() {
    let plan = FaultPlan::default();
    let (builder, store) = held(plan.env());
    let (begun, may_end) = (Begun::default(), Arc::new(Notify::new()));
    let may_go = Arc::clone(&may_end);
    let slow = AgentSpec::new("b", move |_: Turn| {
        let may_go = Arc::clone(&may_go);
        async move {
            may_go.notified().await;
            Ok(Command::output("b").with("messages", "b").goto("c"))
        }
    });
    let agents = [link("a", Some("b"), &begun), slow, link("c", None, &begun)];
    let board = agents.map(AgentSpec::acts_through_steps).into_iter().fold(builder, Builder::with);
    let board = board.start().await.unwrap();
    let caller = board.clone();
    let caller = tokio::spawn(async move { caller.complete(Task::new("x").to("a")).await.unwrap() });
    let submission = store.next().await;
    quiet().await;
    // `b` has begun ahead; its outcome meets a supervisor that crashes, and the next one knows of the submission alone.
    plan.panic_at("runs.applied");
    may_end.notify_one();
    quiet().await;
    assert!(plan.is_carried_out());
    submission.reply.send(submission.result).unwrap();
    may_end.notify_one();
    let result = tokio::select! {
        result = caller => result.unwrap(),
        () = store.acknowledge_all() => unreachable!(),
    };
    assert_eq!((result.outcome, result.state), (Outcome::Finished, json!({ "messages": ["a", "b", "c"] }).into()));
    assert_eq!(*begun.lock(), ["a", "a", "c"]);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_gets_no_further_ahead_than_one_record_has_room_for() {
    const SMALL: usize = 100;
    const LARGE: usize = 100 << 10;
    for (size, most) in [(SMALL, 64), (LARGE, 1)] {
        let (builder, store) = held(Env::repeatable(7));
        let rounds = Counter::default();
        let counted = rounds.clone();
        let looping = AgentSpec::new("a", move |_: Turn| {
            let round = counted.count();
            async move {
                let command = Command::output("x".repeat(size));
                Ok(if round < 199 { command.goto("a") } else { command })
            }
        });
        let board = builder.with(looping.acts_through_steps()).start().await.unwrap();
        let caller = board.clone();
        let limits = Limits { handoffs: 1_000, repeat_window: 0, ..Limits::default() };
        let task = Task::new("x").to("a").limits(limits);
        let caller = tokio::spawn(async move { caller.complete(task).await.unwrap() });
        let submission = store.next().await;
        quiet().await;
        quiet().await;
        quiet().await;
        // One more turn has begun than were applied.
        assert!((most..=most + 1).contains(&rounds.get()), "{} turns", rounds.get());
        submission.reply.send(submission.result).unwrap();
        let result = tokio::select! {
            result = caller => result.unwrap(),
            () = store.acknowledge_all() => unreachable!(),
        };
        assert_eq!((result.outcome, rounds.get()), (Outcome::Finished, 200));
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_ahead_can_be_cancelled() {
    let (builder, store) = held(Env::repeatable(7));
    let begun = Begun::default();
    let waits = AgentSpec::new("b", |turn: Turn| async move {
        turn.people().ask("well?").await?;
        Ok(Command::new())
    });
    let board = [link("a", Some("b"), &begun), waits].map(AgentSpec::acts_through_steps).into_iter();
    let board = board.fold(builder, Builder::with).start().await.unwrap();
    let id = callboard::messages::RunId(uuid::Uuid::from_u128(7));
    let caller = board.clone();
    let caller = tokio::spawn(async move { caller.complete(Task::new("x").id(id).to("a")).await.unwrap() });
    let submission = store.next().await;
    quiet().await;
    let run = board.run(id);
    let cancelling = tokio::spawn(async move { run.cancel("enough").await });
    quiet().await;
    submission.reply.send(submission.result).unwrap();
    let result = tokio::select! {
        result = caller => result.unwrap(),
        () = store.acknowledge_all() => unreachable!(),
    };
    assert_eq!(result.outcome, Outcome::Cancelled { reason: "enough".into() });
    assert_eq!(cancelling.await.unwrap(), Ok(true));
    assert_nothing_left(&board, 5).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_reports_before_its_end_is_journaled_before_it() {
    let (builder, store) = held(Env::repeatable(7));
    let begun = Begun::default();
    let reporting = AgentSpec::new("a", |turn: Turn| async move {
        turn.notice("looking");
        turn.summary("found it");
        Ok(Command::output("done").goto("b"))
    });
    let lead = AgentSpec::new("lead", |turn: Turn| async move {
        turn.delegate("a", "look").await?;
        Ok(Command::new())
    });
    let board = [lead, reporting, link("b", None, &begun)].map(AgentSpec::acts_through_steps).into_iter();
    let board = board.fold(builder, Builder::with).start().await.unwrap();
    let caller = board.clone();
    // From here on, its messages come from what runs do, and not from their journals.
    assert_eq!(board.agents().inbox("lead").await.unwrap(), []);
    let caller = tokio::spawn(async move { caller.complete(Task::new("x").to("lead")).await.unwrap() });
    store.acknowledge_next().await;
    // That of the delegation.
    let submission = store.next().await;
    quiet().await;
    assert_eq!(*begun.lock(), [""; 0], "its end waits for what it has reported");
    submission.reply.send(submission.result).unwrap();
    let result = tokio::select! {
        result = caller => result.unwrap(),
        () = store.acknowledge_all() => unreachable!(),
    };
    let history = board.run(result.run).history().await.unwrap();
    let place = |fits: fn(&RunEvent) -> bool| history.iter().position(fits).unwrap();
    let [notice, summary, end] = [
        place(|event| matches!(event, RunEvent::Noticed { .. })),
        place(|event| matches!(event, RunEvent::Summarized { .. })),
        place(|event| matches!(event, RunEvent::TurnEnded { .. })),
    ];
    assert!(notice < summary && summary < end, "{history:#?}");
    // Who has delegated gets the notice.
    let inbox = board.agents().inbox("lead").await.unwrap();
    let is_notice = |message: &&InboxMessage| matches!(message, InboxMessage::Status { status: Status::Notice, .. });
    assert_eq!(inbox.iter().filter(is_notice).count(), 1, "{inbox:#?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_run_that_is_always_ahead_is_read_back_from_its_snapshot() {
    const TURNS: u32 = 2_000;
    let env = Env::repeatable(7);
    let (_, store) = held(env.clone());
    let start = async || {
        let counting = AgentSpec::new("a", |turn: Turn| async move {
            let count = turn.channel::<u32>("count")?.unwrap_or_default();
            if count < TURNS {
                return Ok(Command::update("count", 1).goto("a"));
            }
            Ok(Command::output(turn.people().ask("enough?").await?))
        });
        let builder = Callboard::builder().env(env.clone()).storage(Arc::clone(&store) as Arc<dyn Storage>);
        let builder = builder.durability(Durability::Sync).shutdown_grace(Duration::ZERO);
        builder.with(counting.acts_through_steps()).start().await.unwrap()
    };
    let lives = async {
        let board = start().await;
        let limits = Limits { handoffs: u32::MAX, repeat_window: 0, ..Limits::default() };
        let task = Task::new("x").to("a").limits(limits).schema(Schema::swarm().channel("count", Reducer::Sum));
        let run = board.submit(task).await.unwrap();
        people::question(&run).await;
        board.shutdown().await;
        let board = start().await;
        let run = board.run(run.id());
        let question = people::question(&run).await;
        board.people().answer(question.id, 7, "me").await.unwrap();
        let result = run.result().await.unwrap();
        assert_eq!((result.outcome, result.metrics.turns), (Outcome::Finished, TURNS + 1));
        assert_eq!(result.state["count"], json!(TURNS));
        board.shutdown().await;
    };
    tokio::select! {
        () = lives => {},
        () = store.acknowledge_all() => unreachable!(),
    }
    assert!(store.acknowledged() < TURNS as usize / 8, "it was ahead");
}
