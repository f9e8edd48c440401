//! Limits, breakers and repeated handoffs (SEMANTICS 2, 3 and 4), as a run meets them.

#![allow(clippy::disallowed_methods, reason = "the tests run on tokio's virtual time")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Counter, Peak, assert_nothing_left, broken, builder, finish, found, people, quiet, secs, until};
use callboard::env::Env;
use callboard::messages::{
    Action, ActionKind, Backoff, Consent, Refusal, RunEvent, SendTo, StateRules, Timestamp, Usage, Verdict,
};
use callboard::prelude::*;
use callboard::supervision::runs::{BreakerState, BreakerStatus, Follower, Fork};
use callboard::workflow::Workflow;
use callboard::{ForkError, SubmitError};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

fn used(tokens: u64) -> Usage {
    Usage::of(tokens / 2, tokens - tokens / 2)
}

fn budget(tokens: u64) -> Limits {
    Limits { tokens, ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_reserved_settled_released_and_overrun() {
    let board = builder()
        .agent("spender", |turn: Turn| async move {
            turn.reserve(400).await?.settle(used(300));
            turn.reserve(700).await?.release();
            turn.reserve(700).await?.settle(used(750));
            drop(turn.reserve(10).await);
            let refused = turn.reserve(1).await.unwrap_err();
            Ok(Command::output(refused.to_string()))
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").limits(budget(1_000))).await;
    let text = result.output.as_str().unwrap();
    assert!(
        text.contains("1 tokens do not fit the budget of 1000") && text.contains("raise `limits.tokens`"),
        "{text}"
    );
    assert_eq!((result.outcome, result.metrics.tokens_spent), (Outcome::Finished, 1_000));
    assert_eq!((result.metrics.overrun, result.metrics.usage.total()), (50, 1_050));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_reservations_at_once_never_exceed_the_budget() {
    let admitted = Counter::default();
    let counted = admitted.clone();
    let board = builder()
        .agent("lead", |_: Turn| async { Ok(Command::new().goto_many((0..10).map(|n| SendTo::new("spender", n)))) })
        .with(AgentSpec::new("spender", move |turn: Turn| {
            let counted = counted.clone();
            async move {
                let asked = (0..100).map(|_| turn.reserve(100));
                for reservation in futures::future::join_all(asked).await.into_iter().flatten() {
                    counted.count();
                    tokio::time::sleep(secs(1)).await;
                    reservation.settle(used(90));
                }
                Ok(Command::new())
            }
        }))
        .pool(10)
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 10, ..budget(10_000) };
    let run = board.submit(Task::new("x").to("lead").limits(limits)).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.metrics.tokens_spent, admitted.get() as u64 * 90, "every call that is admitted is paid for");
    let mut follower = Follower::new(StateRules::default());
    let (mut asked, mut refused, mut highest) = (0, 0, 0);
    for (sequence, event) in (1..).zip(run.history().await.unwrap()) {
        if let RunEvent::Reserved { verdict, .. } = &event {
            asked += 1;
            refused += usize::from(matches!(verdict, Verdict::Refused(Refusal::TokenBudget { .. })));
        }
        let _ = follower.take(sequence, &event);
        highest = highest.max(follower.run().unwrap().metrics().tokens_spent);
    }
    assert_eq!((asked, asked - refused), (1_000, admitted.get()));
    assert_eq!(highest, 10_000, "it is used up, and never exceeded");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_with_its_last_token_is_finished() {
    let board = builder()
        .agent("spender", |turn: Turn| async move {
            turn.reserve(100).await?.settle(used(100));
            Ok(if turn.task().body.is_empty() { Command::output("done") } else { Command::new().goto("spender") })
        })
        .start()
        .await
        .unwrap();
    assert_eq!(finish(&board, Task::new("").limits(budget(100))).await.outcome, Outcome::Finished);
    let refused = finish(&board, Task::new("go on").limits(budget(100))).await.outcome;
    assert!(matches!(refused, Outcome::Refused(Refusal::TokenBudget { budget: 100, .. })), "{refused}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn child_turns_share_the_counters_of_their_run() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let answer = turn.delegate("helper", "help").await?;
            let second = turn.delegate("helper", "again").await.unwrap_err().to_string();
            let tokens = turn.reserve(41).await.unwrap_err().to_string();
            Ok(Command::output(json!([answer, second, tokens])))
        })
        .agent("helper", |turn: Turn| async move {
            turn.reserve(60).await?.settle(used(60));
            Ok(Command::output("helped").goto("other"))
        })
        .agent("other", |_: Turn| async { Ok(Command::output("done")) })
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 2, ..budget(100) };
    let result = finish(&board, Task::new("x").to("lead").limits(limits.clone())).await;
    assert_eq!(result.output[0], json!("done"));
    assert!(result.output[1].as_str().unwrap().contains("has used its 2 handoffs"), "{}", result.output);
    assert!(result.output[2].as_str().unwrap().contains("(60 spent"), "{}", result.output);
    let few = finish(&board, Task::new("x").to("lead").limits(Limits { agents: 2, ..limits })).await;
    let Outcome::Failed { error } = few.outcome else { panic!("a third agent was admitted") };
    assert!(error.contains("other would be more than the 2 agents"), "{error}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn each_class_admits_exactly_what_its_figures_say() {
    for (class, handoffs, tokens, agents) in
        [(Complexity::Simple, 0, 10_000, 1), (Complexity::Medium, 2, 25_000, 3), (Complexity::Complex, 5, 150_000, 5)]
    {
        let tries = Counter::default();
        let failing = tries.clone();
        let board = (0..8)
            .fold(builder(), |builder, n| builder.agent(&format!("helper{n}"), |_: Turn| async { Ok(Command::new()) }))
            .agent("hop", |turn: Turn| async move { Ok(Command::output(turn.id().number).goto("hop")) })
            .agent("spender", |turn: Turn| async move {
                let tokens: u64 = turn.input()?;
                turn.reserve(tokens).await?.release();
                let refused = turn.reserve(tokens + 1).await.map(drop).unwrap_err();
                Ok(Command::output(refused.refusal().is_some_and(|refusal| refusal.name() == "TokenBudget")))
            })
            .agent("lead", |turn: Turn| async move {
                let mut helped = 0;
                loop {
                    match turn.delegate(&format!("helper{helped}"), "help").await {
                        Ok(_) => helped += 1,
                        Err(error) => return Err(error.into()),
                    }
                }
            })
            .agent("failing", move |_: Turn| {
                failing.count();
                async { Err::<Command, _>(broken().into()) }
            })
            .start()
            .await
            .unwrap();
        let of_class = |to: &str| Task::new("x").to(to).limits(class);

        let hopped = finish(&board, of_class("hop")).await;
        assert_eq!(hopped.outcome, Outcome::Refused(Refusal::HandoffLimit { max: handoffs, asked: 1 }));
        assert_eq!(hopped.metrics.handoffs, handoffs);

        let spent = finish(&board, of_class("spender").input(tokens)).await;
        assert_eq!((spent.outcome, spent.output), (Outcome::Finished, json!(true).into()), "{class:?}");

        let many = Limits { handoffs: 100, ..Limits::of(class) };
        let helped = finish(&board, of_class("lead").limits(many)).await;
        let agent = AgentName::new(&format!("helper{}", agents - 1)).unwrap();
        assert_eq!(helped.outcome, Outcome::Refused(Refusal::AgentLimit { max: agents, agent }));
        assert_eq!(helped.metrics.agents, agents);

        finish(&board, of_class("failing")).await;
        assert_eq!(tries.get(), 3, "attempts of a turn");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_fails_the_run_and_leaves_nothing() {
    let board = builder()
        .agent("lead", |turn: Turn| async move { Ok(Command::output(turn.delegate("slow", "go").await?)) })
        .agent("slow", |_: Turn| async {
            tokio::time::sleep(secs(60)).await;
            Ok(Command::new())
        })
        .start()
        .await
        .unwrap();
    let started = tokio::time::Instant::now();
    let result = finish(&board, Task::new("x").to("lead").deadline(secs(20))).await;
    assert_eq!(result.outcome, Outcome::Refused(Refusal::DeadlinePassed));
    assert_eq!(started.elapsed().as_secs(), 20);
    assert_nothing_left(&board, 5).await;
    let in_time = finish(&board, Task::new("x").to("slow").deadline(secs(61))).await;
    assert_eq!(in_time.outcome, Outcome::Finished);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegation_has_its_own_budget_within_its_parents_also_in_turns_that_it_hands_on_to() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let helped = turn.delegate("helper", "help").tokens(50).await?;
            let left = turn.reserve(31).await.unwrap_err().to_string();
            turn.reserve(30).await?.settle(used(30));
            Ok(Command::output(json!([helped, left])))
        })
        .agent("helper", |turn: Turn| async move {
            turn.reserve(40).await?.settle(used(40));
            let too_much = turn.delegate("other", "more").tokens(70).await?;
            Ok(Command::output(too_much).goto("last"))
        })
        .agent(
            "other",
            |turn: Turn| async move { Ok(Command::output(turn.reserve(11).await.unwrap_err().to_string())) },
        )
        .agent("last", |turn: Turn| async move {
            turn.reserve(10).await?.settle(used(30));
            Ok(Command::output(turn.input_json().clone()))
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead").limits(budget(100))).await;
    let refused =
        "refused: 11 tokens do not fit the budget of 50 (40 spent, 0 reserved); raise the tokens of the delegation";
    assert_eq!(result.output[0], json!(refused));
    let of_run = "refused: 31 tokens do not fit the budget of 100 (70 spent, 0 reserved); raise `limits.tokens` of the task to at least this: \
         --limits '{\"tokens\": 101}' on the command line, .limits(Limits { tokens: 101, ..Limits::default() }) in Rust";
    assert_eq!(result.output[1], json!(of_run), "what was used beyond the delegation's budget counts for the run");
    assert_eq!((result.metrics.tokens_spent, result.metrics.overrun), (100, 0));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_attempt_left_unsettled_is_reported_as_spent_and_given_back_when_its_call_reports_after_all() {
    let calls = Arc::new(Mutex::new(None));
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            Ok(turn.delegate("helper", "help").tokens(100).await.map(Command::output)?)
        })
        .agent("helper", move |turn: Turn| {
            let calls = Arc::clone(&calls);
            async move {
                if turn.attempt() == 1 {
                    *calls.lock() = Some(turn.reserve(80).await?);
                    return Err(broken().into());
                }
                let refused = turn.reserve(30).await.unwrap_err().to_string();
                let first = calls.lock().take();
                first.unwrap().settle(used(10));
                turn.reserve(90).await?.settle(used(0));
                Ok(Command::output(refused))
            }
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead").limits(budget(1_000))).await;
    let refused = "refused: 30 tokens do not fit the budget of 100 (80 spent, of which 80 by calls that never reported, \
                   0 reserved); settle or release them before the attempt ends, or raise the tokens of the delegation";
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(refused).into()));
    assert_eq!(result.metrics.tokens_spent, 10);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_reports_after_the_end_of_its_run_is_refused_and_one_that_reports_before_is_journaled() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&calls);
    let board = builder()
        .agent("spender", move |turn: Turn| {
            let kept = Arc::clone(&kept);
            async move {
                turn.reserve(40).await?.settle(used(30)).await?;
                let step = turn.step("call", async { turn.reserve(40).await?.release().await });
                step.await?;
                let late = [turn.reserve(20).await?, turn.reserve(20).await?];
                kept.lock().extend(late);
                Ok(Command::new())
            }
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").limits(budget(100))).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.metrics.tokens_spent), (Outcome::Finished, 70));
    let before = run.history().await.unwrap();
    let settled = before.iter().filter(|event| matches!(event, RunEvent::Settled { .. })).count();
    assert_eq!(settled, 2);
    let late = std::mem::take(&mut *calls.lock());
    let expected = format!(
        "the call of turn {}/1 has reported after its run had ended; its whole reservation stays counted as spent",
        run.id()
    );
    for late in late {
        assert_eq!(late.settle(used(5)).await.unwrap_err().to_string(), expected);
    }
    assert_eq!(run.history().await.unwrap(), before);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn siblings_share_what_their_parent_has_whatever_each_was_given() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let asked = [0; 4].map(|_| turn.delegate("helper", "help").tokens(40));
            let admitted = futures::future::join_all(asked)
                .await
                .into_iter()
                .filter(|answer| answer.as_ref().is_ok_and(|answer| *answer == json!(true)));
            Ok(Command::output(admitted.count()))
        })
        .agent("helper", |turn: Turn| async move { Ok(Command::output(turn.reserve(40).await.is_ok())) })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead").limits(budget(100))).await;
    assert_eq!((result.output, result.metrics.tokens_spent), (json!(2).into(), 80));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegation_that_takes_longer_than_it_may_is_cancelled_and_its_parent_continues() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let inner = turn.delegate("middle", "go").deadline(secs(20)).await.unwrap_err().to_string();
            let in_time = turn.delegate("slow", "go").deadline(secs(61)).await?;
            Ok(Command::output(json!([inner, in_time])))
        })
        .agent("middle", |turn: Turn| async move {
            let given = turn.deadline().unwrap();
            // Its own delegation may take longer; it lies within the same twenty seconds all the same.
            let answer = turn.delegate("slow", "go").deadline(secs(50)).await;
            Ok(Command::output(json!([given.as_millis(), answer.is_ok()])))
        })
        .agent("slow", |_: Turn| async {
            tokio::time::sleep(secs(60)).await;
            Ok(Command::output("done"))
        })
        .start()
        .await
        .unwrap();
    let started = tokio::time::Instant::now();
    let result = finish(&board, Task::new("x").to("lead")).await;
    let late = result.output[0].as_str().unwrap();
    assert!(late.starts_with("the delegation to middle did not finish: refused (DeadlinePassed): "), "{late}");
    assert_eq!(result.output[1], "done");
    assert_eq!(started.elapsed().as_secs(), 80);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_classifier_chooses_the_class_of_tasks_that_name_none() {
    let ends = |turn: Turn| async move { Ok(Command::output(turn.delegate("helper", "help").await.is_ok())) };
    let team = || builder().agent("lead", ends).agent("helper", |_: Turn| async { Ok(Command::new()) });
    let helped = async |board: &Callboard, task: Task| finish(board, task.to("lead")).await.output == json!(true);
    let by_length = |task: &Task| if task.body.len() < 5 { Complexity::Simple } else { Complexity::Medium };
    let board = team().classifier(by_length).start().await.unwrap();
    assert!(!helped(&board, Task::new("hi")).await, "a simple task has no handoffs");
    assert!(helped(&board, Task::new("a long one")).await);
    assert!(helped(&board, Task::new("hi").limits(Complexity::Medium)).await, "limits that are named come first");
    board.shutdown().await;
    let judge = AgentSpec::typed("judge", |task: Task| async move {
        if &*task.body == "hi" { Ok(Complexity::Simple) } else { Err(TurnError::terminal("no idea")) }
    });
    let board = team().with(judge).classifier_agent("judge").start().await.unwrap();
    assert!(!helped(&board, Task::new("hi")).await);
    assert!(helped(&board, Task::new("puzzling")).await, "a task that nobody can judge is complex");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_time_without_end_is_as_good_as_none() {
    let agent = |_: Turn| async { Ok(Command::output("done")) };
    let board = builder().with(AgentSpec::new("a", agent).timeout(Duration::MAX)).start().await.unwrap();
    let result = finish(&board, Task::new("x").deadline(Duration::MAX)).await;
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("done").into()));
    board.shutdown().await;
}

/// Follows the instructions of its task.
fn moody(tries: &Counter, inside: &Peak) -> AgentSpec {
    let (tries, inside) = (tries.clone(), inside.clone());
    AgentSpec::new("moody", move |turn: Turn| {
        tries.count();
        let inside = inside.enter();
        async move {
            match &*turn.task().body {
                "fail" => Err(broken())?,
                "fail once" if turn.attempt() == 1 => Err(broken())?,
                "panic" => panic!("out of luck"),
                "terminal" => Err(Terminal(broken()))?,
                "refused" => drop(turn.reserve(u64::MAX).await?),
                "slow" => tokio::time::sleep(secs(5)).await,
                "ask" => drop(turn.people().ask("sure?").await?),
                "delegate" => drop(turn.delegate("helper", "help").await?),
                "change" if turn.attempt() == 1 => {
                    turn.step("first", async { Ok::<_, TurnError>(1) }).await?;
                    Err(broken())?
                }
                "change" => drop(turn.step("second", async { Ok::<_, TurnError>(1) }).await?),
                _ => {}
            }
            drop(inside);
            Ok(Command::output("done"))
        }
    })
    .restarts(100, secs(60))
}

async fn moody_board() -> (Callboard, Counter, Peak) {
    let (tries, inside) = (Counter::default(), Peak::default());
    let backoff = Backoff { first: secs(1), max: secs(1) };
    let board = builder().with(moody(&tries, &inside)).backoff(backoff).start().await.unwrap();
    (board, tries, inside)
}

async fn refused_for(board: &Callboard) -> u64 {
    match board.submit(Task::new("x")).await {
        Err(SubmitError::Refused(Refusal::BreakerOpen { retry_after, .. })) => retry_after.as_secs_f64().ceil() as u64,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_counts_a_turn_once_and_opens_after_three_that_failed() {
    let (board, tries, _) = moody_board().await;
    for body in ["fail", "terminal", "refused", "panic", "terminal"] {
        let expected = if body == "refused" { "refused" } else { "failed" };
        let result = finish(&board, Task::new(body)).await;
        let about = board.agents().breaker("moody");
        assert_eq!((result.outcome.name(), about.state), (expected, BreakerState::Closed), "{result:?} {about:?}");
    }
    assert_eq!(tries.get(), 9, "nine attempts, two turns that count: {:?}", board.agents().breaker("moody"));
    let third = finish(&board, Task::new("fail")).await;
    let about = board.agents().breaker("moody");
    assert_eq!(about.state, BreakerState::Open, "{third:?} {about:?}");
    assert_eq!(refused_for(&board).await, 30, "{about:?}");
    tokio::time::sleep(secs(10)).await;
    assert_eq!(refused_for(&board).await, 20);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_success_between_failures_keeps_the_breaker_closed() {
    let (board, ..) = moody_board().await;
    for body in ["fail", "fail", "fail once", "fail", "fail"] {
        finish(&board, Task::new(body)).await;
    }
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed);
    board.shutdown().await;
}

async fn open(board: &Callboard) {
    for _ in 0..3 {
        finish(board, Task::new("fail")).await;
    }
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_static_edge_waits_for_an_open_breaker_and_uses_up_no_attempt() {
    let env = Env::repeatable(1);
    let (tries, inside) = (Counter::default(), Peak::default());
    let backoff = Backoff { first: secs(1), max: secs(1) };
    let board = builder().env(env.clone()).with(moody(&tries, &inside)).backoff(backoff);
    let board = board.agent("first", |_: Turn| async { Ok(Command::output("on")) }).start().await.unwrap();
    for _ in 0..3 {
        finish(&board, Task::new("fail").to("moody")).await;
    }
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Open);
    let (before, began) = (tries.get(), env.now().monotonic);
    let workflow = Workflow::from_line("", "first -> moody").unwrap();
    let result = finish(&board, workflow.task("x")).await;
    assert_eq!((result.outcome, result.output, result.metrics.retries), (Outcome::Finished, json!("done").into(), 0));
    assert_eq!(tries.get() - before, 1);
    let waited = (env.now().monotonic - began).as_secs();
    assert!((30..35).contains(&waited), "it waited {waited} s");
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed, "its turn was the probe");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn half_open_admits_one_probe_and_its_end_decides() {
    let (board, ..) = moody_board().await;
    open(&board).await;
    tokio::time::sleep(secs(30)).await;
    let probe = board.submit(Task::new("fail")).await.unwrap();
    assert_eq!(board.agents().breaker("moody").state, BreakerState::HalfOpen);
    refused_for(&board).await;
    assert!(matches!(probe.result().await.unwrap().outcome, Outcome::Failed { .. }), "its own retries are no probes");
    assert_eq!(refused_for(&board).await, 60, "the cooldown doubles");
    tokio::time::sleep(secs(60)).await;
    assert_eq!(finish(&board, Task::new("fail once")).await.outcome, Outcome::Finished);
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_cancelled_is_given_back() {
    let (board, ..) = moody_board().await;
    open(&board).await;
    tokio::time::sleep(secs(30)).await;
    let probe = board.submit(Task::new("slow")).await.unwrap();
    quiet().await;
    assert!(probe.cancel("no need").await.unwrap());
    assert_eq!(finish(&board, Task::new("x")).await.outcome, Outcome::Finished);
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_waits_for_a_person_is_given_back() {
    let (board, ..) = moody_board().await;
    open(&board).await;
    tokio::time::sleep(secs(30)).await;
    let waits = board.submit(Task::new("ask")).await.unwrap();
    quiet().await;
    assert_eq!(people::questions(&waits).await.len(), 1);
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Open);
    assert_eq!(finish(&board, Task::new("x")).await.outcome, Outcome::Finished, "another turn is the probe");
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed);
    board.people().answer(people::questions(&waits).await[0].id, "yes", "ann").await.unwrap();
    assert_eq!(waits.result().await.unwrap().outcome, Outcome::Finished);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_needs_attention_is_given_back() {
    let (board, ..) = moody_board().await;
    open(&board).await;
    tokio::time::sleep(secs(30)).await;
    let stuck = board.submit(Task::new("change")).await.unwrap();
    until(&stuck, |event| matches!(event, RunEvent::NeedsAttention { .. })).await;
    quiet().await;
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Open);
    assert_eq!(finish(&board, Task::new("x")).await.outcome, Outcome::Finished, "another turn is the probe");
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed);
    stuck.cancel("changed").await.unwrap();
    board.shutdown().await;
}

/// The agent asked by the probe may ask a question, ask for consent, or hand on with consent only.
#[tokio::test(start_paused = true)]
async fn a_probe_whose_delegation_waits_for_a_person_is_given_back() {
    for way in ["question", "consent", "handoff"] {
        let (tries, inside) = (Counter::default(), Peak::default());
        let board = builder()
            .with(moody(&tries, &inside))
            .agent("helper", move |turn: Turn| async move {
                match way {
                    "question" => drop(turn.people().ask("sure?").await?),
                    "consent" => drop(turn.people().approve(Action::new("write_file", "a.md", "x")).await?),
                    _ => return Ok(Command::output("on").goto("other")),
                }
                Ok(Command::output("helped"))
            })
            .agent("other", |_: Turn| async { Ok(Command::output("done")) })
            .approval_policy(|question| match question.kind {
                ActionKind::Delegation => Consent::Auto,
                ActionKind::Handoff | ActionKind::Requested => Consent::Ask,
            })
            .start()
            .await
            .unwrap();
        for _ in 0..3 {
            finish(&board, Task::new("fail").to("moody")).await;
        }
        tokio::time::sleep(secs(30)).await;
        let waits = board.submit(Task::new("delegate").to("moody")).await.unwrap();
        found(async || board.people().pending().await.pop()).await;
        quiet().await;
        assert_eq!(board.agents().breaker("moody").state, BreakerState::Open, "{way}");
        assert_eq!(finish(&board, Task::new("x").to("moody")).await.outcome, Outcome::Finished, "{way}");
        assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed, "{way}");
        waits.cancel("enough").await.unwrap();
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_shows_its_failures_the_last_of_them_and_when_it_opened() {
    let env = Env::repeatable(7);
    let (tries, inside) = (Counter::default(), Peak::default());
    let board = builder().env(env.clone()).with(moody(&tries, &inside)).start().await.unwrap();
    let shown = || {
        let BreakerStatus { state, failures, last_failure, opened_at } = board.agents().breaker("moody");
        let ago = |at: Timestamp| env.now().wall.since(at).as_secs();
        (state, failures, last_failure.map(ago), opened_at.map(ago))
    };
    let fail = || Task::new("fail").limits(Limits { attempts: 1, ..Limits::default() });
    assert_eq!(shown(), (BreakerState::Closed, 0, None, None));
    finish(&board, fail()).await;
    tokio::time::sleep(secs(7)).await;
    assert_eq!(shown(), (BreakerState::Closed, 1, Some(7), None));
    for _ in 0..2 {
        finish(&board, fail()).await;
    }
    tokio::time::sleep(secs(30)).await;
    assert_eq!(shown(), (BreakerState::Open, 3, Some(30), Some(30)));
    finish(&board, fail()).await;
    assert_eq!(shown(), (BreakerState::Open, 4, Some(0), Some(0)), "the probe failed");
    tokio::time::sleep(secs(60)).await;
    finish(&board, Task::new("x")).await;
    assert_eq!(shown(), (BreakerState::Closed, 0, None, None));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_has_closed_again_counts_failures_of_workflow_turns_in_a_row_only() {
    let (board, ..) = moody_board().await;
    open(&board).await;
    tokio::time::sleep(secs(30)).await;
    let limits = Limits { attempts: 1, ..Limits::default() };
    let plan = Workflow::builder("one").node(Node::agent("only", "moody")).build().unwrap();
    for body in ["x", "fail", "x", "fail", "x", "fail", "x"] {
        let mut task = plan.task(body).limits(limits.clone());
        task.body = body.into();
        finish(&board, task).await;
        assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed);
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn retries_that_meet_an_open_breaker_wait_and_continue_one_by_one() {
    let (tries, inside) = (Counter::default(), Peak::default());
    let backoff = Backoff { first: secs(20), max: secs(20) };
    let board = builder().with(moody(&tries, &inside)).backoff(backoff).start().await.unwrap();
    let limits = |attempts| Limits { attempts, ..Limits::default() };
    let waiting = [(); 2].map(|()| board.submit(Task::new("fail once").limits(limits(2))));
    let waiting = futures::future::join_all(waiting).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    quiet().await;
    for _ in 0..3 {
        finish(&board, Task::new("fail").limits(limits(1))).await;
    }
    let opened = tokio::time::Instant::now();
    assert_eq!((tries.get(), board.agents().breaker("moody").state), (5, BreakerState::Open));
    tokio::time::sleep(secs(29)).await;
    assert_eq!(tries.get(), 5, "the backoff is over, and the breaker is open");
    for run in waiting {
        assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished, "no attempt was used up");
    }
    assert_eq!((tries.get(), opened.elapsed().as_secs()), (7, 60), "the second one waited for the first");
    assert_eq!(board.agents().breaker("moody").state, BreakerState::Closed);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_handoff_to_an_agent_whose_breaker_is_open_ends_refused_and_keeps_the_update() {
    let (tries, inside) = (Counter::default(), Peak::default());
    let board = builder()
        .with(moody(&tries, &inside))
        .agent("lead", |_: Turn| async { Ok(Command::output("mine").with("note", 1).goto("moody")) })
        .start()
        .await
        .unwrap();
    for _ in 0..3 {
        finish(&board, Task::new("fail").to("moody")).await;
    }
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert!(matches!(result.outcome, Outcome::Refused(Refusal::BreakerOpen { .. })), "{result:?}");
    assert_eq!((result.output, result.state), (json!("mine").into(), json!({ "note": 1 }).into()));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn going_back_with_the_same_content_is_refused_and_with_a_changed_one_is_not() {
    let reasons = Arc::new(Mutex::new(Vec::<&str>::new()));
    let left = Arc::clone(&reasons);
    let board = builder()
        .agent("coder", |turn: Turn| async move {
            Ok(Command::output("code").with("messages", turn.id().number).goto("reviewer"))
        })
        .agent("reviewer", move |_: Turn| {
            let reason = left.lock().pop();
            async move {
                let command = Command::output("review");
                Ok(match reason {
                    Some("accept") => command,
                    Some(reason) => command.with_output(reason).goto("coder"),
                    None => command.goto("coder"),
                })
            }
        })
        .start()
        .await
        .unwrap();
    let task = || Task::new("x").to("coder").limits(Limits { handoffs: 20, ..Limits::default() });
    let result = finish(&board, task()).await;
    let refused = Refusal::RepeatedHandoff {
        from: callboard::messages::AgentName::new("coder").unwrap(),
        to: callboard::messages::AgentName::new("reviewer").unwrap(),
    };
    assert_eq!(result.outcome, Outcome::Refused(refused), "messages do not make a handoff another one");
    assert_eq!(result.metrics.handoffs, 2);
    *reasons.lock() = vec!["accept", "tests are missing"];
    let result = finish(&board, task().limits(Limits { handoffs: 20, repeat_window: 1, ..Limits::default() })).await;
    assert_eq!((result.outcome, result.metrics.handoffs), (Outcome::Finished, 3), "only the last one is compared");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_scope_makes_a_retry_loop_legitimate() {
    let board = builder()
        .agent("coder", |turn: Turn| async move {
            Ok(Command::output(format!("version {}", turn.id().number)).goto("reviewer"))
        })
        .agent("reviewer", |turn: Turn| async move {
            let command = Command::output(format!("finding {}", turn.id().number));
            Ok(if turn.id().number < 10 { command.goto("coder") } else { command })
        })
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 9, ..Limits::default() };
    let result = finish(&board, Task::new("x").to("coder").limits(limits)).await;
    assert_eq!((result.outcome, result.metrics.handoffs), (Outcome::Finished, 9));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn siblings_of_a_fan_out_are_no_repetition_and_are_admitted_whole_or_not_at_all() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let count: u64 = turn.input()?;
            Ok(Command::output("lead").goto_many((0..count).map(|_| SendTo::new("worker", "the same"))))
        })
        .agent("worker", |_: Turn| async { Ok(Command::output("done")) })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead").input(5)).await;
    assert_eq!((result.outcome, result.metrics.turns), (Outcome::Finished, 6));
    let result = finish(&board, Task::new("x").to("lead").input(6)).await;
    assert_eq!(result.outcome, Outcome::Refused(Refusal::HandoffLimit { max: 5, asked: 6 }));
    assert_eq!((result.output, result.metrics.turns), (json!("lead").into(), 1));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_room_among_the_runs_in_flight_or_is_refused_at_once() {
    let resume = Arc::new(Notify::new());
    let waiting = Arc::clone(&resume);
    let board = builder()
        .agent("worker", move |_: Turn| {
            let waiting = Arc::clone(&waiting);
            async move {
                waiting.notified().await;
                Ok(Command::new())
            }
        })
        .capacity(|capacity| capacity.runs_in_flight(1))
        .start()
        .await
        .unwrap();
    let first = board.submit(Task::new("x")).await.unwrap();
    let refused = board.try_submit(Task::new("x")).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Refused(Refusal::Overloaded { .. })), "{refused}");
    let second = tokio::spawn({
        let board = board.clone();
        async move { finish(&board, Task::new("x")).await }
    });
    quiet().await;
    assert!(!second.is_finished());
    resume.notify_one();
    first.result().await.unwrap();
    resume.notify_one();
    assert_eq!(second.await.unwrap().outcome, Outcome::Finished);
    until(&first, |event| matches!(event, RunEvent::TurnEnded { .. })).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_fork_has_the_limits_that_it_is_given_unless_what_it_copies_has_used_more() {
    let board = builder()
        .agent("lead", |_: Turn| async { Ok(Command::output("go").goto("spender")) })
        .agent("spender", |turn: Turn| async move {
            turn.reserve(500).await?.settle(used(500));
            Ok(Command::output("spent"))
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead").limits(budget(100))).await.unwrap();
    let Outcome::Refused(refusal) = run.result().await.unwrap().outcome.clone() else { panic!("it lacks tokens") };
    assert_eq!(refusal.needed_limit(), Some(("tokens", 500)));
    let same = board.fork(run.id(), 2, Fork::new()).await.unwrap();
    assert!(matches!(same.result().await.unwrap().outcome, Outcome::Refused(_)));
    let more = board.fork(run.id(), 2, Fork::new().limits(budget(500))).await.unwrap();
    assert_eq!(more.result().await.unwrap().output, "spent");
    let Some(RunEvent::Submitted(submission)) = more.history().await.unwrap().into_iter().next() else { panic!() };
    assert_eq!(submission.limits(), &budget(500));

    let none = Limits { handoffs: 0, ..budget(500) };
    let refused = board.fork(run.id(), 2, Fork::new().limits(none)).await.unwrap_err();
    assert_eq!(refused, ForkError::LimitUsed { limit: "handoffs", given: 0, used: 1 });
    let alone = Limits { agents: 1, ..budget(500) };
    let refused = board.fork(run.id(), 2, Fork::new().limits(alone)).await.unwrap_err();
    assert_eq!(refused, ForkError::LimitUsed { limit: "agents", given: 1, used: 2 });
    board.shutdown().await;
}
