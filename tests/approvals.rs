//! Questions and approvals (SEMANTICS 9).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use callboard::actors::Mode;
use callboard::actors::approvals::{Channel, DecideError, Decider};
use callboard::messages::{Action, ApprovalId, Consent, Decision, Envelope, Refusal, RunEvent};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::supervision::runs::inbox::AnswerError;
use common::{Counter, World, assert_nothing_left, broken, builder, finish, quiet, secs, until};
use parking_lot::Mutex;
use serde_json::json;

fn write(text: &str) -> Action {
    Action::new("write_file", "REVIEW.md", json!({ "text": text }))
}

/// Asks for consent, and says what came of it.
async fn writer(turn: Turn) -> Result<Command, TurnError> {
    Ok(Command::output(match turn.approve(write("the review")).await {
        Ok(action) => action.to_string(),
        Err(error) => error.to_string(),
    }))
}

async fn asked(run: &RunHandle) -> Envelope {
    match until(run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await {
        RunEvent::ApprovalAsked { envelope, .. } => *envelope,
        _ => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_goes_ahead_once_a_person_has_approved_it() {
    let board = builder().agent("writer", writer).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let envelope = asked(&run).await;
    assert_eq!((envelope.agent.as_str(), &envelope.action), ("writer", &write("the review")));
    assert_eq!(board.approvals().open(), std::slice::from_ref(&envelope));
    assert_eq!((board.load().turns_at_work, board.load().free_permits), (0, 5), "it holds neither permit nor slot");
    board.approvals().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("write_file REVIEW.md"));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_reaches_the_agent_with_its_reason() {
    let board = builder().agent("writer", writer).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    board.approvals().deny(asked(&run).await.id(), "ann", "too long").await.unwrap();
    let output = run.result().await.unwrap().output;
    assert_eq!(output, json!("refused: write_file REVIEW.md was denied by ann: too long"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_decisions_at_once_the_first_wins_and_the_others_are_told_so() {
    let board = builder().agent("writer", writer).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let id = asked(&run).await.id();
    let deciders = (0..1_000).map(|n| {
        let decider = board.approvals().clone();
        tokio::spawn(async move {
            let by = format!("person {n}");
            if n % 2 == 0 { decider.approve(id, &by).await } else { decider.deny(id, &by, "no").await }
        })
    });
    let decided = futures::future::join_all(deciders).await.into_iter().map(Result::unwrap);
    let (won, lost): (Vec<_>, Vec<_>) = decided.partition(Result::is_ok);
    let [Ok(won)] = won.as_slice() else { panic!("{} won", won.len()) };
    for error in lost.into_iter().map(Result::unwrap_err) {
        assert_eq!(error, DecideError::AlreadyDecided { decision: won.clone() });
    }
    run.result().await.unwrap();
    let decisions = run.history().await.unwrap();
    let decisions = decisions.iter().filter(|event| matches!(event, RunEvent::Decided { .. })).count();
    assert_eq!(decisions, 1, "it took effect once");
    let late = board.approvals().approve(id, "late").await.unwrap_err().to_string();
    let verdict = if won.approved { "approved" } else { "denied" };
    assert_eq!(late, format!("already {verdict} by {} at {}", won.by, won.at));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_approval_cannot_be_decided() {
    let board = builder().agent("writer", writer).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let envelope = asked(&run).await;
    let mut changed = envelope.clone();
    changed.action = write("something else");
    for id in [ApprovalId([7; 32]), changed.id()] {
        assert_eq!(board.approvals().approve(id, "ann").await, Err(DecideError::Unknown { id }));
    }
    assert_eq!(board.approvals().open(), [envelope]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn silence_denies_after_a_day() {
    let board = builder().sweep_every(secs(24 * 3600)).agent("writer", writer).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let id = asked(&run).await.id();
    let started = tokio::time::Instant::now();
    let output = run.result().await.unwrap().output;
    assert_eq!(output, json!("refused: nobody decided about write_file REVIEW.md before it expired"));
    assert_eq!(started.elapsed().as_secs(), 24 * 3600);
    let late = board.approvals().approve(id, "ann").await.unwrap_err();
    assert!(late.to_string().starts_with("already denied by expiry at"), "{late}");
    board.shutdown().await;
}

/// A lead that hands off, under a policy.
fn handing_off(builder: Builder, consent: Consent) -> Builder {
    builder
        .agent("lead", |_: Turn| async { Ok(Command::output("plan").with("note", "mine").goto("writer")) })
        .agent("writer", |turn: Turn| async move { Ok(Command::output(json!(["written", turn.input_json()]))) })
        .approval_policy(move |question| if &*question.action.action == "handoff" { consent } else { Consent::Auto })
}

async fn parked(run: &RunHandle) -> Envelope {
    let is_parked = |event: &RunEvent| {
        matches!(event, RunEvent::TurnEnded { verdict: callboard::messages::Verdict::Parked(_), .. })
    };
    match until(run, is_parked).await {
        RunEvent::TurnEnded { verdict: callboard::messages::Verdict::Parked(envelope), .. } => *envelope,
        _ => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_approved_handoff_goes_on_and_a_parked_one_holds_nothing() {
    let board = handing_off(builder(), Consent::Ask).start().await.unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let envelope = parked(&run).await;
    assert_eq!(envelope.action, Action::new("handoff", "writer", "plan"));
    quiet().await;
    let load = board.load();
    assert_eq!((load.turns_at_work, load.waiting_turns, load.free_permits, load.open_approvals), (0, 0, 5, 1));
    board.approvals().approve(envelope.id(), "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(["written", "plan"]).into()));
    assert_eq!(result.state, json!({ "note": "mine" }));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_denied_or_expired_handoff_ends_denied_without_its_update() {
    let board = handing_off(builder(), Consent::Ask).start().await.unwrap();
    let denied = board.submit(Task::new("x").to("lead")).await.unwrap();
    board.approvals().deny(parked(&denied).await.id(), "ann", "not now").await.unwrap();
    let result = denied.result().await.unwrap();
    let reason = "handoff writer was denied by ann: not now".to_owned();
    assert_eq!((result.outcome, result.state), (Outcome::Denied { reason }, json!({}).into()));
    let result = finish(&board, Task::new("x").to("lead")).await;
    let reason = "nobody decided about handoff writer before it expired".to_owned();
    assert_eq!((result.outcome, result.state), (Outcome::Denied { reason }, json!({}).into()));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;

    let board = handing_off(builder(), Consent::Deny).start().await.unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    let reason = "handoff to writer was denied by policy".to_owned();
    assert_eq!((result.outcome, result.state), (Outcome::Denied { reason }, json!({}).into()));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_guard_runs_again_when_a_parked_handoff_is_approved() {
    let board = handing_off(builder(), Consent::Ask)
        .agent("failing", |_: Turn| async { Err::<Command, _>(broken().into()) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let envelope = parked(&run).await;
    board.replace(AgentSpec::new("writer", |_: Turn| async { Err::<Command, _>(broken().into()) })).await.unwrap();
    for _ in 0..3 {
        finish(&board, Task::new("x").to("writer")).await;
    }
    board.approvals().approve(envelope.id(), "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert!(matches!(result.outcome, Outcome::Refused(Refusal::BreakerOpen { .. })), "{result:?}");
    assert_eq!((result.output, result.state), (json!("plan").into(), json!({ "note": "mine" }).into()));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_fan_out_is_one_question() {
    let board = handing_off(builder(), Consent::Ask)
        .agent("wide", |_: Turn| async { Ok(Command::new().goto_many([1, 2].map(|n| Send::new("writer", n)))) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("wide")).await.unwrap();
    let envelope = parked(&run).await;
    assert_eq!(envelope.action, Action::new("handoff", "writer, writer", json!([1, 2])));
    board.approvals().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!([["written", 1], ["written", 2]]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn agents_that_only_analyse_are_approved_by_themselves() {
    let board = builder()
        .with(AgentSpec::new("planner", writer).mode(Mode::Plan))
        .with(AgentSpec::new("reader", writer).mode(Mode::Explore))
        .start()
        .await
        .unwrap();
    for agent in ["planner", "reader"] {
        let run = board.submit(Task::new("x").to(agent)).await.unwrap();
        assert_eq!(run.result().await.unwrap().output, json!("write_file REVIEW.md"));
        let history = run.history().await.unwrap();
        let by = |event: &RunEvent| matches!(event, RunEvent::Decided { decision, .. } if &*decision.by == "policy");
        assert!(history.iter().any(by), "it is in the journal");
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_denies() {
    let board = builder().agent("writer", writer).approval_policy(|_| panic!("out of luck")).start().await.unwrap();
    let output = finish(&board, Task::new("x")).await.output;
    assert_eq!(output, json!("refused: write_file REVIEW.md was denied by policy"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_do_not_use_an_approval_again() {
    let board = builder()
        .agent("writer", |turn: Turn| async move {
            turn.approve(write(if turn.attempt() == 1 { "this" } else { "that" })).await?;
            Err::<Command, _>(broken().into())
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    board.approvals().approve(asked(&run).await.id(), "ann").await.unwrap();
    until(&run, |event| matches!(event, RunEvent::NeedsAttention { .. })).await;
    run.cancel("changed").await;
    board.shutdown().await;
}

/// Tells a list of what it was shown; panics once.
struct Noticeboard(Arc<Mutex<Vec<String>>>, Counter);

impl Channel for Noticeboard {
    fn name(&self) -> &str {
        "board"
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        if self.1.count() == 0 {
            panic!("out of luck");
        }
        self.0.lock().push(format!("asked {}", envelope.action));
        let (id, decider) = (envelope.id(), decider.clone());
        tokio::spawn(async move { decider.approve(id, "the board").await });
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        let verdict = decision.map_or("withdrawn", |decision| if decision.approved { "approved" } else { "denied" });
        self.0.lock().push(format!("{verdict} {}", envelope.action));
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_panics_is_shown_what_is_open_when_it_is_back() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let channel = Noticeboard(Arc::clone(&told), Counter::default());
    let board = builder().agent("writer", writer).channel(channel).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, json!("write_file REVIEW.md"));
    quiet().await;
    assert_eq!(*told.lock(), ["asked write_file REVIEW.md", "approved write_file REVIEW.md"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_suspends_its_turn_which_is_not_replayed() {
    let begun = Counter::default();
    let counted = begun.clone();
    let board = builder()
        .agent("asker", move |turn: Turn| {
            counted.count();
            async move {
                let (first, second) = (turn.ask("first?"), turn.ask("second?"));
                let (first, second) = futures::future::join(first, second).await;
                let last = turn.ask(json!({ "last": [first?, second?] })).await?;
                Ok(Command::output(last))
            }
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Asked { ordinal: 1, .. })).await;
    let questions = run.questions().await;
    assert_eq!(questions.iter().map(|q| q.question.clone()).collect::<Vec<_>>(), [json!("first?"), json!("second?")]);
    assert_eq!(board.load().free_permits, 5);
    board.answer(questions[1].id, json!(null), "me").await.unwrap();
    let again = board.answer(questions[1].id, 1, "me").await;
    assert_eq!(again, Err(AnswerError::Answered(questions[1].id.request)), "null is an answer");
    let mut unknown = questions[0].id;
    unknown.nonce ^= 1;
    assert_eq!(board.answer(unknown, 1, "me").await, Err(AnswerError::Unknown(unknown.request)));
    board.answer(questions[0].id, 1, "me").await.unwrap();
    until(&run, |event| matches!(event, RunEvent::Asked { ordinal: 2, .. })).await;
    let last = run.questions().await.remove(0);
    assert_eq!(last.question, json!({ "last": [1, null] }));
    board.answer(last.id, "fine", "me").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("fine"));
    assert_eq!(begun.get(), 1);
    let nothing_pending = board.answer(last.id, 1, "me").await;
    assert_eq!(nothing_pending, Err(AnswerError::Unknown(last.id.request)));
    board.shutdown().await;
}

#[test]
fn a_pending_approval_survives_a_restart_under_the_same_id() {
    let world = World::new();
    let (run, envelope) = world.process(async |builder| {
        let board = builder.agent("writer", writer).start().await.unwrap();
        let run = board.submit(Task::new("x")).await.unwrap();
        (run.id(), asked(&run).await)
    });
    world.process(async |builder| {
        let board = builder.agent("writer", writer).start().await.unwrap();
        quiet().await;
        assert_eq!(board.approvals().open(), std::slice::from_ref(&envelope));
        board.approvals().approve(envelope.id(), "ann").await.unwrap();
        assert_eq!(board.run(run).result().await.unwrap().output, json!("write_file REVIEW.md"));
    });
}

#[test]
fn an_approval_expires_while_nobody_is_there() {
    let world = World::new();
    let run = world.process(async |builder| {
        let board = builder.agent("writer", writer).approval_ttl(secs(100)).start().await.unwrap();
        let run = board.submit(Task::new("x")).await.unwrap();
        asked(&run).await;
        tokio::time::sleep(secs(99)).await;
        run.id()
    });
    world.process(async |_| tokio::time::sleep(secs(1)).await);
    world.process(async |builder| {
        let board = builder.agent("writer", writer).start().await.unwrap();
        let output = board.run(run).result().await.unwrap().output;
        assert!(output.as_str().unwrap().contains("before it expired"), "{output}");
    });
}

#[test]
fn a_decision_that_was_stored_and_not_delivered_is_delivered_after_the_crash() {
    let world = World::new();
    let (run, id) = world.process(async |builder| {
        let board = builder.agent("writer", writer).start().await.unwrap();
        let run = board.submit(Task::new("x")).await.unwrap();
        let id = asked(&run).await.id();
        // The process goes down before the run hears of it: nothing else gets to run.
        board.approvals().approve(id, "ann").await.unwrap();
        (run.id(), id)
    });
    world.process(async |builder| {
        let history = callboard::storage::Journal::new(world.storage.clone()).read(run).await.unwrap();
        assert!(!history.events.iter().any(|event| matches!(event, RunEvent::Decided { .. })), "it was delivered");
        let board = builder.agent("writer", writer).start().await.unwrap();
        assert_eq!(board.run(run).result().await.unwrap().output, json!("write_file REVIEW.md"));
        let late = board.approvals().deny(id, "bob", "").await.unwrap_err();
        assert!(late.to_string().starts_with("already approved by ann at"), "{late}");
    });
}
