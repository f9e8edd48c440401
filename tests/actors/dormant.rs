//! Dormant agents: they have an actor and a value while they have work, and are reached, counted and supervised as others are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callboard::actors::InboxMessage;
use callboard::env::Fault;
use callboard::messages::{Refusal, RunEvent};
use callboard::prelude::*;
use callboard::runtime::{AgentError, Builder};
use callboard::supervision::tree::{ActorState, TreeNode};
use serde_json::json;

use crate::common::faults::FaultPlan;
use crate::common::{Counter, assert_nothing_left, builder, finish, quiet, secs};

const IDLE: Duration = Duration::from_secs(60);

/// Counts its lives, and what they hold.
#[derive(Clone, Default)]
struct Lives {
    built: Counter,
    dropped: Counter,
}

struct Life {
    number: usize,
    lives: Lives,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.lives.dropped.count();
    }
}

impl Agent for Life {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        match &*turn.task().body {
            "panic" if turn.attempt() == 1 => panic!("out of luck"),
            "long" => tokio::time::sleep(5 * IDLE).await,
            _ => {}
        }
        Ok(Command::output(self.number))
    }
}

fn clerk(lives: &Lives) -> AgentSpec {
    let lives = lives.clone();
    AgentSpec::new("clerk", move || Life { number: lives.built.count(), lives: lives.clone() }).dormant()
}

fn sleepy(builder: Builder) -> Builder {
    builder.timings(|timings| timings.sleep_after(IDLE))
}

async fn board_of(agent: AgentSpec) -> Callboard {
    sleepy(builder()).with(agent).start().await.unwrap()
}

async fn node(board: &Callboard, agent: &str) -> TreeNode {
    board.tree().await.unwrap().find(&["agents", agent]).unwrap().clone()
}

async fn state(board: &Callboard) -> ActorState {
    node(board, "clerk").await.state
}

/// The agent has no work for long enough to fall asleep.
async fn idle() {
    tokio::time::sleep(2 * IDLE + secs(1)).await;
    quiet().await;
}

#[tokio::test(start_paused = true)]
async fn it_has_no_value_until_its_first_turn_and_loses_it_after_a_while_without_work() {
    let lives = Lives::default();
    let board = board_of(clerk(&lives)).await;
    assert_eq!((state(&board).await, lives.built.get()), (ActorState::Dormant, 0));
    assert_eq!(board.agents().names().len(), 1);
    assert_eq!(board.agents().roster()[0].instance, 0);

    assert_eq!(finish(&board, Task::new("x")).await.output, json!(0));
    assert_eq!((state(&board).await, lives.built.get()), (ActorState::Running, 1));
    tokio::time::sleep(IDLE - secs(1)).await;
    assert_eq!(finish(&board, Task::new("x")).await.output, json!(0), "it is awake for a while");
    tokio::time::sleep(IDLE - secs(1)).await;
    assert_eq!(state(&board).await, ActorState::Running, "it has just had work");

    idle().await;
    assert_eq!((state(&board).await, lives.dropped.get()), (ActorState::Dormant, 1));
    assert_eq!((node(&board, "clerk").await.generation, board.agents().roster()[0].instance), (1, 1));
    assert_eq!(finish(&board, Task::new("x").to("clerk")).await.output, json!(1), "on a new value");
    assert_eq!((node(&board, "clerk").await.generation, board.agents().roster()[0].instance), (2, 2));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
    assert_eq!(lives.dropped.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn it_does_not_sleep_while_a_turn_is_under_way() {
    let lives = Lives::default();
    let board = board_of(clerk(&lives)).await;
    assert_eq!(finish(&board, Task::new("long")).await.output, json!(0));
    assert_eq!((state(&board).await, lives.dropped.get()), (ActorState::Running, 0));
    idle().await;
    assert_eq!((state(&board).await, lives.dropped.get()), (ActorState::Dormant, 1));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_typed_request_wakes_it() {
    let doubler = AgentSpec::typed("clerk", |number: u64| async move { Ok(number * 2) }).dormant();
    let board = board_of(doubler).await;
    assert_eq!(board.ask::<u64, u64>("clerk", 21).await.unwrap(), 42);
    idle().await;
    assert_eq!(state(&board).await, ActorState::Dormant);
    assert_eq!(board.ask::<u64, u64>("clerk", 4).await.unwrap(), 8);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_found_by_role_and_capability_and_acknowledges_what_is_delegated_to_it() {
    let lead = |turn: Turn| async move {
        let by_role = turn.delegate("office", "a").await?;
        Ok(Command::output(json!([by_role, turn.delegate("filing", "b").await?])))
    };
    let lives = Lives::default();
    let office = clerk(&lives).role("office").capability("filing");
    let board = sleepy(builder()).agent("lead", lead).with(office).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x").to("lead")).await.output, json!([0, 0]));
    idle().await;
    assert_eq!(finish(&board, Task::new("x").to("lead")).await.output, json!([1, 1]));
    let acknowledged = |message: &&InboxMessage| matches!(message, InboxMessage::Status { .. });
    assert!(board.agents().inbox("lead").await.unwrap().iter().filter(acknowledged).count() >= 4);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_fails_at_its_first_turn_counts_as_a_rebuild_that_failed() {
    let (works, tries) = (Arc::new(AtomicBool::new(false)), Counter::default());
    let spec = |max| {
        let (works, tries) = (Arc::clone(&works), tries.clone());
        let make = move || {
            tries.count();
            let lives = Lives::default();
            if works.load(Ordering::SeqCst) { Ok(Life { number: 7, lives }) } else { Err("no key") }
        };
        AgentSpec::new("clerk", make).dormant().restarts(max, secs(3600))
    };
    let board = board_of(spec(2)).await;
    let result = finish(&board, Task::new("x").to("clerk")).await;
    let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
    assert!(error.contains("agent clerk has failed too often: no key"), "{error}");
    assert_eq!((state(&board).await, tries.get()), (ActorState::Failed, 3));
    assert_eq!(board.agents().failed()[0].1, "no key");
    let refused = board.submit(Task::new("x").to("clerk")).await.unwrap_err().to_string();
    assert!(refused.contains("it failed too often: no key"), "{refused}");

    works.store(true, Ordering::SeqCst);
    board.agents().restart("clerk").await.unwrap();
    assert_eq!(finish(&board, Task::new("x").to("clerk")).await.output, json!(7));
    board.shutdown().await;

    works.store(false, Ordering::SeqCst);
    let board = board_of(spec(20)).await;
    let run = board.submit(Task::new("x").to("clerk")).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    works.store(true, Ordering::SeqCst);
    assert_eq!(run.result().await.unwrap().output, json!(7), "the turn has waited");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn it_stays_awake_while_its_window_counts_a_restart_so_restarts_add_up() {
    let lives = Lives::default();
    let board = board_of(clerk(&lives).restarts(1, secs(3600))).await;
    assert_eq!(finish(&board, Task::new("panic")).await.output, json!(1));
    tokio::time::sleep(secs(1800)).await;
    assert_eq!((state(&board).await, node(&board, "clerk").await.restarts), (ActorState::Running, 1));
    tokio::time::sleep(secs(1800)).await;
    idle().await;
    assert_eq!(state(&board).await, ActorState::Dormant, "the window is over");
    let asleep = node(&board, "clerk").await;
    assert_eq!((asleep.restarts, asleep.last_error.as_deref()), (1, Some("out of luck")));
    assert_eq!(finish(&board, Task::new("panic")).await.outcome, Outcome::Finished, "it counts from the start");
    tokio::time::sleep(secs(1800)).await;
    let result = finish(&board, Task::new("panic")).await;
    let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
    assert!(error.contains("has failed too often: out of luck"), "{error}");
    assert_eq!((state(&board).await, node(&board, "clerk").await.restarts), (ActorState::Failed, 3));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_is_killed_is_restarted_and_sleeps_later() {
    let lives = Lives::default();
    let board = board_of(clerk(&lives).restarts(5, secs(60))).await;
    assert!(!board.kill(&["agents", "clerk"]).await.unwrap(), "there is none");
    finish(&board, Task::new("x")).await;
    assert!(board.kill(&["agents", "clerk"]).await.unwrap());
    quiet().await;
    assert_eq!((state(&board).await, node(&board, "clerk").await.generation), (ActorState::Running, 2));
    idle().await;
    idle().await;
    assert_eq!((state(&board).await, lives.dropped.get()), (ActorState::Dormant, 2));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn it_outlives_the_supervisor_of_the_agents() {
    let lives = Lives::default();
    let board = board_of(clerk(&lives)).await;
    assert!(board.kill(&["agents"]).await.unwrap());
    assert_eq!(finish(&board, Task::new("x").to("clerk")).await.output, json!(0), "it wakes below the next one");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_while_it_falls_asleep_wakes_it_when_it_sleeps() {
    let (faults, lives) = (FaultPlan::default(), Lives::default());
    let board = sleepy(Callboard::builder().env(faults.env())).with(clerk(&lives)).start().await.unwrap();
    finish(&board, Task::new("x")).await;
    faults.arm("agent.stop", Fault::Wait(secs(3)), 1);
    tokio::time::sleep(2 * IDLE + secs(1)).await;
    assert!(faults.is_carried_out());
    assert_eq!((state(&board).await, lives.dropped.get()), (ActorState::Dormant, 1), "its actor is not gone yet");
    let run = board.submit(Task::new("x")).await.unwrap();
    quiet().await;
    assert_eq!((state(&board).await, lives.built.get()), (ActorState::Stopping, 1));
    assert_eq!(run.result().await.unwrap().output, json!(1));
    assert_eq!(node(&board, "clerk").await.generation, 2);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_cannot_be_started_is_started_again_and_given_up_after_too_many_times() {
    let (faults, lives) = (FaultPlan::default(), Lives::default());
    let board = Callboard::builder().env(faults.env()).with(clerk(&lives).restarts(2, secs(60)));
    let board = sleepy(board).start().await.unwrap();
    faults.arm("agent.start", Fault::Error("no memory".into()), 2);
    assert_eq!(finish(&board, Task::new("x")).await.output, json!(0));
    idle().await;
    faults.arm("agent.start", Fault::Error("no memory".into()), 3);
    let result = finish(&board, Task::new("x")).await;
    let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
    assert!(error.contains("has failed too often: no memory"), "{error}");
    assert_eq!(board.agents().failed().len(), 1);
    board.agents().restart("clerk").await.unwrap();
    assert_eq!(state(&board).await, ActorState::Dormant);
    assert_eq!(finish(&board, Task::new("x")).await.output, json!(1));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_stopped_in_its_sleep_and_comes_back_with_what_waited_for_it() {
    let lives = Lives::default();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("clerk", "x").await?)) };
    let board = sleepy(builder()).agent("lead", lead).with(clerk(&lives)).start().await.unwrap();
    let mut presence = board.agents().presence();
    board.agents().stop("clerk").await.unwrap();
    let withdrawn = presence.recv().await.unwrap();
    assert_eq!((withdrawn.agent.as_str(), withdrawn.is_available), ("clerk", false));
    let refused = board.submit(Task::new("x").to("clerk")).await.unwrap_err();
    assert!(matches!(refused, callboard::SubmitError::Refused(Refusal::Unavailable { .. })), "{refused}");
    assert!(matches!(board.agents().stop("clerk").await, Err(AgentError::Unknown { .. })));

    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert_eq!(lives.built.get(), 0);
    board.agents().spawn(clerk(&lives)).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!(0));
    let taken = board.agents().spawn(clerk(&lives)).await;
    assert!(matches!(taken, Err(AgentError::NameInUse { .. })));

    board.agents().stop("clerk").await.unwrap();
    assert_eq!(lives.dropped.get(), 1, "while it is awake");
    idle().await;
    assert!(board.tree().await.unwrap().find(&["agents", "clerk"]).is_none());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_replaced_in_its_sleep_by_another_one_or_by_one_that_never_sleeps() {
    let (first, second) = (Lives::default(), Lives::default());
    let board = board_of(clerk(&first)).await;
    let other = |_: Turn| async { Ok(Command::output("other")) };
    board.agents().replace(AgentSpec::new("clerk", other).role("office").dormant()).await.unwrap();
    assert_eq!(state(&board).await, ActorState::Dormant);
    assert_eq!(finish(&board, Task::new("x").to("office")).await.output, "other");
    idle().await;
    assert_eq!(first.built.get(), 0);

    let ordinary = |lives: &Lives| {
        let lives = lives.clone();
        AgentSpec::new("clerk", move || Life { number: lives.built.count(), lives: lives.clone() })
    };
    board.agents().replace(ordinary(&second)).await.unwrap();
    assert_eq!((state(&board).await, second.built.get()), (ActorState::Running, 1));
    idle().await;
    assert_eq!((state(&board).await, second.dropped.get()), (ActorState::Running, 0));
    assert_eq!(finish(&board, Task::new("x")).await.output, json!(0));

    board.agents().replace(clerk(&first)).await.unwrap();
    assert_eq!((state(&board).await, first.built.get(), second.dropped.get()), (ActorState::Running, 1, 1));
    idle().await;
    assert_eq!((state(&board).await, first.dropped.get()), (ActorState::Dormant, 1));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn many_are_declared_at_once_or_none() {
    let board = sleepy(builder()).start().await.unwrap();
    let room = |turn: Turn| async move { Ok(Command::output(turn.agent().as_str())) };
    let room = AgentSpec::new("room", room).role("room");
    let names = |numbers: std::ops::Range<usize>| numbers.map(|number| format!("room-{number}"));
    board.agents().declare(&room, names(0..3000)).await.unwrap();
    assert_eq!(board.agents().names().len(), 3000);
    assert_eq!(finish(&board, Task::new("x").to("room-2999")).await.output, "room-2999");
    let taken = board.agents().declare(&room, names(2999..3002)).await.unwrap_err();
    assert!(matches!(taken, AgentError::NameInUse { .. }), "{taken}");
    let twice = board.agents().declare(&room, ["new", "new"]).await.unwrap_err();
    assert!(matches!(twice, AgentError::NameInUse { .. }), "{twice}");
    let alike = board.agents().declare(&room, ["copy", "\u{441}\u{43e}\u{440}\u{443}"]).await.unwrap_err();
    assert!(matches!(alike, AgentError::LooksLike { .. }), "{alike}");
    assert!(board.agents().declare(&room, ["fine", " not"]).await.is_err());
    assert_eq!(board.agents().names().len(), 3000);
    let awake = |node: &&TreeNode| node.state == ActorState::Running;
    let tree = board.tree().await.unwrap();
    let agents = tree.find(&["agents"]).unwrap();
    assert_eq!((agents.children.len(), agents.children.iter().filter(awake).count()), (3000, 1));
    board.shutdown().await;
    assert!(board.agents().roster().is_empty(), "all have withdrawn");
}

#[tokio::test(start_paused = true)]
async fn a_breaker_and_events_know_it_while_it_sleeps() {
    let lives = Lives::default();
    let board = board_of(clerk(&lives)).await;
    let run = board.submit(Task::new("panic")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!(1));
    let failed = |event: &RunEvent| matches!(event, RunEvent::AttemptFailed { .. });
    assert!(run.history().await.unwrap().iter().any(failed));
    let before = board.agents().breaker("clerk");
    idle().await;
    assert_eq!(state(&board).await, ActorState::Dormant);
    assert_eq!(board.agents().breaker("clerk"), before);
    board.shutdown().await;
}
