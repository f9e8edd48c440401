//! State and commands (SEMANTICS 5 and 6): what a turn sees follows from cause, not from timing.

#![allow(clippy::disallowed_methods, reason = "the tests run on tokio's virtual time")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Counter, Shaky, World, assert_nothing_left, broken, builder, finish, people, secs};
use callboard::SubmitError;
use callboard::env::{Env, Fault, Faults};
use callboard::messages::{Reducer, RunEvent, RunResult, Schema, SendTo, StateRules, Usage};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::storage::Storage;
use callboard::supervision::runs::Run;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn parallel_branches_see_only_their_cause() {
    let board = builder()
        .agent("lead", |_: Turn| async {
            let sends = [SendTo::new("fast", 1), SendTo::new("slow", 2)];
            Ok(Command::update("messages", "lead").goto_many(sends))
        })
        .agent("fast", |_: Turn| async { Ok(Command::update("messages", "fast").goto("looker")) })
        .agent("slow", |_: Turn| async {
            tokio::time::sleep(secs(10)).await;
            Ok(Command::update("messages", "slow").goto("looker"))
        })
        .agent("looker", |turn: Turn| async move { Ok(Command::output(turn.state().get("messages").unwrap())) })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!(result.output, json!([["lead", "fast"], ["lead", "slow"]]));
    assert_eq!(result.state, json!({ "messages": ["lead", "fast", "slow"] }));
    board.shutdown().await;
}

/// Two agents write side by side.
async fn write_beside(left: Command, right: Command) -> RunResult {
    let writer = |command: Command| move |_: Turn| std::future::ready(Ok(command.clone()));
    let board = builder()
        .agent("lead", |_: Turn| async { Ok(Command::new().goto_many(["left", "right"].map(|to| SendTo::new(to, 1)))) })
        .agent("left", writer(left))
        .agent("right", writer(right))
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
    result
}

#[tokio::test(start_paused = true)]
async fn concurrent_writes_fail_the_join_and_name_the_channel_and_both_turns() {
    let artifacts = |key: &str, value: u32| Command::update("artifacts", json!({ "doc": { (key): value } }));
    let clashes = [
        (Command::update("note", 1), Command::update("note", 2), "note"),
        (Command::update("note", 1), Command::update("note", 1), "note"),
        (artifacts("title", 1), artifacts("title", 2), "artifacts.doc.title"),
        (artifacts("title", 1), Command::update("artifacts", json!({ "doc": 7 })), "artifacts.doc.title"),
        (Command::new().overwrite("messages", 1), Command::new().overwrite("messages", 2), "messages"),
    ];
    for (left, right, place) in clashes {
        let result = write_beside(left, right).await;
        let Outcome::Failed { error } = &result.outcome else { panic!("{place}: {result:?}") };
        assert!(error.contains(&format!("concurrent writes to {place}: turn 2 and turn 3")), "{error}");
    }
    let result = write_beside(artifacts("title", 1), artifacts("body", 2)).await;
    assert_eq!(result.state, json!({ "artifacts": { "doc": { "title": 1, "body": 2 } } }), "other leaves do not meet");
    let result = write_beside(Command::update("messages", 1), Command::update("messages", 2)).await;
    assert_eq!(result.state, json!({ "messages": [1, 2] }));
}

#[tokio::test(start_paused = true)]
async fn a_channel_whose_name_cannot_be_read_is_refused() {
    for name in ["", "a\u{1b}[2J", "\u{202e}note", &*"x".repeat(129)] {
        let result = write_beside(Command::update(name, 1), Command::new()).await;
        let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
        assert!(error.contains("channel name") && error.len() < 400, "{error}");
        assert_eq!(result.state, json!({}));
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_does_not_hide_a_join_that_fails() {
    let result = write_beside(Command::update("note", 1), Command::update("note", 2).end()).await;
    assert!(matches!(&result.outcome, Outcome::Failed { error } if error.contains("note")), "{result:?}");
    let result = write_beside(Command::update("messages", 1), Command::output("end").with("messages", 2).end()).await;
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("end").into()));
    assert_eq!(result.state, json!({ "messages": [1, 2] }), "what was finished is kept");
}

#[tokio::test(start_paused = true)]
async fn an_end_cancels_the_siblings_and_drops_what_they_wrote_so_far() {
    let board = builder()
        .agent("lead", |_: Turn| async {
            Ok(Command::update("messages", "lead").goto_many(["quick", "slow"].map(|to| SendTo::new(to, 1))))
        })
        .agent("quick", |_: Turn| async {
            tokio::time::sleep(secs(5)).await;
            Ok(Command::output("enough").with("messages", "quick").end())
        })
        .agent("slow", |_: Turn| async { Ok(Command::update("messages", "slow").goto("never")) })
        .agent("never", |turn: Turn| async move {
            turn.delegate("sleeper", "sleep").await?;
            Ok(Command::update("messages", "never"))
        })
        .agent("sleeper", |_: Turn| async {
            tokio::time::sleep(secs(500)).await;
            Ok(Command::new())
        })
        .start()
        .await
        .unwrap();
    let started = tokio::time::Instant::now();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("enough").into()));
    assert_eq!((result.state, started.elapsed().as_secs()), (json!({ "messages": ["lead", "quick"] }).into(), 5));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_inside_a_delegation_ends_only_that() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let answer = turn.delegate("helper", "help").await?;
            Ok(Command { output: Some(answer), ..Command::default() }.goto("last"))
        })
        .agent("helper", |_: Turn| async { Ok(Command::output("helped").end()) })
        .agent("last", |turn: Turn| async move { Ok(Command::output(json!(["last", turn.input_json()]))) })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(["last", "helped"]).into()));
    board.shutdown().await;
}

/// A lead that delegates as its input has it; the helpers write.
fn delegating() -> Builder {
    builder()
        .agent("lead", |turn: Turn| async move {
            match &*turn.task().body {
                "in turn" => {
                    turn.delegate("helper", "first").await?;
                    turn.delegate("helper", "second").await?;
                }
                _ => {
                    let both = ["first", "second"].map(|body| turn.delegate("helper", body));
                    futures::future::try_join_all(both).await?;
                }
            }
            if &*turn.task().body == "fail" {
                Err(Terminal(broken()))?;
            }
            Ok(Command::output("done").with("messages", "lead"))
        })
        .agent("helper", |turn: Turn| async move {
            let body: String = turn.input()?;
            // The second is through before the first.
            tokio::time::sleep(secs(if body == "first" { 20 } else { 10 })).await;
            let command = Command::update("messages", &*body);
            Ok(if &*turn.task().body == "side by side" { command } else { command.with("note", &*body) })
        })
}

#[tokio::test(start_paused = true)]
async fn a_childs_updates_come_before_its_parents_own_in_the_order_asked() {
    let board = delegating().start().await.unwrap();
    let result = finish(&board, Task::new("side by side").to("lead")).await;
    assert_eq!(result.state, json!({ "messages": ["first", "second", "lead"] }));
    let result = finish(&board, Task::new("in turn").to("lead")).await;
    let expected = json!({ "messages": ["first", "second", "lead"], "note": "second" });
    assert_eq!((result.outcome, result.state), (Outcome::Finished, expected.into()));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn delegations_open_at_the_same_time_are_concurrent_and_fail_their_parents_join() {
    let board = delegating().start().await.unwrap();
    let result = finish(&board, Task::new("clash").to("lead")).await;
    let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
    assert!(error.contains("concurrent writes to note: turn 2 and turn 3"), "{error}");
    assert_eq!(result.metrics.retries, 0, "another attempt would meet the same");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_childs_updates_are_dropped_with_its_parents_command() {
    let board = delegating().start().await.unwrap();
    let result = finish(&board, Task::new("fail").to("lead")).await;
    assert_eq!((result.outcome.is_finished(), result.state), (false, json!({}).into()));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegated_turn_sees_nothing_of_its_parents_state() {
    let board = builder()
        .agent("lead", |_: Turn| async { Ok(Command::update("messages", "lead").goto("second")) })
        .agent("second", |turn: Turn| async move {
            let answer = turn.delegate("helper", "look").await?;
            Ok(Command { output: Some(answer), ..Command::default() })
        })
        .agent("helper", |turn: Turn| async move {
            let state = turn.state().to_json();
            Ok(Command::output(json!([state["messages"], state["context"]])))
        })
        .start()
        .await
        .unwrap();
    assert_eq!(finish(&board, Task::new("x").to("lead")).await.output, json!([null, { "previous_agent": "second" }]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_reducer_that_panics_ends_its_run_and_nothing_else() {
    let schema = || Schema::open().channel("best", Reducer::Custom("max".into()));
    let board = builder()
        .reducer("max", |held, write| {
            assert_ne!(*write, json!("panic"), "out of luck");
            Ok(if held.as_i64() > write.as_i64() { held } else { write }.clone())
        })
        .agent("worker", |turn: Turn| async move {
            tokio::time::sleep(secs(1)).await;
            Ok(Command::update("best", turn.input_json().clone()))
        })
        .agent("lead", |_: Turn| async {
            Ok(Command::new().goto_many(["panic", "x"].map(|best| SendTo::new("worker", best))))
        })
        .capacity(|capacity| capacity.run_supervisors(1))
        .start()
        .await
        .unwrap();
    let good = board.submit(Task::new("x").to("worker").input(3).schema(schema())).await.unwrap();
    for to in ["worker", "lead"] {
        let result = finish(&board, Task::new("x").to(to).input("panic").schema(schema())).await;
        assert!(matches!(&result.outcome, Outcome::Failed { error } if error.contains("panicked")), "{result:?}");
    }
    assert_eq!(good.result().await.unwrap().state, json!({ "best": 3 }));
    assert_eq!(board.tree().await.unwrap().find(&["runs", "runs-0"]).unwrap().restarts, 0);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn metrics_are_the_runtimes_own() {
    let board = builder()
        .agent("worker", |turn: Turn| async move {
            let metrics = turn.input_json().clone();
            turn.reserve(9).await?.settle(Usage::of(4, 3));
            Ok(Command::update("metrics", metrics))
        })
        .start()
        .await
        .unwrap();
    for metrics in [json!({ "tokens_spent": 0 }), json!({ "of_my_own": 1 }), json!(null), json!([])] {
        let task = Task::new("x").input(metrics.clone()).limits(Limits { attempts: 1, ..Limits::default() });
        let result = finish(&board, task).await;
        let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
        assert!(error.contains("written by the runtime only"), "{metrics}: {error}");
        assert_eq!((result.metrics.turns, result.metrics.tokens_spent), (1, 7), "{metrics}");
        assert_eq!(result.state, json!({}), "{metrics}");
    }
    board.shutdown().await;
}

/// What one turn of a random swarm does.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Script {
    name: String,
    writes_note: bool,
    fails_first: bool,
    delegations: Vec<Script>,
    side_by_side: bool,
    then: Then,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Then {
    Stop,
    Handoff(Box<Script>),
    Fork(Vec<Script>),
}

fn scripts() -> impl Strategy<Value = Script> {
    let leaf = turn(Just(Then::Stop).boxed(), Just(Vec::new()).boxed());
    leaf.prop_recursive(3, 14, 3, |inner| {
        let then = prop_oneof![
            Just(Then::Stop),
            inner.clone().prop_map(|next| Then::Handoff(Box::new(next))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Then::Fork),
        ];
        turn(then.boxed(), prop::collection::vec(inner, 0..3).boxed())
    })
}

fn turn(then: BoxedStrategy<Then>, delegations: BoxedStrategy<Vec<Script>>) -> BoxedStrategy<Script> {
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.2), any::<bool>());
    ("[a-z]{3}", flags, then, delegations)
        .prop_map(|(name, (writes_note, fails_first, side_by_side), then, delegations)| Script {
            name,
            writes_note,
            fails_first,
            delegations,
            side_by_side,
            then,
        })
        .boxed()
}

const DEPTH: usize = 8;

/// Follows its script; one agent for each depth, so that no chain has a cycle.
async fn follow(turn: Turn, delays: u64) -> Result<Command, TurnError> {
    let script: Script = turn.input()?;
    let spread = (u64::from(turn.id().number) * 7919 + u64::from(turn.attempt())).wrapping_mul(delays | 1);
    // In one case of three, turns are often faster than commits.
    let spread = spread % if delays.is_multiple_of(3) { 3 } else { 97 };
    tokio::time::sleep(Duration::from_millis(spread)).await;
    let depth: usize = turn.agent().as_str()[1..].parse()?;
    let next = format!("a{}", depth + 1);
    let asked =
        script.delegations.iter().map(|child| turn.delegate(&next, &child.name).input(Json::of(child).unwrap()));
    let mut heard = Vec::new();
    if script.side_by_side {
        let asked: Vec<_> = asked.collect();
        for answer in futures::future::join_all(asked).await {
            heard.push(answer.is_ok());
        }
    } else {
        for delegation in asked {
            heard.push(delegation.await.is_ok());
        }
    }
    if script.fails_first && turn.attempt() == 1 {
        Err(broken())?;
    }
    let seen = turn.state().get("messages").unwrap_or_default();
    let mut command = Command::output(json!({ "name": script.name, "seen": seen, "heard": heard }))
        .with("messages", &*script.name)
        .with("count", 1);
    if script.writes_note {
        command = command.with("note", &*script.name);
    }
    Ok(match script.then {
        Then::Stop => command,
        Then::Handoff(next_script) => command.with_output(Json::of(&*next_script).unwrap()).goto(&next),
        Then::Fork(forks) => command.goto_many(forks.iter().map(|fork| SendTo::new(&next, Json::of(fork).unwrap()))),
    })
}

/// Takes the run supervisor down, three times, each so many rounds after the last.
struct Crashes {
    every: usize,
    rounds: Counter,
}

impl Faults for Crashes {
    fn at(&self, point: &'static str, _: &str) -> Option<Fault> {
        if point != "runs.applied" {
            return None;
        }
        let round = self.rounds.count() + 1;
        let is_due = round.is_multiple_of(self.every) && round <= 3 * self.every;
        is_due.then(|| Fault::Panic("injected".into()))
    }
}

/// With a supervisor that crashes, on a store that is slow and one of whose appends in so many fails.
async fn play_on(script: &Script, delays: u64, one_in: u64) -> (RunResult, usize) {
    let crashes = Crashes { every: 4 + delays as usize % 17, rounds: Counter::default() };
    let env = Env::repeatable(delays).with_faults(Arc::new(crashes));
    let store = Arc::new(Shaky::new(&env, one_in));
    let storage: Arc<dyn Storage> = store.clone();
    let board = builder().env(env).storage(storage).capacity(|capacity| capacity.run_supervisors(1));
    let (result, _) = play_with(board, script, delays, AgentSpec::acts_through_steps).await;
    (result, store.failed.get())
}

async fn play(builder: Builder, script: &Script, delays: u64) -> (RunResult, Vec<RunEvent>) {
    play_with(builder, script, delays, |agent| agent).await
}

async fn play_with(
    builder: Builder,
    script: &Script,
    delays: u64,
    change: impl Fn(AgentSpec) -> AgentSpec,
) -> (RunResult, Vec<RunEvent>) {
    let mut builder = builder.pool(100).breaker(callboard::supervision::runs::BreakerPolicy {
        threshold: u32::MAX,
        cooldown: secs(1),
        max_cooldown: secs(1),
    });
    for depth in 0..DEPTH {
        let agent = move |turn: Turn| follow(turn, delays);
        let spec = AgentSpec::new(&format!("a{depth}"), agent).concurrency(100);
        // Of those with odd depths, commits are waited for.
        builder = builder.with(if depth % 2 == 0 { change(spec) } else { spec });
    }
    let board = builder.start().await.unwrap();
    let limits = Limits { handoffs: 1_000, agents: 100, depth: 100, ..Limits::default() };
    let schema = Schema::swarm().channel("count", Reducer::Sum);
    let task = Task::new("x")
        .id(RunId(uuid::Uuid::from_u128(7)))
        .to("a0")
        .input(Json::of(script).unwrap())
        .limits(limits)
        .schema(schema);
    // A supervisor that crashes, or a store that fails, while the submission is in flight leaves it without an acknowledgement.
    let run = loop {
        match board.submit(task.clone()).await {
            Ok(run) => break run,
            Err(error) => {
                assert!(matches!(error, SubmitError::Unacknowledged(_) | SubmitError::Storage(_)), "{error:?}")
            }
        }
    };
    let result = run.result().await.unwrap();
    let history = run.history().await.unwrap();
    // The journal may hold the end before the run supervisor, which crashes, has learnt of it.
    tokio::time::sleep(secs(5)).await;
    assert_nothing_left(&board, 100).await;
    board.shutdown().await;
    (result, history)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_plan_gives_the_same_state_whatever_the_timing_and_the_journal_folds_to_it(
        script in scripts(),
        delays in any::<[u64; 2]>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let played = delays.map(|delays| runtime.block_on(async { play(builder(), &script, delays).await }));
        let [(first, _), (second, _)] = &played;
        prop_assert_eq!(&first.output, &second.output);
        prop_assert_eq!(&first.state, &second.state);
        prop_assert_eq!(first.outcome.is_finished(), second.outcome.is_finished());
        for (result, history) in &played {
            let folded = Run::of(history.clone(), &StateRules::default()).unwrap();
            prop_assert_eq!(&**folded.result().unwrap(), result);
        }
    }
}

#[test]
fn lost_writes_lost_acknowledgements_and_crashing_supervisors_change_no_result() {
    let failures = Counter::default();
    let case = |(script, delays, one_in): (Script, u64, u64)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (expected, _) = runtime.block_on(async { play(builder(), &script, delays).await });
        for one_in in [0, one_in] {
            let (result, failed) = runtime.block_on(play_on(&script, delays, one_in));
            (0..failed).for_each(|_| _ = failures.count());
            let reported = (&result.outcome, failed);
            prop_assert_eq!(&result.output, &expected.output, "{:?}", reported);
            prop_assert_eq!(&result.state, &expected.state, "{:?}", reported);
            prop_assert_eq!(result.outcome.is_finished(), expected.outcome.is_finished(), "{:?}", reported);
            prop_assert_eq!(result.metrics.turns, expected.metrics.turns, "{:?}", reported);
        }
        Ok(())
    };
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&(scripts(), any::<u64>(), 2_u64..6), case).unwrap();
    assert!(failures.get() > 100, "only {} appends failed", failures.get());
}

#[tokio::test(start_paused = true)]
async fn a_turn_sees_who_had_control_before_and_what_the_run_has_used() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            turn.reserve(100).await?.settle(Usage::of(30, 12));
            if turn.attempt() == 1 {
                return Err(TurnError::transient("once"));
            }
            tokio::time::sleep(secs(5)).await;
            Ok(Command::update("context", json!({ "completed": true })).goto("coder"))
        })
        .agent("coder", |turn: Turn| async move { Ok(Command::output(turn.state().to_json())) })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!(result.output["context"], json!({ "previous_agent": "lead", "completed": true }));
    let metrics = &result.output["metrics"];
    assert_eq!((&metrics["tokens_used"], &metrics["retry_count"]), (&json!(84), &json!(1)));
    assert!((5.0..6.0).contains(&metrics["time_elapsed"].as_f64().unwrap()), "{metrics}");
    assert_eq!(result.state, json!({ "context": { "completed": true } }), "it is in what turns see, and in no channel");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_writes_meets_no_other_write_and_shows_each_branch_its_own() {
    let seen = |turn: Turn| async move {
        let state = turn.state().to_json();
        Ok(Command::output(json!([state["context"]["previous_agent"], state["metrics"]["tokens_used"]])))
    };
    let worker = |next: &'static str| {
        move |turn: Turn| async move {
            turn.reserve(10).await?.settle(Usage::of(1, 1));
            Ok(Command::update("context", json!({ next: "done" })).goto(next))
        }
    };
    let board = builder()
        .agent("lead", |_: Turn| async { Ok(Command::new().goto_many(["left", "right"].map(|to| SendTo::new(to, 1)))) })
        .agent("left", worker("first"))
        .agent("right", worker("second"))
        .agent("first", seen)
        .agent("second", seen)
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!(
        (&result.outcome, &result.output[0][0], &result.output[1][0]),
        (&Outcome::Finished, &json!("left"), &json!("right"))
    );
    assert_eq!(result.state, json!({ "context": { "first": "done", "second": "done" } }));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_runtime_writes_the_figures_and_a_repeated_attempt_sees_the_same() {
    let world = World::new();
    let seen: Arc<parking_lot::Mutex<Vec<Json>>> = Arc::default();
    let start = || {
        let seen = Arc::clone(&seen);
        world
            .board()
            .agent("lead", |turn: Turn| async move {
                turn.reserve(10).await?.settle(Usage::of(4, 0));
                Ok(Command::new().goto("asker"))
            })
            .agent("asker", move |turn: Turn| {
                let seen = Arc::clone(&seen);
                async move {
                    seen.lock().push(turn.state().to_json());
                    turn.people().ask("well?").await?;
                    if turn.attempt() == 1 {
                        return Err(TurnError::transient("once"));
                    }
                    Ok(Command::update("metrics", 1))
                }
            })
            .start()
    };
    let first = start().await.unwrap();
    let run = first.submit(Task::new("x").to("lead")).await.unwrap();
    people::next_question(&run).await.unwrap();
    tokio::time::sleep(secs(100)).await;
    first.shutdown().await;
    let second = start().await.unwrap();
    let run = second.run(run.id());
    let question = people::question(&run).await;
    second.people().answer(question.id, "yes", "ann").await.unwrap();
    let outcome = run.result().await.unwrap().outcome;
    assert!(outcome.to_string().contains("written by the runtime only"), "{outcome}");
    let seen = seen.lock().clone();
    assert_eq!(seen.len(), 3, "once, after the restart, and again");
    assert_eq!(seen[0]["metrics"]["tokens_used"], 4);
    assert!(seen.iter().all(|state| *state == seen[0]), "{seen:?}");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_strict_schema_shows_what_the_runtime_writes_only_if_it_declares_it() {
    let board = builder()
        .agent("read", |turn: Turn| async move { Ok(Command::output(turn.state().to_json())) })
        .start()
        .await
        .unwrap();
    let plain = Task { schema: Some(Arc::new(Schema::strict().channel("notes", Reducer::Append))), ..Task::new("x") };
    assert_eq!(finish(&board, plain).await.output, json!({}));
    let declared = Schema::strict().channel("metrics", Reducer::merge());
    let declared = Task { schema: Some(Arc::new(declared)), ..Task::new("x") };
    let metrics = json!({ "tokens_used": 0, "time_elapsed": 0.0, "retry_count": 0 });
    assert_eq!(finish(&board, declared).await.output, json!({ "metrics": metrics }));
    board.shutdown().await;
}
