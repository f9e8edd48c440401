//! Limits of a day (SEMANTICS 2), as boards of one store meet them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Processes, World, finish};
use callboard::messages::{AgentName, Cost, PerDay, Refusal, Timestamp, Usage};
use callboard::prelude::*;
use callboard::runtime::{Builder, Unfinished};
use callboard::workflow::{Node, Workflow};

const DAY: PerDay = PerDay { tokens: Some(1_000), cost: None };

/// An agent that uses as many tokens as its input says, of as many that it reserves.
fn spender(counted: &Arc<AtomicU64>) -> AgentSpec {
    spender_named("spender", counted)
}

fn spender_named(name: &str, counted: &Arc<AtomicU64>) -> AgentSpec {
    let counted = Arc::clone(counted);
    AgentSpec::new(name, move |turn: Turn| {
        let counted = Arc::clone(&counted);
        async move {
            let (reserved, used) = turn.input::<(u64, u64)>()?;
            let reservation = turn.reserve(reserved).await?;
            counted.fetch_add(used, Ordering::Relaxed);
            reservation.settle(Usage::of(used, 0)).await?;
            Ok(Command::new())
        }
    })
}

fn limited(builder: Builder) -> Builder {
    builder.day_limits(|days| days.board(DAY))
}

async fn spend(board: &Callboard, reserved: u64, used: u64) -> Outcome {
    finish(board, Task::new("x").to("spender").input(serde_json::json!([reserved, used]))).await.outcome
}

#[tokio::test(start_paused = true)]
async fn boards_of_one_store_never_use_more_than_the_limit_together() {
    let (world, counted) = (World::new(), Arc::default());
    let first = limited(world.builder()).with(spender(&counted)).start().await.unwrap();
    let second = limited(world.builder()).with(spender(&counted)).start().await.unwrap();
    let runs = (0..100).map(|number| spend(if number % 2 == 0 { &first } else { &second }, 30, 30));
    let outcomes = futures::future::join_all(runs).await;
    let finished = outcomes.iter().filter(|outcome| outcome.is_finished()).count();
    assert_eq!(counted.load(Ordering::Relaxed), 30 * finished as u64);
    assert!((32..=33).contains(&finished), "{finished}: a board may be left with less than a call needs");
    let refused = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Refused(refusal) => Some(refusal),
        _ => None,
    });
    assert!(
        matches!(refused, Some(Refusal::DayLimit { limit: 1_000, asked: Some(30), is_money: false, .. })),
        "{refused:?}"
    );
    first.shutdown().await;
    // What the first has not used of its blocks is there for the second.
    second.shutdown().await;
    let third = limited(world.builder()).with(spender(&counted)).start().await.unwrap();
    let left = 1_000 - counted.load(Ordering::Relaxed);
    assert!(!spend(&third, left + 1, 0).await.is_finished());
    assert!(spend(&third, left, 0).await.is_finished());
    third.shutdown().await;
}

#[test]
fn what_a_killed_board_had_set_aside_is_settled_by_the_journals_of_its_runs() {
    let (processes, counted) = (Processes::new(), Arc::default());
    processes.run(async |builder| {
        let board = limited(builder)
            .agent("hangs", |turn: Turn| async move {
                let _held = turn.reserve(200).await?;
                std::future::pending::<Result<Command, TurnError>>().await
            })
            .with(spender(&counted))
            .start()
            .await
            .unwrap();
        assert!(spend(&board, 600, 100).await.is_finished());
        let hangs = board.submit(Task::new("x").to("hangs")).await.unwrap();
        while hangs.read().await.is_ok_and(|run| run.metrics().tokens_spent == 0) {
            tokio::task::yield_now().await;
        }
    });
    processes.run(async |builder| {
        let builder = builder.on_unfinished(Unfinished::Leave);
        let board = limited(builder).with(spender(&counted)).start().await.unwrap();
        // 100 were used, and the call of 200 may have been made.
        assert!(!spend(&board, 701, 0).await.is_finished());
        assert!(spend(&board, 700, 0).await.is_finished());
    });
}

#[tokio::test(start_paused = true)]
async fn a_new_day_begins_with_the_whole_limit_and_a_call_counts_where_it_began() {
    let (world, counted) = (World::new(), Arc::default());
    // Two hours east of UTC.
    let day_of = |at: Timestamp| u32::try_from((at.as_millis() + 2 * 3_600_000) / 86_400_000).unwrap();
    let builder = world.builder().day_limits(|days| days.board(DAY).days(day_of));
    let board = builder.with(spender(&counted)).start().await.unwrap();
    assert!(spend(&board, 1_000, 1_000).await.is_finished());
    tokio::time::advance(Duration::from_secs(22 * 3600 - 60)).await;
    let Outcome::Refused(refused) = spend(&board, 1, 1).await else { panic!() };
    assert_eq!(
        refused.to_string(),
        "the board may use 1000 tokens a day, and on 2026-01-01 it has used or set aside 1000: 1 more do not fit; raise \
         `tokens_per_day` in [limits] of callboard.toml (Builder::day_limits in Rust), or try again the next day"
    );
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(spend(&board, 1_000, 1_000).await.is_finished());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn agents_and_requesters_have_limits_of_their_own() {
    let (world, counted) = (World::new(), Arc::default());
    let [ci, ann] = ["ci", "ann"].map(|name| AgentName::new(name).unwrap());
    let few = PerDay { tokens: Some(10), cost: None };
    let of_ci = ci.clone();
    let board = world
        .builder()
        .day_limits(|days| days.requesters(move |name| if *name == of_ci { few } else { PerDay::default() }))
        .with(spender(&counted))
        .with(spender_named("small", &counted).per_day(PerDay { tokens: Some(5), cost: Some(Cost(1)) }))
        .start()
        .await
        .unwrap();
    let task =
        |from: &AgentName| Task::new("x").to("spender").from_agent(from.clone()).input(serde_json::json!([11, 11]));
    assert!(finish(&board, task(&ann)).await.outcome.is_finished());
    let refused = finish(&board, task(&ci)).await.outcome;
    assert!(matches!(&refused, Outcome::Refused(Refusal::DayLimit { whose, .. }) if &**whose == "ci"), "{refused}");
    let advice =
        "; use another token with a higher `tokens_per_day` (`callboard tokens add`), or try again the next day";
    assert!(refused.to_string().ends_with(advice), "{refused}");
    let unknown = finish(&board, Task::new("x").to("small").input(serde_json::json!([1, 1]))).await.outcome;
    let why = "agent small may cost $0.000000001 a day, and what this may cost is not known: give the model prices";
    assert_eq!(unknown.to_string(), format!("refused (DayLimit): {why}"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_run_that_a_turn_began_are_counted_once() {
    let (world, counted) = (World::new(), Arc::default());
    let inner = Workflow::builder("inner").node(Node::agent("only", "spender")).build().unwrap();
    let limits = Limits { tokens: 900, ..Limits::default() };
    let board =
        limited(world.builder()).with(spender(&counted)).workflow("team", &inner, limits).start().await.unwrap();
    let task = Task::new("x").to("team").input(serde_json::json!([600, 600]));
    assert!(finish(&board, task).await.outcome.is_finished());
    assert!(spend(&board, 400, 0).await.is_finished());
    assert!(!spend(&board, 401, 0).await.is_finished());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_turn_began_counts_against_the_requester_and_reports_nothing_to_them() {
    let (world, counted) = (World::new(), Arc::default());
    let inner = Workflow::builder("inner").node(Node::agent("only", "spender")).build().unwrap();
    let board = world
        .builder()
        .day_limits(|days| days.requesters(|_| DAY))
        .with(spender(&counted))
        .workflow("team", &inner, Limits::default())
        .start()
        .await
        .unwrap();
    let ci = AgentName::new("ci").unwrap();
    let task = |tokens| Task::new("x").to("team").from_agent(ci.clone()).input(serde_json::json!([tokens, tokens]));
    assert!(finish(&board, task(600)).await.outcome.is_finished());
    let refused = finish(&board, task(401)).await.outcome.to_string();
    assert!(
        refused.contains("ci may use 1000 tokens a day, and on 2026-01-01 it has used or set aside 600"),
        "{refused}"
    );
    let told = board.agents().inbox("ci").await.unwrap();
    assert_eq!(told.len(), 4, "an acknowledgement and an end of each task: {told:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_begins_no_day_anew() {
    let (world, counted, day) = (World::new(), Arc::default(), Arc::new(AtomicU32::new(5)));
    let now = Arc::clone(&day);
    let builder = world.builder().day_limits(|days| days.board(DAY).days(move |_| now.load(Ordering::Relaxed)));
    let board = builder.with(spender(&counted)).start().await.unwrap();
    assert!(spend(&board, 600, 600).await.is_finished());
    day.store(4, Ordering::Relaxed);
    assert!(!spend(&board, 401, 0).await.is_finished());
    assert!(spend(&board, 400, 0).await.is_finished());
    day.store(6, Ordering::Relaxed);
    assert!(spend(&board, 1_000, 0).await.is_finished());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_day_returns_when_a_clock_that_was_ahead_is_corrected_and_what_was_used_meanwhile_counts_in_it() {
    let (world, counted, day) = (World::new(), Arc::default(), Arc::new(AtomicU32::new(5)));
    let now = Arc::clone(&day);
    let builder = world.builder().day_limits(|days| days.board(DAY).days(move |_| now.load(Ordering::Relaxed)));
    let board = builder.with(spender(&counted)).start().await.unwrap();
    let spend_on = async |on: u32, reserved, used| {
        day.store(on, Ordering::Relaxed);
        spend(&board, reserved, used).await
    };
    assert!(spend_on(5, 300, 300).await.is_finished());
    assert!(spend_on(3_600, 500, 500).await.is_finished());
    let Outcome::Refused(refused) = spend_on(5, 201, 0).await else { panic!("the day is that of the clock") };
    let text =
        "the board may use 1000 tokens a day, and on 1970-01-06 it has used or set aside 800: 201 more do not fit";
    assert!(refused.to_string().starts_with(text), "{refused}");
    // Once more, and what counts in the day already is not counted again.
    assert!(spend_on(3_600, 100, 100).await.is_finished());
    assert!(!spend_on(5, 101, 0).await.is_finished());
    assert!(spend_on(5, 100, 100).await.is_finished());
    assert!(spend_on(6, 1_000, 1_000).await.is_finished());
    assert!(!spend_on(6, 1, 1).await.is_finished());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_run_that_chooses_the_class_of_a_task_counts_against_its_requester() {
    let (world, counted) = (World::new(), Arc::default());
    let judge = |turn: Turn| async move {
        turn.reserve(600).await?.settle(Usage::of(600, 0)).await?;
        Ok(Command::output("medium"))
    };
    let board = world
        .builder()
        .day_limits(|days| days.requesters(|_| DAY))
        .with(spender(&counted))
        .agent("judge", judge)
        .classifier_agent("judge")
        .start()
        .await
        .unwrap();
    let ci = AgentName::new("ci").unwrap();
    let task = Task::new("x").to("spender").from_agent(ci.clone()).input(serde_json::json!([401, 401]));
    let refused = finish(&board, task).await.outcome.to_string();
    assert!(
        refused.contains("ci may use 1000 tokens a day, and on 2026-01-01 it has used or set aside 600"),
        "{refused}"
    );
    let mut requesters = Vec::new();
    for run in board.runs().await.unwrap() {
        requesters.push(run.read().await.unwrap().submission().task.from_agent.clone());
    }
    assert_eq!(requesters, [Some(ci.clone()), Some(ci)]);
    board.shutdown().await;
}
