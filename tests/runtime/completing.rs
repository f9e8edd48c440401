//! Callers that take the turns of their run in their own task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use callboard::messages::SendTo;
use callboard::prelude::*;
use callboard::runtime::Builder;
use futures::FutureExt;
use futures::executor::block_on;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, Notify};
use tokio::task;

/// The tasks in which turns were taken, in the order of the turns.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<Vec<Option<task::Id>>>>);

impl Tasks {
    fn note(&self) {
        self.0.lock().push(task::try_id());
    }

    fn take(&self) -> Vec<Option<task::Id>> {
        std::mem::take(&mut self.0.lock())
    }
}

/// A chain of three.
fn chain(tasks: &Tasks) -> Builder {
    let agent = |to: Option<&'static str>| {
        let tasks = tasks.clone();
        move |_: Turn| {
            let tasks = tasks.clone();
            async move {
                tasks.note();
                let command = Command::output("done");
                Ok(to.map_or(command.clone(), |to| command.goto(to)))
            }
        }
    };
    Callboard::builder().agent("a", agent(Some("b"))).agent("b", agent(Some("c"))).agent("c", agent(None))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_turns_of_a_chain_are_taken_in_the_task_of_the_caller() {
    let tasks = Tasks::default();
    let board = chain(&tasks).start().await.unwrap();
    let caller = {
        let board = board.clone();
        tokio::spawn(async move { (task::id(), board.complete(Task::new("x").to("a")).await.unwrap()) })
    };
    let (id, result) = caller.await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, "done".into()));
    assert_eq!(tasks.take(), [Some(id); 3]);
    // Others take turns of their own in workers, as before.
    board.submit(Task::new("x").to("a")).await.unwrap().result().await.unwrap();
    assert!(tasks.take().iter().all(|task| *task != Some(id)));
    board.shutdown().await;
}

#[test]
fn a_thread_without_a_runtime_completes_runs() {
    let tasks = Tasks::default();
    let runtime = Runtime::new().unwrap();
    let board = runtime.block_on(chain(&tasks).start()).unwrap();
    let result =
        thread::scope(|scope| scope.spawn(|| block_on(board.complete(Task::new("x").to("a")))).join().unwrap());
    assert_eq!(result.unwrap().outcome, Outcome::Finished);
    assert_eq!(tasks.take(), [None; 3]);
    runtime.block_on(board.shutdown());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_dropped_leaves_its_turn_to_a_worker() {
    let (began, proceed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let waits = {
        let (began, proceed) = (Arc::clone(&began), Arc::clone(&proceed));
        move |_: Turn| {
            let (began, proceed) = (Arc::clone(&began), Arc::clone(&proceed));
            async move {
                began.notify_one();
                proceed.notified().await;
                Ok(Command::new().goto("last"))
            }
        }
    };
    let last = |_: Turn| async { Ok(Command::output("done")) };
    let board = Callboard::builder().agent("first", waits).agent("last", last).start().await.unwrap();
    let id = RunId::of_hash([7; 16]);
    {
        let mut caller = Box::pin(board.complete(Task::new("x").to("first").id(id)));
        tokio::select! {
            biased;
            result = &mut caller => panic!("the turn waits: {result:?}"),
            () = began.notified() => {}
        }
    }
    proceed.notify_one();
    let result = board.run(id).result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, "done".into()));
    board.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_do_not_wait_are_all_taken_in_one_poll() {
    let tasks = Tasks::default();
    let board = chain(&tasks).start().await.unwrap();
    let result = board.complete(Task::new("x").to("a")).now_or_never().unwrap().unwrap();
    assert_eq!((result.outcome, tasks.take().len()), (Outcome::Finished, 3));
    board.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_fails_the_turn_and_not_the_caller_and_the_agent_is_rebuilt() {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let agent = move |_: Turn| {
        let turn = counted.fetch_add(1, Ordering::Relaxed);
        async move { if turn == 0 { panic!("the first turn fails") } else { Ok(Command::output(turn)) } }
    };
    let board = Callboard::builder().agent("a", agent).start().await.unwrap();
    let result = board.complete(Task::new("x").to("a")).await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, 1.into()));
    board.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_fan_out_run_beside_the_one_in_the_task_of_the_caller() {
    const PARTS: usize = 3;
    let together = Arc::new(Barrier::new(PARTS));
    let tasks = Tasks::default();
    let noted = tasks.clone();
    let board = Callboard::builder()
        .agent("lead", |_: Turn| async {
            Ok(Command::new().goto_many((0..PARTS).map(|part| SendTo::new("part", part))))
        })
        .agent("part", move |_: Turn| {
            let (together, noted) = (Arc::clone(&together), noted.clone());
            async move {
                noted.note();
                // All parts have to be under way.
                together.wait().await;
                Ok(Command::new())
            }
        })
        .start()
        .await
        .unwrap();
    let result = board.complete(Task::new("x").to("lead")).await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished);
    assert_eq!(tasks.take().into_iter().collect::<BTreeSet<_>>().len(), PARTS);
    board.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_blocks_its_thread_does_not_block_the_caller() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = Arc::new(Mutex::new(receiver));
    let blocks = move |_: Turn| {
        let receiver = Arc::clone(&receiver);
        async move {
            receiver.lock().recv()?;
            Ok(Command::output("done"))
        }
    };
    let board = Callboard::builder().with(AgentSpec::new("a", blocks).blocking()).start().await.unwrap();
    let mut caller = Box::pin(board.complete(Task::new("x").to("a")));
    assert!((&mut caller).now_or_never().is_none(), "the caller is not held up");
    sender.send(()).unwrap();
    assert_eq!(caller.await.unwrap().output, "done");
    board.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_completes_a_run_of_its_own_in_its_own_task() {
    let tasks = Tasks::default();
    let board: Arc<std::sync::OnceLock<Callboard>> = Arc::default();
    let (inner, noted) = (Arc::clone(&board), tasks.clone());
    let outer = move |_: Turn| {
        let (inner, noted) = (Arc::clone(&inner), noted.clone());
        async move {
            noted.note();
            let result = inner.get().unwrap().complete(Task::new("y").to("a")).await?;
            noted.note();
            Ok(Command::output(result.output).goto("c"))
        }
    };
    board.set(chain(&tasks).agent("outer", outer).start().await.unwrap()).unwrap();
    let board = board.get().unwrap().clone();
    let caller = tokio::spawn(async move {
        let result = board.complete(Task::new("x").to("outer")).await.unwrap();
        board.shutdown().await;
        (task::id(), result.outcome)
    });
    let (caller, outcome) = caller.await.unwrap();
    assert_eq!(outcome, Outcome::Finished);
    assert_eq!(tasks.take(), [Some(caller); 6], "the outer turn twice, three turns within, and one after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_turn_waits_for_wakes_the_caller() {
    let tasks = Tasks::default();
    let began = Arc::new(Notify::new());
    let (noted, begins) = (tasks.clone(), Arc::clone(&began));
    let asks = move |turn: Turn| {
        let (noted, begins) = (noted.clone(), Arc::clone(&begins));
        async move {
            begins.notify_one();
            let answer = turn.people().ask("which one?").await?;
            noted.note();
            Ok(Command::output(answer))
        }
    };
    let board = Callboard::builder().agent("a", asks).start().await.unwrap();
    let caller = {
        let board = board.clone();
        tokio::spawn(async move { (task::id(), board.complete(Task::new("x").to("a")).await.unwrap().output) })
    };
    // Who looks at the shard at the same time would take the submission along, and then a worker has the turn.
    began.notified().await;
    let question = board.people().next().await.unwrap().id();
    board.people().answer(question, "this one", "ann").await.unwrap();
    let (caller, output) = caller.await.unwrap();
    assert_eq!((output, tasks.take()), ("this one".into(), vec![Some(caller)]));
    board.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_delegates_waits_for_a_worker_and_not_for_the_caller() {
    let lead = |turn: Turn| async move {
        let mut sum = 0;
        for part in 0..turn.input::<u64>()? {
            sum += turn.delegate("doubler", "double it").input(part).await?.as_u64().unwrap();
        }
        Ok(Command::output(sum))
    };
    let doubler = |turn: Turn| async move { Ok(Command::output(turn.input::<u64>()? * 2)) };
    let board = Callboard::builder().agent("lead", lead).agent("doubler", doubler).start().await.unwrap();
    let result = board.complete(Task::new("work").to("lead").input(3)).await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, 6.into()));
    board.shutdown().await;
}

/// Delegations at once of agents that fan out to agents that delegate again.
#[test]
fn a_tree_of_delegations_and_fan_outs_is_completed_on_any_runtime() {
    let lead = |turn: Turn| async move {
        let parts = (0..3_u64).map(|part| turn.delegate("spreader", "spread it").input(part).into_future());
        Ok(Command::output(futures::future::try_join_all(parts).await?))
    };
    let spreader = |turn: Turn| async move {
        let part = turn.input::<u64>()?;
        Ok(Command::new().goto_many((0..3_u64).map(|leaf| SendTo::new("leaf", 10 * part + leaf))))
    };
    let leaf = |turn: Turn| async move {
        Ok(Command::output(turn.delegate("doubler", "double it").input(turn.input::<u64>()?).await?))
    };
    let doubler = |turn: Turn| async move { Ok(Command::output(turn.input::<u64>()? * 2)) };
    for threads in [0, 1, 2, 4] {
        let runtime = match threads {
            0 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
            threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
        };
        runtime.unwrap().block_on(async {
            let board = Callboard::builder()
                .agent("lead", lead)
                .agent("spreader", spreader)
                .agent("leaf", leaf)
                .agent("doubler", doubler)
                .start()
                .await
                .unwrap();
            let expected = callboard::messages::Json::from(json!([[0, 2, 4], [20, 22, 24], [40, 42, 44]]));
            for _ in 0..20 {
                let limits = Limits { handoffs: 50, ..Limits::default() };
                let result = board.complete(Task::new("work").to("lead").limits(limits)).await.unwrap();
                assert_eq!((result.outcome, result.output), (Outcome::Finished, expected.clone()));
            }
            board.shutdown().await;
        });
    }
}

/// What a turn is to do. Each level has an agent of its own.
#[derive(Clone, Debug)]
enum Plan {
    Answer(u32),
    /// Waits for its thread once, and answers.
    Pause(u32),
    HandOff(Box<Plan>),
    /// Delegates to all at once.
    Delegate(Vec<Plan>),
    OneByOne(Vec<Plan>),
    FanOut(Vec<Plan>),
}

impl Plan {
    fn input(&self) -> serde_json::Value {
        let all = |plans: &[Self]| plans.iter().map(Self::input).collect::<Vec<_>>();
        match self {
            Self::Answer(answer) => json!(["answer", answer]),
            Self::Pause(answer) => json!(["pause", answer]),
            Self::HandOff(plan) => json!(["hand off", plan.input()]),
            Self::Delegate(plans) => json!(["delegate", all(plans)]),
            Self::OneByOne(plans) => json!(["one by one", all(plans)]),
            Self::FanOut(plans) => json!(["fan out", all(plans)]),
        }
    }

    fn expected(&self) -> serde_json::Value {
        match self {
            Self::Answer(answer) | Self::Pause(answer) => json!(answer),
            Self::HandOff(plan) => plan.expected(),
            Self::Delegate(plans) | Self::OneByOne(plans) | Self::FanOut(plans) => {
                plans.iter().map(Self::expected).collect()
            }
        }
    }
}

/// Plans of at most [`LEVELS`] levels.
fn plans() -> impl Strategy<Value = Plan> {
    let answers = prop_oneof![(0..9_u32).prop_map(Plan::Answer), (0..9_u32).prop_map(Plan::Pause)];
    answers.prop_recursive(LEVELS - 1, 24, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|plan| Plan::HandOff(Box::new(plan))),
            some().prop_map(Plan::Delegate),
            some().prop_map(Plan::OneByOne),
            some().prop_map(Plan::FanOut),
        ]
    })
}

const LEVELS: u32 = 4;

async fn follow(turn: Turn, next: String) -> Result<Command, TurnError> {
    let (what, rest) = turn.input::<(String, serde_json::Value)>()?;
    let parts = rest.as_array().cloned().unwrap_or_default();
    let ask = |part: serde_json::Value| turn.delegate(&next, "part").input(part).into_future();
    Ok(match &*what {
        "pause" => {
            task::yield_now().await;
            Command::output(rest)
        }
        "hand off" => Command::output(rest).goto(&next),
        "delegate" => Command::output(futures::future::try_join_all(parts.into_iter().map(ask)).await?),
        "one by one" => {
            let mut answers = Vec::new();
            for part in parts {
                answers.push(ask(part).await?);
            }
            Command::output(answers)
        }
        "fan out" => Command::new().goto_many(parts.into_iter().map(|part| SendTo::new(&next, part))),
        _ => Command::output(rest),
    })
}

async fn board_of_levels() -> Callboard {
    let levels = 0..LEVELS;
    let builder = levels.fold(Callboard::builder(), |builder, level| {
        let next = format!("a{}", level + 1);
        builder.agent(&format!("a{level}"), move |turn: Turn| follow(turn, next.clone()))
    });
    builder.start().await.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_turns_of_a_run_do_it_is_completed(plans in prop::collection::vec(plans(), 1..4), threads in 0..3_usize) {
        let runtime = match threads {
            0 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
            threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
        };
        runtime.unwrap().block_on(async {
            let board = board_of_levels().await;
            let limits = Limits { handoffs: 500, ..Limits::default() };
            let runs = plans.iter().map(|plan| {
                board.complete(Task::new("plan").to("a0").input(plan.input()).limits(limits.clone()))
            });
            for (result, plan) in futures::future::join_all(runs).await.into_iter().zip(&plans) {
                let result = result.unwrap();
                assert_eq!((result.outcome, result.output), (Outcome::Finished, plan.expected().into()), "{plan:?}");
            }
            board.shutdown().await;
        });
    }
}
