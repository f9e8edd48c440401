//! One test for each metric: the names are public, and they count what their docs describe.

use std::time::Duration;

use callboard::SubmitError;
use callboard::actors::DelegationError;
use callboard::messages::{Consent, Refusal, SendTo, Usage};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard::supervision::runs::BreakerPolicy;

use super::recorder::Recorder;
use crate::common::{broken, builder, finish, quiet, secs};

/// The gauges are read every ten seconds.
const GAUGES: Duration = Duration::from_secs(10);

/// Sees what boards count on this thread, as long as the guard lives.
macro_rules! recorded {
    ($recorder:ident) => {
        let $recorder = Recorder::default();
        let _recorded = metrics::set_default_local_recorder(&$recorder);
    };
}

async fn submit(board: &Callboard, to: &str) -> RunHandle {
    board.submit(Task::new("x").to(to)).await.unwrap()
}

async fn done(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::output("done"))
}

#[tokio::test(start_paused = true)]
async fn runs_are_counted_by_how_they_end() {
    recorded!(recorder);
    let board = builder()
        .agent("finishes", done)
        .agent("fails", |_: Turn| async { Err(TurnError::terminal("no")) })
        .agent("refused", |_: Turn| async { Ok(Command::output(1).goto("finishes")) })
        .agent("denied", |turn: Turn| async move {
            turn.people().approve(callboard::messages::Action::new("write", "file", "text")).await?;
            Ok(Command::new())
        })
        .agent("waits", |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) })
        .approval_policy(|question| if &*question.action.action == "write" { Consent::Deny } else { Consent::Auto })
        .start()
        .await
        .unwrap();
    for to in ["finishes", "finishes", "fails", "refused", "denied"] {
        finish(&board, Task::new("x").to(to).limits(Complexity::Simple)).await;
    }
    let waits = submit(&board, "waits").await;
    quiet().await;
    let ended = |outcome| (format!("outcome={outcome}"), if outcome == "finished" { 2.0 } else { 1.0 });
    assert_eq!(recorder.all("callboard_runs_total"), ["denied", "failed", "finished", "refused"].map(ended));
    waits.cancel("enough").await.unwrap();
    assert_eq!(recorder.value("callboard_runs_total{outcome=cancelled}"), Some(1.0));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn handoffs_are_recorded_when_their_run_ends() {
    recorded!(recorder);
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            turn.delegate("worker", "help").await?;
            Ok(Command::output(1).goto("splitter"))
        })
        .agent("splitter", |_: Turn| async {
            Ok(Command::new().goto_many([SendTo::new("worker", 1), SendTo::new("worker", 2)]))
        })
        .agent("worker", done)
        .agent("loop", |_: Turn| async { Ok(Command::output(1).goto("worker")) })
        .start()
        .await
        .unwrap();
    finish(&board, Task::new("x").to("lead")).await;
    finish(&board, Task::new("x").to("worker")).await;
    finish(&board, Task::new("x").to("loop").limits(Complexity::Simple)).await;
    let one_and_one_and_two = 4.0;
    assert_eq!(recorder.values("callboard_handoffs_per_run"), [one_and_one_and_two, 0.0, 0.0], "a refused one is none");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn turns_and_failed_attempts_are_counted_by_agent() {
    recorded!(recorder);
    let board = builder()
        .agent("flaky", |turn: Turn| async move {
            if turn.attempt() < 3 { Err(broken().into()) } else { Ok(Command::output(1).goto("broken")) }
        })
        .agent("broken", |_: Turn| async { Err::<Command, _>(broken().into()) })
        .start()
        .await
        .unwrap();
    finish(&board, Task::new("x").to("flaky")).await;
    let counted = ["flaky", "broken"].map(|agent| {
        let of = |name: &str| recorder.value(&format!("{name}{{agent={agent}}}"));
        (of("callboard_turns_total"), of("callboard_failed_attempts_total"))
    });
    assert_eq!(counted, [(Some(1.0), Some(2.0)), (Some(1.0), Some(3.0))], "a turn counts once, whatever its attempts");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn tokens_are_those_that_providers_reported() {
    recorded!(recorder);
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let call = turn.reserve(1_000).await?;
            turn.reserve(500).await?.release();
            // The helper's call has the same number in its turn.
            turn.delegate("helper", "help").await?;
            call.settle(Usage::of(300, 20));
            Ok(Command::output(1))
        })
        .agent("helper", |turn: Turn| async move {
            // The turn returns in the moment in which its call reports.
            turn.reserve(1_000).await?.settle(Usage::of(4_000, 1));
            Ok(Command::output("helped"))
        })
        .agent("silent", |turn: Turn| async move {
            let call = turn.reserve(1_000).await?;
            drop(call);
            Ok(Command::output(1))
        })
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    finish(&board, Task::new("x").to("silent")).await;
    assert_eq!(result.metrics.usage.total(), 320 + 4_001);
    let counted: Vec<(String, f64)> =
        recorder.all("callboard_tokens_total").into_iter().filter(|(_, tokens)| *tokens > 0.0).collect();
    assert_eq!(counted, [("agent=helper".to_owned(), 4_001.0), ("agent=lead".to_owned(), 320.0)]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn handoff_latency_is_the_wait_between_admission_and_beginning() {
    recorded!(recorder);
    let worker = |turn: Turn| async move {
        tokio::time::sleep(secs(turn.input()?)).await;
        Ok(Command::output("done"))
    };
    let board = builder()
        .agent("lead", |_: Turn| async {
            Ok(Command::new().goto_many([SendTo::new("worker", 7), SendTo::new("worker", 2), SendTo::new("worker", 1)]))
        })
        .with(AgentSpec::new("worker", worker).concurrency(1))
        .start()
        .await
        .unwrap();
    finish(&board, Task::new("x").to("lead")).await;
    assert_eq!(recorder.values("callboard_handoff_latency_seconds{agent=lead}"), [0.0]);
    assert_eq!(recorder.values("callboard_handoff_latency_seconds{agent=worker}"), [0.0, 7.0, 9.0]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_by_kind_and_circles_of_waits_among_them() {
    recorded!(recorder);
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let crossing = |to: &'static str| {
        let barrier = std::sync::Arc::clone(&barrier);
        move |turn: Turn| {
            let barrier = std::sync::Arc::clone(&barrier);
            async move {
                if turn.chain().is_empty() {
                    barrier.wait().await;
                    let _ = turn.delegate(to, "go on").await;
                }
                Ok(Command::output("fine"))
            }
        }
    };
    let board = builder()
        .agent("echo", |turn: Turn| async move {
            // A target that is the delegating agent itself: what it hands off, it hands off again.
            let refused = turn.delegate("echo", "again").await;
            assert!(matches!(refused, Err(DelegationError::Refused(Refusal::AlreadyInChain { .. }))), "{refused:?}");
            Ok(Command::output("the same").goto("echo"))
        })
        .agent("wide", |_: Turn| async { Ok(Command::new().goto_many((0..9).map(|n| SendTo::new("worker", n)))) })
        .agent("greedy", |turn: Turn| async move {
            let refused = turn.reserve(u64::from(u32::MAX)).await.map(drop).unwrap_err();
            assert_eq!(refused.refusal().map(Refusal::name), Some("TokenBudget"));
            Ok(Command::output(1).goto("denied"))
        })
        .agent("denied", done)
        .agent("worker", done)
        .with(AgentSpec::new("a", crossing("b")).non_reentrant())
        .with(AgentSpec::new("b", crossing("a")).non_reentrant())
        .approval_policy(|question| if &*question.action.target == "denied" { Consent::Deny } else { Consent::Auto })
        .start()
        .await
        .unwrap();
    finish(&board, Task::new("x").to("echo").input("the same")).await;
    finish(&board, Task::new("x").to("wide")).await;
    finish(&board, Task::new("x").to("greedy")).await;
    let (a, b) = (submit(&board, "a").await, submit(&board, "b").await);
    a.result().await.unwrap();
    b.result().await.unwrap();
    let refused = board.submit(Task::new("x").to("nobody")).await.map(drop);
    assert!(matches!(refused, Err(SubmitError::Refused(Refusal::UnknownAgent { .. }))), "{refused:?}");
    let counted = recorder.all("callboard_refusals_total");
    let expected = [
        ("AlreadyInChain", 2.0),
        ("Denied", 1.0),
        ("HandoffLimit", 1.0),
        ("RepeatedHandoff", 1.0),
        ("TokenBudget", 1.0),
        ("UnknownAgent", 1.0),
        ("WaitCycle", 1.0),
    ];
    assert_eq!(counted, expected.map(|(refusal, count)| (format!("refusal={refusal}"), count)));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn rebuilds_of_an_agent_are_shown() {
    recorded!(recorder);
    let board = builder()
        .agent("steady", done)
        .agent("nervous", |turn: Turn| async move {
            assert!(turn.attempt() == 3, "not yet");
            Ok(Command::output("calm"))
        })
        .start()
        .await
        .unwrap();
    finish(&board, Task::new("x").to("steady")).await;
    finish(&board, Task::new("x").to("nervous")).await;
    tokio::time::sleep(GAUGES).await;
    quiet().await;
    let shown = [("agent=nervous".to_owned(), 2.0), ("agent=steady".to_owned(), 0.0)];
    assert_eq!(recorder.all("callboard_agent_restarts"), shown);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn mailboxes_and_free_permits_show_what_waits_and_what_is_held() {
    recorded!(recorder);
    let slow = |_: Turn| async {
        tokio::time::sleep(secs(15)).await;
        Ok(Command::output("done"))
    };
    let board = builder()
        .pool(4)
        .with(AgentSpec::new("worker", slow).concurrency(2))
        .agent("idle", done)
        .start()
        .await
        .unwrap();
    let runs = futures::future::join_all((0..7).map(|_| submit(&board, "worker"))).await;
    tokio::time::sleep(GAUGES).await;
    quiet().await;
    let shown = || (recorder.all("callboard_mailbox_depth"), recorder.value("callboard_free_permits"));
    let depth = |worker| vec![("agent=idle".to_owned(), 0.0), ("agent=worker".to_owned(), worker)];
    assert_eq!(shown(), (depth(5.0), Some(2.0)));
    tokio::time::sleep(GAUGES).await;
    quiet().await;
    assert_eq!(shown(), (depth(3.0), Some(2.0)));
    for run in runs {
        run.result().await.unwrap();
    }
    tokio::time::sleep(GAUGES).await;
    quiet().await;
    assert_eq!(shown(), (depth(0.0), Some(4.0)));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_breaker_shows_closed_open_half_open_and_closed_again() {
    recorded!(recorder);
    let policy = BreakerPolicy { cooldown: secs(15), ..BreakerPolicy::default() };
    let board = builder()
        .breaker(policy)
        .agent("shaky", |turn: Turn| async move {
            match turn.input::<u64>()? {
                0 => Err(broken().into()),
                time => {
                    tokio::time::sleep(secs(time)).await;
                    Ok(Command::output("well again"))
                }
            }
        })
        .start()
        .await
        .unwrap();
    let read = async || {
        tokio::time::sleep(GAUGES).await;
        quiet().await;
        recorder.value("callboard_breaker_state{agent=shaky}")
    };
    assert_eq!(read().await, Some(0.0));
    let task = |time: u64| Task::new("x").to("shaky").input(time).limits(Limits { attempts: 1, ..Limits::default() });
    for _ in 0..3 {
        finish(&board, task(0)).await;
    }
    assert_eq!(read().await, Some(2.0), "open");
    let refused = board.submit(task(1)).await.map(drop);
    assert!(matches!(refused, Err(SubmitError::Refused(Refusal::BreakerOpen { .. }))), "{refused:?}");
    assert_eq!(recorder.value("callboard_refusals_total{refusal=BreakerOpen}"), Some(1.0));
    assert_eq!(read().await, Some(2.0), "open until somebody probes it");
    let probe = board.submit(task(15)).await.unwrap();
    assert_eq!(read().await, Some(1.0), "half-open");
    probe.result().await.unwrap();
    assert_eq!(read().await, Some(0.0), "closed");
    board.shutdown().await;
}
