//! Recovery: what was acknowledged continues after a restart of the process, the supervisor or the agent (SEMANTICS 8, 10).
//!
//! A board is abandoned in the middle by a shutdown without grace: its turns stay leased, as after a crash. Killed
//! processes are the matter of `kill.rs`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard::actors::InboxMessage;
use callboard::messages::{
    Action, Backoff, Consent, Durability, Question, Reducer, Refusal, RequestId, RunEvent, RunId, Schema, SendTo,
    Status, TurnId, Unacknowledged,
};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunError, RunHandle, Unfinished};
use callboard::storage::{Append, Journal, Sled};
use callboard::supervision::runs::Fork;
use parking_lot::Mutex;
use serde_json::json;

use crate::common::faults::FaultPlan;
use crate::common::{World, comes_true, people};

const HOUR: Duration = Duration::from_secs(3600);

/// A world whose run supervisors can be crashed, and what happened outside.
#[derive(Clone)]
struct Stage {
    world: World,
    effects: Arc<Mutex<BTreeMap<String, u32>>>,
    faults: FaultPlan,
}

impl Stage {
    fn new() -> Self {
        let faults = FaultPlan::default();
        Self { world: World::of(faults.env()), effects: Arc::default(), faults }
    }

    fn board(&self) -> Builder {
        self.world.board()
    }

    /// Counts an effect, and returns how often it happened.
    fn effect(&self, name: impl Into<String>) -> u32 {
        let mut effects = self.effects.lock();
        let count = effects.entry(name.into()).or_default();
        *count += 1;
        *count
    }

    fn effects(&self) -> Vec<(String, u32)> {
        self.effects.lock().iter().map(|(name, count)| (name.clone(), *count)).collect()
    }
}

/// A board with an agent that asks for a name, and answers with it.
fn asker(board: Builder) -> Builder {
    asking(board, "name?")
}

fn asking(board: Builder, question: &'static str) -> Builder {
    board.agent("asker", move |turn: Turn| async move { Ok(Command::output(turn.people().ask(question).await?)) })
}

async fn submit(board: &Callboard, to: &str) -> RunHandle {
    board.submit(Task::new("x").to(to)).await.unwrap()
}

async fn question(run: &RunHandle) -> Question {
    people::question(run).await
}

async fn needs_attention(run: &RunHandle) -> String {
    let why = async || people::attention(run).await.into_iter().next().map(|(_, why)| why);
    comes_true(async || why().await.is_some()).await;
    why().await.unwrap()
}

fn attempts(turns: &Mutex<Vec<(TurnId, u32)>>) -> Vec<(u32, u32)> {
    turns.lock().iter().map(|(turn, attempt)| (turn.number, *attempt)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_turn_continues_under_its_id_and_attempt_and_finished_steps_do_not_repeat() {
    let stage = Stage::new();
    let turns: Arc<Mutex<Vec<(TurnId, u32)>>> = Arc::default();
    let start = || {
        let (board, stage, turns) = (stage.board(), stage.clone(), Arc::clone(&turns));
        let agent = move |turn: Turn| {
            let (stage, turns) = (stage.clone(), Arc::clone(&turns));
            async move {
                turns.lock().push((turn.id(), turn.attempt()));
                let number: u32 = turn
                    .step("first", async {
                        Ok::<_, TurnError>({
                            stage.effect("first");
                            7
                        })
                    })
                    .await?;
                if turn.attempt() == 1 {
                    return Err(TurnError::transient("once"));
                }
                turn.step("second", async { Ok::<_, TurnError>(stage.effect("second")) }).await?;
                // What follows is under way when the board goes.
                tokio::time::sleep(HOUR / 10).await;
                Ok(Command::output(number))
            }
        };
        board.agent("worker", agent).start()
    };
    let first = start().await.unwrap();
    let run = submit(&first, "worker").await.id();
    comes_true(async || stage.effects.lock().len() == 2).await;
    first.shutdown().await;

    let second = start().await.unwrap();
    let result = second.run(run).result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(7).into()));
    assert_eq!(attempts(&turns), [(1, 1), (1, 2), (1, 2)], "a restart is not an attempt");
    assert!(turns.lock().iter().all(|(turn, _)| turn.run == run));
    assert_eq!(stage.effects(), [("first".into(), 1), ("second".into(), 1)]);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn delegations_continue_and_their_answers_are_asked_for_once() {
    let stage = Stage::new();
    let start = || {
        let (lead, helper) = (stage.clone(), stage.clone());
        stage
            .board()
            .agent("lead", move |turn: Turn| {
                lead.effect("lead");
                async move {
                    let asked = ["quick", "slow"].map(|part| turn.delegate("helper", part));
                    let answers = futures::future::join_all(asked).await;
                    let answers: Result<Vec<Json>, _> = answers.into_iter().collect();
                    Ok(Command::output(json!(answers?)).with("messages", "lead"))
                }
            })
            .agent("helper", move |turn: Turn| {
                let part: String = turn.input().unwrap();
                helper.effect(part.as_str());
                async move {
                    if part == "slow" {
                        tokio::time::sleep(HOUR / 10).await;
                    }
                    Ok(Command::output(format!("{part} is done")).with("messages", part))
                }
            })
            .start()
    };
    let first = start().await.unwrap();
    let run = submit(&first, "lead").await;
    comes_true(async || run.history().await.unwrap().iter().any(|event| matches!(event, RunEvent::TurnEnded { .. })))
        .await;
    let run = run.id();
    first.shutdown().await;

    let second = start().await.unwrap();
    let result = second.run(run).result().await.unwrap();
    assert_eq!(result.output, json!(["quick is done", "slow is done"]));
    assert_eq!(result.state, json!({ "messages": ["quick", "slow", "lead"] }));
    assert_eq!(result.metrics.handoffs, 2, "nothing is admitted twice");
    assert_eq!(stage.effects(), [("lead".into(), 2), ("quick".into(), 1), ("slow".into(), 2)]);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_backoff_lasts_as_long_as_it_would_have() {
    let world = World::new();
    let start = || {
        let backoff = Backoff { first: HOUR, max: HOUR };
        let agent = |turn: Turn| async move {
            if turn.attempt() == 1 { Err(TurnError::transient("once")) } else { Ok(Command::output(turn.attempt())) }
        };
        world.board().backoff(backoff).agent("worker", agent).start()
    };
    let first = start().await.unwrap();
    let run = submit(&first, "worker").await;
    let failed = async || {
        let history = run.history().await.unwrap();
        history.into_iter().find_map(|event| match event {
            RunEvent::AttemptFailed { retry_at, .. } => Some(retry_at),
            _ => None,
        })
    };
    comes_true(async || failed().await.is_some()).await;
    let retry_at = failed().await.unwrap();
    assert!(retry_at > world.env.now().wall);
    let run = run.id();
    first.shutdown().await;
    tokio::time::advance(retry_at.since(world.env.now().wall) / 2).await;

    let second = start().await.unwrap();
    let result = second.run(run).result().await.unwrap();
    assert_eq!((result.output, result.metrics.retries), (json!(2).into(), 1));
    assert!(world.env.now().wall.since(retry_at) < Duration::from_millis(5), "{}", world.env.now().wall);
    assert!(world.env.now().wall >= retry_at);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_continues_where_it_was() {
    let stage = Stage::new();
    let start = || {
        let of_workers = stage.clone();
        stage
            .board()
            .agent("lead", |_: Turn| async move {
                Ok(Command::new().goto_many((0..4_u64).map(|n| SendTo::new("worker", n))))
            })
            .agent("worker", move |turn: Turn| {
                let stage = of_workers.clone();
                async move {
                    let n: u64 = turn.input()?;
                    stage.effect(n.to_string());
                    if n >= 2 {
                        tokio::time::sleep(HOUR / 10).await;
                    }
                    Ok(Command::output(n * n).with("messages", n))
                }
            })
            .start()
    };
    let first = start().await.unwrap();
    let run = submit(&first, "lead").await;
    let ended = async || {
        run.history().await.unwrap().iter().filter(|event| matches!(event, RunEvent::TurnEnded { .. })).count()
    };
    comes_true(async || ended().await == 3 && stage.effects.lock().len() == 4).await;
    let run = run.id();
    first.shutdown().await;

    let second = start().await.unwrap();
    let result = second.run(run).result().await.unwrap();
    assert_eq!((result.output, result.state), (json!([0, 1, 4, 9]).into(), json!({ "messages": [0, 1, 2, 3] }).into()));
    assert_eq!(stage.effects(), [("0".into(), 1), ("1".into(), 1), ("2".into(), 2), ("3".into(), 2)]);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn questions_keep_their_ids_and_answers_over_a_restart() {
    let world = World::new();
    let start = || {
        let agent = |turn: Turn| async move {
            let name = turn.people().ask("name?").await?;
            let place = turn.people().ask("place?").await?;
            Ok(Command::output(json!([name, place])))
        };
        world.board().agent("asker", agent).start()
    };
    let first = start().await.unwrap();
    let run = submit(&first, "asker").await;
    let name = question(&run).await;
    first.people().answer(name.id, "ann", "tester").await.unwrap();
    let place = question(&run).await;
    let run = run.id();
    first.shutdown().await;

    let second = start().await.unwrap();
    assert_eq!(
        people::questions(&second.run(run)).await,
        std::slice::from_ref(&place),
        "at once, without waiting for the journal's reader"
    );
    second.people().answer(place.id, "here", "tester").await.unwrap();
    let result = second.run(run).result().await.unwrap();
    assert_eq!(result.output, json!(["ann", "here"]));
    second.shutdown().await;
    assert_eq!(
        second.people().answer(place.id, "there", "tester").await,
        Err(Unacknowledged::Answer(place.id.request).into())
    );
    assert!(!second.run(run).cancel("enough").await.unwrap());
    assert_eq!(second.run(run).pending().await, []);
}

#[tokio::test(start_paused = true)]
async fn an_answer_given_right_after_the_start_is_taken() {
    let world = World::new();
    let start = || asker(world.board()).start();
    let first = start().await.unwrap();
    let (answered, cancelled) = (submit(&first, "asker").await, submit(&first, "asker").await);
    let name = question(&answered).await;
    question(&cancelled).await;
    let (answered, cancelled) = (answered.id(), cancelled.id());
    first.shutdown().await;

    let second = start().await.unwrap();
    second.people().answer(name.id, "ann", "tester").await.unwrap();
    assert!(second.run(cancelled).cancel("enough").await.unwrap(), "an unfinished run can be stopped at once");
    assert_eq!(second.run(answered).result().await.unwrap().output, json!("ann"));
    assert!(matches!(second.run(cancelled).result().await.unwrap().outcome, Outcome::Cancelled { .. }));
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_counts_from_the_submission() {
    let world = World::new();
    let start = || asker(world.board()).start();
    let first = start().await.unwrap();
    let submitted = world.env.now().wall;
    let tasks = [HOUR * 2, HOUR / 2].map(|deadline| Task::new("x").deadline(deadline));
    let [long, short] = [first.submit(tasks[0].clone()).await.unwrap(), first.submit(tasks[1].clone()).await.unwrap()];
    question(&long).await;
    question(&short).await;
    let (long, short) = (long.id(), short.id());
    first.shutdown().await;
    tokio::time::advance(HOUR).await;

    let second = start().await.unwrap();
    for (run, hours) in [(short, 1), (long, 2)] {
        let result = second.run(run).result().await.unwrap();
        assert_eq!(result.outcome, Outcome::Refused(Refusal::DeadlinePassed));
        assert_eq!(world.env.now().wall.since(submitted).as_secs(), hours * 3600);
    }
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn how_often_a_turn_may_be_found_under_way_can_be_set() {
    let world = World::new();
    let begun = Arc::new(AtomicU32::new(0));
    let start = || {
        let begun = Arc::clone(&begun);
        let agent = move |_: Turn| {
            begun.fetch_add(1, Ordering::Relaxed);
            std::future::pending()
        };
        world.board().max_recoveries(2).agent("worker", agent).start()
    };
    let mut board = start().await.unwrap();
    let run = submit(&board, "worker").await.id();
    for begins in 1..=2 {
        comes_true(async || begun.load(Ordering::Relaxed) == begins).await;
        board.shutdown().await;
        board = start().await.unwrap();
    }
    assert_eq!(needs_attention(&board.run(run)).await, "it was under way at 2 starts in a row");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_found_under_way_at_ten_starts_in_a_row_needs_attention() {
    let world = World::new();
    let is_stuck = Arc::new(AtomicBool::new(true));
    let begun = Arc::new(AtomicU32::new(0));
    let start = || {
        let (is_stuck, begun) = (Arc::clone(&is_stuck), Arc::clone(&begun));
        let agent = move |turn: Turn| {
            let (is_stuck, begun) = (Arc::clone(&is_stuck), Arc::clone(&begun));
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                if is_stuck.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                Ok(Command::output(turn.attempt()))
            }
        };
        world.board().agent("worker", agent).start()
    };
    let board = start().await.unwrap();
    let run = submit(&board, "worker").await.id();
    comes_true(async || begun.load(Ordering::Relaxed) == 1).await;
    board.shutdown().await;
    for recovery in 1..10 {
        let board = start().await.unwrap();
        comes_true(async || begun.load(Ordering::Relaxed) == recovery + 1).await;
        board.shutdown().await;
    }
    let board = start().await.unwrap();
    let run = board.run(run);
    let why = needs_attention(&run).await;
    assert_eq!(why, "it was under way at 10 starts in a row");
    assert_eq!(begun.load(Ordering::Relaxed), 10);
    is_stuck.store(false, Ordering::Relaxed);
    assert_eq!(people::restart_turns(&board, &run).await, 1);
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(2).into()));
    assert_eq!(board.quarantined(), BTreeMap::new());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_an_answer_is_not_held_against_it_at_any_number_of_starts() {
    let world = World::new();
    let start = || {
        let asks = |turn: Turn| async move { Ok(Command::output(turn.people().ask("go on?").await?)) };
        let leads = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "ask").await?)) };
        world.board().agent("lead", leads).agent("asker", asks).start()
    };
    let board = start().await.unwrap();
    let run = submit(&board, "lead").await.id();
    question(&board.run(run)).await;
    board.shutdown().await;
    for _ in 0..12 {
        let board = start().await.unwrap();
        question(&board.run(run)).await;
        board.shutdown().await;
    }
    let board = start().await.unwrap();
    let asked = question(&board.run(run)).await;
    board.people().answer(asked.id, "yes", "ann").await.unwrap();
    assert_eq!(board.run(run).result().await.unwrap().output, json!("yes"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_agent_is_gone_waits_for_it_and_continues_with_what_it_had() {
    let world = World::new();
    let steps = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&steps);
    let agent = move |turn: Turn| {
        let count = Arc::clone(&count);
        async move {
            let step = async move { Ok::<_, TurnError>(count.fetch_add(1, Ordering::Relaxed)) };
            turn.step("paid", step).await?;
            Ok(Command::output(turn.people().ask("name?").await?))
        }
    };
    let leads = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "ask").await?)) };
    let first = world.board().agent("lead", leads).agent("asker", agent.clone()).start().await.unwrap();
    let run = submit(&first, "lead").await;
    let asked = question(&run).await;
    assert!(!run.read().await.unwrap().is_stuck());
    let run = run.id();
    first.shutdown().await;

    let second = world.board().agent("lead", leads).start().await.unwrap();
    let run = second.run(run);
    let why = needs_attention(&run).await;
    assert!(why.contains("agent asker is not registered"), "{why}");
    assert!(run.read().await.unwrap().is_stuck(), "the lead waits for it and for nothing else");
    second.agents().spawn(AgentSpec::new("asker", agent)).await.unwrap();
    assert_eq!(people::restart_turns(&second, &run).await, 1);
    assert_eq!(question(&run).await, asked);
    second.people().answer(asked.id, "ann", "tester").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("ann"));
    assert_eq!(steps.load(Ordering::Relaxed), 1);
    assert_eq!(people::restart_turns(&second, &run).await, 0);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_asks_for_something_else_than_before_needs_attention_and_can_be_restarted() {
    let world = World::new();
    let first = asker(world.board()).start().await.unwrap();
    let run = submit(&first, "asker").await;
    question(&run).await;
    let run = run.id();
    first.shutdown().await;
    let second = asking(world.board(), "place?").start().await.unwrap();
    let run = second.run(run);
    let why = needs_attention(&run).await;
    assert!(why.contains("an earlier attempt asked for the question \"name?\""), "{why}");
    assert_eq!(people::restart_turns(&second, &run).await, 1);
    let place = question(&run).await;
    assert_eq!(place.question, json!("place?"));
    second.people().answer(place.id, "here", "tester").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("here"));
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_journal_is_damaged_is_quarantined_and_others_start() {
    let world = World::new();
    let start = || asker(world.board()).start();
    let first = start().await.unwrap();
    let (damaged, sound) = (submit(&first, "asker").await, submit(&first, "asker").await);
    question(&damaged).await;
    question(&sound).await;
    let (damaged, sound, unheard) = (damaged.id(), sound.id(), RunId(world.env.id()));
    first.shutdown().await;
    let journal = Journal::new(Arc::clone(&world.storage));
    let records = world.storage.read(&Journal::stream(damaged), 1, usize::MAX).await.unwrap();
    let last = records.last().unwrap().sequence;
    for (run, expected) in [(damaged, last), (unheard, 0)] {
        let payload: Arc<[u8]> = Arc::from(b"garbage".as_slice());
        let (stream, durability) = (Journal::stream(run), Durability::Sync);
        world.storage.append(Append { durability, ..Append::new(stream, expected, payload) }).await.unwrap();
        journal.mark_open(run, "gone").await.unwrap();
    }

    let second = start().await.unwrap();
    second.recovered().await;
    assert_eq!(second.quarantined().len(), 2);
    let why = second.quarantined();
    assert!(why[&damaged].contains(&format!("record {}", last + 1)), "{why:?}");
    assert!(why.contains_key(&unheard));
    let unread = second.run(damaged).result().await;
    assert!(matches!(&unread, Err(RunError::Quarantined { run, .. }) if *run == damaged), "{unread:?}");
    let sound = second.run(sound);
    let name = question(&sound).await;
    second.people().answer(name.id, "ann", "tester").await.unwrap();
    assert_eq!(sound.result().await.unwrap().outcome, Outcome::Finished);
    assert_eq!(journal.open_runs().await.unwrap().len(), 2, "they are left as they are");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_replayed_is_quarantined_and_reports_it_to_its_waiters() {
    let world = World::new();
    let start = |is_sound: bool| {
        let asker = |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) };
        world
            .board()
            .agent("writer", |_: Turn| async { Ok(Command::update("best", 1).goto("asker")) })
            .agent("asker", asker)
            .reducer("max", move |_, write| {
                assert!(is_sound, "another program's");
                Ok(write.clone())
            })
            .start()
    };
    let first = start(true).await.unwrap();
    let schema = Schema::open().channel("best", Reducer::Custom("max".into()));
    let run = first.submit(Task::new("x").to("writer").schema(schema)).await.unwrap();
    question(&run).await;
    first.shutdown().await;

    let second = start(false).await.unwrap();
    let run = second.run(run.id());
    for error in [run.result().await.unwrap_err(), run.cancel("enough").await.unwrap_err()] {
        assert!(matches!(&error, RunError::Quarantined { why, .. } if why.contains("another program's")), "{error}");
    }
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_id_is_the_same_run() {
    let world = World::new();
    let begun = Arc::new(AtomicU32::new(0));
    let start = || {
        let begun = Arc::clone(&begun);
        let agent = move |turn: Turn| {
            begun.fetch_add(1, Ordering::Relaxed);
            async move { Ok(Command::output(turn.people().ask("name?").await?)) }
        };
        world.board().agent("asker", agent).start()
    };
    let task = |n: u128| Task::new("x").id(RunId(uuid::Uuid::from_u128(n)));
    let first = start().await.unwrap();
    for n in [1, 2] {
        let (run, again) = (first.submit(task(n)).await.unwrap(), first.submit(task(n)).await.unwrap());
        assert_eq!(run.id(), again.id(), "a task that is submitted again is the same run");
        question(&run).await;
    }
    let ended = first.submit(task(3)).await.unwrap();
    first.people().answer(question(&ended).await.id, "ann", "tester").await.unwrap();
    ended.result().await.unwrap();
    let again = first.submit(task(3)).await.unwrap();
    assert_eq!(again.result().await.unwrap().output, json!("ann"), "also when it has ended");
    assert_eq!(begun.load(Ordering::Relaxed), 3);
    first.shutdown().await;

    let second = start().await.unwrap();
    for n in [1, 2, 3] {
        // Right after the start, when the run is just being read.
        let run = second.submit(task(n)).await.unwrap();
        assert_eq!(run.id(), RunId(uuid::Uuid::from_u128(n)));
        if n != 3 {
            second.people().answer(question(&run).await.id, "bob", "tester").await.unwrap();
        }
        let expected = if n == 3 { "ann" } else { "bob" };
        assert_eq!(run.result().await.unwrap().output, json!(expected));
        let again = second.submit(task(n)).await.unwrap();
        assert_eq!(again.result().await.unwrap().output, json!(expected));
    }
    assert_eq!(begun.load(Ordering::Relaxed), 5, "two turns were found under way, and nothing else was begun");
    assert_eq!(second.load().runs, 0);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_crashed_run_supervisor_loses_nothing_that_was_acknowledged() {
    let stage = Stage::new();
    let has_crashed = Arc::new(AtomicBool::new(false));
    let (crashed, crash, workers) = (Arc::clone(&has_crashed), stage.faults.clone(), stage.clone());
    let board = stage
        .board()
        .capacity(|capacity| capacity.run_supervisors(1))
        .pool(100)
        .agent("crasher", |turn: Turn| async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            turn.people().approve(Action::new("crash", "the supervisor", json!(null))).await?;
            Ok(Command::output("survived"))
        })
        .with(
            AgentSpec::new("worker", move |turn: Turn| {
                let stage = workers.clone();
                async move {
                    turn.step("effect", async { Ok::<_, TurnError>(stage.effect(turn.id().run.to_string())) }).await?;
                    // All end, ask and fail in the moment in which the supervisor crashes.
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    Ok(match turn.input::<u64>()? % 4 {
                        0 => Command::output(turn.people().ask("name?").await?),
                        1 => Command::output(turn.delegate("helper", "help").await?),
                        2 if turn.attempt() == 1 => return Err(TurnError::transient("once")),
                        _ => Command::output("done"),
                    })
                }
            })
            .concurrency(100),
        )
        .agent("helper", |_: Turn| async move { Ok(Command::output("helped")) })
        .approval_policy(move |question| {
            if &*question.action.action == "crash" && !crashed.swap(true, Ordering::Relaxed) {
                crash.panic_at("runs.taken");
            }
            Consent::Auto
        })
        .start()
        .await
        .unwrap();
    let crasher = submit(&board, "crasher").await;
    let mut runs = Vec::new();
    for n in 0..40_u64 {
        runs.push(board.submit(Task::new("x").to("worker").input(n)).await.unwrap());
    }
    for (n, run) in runs.iter().enumerate() {
        if n % 4 == 0 {
            let name = question(run).await;
            board.people().answer(name.id, "ann", "tester").await.unwrap();
        }
        let result = run.result().await.unwrap();
        let expected = ["ann", "helped", "done", "done"][n % 4];
        assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(expected).into()), "run {n}");
    }
    assert!(has_crashed.load(Ordering::Relaxed));
    let result = crasher.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("survived").into()));
    let tree = board.tree().await.unwrap();
    assert_eq!(tree.find(&["runs", "runs-0"]).unwrap().restarts, 1, "{tree}");
    assert!(stage.effects().iter().all(|(_, count)| *count == 1), "{:?}", stage.effects());
    assert_eq!(board.unfinished_runs().await.unwrap().len(), 0);
    let load = board.load();
    assert_eq!((load.turns_at_work, load.waiting_turns, load.ready_turns, load.waits), (0, 0, 0, 0));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_arrives_together_with_a_crash_is_not_lost() {
    let stage = Stage::new();
    let (has_crashed, crash) = (AtomicBool::new(false), stage.faults.clone());
    let others: Arc<OnceLock<(Callboard, RunHandle, Question)>> = Arc::default();
    let found = Arc::clone(&others);
    let board = stage
        .board()
        .capacity(|capacity| capacity.run_supervisors(1))
        .agent("crasher", move |turn: Turn| {
            let others = Arc::clone(&found);
            async move {
                turn.people().ask("now?").await?;
                let (board, stopped, name) = others.get().unwrap();
                let people = board.people();
                // In one go: the supervisor finds all three when it is woken, and crashes over the first.
                let (approved, was_stopped, taken) = tokio::join!(
                    turn.people().approve(Action::new("crash", "the supervisor", json!(null))),
                    stopped.cancel("enough"),
                    people.answer(name.id, "ann", "tester"),
                );
                approved?;
                Ok(Command::output(json!([was_stopped?, taken.is_ok()])))
            }
        })
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) })
        .approval_policy(move |_| {
            if !has_crashed.swap(true, Ordering::Relaxed) {
                crash.panic_at("runs.taken");
            }
            Consent::Auto
        })
        .start()
        .await
        .unwrap();
    let crasher = submit(&board, "crasher").await;
    let (stopped, answered) = (submit(&board, "asker").await, submit(&board, "asker").await);
    let (now, name) = (question(&crasher).await, question(&answered).await);
    others.set((board.clone(), stopped.clone(), name)).unwrap();
    board.people().answer(now.id, "yes", "tester").await.unwrap();
    assert_eq!(crasher.result().await.unwrap().output, json!([true, true]));
    assert!(matches!(stopped.result().await.unwrap().outcome, Outcome::Cancelled { .. }));
    assert_eq!(answered.result().await.unwrap().output, json!("ann"));
    assert_eq!(board.tree().await.unwrap().find(&["runs", "runs-0"]).unwrap().restarts, 1);
    board.shutdown().await;
}

/// A lead that gives two parts away, and a coder that asks about the second.
fn with_delegations(builder: Builder) -> Builder {
    let coder = |turn: Turn| async move {
        turn.notice("on it");
        if turn.input::<String>()? == "two" {
            turn.people().ask("which way?").await?;
        }
        Ok(Command::output("done"))
    };
    let lead = |turn: Turn| async move {
        turn.delegate("coder", "one").await?;
        turn.delegate("nobody", "none").await.unwrap_err();
        turn.delegate("coder", "two").await?;
        Ok(Command::output("both").goto("closer"))
    };
    let closer = |_: Turn| async { Ok(Command::output("closed")) };
    builder.agent("lead", lead).agent("coder", coder).agent("closer", closer)
}

async fn inboxes(board: &Callboard) -> Vec<InboxMessage> {
    let mut inbox = board.agents().inbox("lead").await.unwrap();
    inbox.extend(board.agents().inbox("coder").await.unwrap());
    inbox
}

async fn statuses_survive_a_restart(start: impl AsyncFn(Unfinished) -> Callboard) {
    let first = start(Unfinished::Resume).await;
    let run = submit(&first, "lead").await;
    let asked = question(&run).await;
    let delegation = |ordinal| RequestId { turn: TurnId { run: run.id(), number: 1 }, ordinal };
    let statuses = async |board: &Callboard| {
        let mut statuses = Vec::new();
        for ordinal in 0..4 {
            let recorded = board.status(delegation(ordinal)).await.unwrap();
            statuses.push(recorded.map(|recorded| (recorded.status, recorded.at)));
        }
        statuses
    };
    let (before, status) = (inboxes(&first).await, statuses(&first).await);
    let named: Vec<Option<Status>> = status.iter().map(|recorded| recorded.map(|(status, _)| status)).collect();
    assert_eq!(named, [Some(Status::Complete), Some(Status::Fail), Some(Status::Notice), None]);
    assert_eq!(before.len(), 3 + 1 + 2 + 2);
    first.shutdown().await;

    // Its run stays as it was left, so nothing new happens.
    let second = start(Unfinished::Leave).await;
    assert_eq!(statuses(&second).await, status);
    assert_eq!((inboxes(&second).await, inboxes(&second).await), (before.clone(), before.clone()));
    second.shutdown().await;

    let third = start(Unfinished::Resume).await;
    third.recovered().await;
    third.people().answer(asked.id, "left", "ann").await.unwrap();
    third.run(run.id()).result().await.unwrap();
    let after = inboxes(&third).await;
    assert_eq!(after.len(), before.len() + 2, "the notice that its turn gives again, and the answer: {after:?}");
    assert_eq!(third.status(delegation(2)).await.unwrap().map(|recorded| recorded.status), Some(Status::Complete));
    // What a fork copies is in the inboxes already.
    third.fork(run.id(), 4, Fork::new()).await.unwrap().result().await.unwrap();
    third.shutdown().await;

    let fourth = start(Unfinished::Resume).await;
    assert_eq!(inboxes(&fourth).await, after);
    fourth.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn statuses_and_inboxes_survive_a_restart() {
    let world = World::new();
    let start = async |unfinished| with_delegations(world.board()).on_unfinished(unfinished).start().await.unwrap();
    statuses_survive_a_restart(start).await;
}

#[tokio::test]
async fn statuses_and_inboxes_survive_a_restart_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let start = async |unfinished| {
        let builder = Callboard::builder().shutdown_grace(Duration::ZERO).on_unfinished(unfinished);
        with_delegations(builder).storage(Sled::open(folder.path()).unwrap()).start().await.unwrap()
    };
    statuses_survive_a_restart(start).await;
}
