//! Faults at every supervised child of a started board: it continues with nothing acknowledged lost, or stops and reports why.

#![allow(clippy::disallowed_methods, reason = "the tests run on tokio's virtual time")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::diary::Diary;
use crate::common::faults::FaultPlan;
use crate::common::{Processes, Shaky, assert_nothing_left, builder, finish, people, quiet, secs, until};
use callboard::SubmitError;
use callboard::actors::ContextChange;
use callboard::actors::approvals::{Channel, Decider};
use callboard::env::Fault;
use callboard::messages::{Action, AgentName, Decision, Envelope, RequestId, RunEvent, RunId, Status, TurnId};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunError, RunHandle};
use callboard::storage::{Storage, StorageError};
use callboard::supervision::tree::{ActorState, EndReason};
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::json;

/// A wait that ends even if the board forgets about it.
async fn soon<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(3600), wait).await.expect("it does not take for ever")
}

const FOR_EVER: Fault = Fault::Wait(Duration::MAX);

fn panic() -> Fault {
    Fault::Panic("injected".into())
}

fn error() -> Fault {
    Fault::Error("injected".into())
}

fn planned(point: &'static str, fault: Fault) -> FaultPlan {
    let plan = FaultPlan::default();
    plan.arm(point, fault, 1);
    plan
}

/// Shows questions, and remembers whose.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<BTreeSet<RunId>>>);

impl Channel for Screen {
    fn name(&self) -> &str {
        "screen"
    }

    fn ask(&self, envelope: &Envelope, _: &Decider) {
        self.0.lock().insert(envelope.request.turn.run);
    }

    fn settled(&self, _: &Envelope, _: Option<&Decision>) {}
}

/// A board on which every child has something to do.
struct Stage {
    plan: FaultPlan,
    screen: Screen,
    /// The helper's next turn panics.
    stumbles: Arc<AtomicBool>,
}

impl Stage {
    fn new(plan: FaultPlan) -> Self {
        Self { plan, screen: Screen::default(), stumbles: Arc::default() }
    }

    fn with(&self, builder: Builder) -> Builder {
        let stumbles = Arc::clone(&self.stumbles);
        builder
            .channel(self.screen.clone())
            .capacity(|capacity| capacity.run_supervisors(1))
            .agent("lead", |turn: Turn| async move {
                let helped = turn.delegate("helper", "help").await?;
                turn.people().approve(Action::new("write", "file", "text")).await?;
                Ok(Command::output(helped).with("messages", "done"))
            })
            .agent("helper", move |_: Turn| {
                assert!(!stumbles.swap(false, Ordering::SeqCst), "stumbled");
                async { Ok(Command::output("helped")) }
            })
            .agent("bystander", |_: Turn| async { Ok(Command::new()) })
    }

    fn builder(&self) -> Builder {
        self.with(builder().env(self.plan.env()))
    }

    async fn start(&self) -> Callboard {
        self.builder().start().await.unwrap()
    }

    async fn submit(&self, board: &Callboard) -> RunHandle {
        board.submit(Task::new("x").to("lead")).await.unwrap()
    }

    /// A run that was submitted before waits for its approval; now one more begins, its helper panics, and whatever is done
    /// at intervals comes due.
    async fn disturb(&self, board: &Callboard) -> [RunHandle; 2] {
        let before = self.submit(board).await;
        until(&before, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
        self.stumbles.store(true, Ordering::SeqCst);
        let meanwhile = self.submit(board).await;
        // The router is woken for those who leave, and not for a few delegations.
        board.agents().stop("bystander").await.unwrap();
        tokio::time::sleep(secs(100)).await;
        [before, meanwhile]
    }

    /// People see these runs' questions on another screen.
    fn ask_elsewhere(&self, runs: &[RunHandle]) {
        self.screen.0.lock().extend(runs.iter().map(RunHandle::id));
    }

    /// People were asked about all the runs, consent, and the runs finish.
    async fn finish(&self, board: &Callboard, runs: &[RunHandle]) {
        for run in runs {
            until(run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
        }
        quiet().await;
        let shown = self.screen.0.lock().clone();
        for envelope in people::approvals(board).await {
            assert!(shown.contains(&envelope.request.turn.run), "nobody was shown {envelope:?}");
            board.people().approve(envelope.id(), "me").await.unwrap();
        }
        for run in runs {
            let result = soon(run.result()).await.unwrap();
            assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("helped").into()));
            assert_eq!(result.state, json!({ "messages": ["done"] }));
        }
        assert_nothing_left(board, 5).await;
    }
}

/// A child: its fault points, and where it is in the tree.
struct Supervised {
    start: &'static str,
    handle: &'static str,
    path: &'static [&'static str],
}

const STORAGE: Supervised = Supervised { start: "storage.start", handle: "storage.handle", path: &["storage"] };
const CONTEXT: Supervised = Supervised { start: "context.start", handle: "context.handle", path: &["context-store"] };
const GATEWAY: Supervised =
    Supervised { start: "gateway.start", handle: "gateway.handle", path: &["approval-gateway", "gateway"] };
const CHANNEL: Supervised =
    Supervised { start: "channel.start", handle: "channel.handle", path: &["approval-gateway", "screen"] };
const ROUTER: Supervised = Supervised { start: "router.start", handle: "router.handle", path: &["delegation-router"] };
const GAUGES: Supervised = Supervised { start: "gauges.start", handle: "gauges.handle", path: &["gauges"] };
const AGENT: Supervised = Supervised { start: "agent.start", handle: "agent.handle", path: &["agents", "helper"] };

/// All but the run supervisors, which wait for nothing: their fault points cannot hold them up.
const CHILDREN: [Supervised; 7] = [STORAGE, CONTEXT, GATEWAY, CHANNEL, ROUTER, GAUGES, AGENT];

#[tokio::test(start_paused = true)]
async fn a_child_that_crashes_at_its_work_or_in_its_restart_costs_no_run_anything() {
    let restarts = [None, Some(error()), Some(panic()), Some(Fault::Wait(secs(3))), Some(FOR_EVER)];
    for child in CHILDREN {
        for (crash, restart) in restarts.iter().flat_map(|restart| [(panic(), restart), (error(), restart)]) {
            let stage = Stage::new(FaultPlan::default());
            let board = stage.start().await;
            stage.plan.arm(child.handle, crash, 1);
            if let Some(fault) = restart {
                stage.plan.arm(child.start, fault.clone(), 1);
            }
            let mut runs = stage.disturb(&board).await.to_vec();
            assert!(stage.plan.is_carried_out());
            runs.push(stage.submit(&board).await);
            stage.finish(&board, &runs).await;
            for run in &runs {
                let delegation = RequestId { turn: TurnId { run: run.id(), number: 1 }, ordinal: 0 };
                assert_eq!(board.status(delegation).await.unwrap().unwrap().status, Status::Complete);
            }
            let tree = board.tree().await.unwrap();
            assert_eq!(tree.find(child.path).unwrap().state, ActorState::Running, "{tree}");
            assert_eq!(board.shutdown().await, EndReason::Stopped);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_start_with_the_board_is_named_and_what_had_started_is_stopped() {
    for child in CHILDREN {
        for (fault, why) in [(error(), "injected"), (panic(), "injected"), (FOR_EVER, "not started within 10s")] {
            let stage = Stage::new(planned(child.start, fault));
            let refused = stage.builder().start().await.unwrap_err().to_string();
            // The lead is the first agent to start.
            let name = if child.path == AGENT.path { "lead" } else { child.path.last().unwrap() };
            assert!(refused.contains(name) && refused.contains(why), "{refused}");
        }
        let stage = Stage::new(planned(child.start, Fault::Wait(secs(9))));
        let board = stage.start().await;
        let run = stage.submit(&board).await;
        stage.finish(&board, &[run]).await;
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_hangs_in_its_work_holds_up_no_run_and_no_shutdown() {
    for child in [STORAGE, CONTEXT, ROUTER, GAUGES] {
        let stage = Stage::new(FaultPlan::default());
        let board = stage.start().await;
        stage.plan.arm(child.handle, FOR_EVER, 1);
        let mut runs = stage.disturb(&board).await.to_vec();
        assert!(stage.plan.is_carried_out());
        runs.push(stage.submit(&board).await);
        stage.finish(&board, &runs).await;
        let stopping = tokio::time::Instant::now();
        assert_eq!(board.shutdown().await, EndReason::Stopped);
        assert_eq!(stopping.elapsed().as_secs(), 5, "it was killed");
    }
}

/// A board with a child that crashes, and then fails in each of its restarts.
async fn cannot_restart(child: &Supervised, fault: Fault) -> (Stage, Callboard, [RunHandle; 2]) {
    let stage = Stage::new(FaultPlan::default());
    let board = stage.start().await;
    stage.plan.arm(child.handle, panic(), 1);
    stage.plan.arm(child.start, fault, u32::MAX);
    let runs = stage.disturb(&board).await;
    (stage, board, runs)
}

#[tokio::test(start_paused = true)]
async fn a_child_that_the_board_needs_and_that_cannot_be_restarted_stops_it() {
    for needed in [STORAGE, CONTEXT, GATEWAY, ROUTER] {
        for (fault, why) in [(error(), "injected"), (FOR_EVER, "not started within 10s")] {
            let (_, board, runs) = cannot_restart(&needed, fault).await;
            let end = soon(board.ended()).await;
            let EndReason::IntensityExceeded { child, error } = end else { panic!("{end:?}") };
            assert_eq!((&*child, error.ends_with(why)), (&*format!("callboard/{}", needed.path[0]), true), "{error}");
            for run in runs {
                assert_eq!(run.result().await, Err(RunError::Stopped(run.id())));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_or_the_gauges_that_cannot_be_restarted_are_left_down() {
    for child in [CHANNEL, GAUGES] {
        let (stage, board, runs) = cannot_restart(&child, error()).await;
        let tree = board.tree().await.unwrap();
        assert_eq!(tree.find(child.path).unwrap().state, ActorState::Failed, "{tree}");
        stage.ask_elsewhere(&runs);
        stage.finish(&board, &runs).await;
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_restarted_fails_its_turns_and_refuses() {
    let (stage, board, [before, meanwhile]) = cannot_restart(&AGENT, error()).await;
    let outcome = soon(meanwhile.result()).await.unwrap().outcome;
    assert!(outcome.to_string().contains("injected"), "{outcome}");
    stage.finish(&board, &[before]).await;
    let refused = board.submit(Task::new("x").to("helper")).await.unwrap_err();
    assert!(refused.to_string().contains("failed too often"), "{refused}");
    stage.plan.clear();
    board.agents().restart("helper").await.unwrap();
    let after = stage.submit(&board).await;
    stage.finish(&board, &[after]).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_supervisor_that_crashes_again_in_its_restart_costs_no_run_anything() {
    for (point, fault, times) in [
        ("runs.taken", panic(), 1),
        ("runs.taken", error(), 5),
        ("runs.applied", panic(), 5),
        ("runs.applied", error(), 1),
    ] {
        let stage = Stage::new(FaultPlan::default());
        let board = stage.start().await;
        let before = stage.submit(&board).await;
        until(&before, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
        stage.plan.arm(point, fault, times);
        let task = Task::new("x").to("lead").id(RunId(uuid::Uuid::from_u128(7)));
        let meanwhile = loop {
            match board.submit(task.clone()).await {
                // It was lost twice.
                Err(SubmitError::Unacknowledged(_)) => {}
                accepted => break accepted.unwrap(),
            }
        };
        stage.finish(&board, &[before, meanwhile]).await;
        assert!(stage.plan.is_carried_out());
        let tree = board.tree().await.unwrap();
        assert_eq!(tree.find(&["runs", "runs-0"]).unwrap().restarts, u64::from(times), "{tree}");
        board.shutdown().await;
    }
}

#[test]
fn a_run_supervisor_that_crashes_for_ever_stops_the_board_and_its_runs_continue_in_the_next() {
    for point in ["runs.taken", "runs.applied"] {
        let processes = Processes::new();
        let run = processes.run(async |builder| {
            let stage = Stage::new(FaultPlan::default());
            let board = stage.with(builder.env(stage.plan.env())).start().await.unwrap();
            let run = stage.submit(&board).await;
            until(&run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
            stage.plan.arm(point, panic(), u32::MAX);
            let late = Task::new("late").to("lead");
            let (end, result, late, cancelled) =
                soon(async { tokio::join!(board.ended(), run.result(), board.submit(late), run.cancel("enough")) })
                    .await;
            let error = "`callboard/runs/runs-0` was restarted too often: injected".to_owned();
            assert_eq!(end, EndReason::IntensityExceeded { child: "callboard/runs".into(), error });
            assert_eq!(result, Err(RunError::Stopped(run.id())));
            let late = late.map(drop);
            assert!(matches!(late, Err(SubmitError::Unacknowledged(_))), "{late:?}");
            assert!(matches!(cancelled, Err(RunError::Stopped(_))));
            quiet().await;
            assert_eq!(board.load().turns_at_work + board.load().waiting_turns, 0, "no turn goes on");
            let refused = board.submit(Task::new("later").to("lead")).await.unwrap_err();
            assert!(refused.to_string().contains("shutting down"), "{refused}");
            run.id()
        });
        processes.run(async |builder| {
            let stage = Stage::new(FaultPlan::default());
            let board = stage.with(builder).start().await.unwrap();
            stage.finish(&board, &[board.run(run)]).await;
            board.shutdown().await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_storage_actor_that_crashes_over_the_end_of_the_store_still_takes_the_board_down() {
    let stage = Stage::new(FaultPlan::default());
    let env = stage.plan.env();
    let store = Arc::new(Shaky::new(&env, 0));
    let board = stage.builder().storage(Arc::clone(&store) as Arc<dyn Storage>).start().await.unwrap();
    let run = stage.submit(&board).await;
    until(&run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
    stage.plan.arm(STORAGE.handle, panic(), 1);
    store.has_stopped.store(true, Ordering::SeqCst);
    let (result, end, _) = soon(async { tokio::join!(run.result(), board.ended(), run.cancel("no disk")) }).await;
    assert_eq!(
        result,
        Err(RunError::StoreStopped { run: run.id(), error: StorageError::Stopped { detail: "no disk".into() } })
    );
    assert_eq!(end, EndReason::AutoShutdown { child: "callboard/storage".into() });
    assert!(stage.plan.is_carried_out());
}

#[tokio::test(start_paused = true)]
async fn while_the_gateway_or_a_channel_hangs_people_decide_elsewhere() {
    for child in [GATEWAY, CHANNEL] {
        let stage = Stage::new(FaultPlan::default());
        let board = stage.start().await;
        stage.plan.arm(child.handle, FOR_EVER, 1);
        let runs = stage.disturb(&board).await;
        assert!(stage.plan.is_carried_out());
        stage.ask_elsewhere(&runs);
        stage.finish(&board, &runs).await;
        assert_eq!(board.shutdown().await, EndReason::Stopped);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_actor_hangs_holds_up_its_own_turns_and_can_be_stopped() {
    let stage = Stage::new(FaultPlan::default());
    let board = stage.builder().agent("other", |_: Turn| async { Ok(Command::output("done")) }).start().await.unwrap();
    stage.plan.arm(AGENT.handle, FOR_EVER, 1);
    let [before, meanwhile] = stage.disturb(&board).await;
    assert_eq!(finish(&board, Task::new("x").to("other")).await.outcome, Outcome::Finished);
    board.agents().stop("helper").await.unwrap();
    let outcome = soon(meanwhile.result()).await.unwrap().outcome;
    assert!(outcome.to_string().contains("was stopped"), "{outcome}");
    board.agents().spawn(AgentSpec::new("helper", |_: Turn| async { Ok(Command::output("helped")) })).await.unwrap();
    let after = stage.submit(&board).await;
    stage.finish(&board, &[before, after]).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_expiry_pass_that_panics_restarts_its_actor_one_that_fails_is_logged_and_both_are_repeated() {
    for (child, point) in [(STORAGE, "storage.sweep"), (CONTEXT, "context.sweep")] {
        for (fault, restarts) in [(panic(), 1), (error(), 0)] {
            let stage = Stage::new(FaultPlan::default());
            let board = stage.start().await;
            stage.plan.arm(point, fault, 1);
            tokio::time::sleep(secs(70)).await;
            assert!(stage.plan.is_carried_out(), "{point}");
            let tree = board.tree().await.unwrap();
            assert_eq!(tree.find(child.path).unwrap().restarts, restarts, "{tree}");
            stage.plan.arm(point, error(), 1);
            tokio::time::sleep(secs(70)).await;
            assert!(stage.plan.is_carried_out(), "{point}: sweeping goes on");
            board.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_expiry_reaches_watchers_also_after_its_pass_has_panicked() {
    let plan = FaultPlan::default();
    let board = builder().env(plan.env()).retention(|retention| retention.every(secs(10_000))).start().await.unwrap();
    let mut changes = board.context().watch("notes").unwrap();
    let ann = AgentName::new("ann").unwrap();
    board.context().set("notes", "a", "x", &ann, Some(secs(60))).await.unwrap();
    quiet().await;
    plan.arm("context.sweep", panic(), 1);
    let begun = tokio::time::Instant::now();
    assert!(matches!(changes.next().await, Some(ContextChange::Set(_))));
    assert_eq!(changes.next().await, Some(ContextChange::Deleted { key: "a".into() }));
    assert!(plan.is_carried_out() && begun.elapsed() < secs(120), "{:?}", begun.elapsed());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_card_is_taken_down_also_by_a_gateway_or_channel_that_crashes_over_it() {
    for child in [GATEWAY, CHANNEL] {
        for is_cancelled in [false, true] {
            let (plan, diary) = (FaultPlan::default(), Diary::default());
            let clerk = |turn: Turn| async move {
                turn.people().approve(Action::new("write", "file", "text")).await?;
                Ok(Command::output("written"))
            };
            let board = builder().env(plan.env()).channel(diary.clone()).agent("clerk", clerk).start().await.unwrap();
            let run = board.submit(Task::new("x")).await.unwrap();
            until(&run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
            quiet().await;
            plan.arm(child.handle, panic(), 1);
            let expected = if is_cancelled {
                run.cancel("enough").await.unwrap();
                "withdrawn write file"
            } else {
                board.people().approve(people::approvals(&board).await[0].id(), "me").await.unwrap();
                "settled write file by me"
            };
            soon(run.result()).await.unwrap();
            tokio::time::sleep(secs(10)).await;
            assert!(plan.is_carried_out());
            assert_eq!(diary.notes(), ["asked write file", expected], "{}", child.handle);
            board.shutdown().await;
        }
    }
}

/// Turns may begin as soon as the agent's actor has made its value, and its supervisor hears of the start later.
#[tokio::test(start_paused = true)]
async fn an_agent_whose_turn_panics_before_its_supervisor_knows_that_it_runs_is_rebuilt() {
    let stumbles = Arc::new(AtomicBool::new(true));
    let helper = || {
        let stumbles = Arc::clone(&stumbles);
        AgentSpec::new("helper", move |_: Turn| {
            assert!(!stumbles.swap(false, Ordering::SeqCst), "stumbled");
            async { Ok(Command::output("helped")) }
        })
    };
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("helper", "help").await?)) };
    let board = builder().agent("lead", lead).with(helper()).start().await.unwrap();
    board.agents().stop("helper").await.unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Delegated { .. })).await;
    board.agents().spawn(helper()).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap().output, "helped");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}
