//! Questions and approvals: what people decide takes effect once, and nothing goes ahead without them (SEMANTICS 9).
//!
//! Agents cannot decide: a `Turn` gives out no `Decider`, so that rule is the compiler's.

use std::sync::Arc;
use std::time::Duration;

use callboard::AnswerError;
use callboard::actors::{Mode, PolicyQuestion};
use callboard::env::Env;
use callboard::messages::{
    Action, ActionKind, ApprovalId, Consent, Decision, Durability, Envelope, Question, QuestionId, Refusal, RunEvent,
    RunId, RunResult, SendTo,
};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::{Append, Expected, Key, Put};
use serde_json::json;

use crate::common::diary::Diary;
use crate::common::{Counter, World, found, people, quiet};

const HOUR: Duration = Duration::from_secs(3600);

fn write_file() -> Action {
    Action::new("write_file", "REVIEW.md", json!({ "text": "fine", "n": [1, 2.5, null] }))
}

/// Asks for consent to one action and returns the result.
fn asking(builder: Builder) -> Builder {
    builder.agent("writer", |turn: Turn| async move {
        let output = match turn.people().approve(write_file()).await {
            Ok(action) => json!({ "executed": action.arguments.value(), "same": action == write_file() }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        Ok(Command::output(output))
    })
}

/// Hands off with a write that only counts if control passes.
fn handing_off(builder: Builder) -> Builder {
    builder
        .agent(
            "a",
            |_: Turn| async move { Ok(Command::output("from a").with("artifacts", json!({ "a": 1 })).goto("b")) },
        )
        .agent("b", |turn: Turn| async move { Ok(Command::output(format!("b got {}", turn.input::<String>()?))) })
}

fn handoffs_ask(builder: Builder) -> Builder {
    builder.approval_policy(|question| match &*question.action.action {
        "handoff" => Consent::Ask,
        _ => Consent::Auto,
    })
}

async fn submit(board: &Callboard, to: &str) -> RunHandle {
    board.submit(Task::new("x").to(to)).await.unwrap()
}

/// The open approvals, as soon as there are `count`.
async fn open(board: &Callboard, count: usize) -> Vec<Envelope> {
    found(async || Some(people::approvals(board).await).filter(|open| open.len() >= count)).await
}

async fn questions(run: &RunHandle, count: usize) -> Vec<Question> {
    found(async || Some(people::questions(run).await).filter(|open| open.len() >= count)).await
}

#[tokio::test(start_paused = true)]
async fn what_was_approved_is_what_is_executed() {
    let board = asking(World::new().board()).start().await.unwrap();
    let run = submit(&board, "writer").await;
    let envelope = open(&board, 1).await.remove(0);
    assert_eq!((&envelope.action, envelope.agent.as_str()), (&write_file(), "writer"));
    assert_eq!(envelope.request.turn.run, run.id());
    assert_eq!(board.load().open_approvals, 1);
    let decision = board.people().approve(envelope.id(), "ann").await.unwrap().decision.unwrap();
    assert_eq!((decision.approved, &*decision.by), (true, "ann"));
    let result = run.result().await.unwrap();
    assert_eq!(result.output, json!({ "executed": { "text": "fine", "n": [1, 2.5, null] }, "same": true }));
    let consumed = run.history().await.unwrap().into_iter().find_map(|event| match event {
        RunEvent::Decided { approval, decision, .. } => Some((approval, decision)),
        _ => None,
    });
    assert_eq!(consumed, Some((envelope.id(), decision)), "the run journals that it was consumed");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_turn_holds_neither_permit_nor_slot() {
    let board = asking(World::new().board().pool(1)).start().await.unwrap();
    let runs = [submit(&board, "writer").await, submit(&board, "writer").await, submit(&board, "writer").await];
    let asked = open(&board, 3).await;
    tokio::task::yield_now().await;
    let load = board.load();
    assert_eq!((load.free_permits, load.turns_at_work, load.waiting_turns), (1, 0, 3));
    for envelope in asked {
        board.people().approve(envelope.id(), "ann").await.unwrap();
    }
    for run in runs {
        assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_reaches_the_agent_with_its_reason() {
    let board = asking(World::new().board()).start().await.unwrap();
    let run = submit(&board, "writer").await;
    let id = open(&board, 1).await[0].id();
    board.people().deny(id, "ann", "not on a Friday").await.unwrap();
    let output = run.result().await.unwrap().output;
    let error = output.value()["error"].as_str().unwrap();
    assert!(error.ends_with("write_file REVIEW.md was denied by ann: not on a Friday"), "{error}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_thousand_decisions_wins() {
    let board = asking(World::new().board()).start().await.unwrap();
    let run = submit(&board, "writer").await;
    let id = open(&board, 1).await[0].id();
    let clicks = (0..1000).map(|n| {
        let people = board.people();
        tokio::spawn(async move {
            let votes = match n % 2 {
                0 => people.approve(id, &format!("person {n}")).await,
                _ => people.deny(id, &format!("person {n}"), "no").await,
            };
            votes.map(|votes| votes.decision.unwrap())
        })
    });
    let clicks: Vec<Result<Decision, AnswerError>> =
        futures::future::join_all(clicks.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect();
    let winners: Vec<&Decision> = clicks.iter().filter_map(|click| click.as_ref().ok()).collect();
    let [winner] = winners.as_slice() else { panic!("{} decisions won", winners.len()) };
    let reported =
        format!("already {} by {} at {}", if winner.approved { "approved" } else { "denied" }, winner.by, winner.at);
    for late in clicks.iter().filter_map(|click| click.as_ref().err()) {
        assert_eq!(late, &AnswerError::AlreadyDecided { decision: (*winner).clone() });
        assert_eq!(late.to_string(), reported);
    }
    run.result().await.unwrap();
    let decided = run.history().await.unwrap().iter().filter(|event| matches!(event, RunEvent::Decided { .. })).count();
    assert_eq!(decided, 1);
    let late = board.people().deny(id, "bob", "").await.unwrap_err();
    assert_eq!(late.to_string(), reported, "also after the run has ended");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn silence_denies_after_seven_days() {
    let world = World::new();
    let board = asking(world.board()).start().await.unwrap();
    let run = submit(&board, "writer").await;
    let envelope = open(&board, 1).await.remove(0);
    assert_eq!(envelope.expires_at, world.env.now().wall + HOUR * 24 * 7);
    let result = run.result().await.unwrap();
    assert_eq!(world.env.now().wall, envelope.expires_at);
    assert_eq!(
        result.output.value()["error"].as_str().unwrap().rsplit(": ").next(),
        Some("the approval of write_file REVIEW.md expired before anybody decided")
    );
    let late = board.people().approve(envelope.id(), "ann").await.unwrap_err();
    assert!(late.to_string().starts_with("already denied by expiry at 2026-01-08"), "{late}");
    assert_eq!(board.load().open_approvals, 0);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_approval_is_an_error() {
    let board = asking(World::new().board()).start().await.unwrap();
    let id = ApprovalId([7; 32]);
    assert_eq!(board.people().approve(id, "ann").await, Err(AnswerError::NotOpen(id.into())));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_action_is_called_decides_nothing() {
    for name in ["handoff", "delegation"] {
        let board = World::new()
            .board()
            .agent("writer", move |turn: Turn| async move {
                let done = turn.people().approve(Action::new(name, "everything", "rm")).await?;
                let again = turn.people().approve_each_time(Action::new(name, "everything", "rm -r")).await?;
                Ok(Command::output(json!([done.arguments, again.arguments])))
            })
            .start()
            .await
            .unwrap();
        let run = submit(&board, "writer").await;
        for arguments in ["rm", "rm -r"] {
            let asked = open(&board, 1).await.remove(0);
            assert_eq!((&*asked.action.action, &asked.action.arguments), (name, &json!(arguments).into()));
            board.people().approve(asked.id(), "ann").await.unwrap();
        }
        assert_eq!(run.result().await.unwrap().output, json!(["rm", "rm -r"]));
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_decides_about_delegations_too() {
    for (consent, expected) in [
        (Consent::Auto, "\"helped\"".to_owned()),
        (Consent::Deny, "delegation to helper was denied by policy".to_owned()),
        (
            Consent::Ask,
            "delegation to helper was denied by policy: a delegation is not put before people; ask with TurnPeople::approve \
             before it"
                .to_owned(),
        ),
    ] {
        let board = World::new()
            .board()
            .agent("lead", |turn: Turn| async move {
                Ok(Command::output(match turn.delegate("helper", "help").await {
                    Ok(answer) => answer.to_string(),
                    Err(refused) => refused.to_string(),
                }))
            })
            .agent("helper", |_: Turn| async { Ok(Command::output("helped")) })
            .approval_policy(move |question| {
                assert_eq!((question.kind, question.agent.as_str()), (ActionKind::Delegation, "lead"));
                assert_eq!((&*question.action.target, &question.action.arguments), ("helper", &json!("help").into()));
                consent.clone()
            })
            .start()
            .await
            .unwrap();
        let run = submit(&board, "lead").await;
        assert_eq!(run.result().await.unwrap().output, expected);
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_decide_by_itself() {
    for (consent, expected) in [(Consent::Auto, true), (Consent::Deny, false)] {
        let policy = consent.clone();
        let board = asking(World::new().board()).approval_policy(move |_| policy.clone()).start().await.unwrap();
        let run = submit(&board, "writer").await;
        let output = run.result().await.unwrap().output;
        assert_eq!(output.value().get("executed").is_some(), expected, "{consent:?} {output}");
        let by = run.history().await.unwrap().into_iter().find_map(|event| match event {
            RunEvent::Decided { decision, .. } => Some((decision.approved, decision.by)),
            _ => None,
        });
        assert_eq!(by, Some((expected, "policy".into())));
        assert_eq!(people::approvals(&board).await, []);
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn agents_that_only_analyse_are_approved_and_others_ask() {
    for (mode, is_approved) in [(Mode::Plan, true), (Mode::Explore, true), (Mode::Build, false), (Mode::General, false)]
    {
        let agent = AgentSpec::new("one", |turn: Turn| async move {
            Ok(Command::output(turn.people().approve(write_file()).await?.arguments))
        });
        let diary = Diary::default();
        let board = World::new().board().with(agent.mode(mode)).channel(diary.clone()).start().await.unwrap();
        let run = submit(&board, "one").await;
        if !is_approved {
            let id = open(&board, 1).await[0].id();
            board.people().approve(id, "ann").await.unwrap();
        }
        assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished, "{mode:?}");
        let history = run.history().await.unwrap();
        let by = history.iter().find_map(|event| match event {
            RunEvent::Decided { decision, .. } => Some(decision.by.to_string()),
            _ => None,
        });
        quiet().await;
        let (expected, notes) = if is_approved {
            ("policy", Vec::new())
        } else {
            ("ann", vec![format!("asked {}", write_file()), format!("settled {} by ann", write_file())])
        };
        assert_eq!((by.as_deref(), diary.notes()), (Some(expected), notes), "{mode:?}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_handoff_reserves_nothing_and_continues_when_approved() {
    let world = World::new();
    let board = handoffs_ask(handing_off(world.board())).start().await.unwrap();
    let run = submit(&board, "a").await;
    let envelope = open(&board, 1).await.remove(0);
    assert_eq!((&*envelope.action.action, &*envelope.action.target), ("handoff", "b"));
    assert_eq!(envelope.action.arguments, json!("from a"));
    tokio::time::advance(HOUR).await;
    let load = board.load();
    assert_eq!((load.turns_at_work, load.waiting_turns, load.ready_turns, load.waits), (0, 0, 0, 0));
    assert_eq!((load.free_permits, load.open_approvals), (5, 1));
    assert_eq!(run.read().await.unwrap().metrics().handoffs, 0);
    board.people().approve(envelope.id(), "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("b got from a").into()));
    assert_eq!((result.metrics.handoffs, result.state), (1, json!({ "artifacts": { "a": 1 } }).into()));
    board.shutdown().await;
}

async fn denied(decide: impl AsyncFnOnce(&Callboard, ApprovalId)) -> (RunResult, String) {
    let board = handoffs_ask(handing_off(World::new().board())).approval_ttl(HOUR).start().await.unwrap();
    let run = submit(&board, "a").await;
    let id = open(&board, 1).await[0].id();
    decide(&board, id).await;
    let result = run.result().await.unwrap();
    let Outcome::Denied { reason } = result.outcome.clone() else { panic!("{result:?}") };
    assert_eq!((&result.state, result.metrics.handoffs), (&json!({}).into(), 0), "its update is not applied");
    board.shutdown().await;
    (result, reason)
}

#[tokio::test(start_paused = true)]
async fn a_denied_handoff_ends_its_branch_as_denied_without_its_update() {
    let (_, reason) = denied(async |board, id| drop(board.people().deny(id, "ann", "not him").await.unwrap())).await;
    assert_eq!(reason, "handoff b was denied by ann: not him");
}

#[tokio::test(start_paused = true)]
async fn an_expired_handoff_ends_its_branch_as_denied_without_its_update() {
    let (_, reason) = denied(async |_, _| ()).await;
    assert_eq!(reason, "the approval of handoff b expired before anybody decided");
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_denies_a_handoff_ends_its_branch_as_denied() {
    let board = handing_off(World::new().board()).approval_policy(|_| Consent::Deny).start().await.unwrap();
    let result = submit(&board, "a").await.result().await.unwrap();
    assert!(matches!(&result.outcome, Outcome::Denied { reason } if reason.contains("by policy")), "{result:?}");
    assert_eq!(result.state, json!({}), "its update is not applied");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_guard_runs_again_when_a_parked_handoff_is_approved() {
    let board = World::new()
        .board()
        .agent(
            "lead",
            |_: Turn| async move { Ok(Command::new().goto_many([SendTo::new("a", 1), SendTo::new("a", 2)])) },
        )
        .agent("a", |_: Turn| async move { Ok(Command::output("from a").goto("b")) })
        .agent("b", |_: Turn| async move { Ok(Command::output("from b")) })
        .approval_policy(|question| match (question.agent.as_str(), &*question.action.action) {
            ("a", "handoff") => Consent::Ask,
            _ => Consent::Auto,
        })
        .start()
        .await
        .unwrap();
    // Each of two parked handoffs fits; both together do not.
    let limits = Limits { handoffs: 3, ..Limits::default() };
    let run = board.submit(Task::new("x").to("lead").limits(limits)).await.unwrap();
    for envelope in open(&board, 2).await {
        board.people().approve(envelope.id(), "ann").await.unwrap();
    }
    let result = run.result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Refused(Refusal::HandoffLimit { max: 3, asked: 1 }));
    assert_eq!(result.output, json!(["from b", "from a"]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opened_meanwhile_refuses_an_approved_handoff() {
    let board = handoffs_ask(World::new().board())
        .agent("a", |_: Turn| async move { Ok(Command::output("from a").with("messages", "a").goto("b")) })
        .agent("b", |_: Turn| async move { Err(TurnError::transient("down")) })
        .start()
        .await
        .unwrap();
    let run = submit(&board, "a").await;
    let id = open(&board, 1).await[0].id();
    for _ in 0..3 {
        let limits = Limits { attempts: 1, ..Limits::default() };
        board.submit(Task::new("x").to("b").limits(limits)).await.unwrap().result().await.unwrap();
    }
    board.people().approve(id, "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert!(matches!(&result.outcome, Outcome::Refused(Refusal::BreakerOpen { .. })), "{result:?}");
    assert_eq!(result.state, json!({ "messages": ["a"] }), "refused is not denied: output and update apply");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn open_approvals_survive_a_restart_and_keep_their_expiry() {
    let world = World::new();
    let start = || handoffs_ask(handing_off(world.board())).approval_policy(|_| Consent::Ask).approval_ttl(HOUR * 2);
    let start = || asking(start()).start();
    let first = start().await.unwrap();
    let runs = [submit(&first, "writer").await.id(), submit(&first, "a").await.id()];
    let asked = open(&first, 2).await;
    first.shutdown().await;
    tokio::time::advance(HOUR).await;

    let second = start().await.unwrap();
    assert_eq!(open(&second, 2).await, asked, "the same questions, bound to the same bytes");
    let of_run = |run: RunId| asked.iter().find(|envelope| envelope.request.turn.run == run).unwrap().clone();
    second.people().approve(of_run(runs[0]).id(), "ann").await.unwrap();
    let result = second.run(runs[0]).result().await.unwrap();
    assert_eq!(result.output.value()["same"], true);
    let result = second.run(runs[1]).result().await.unwrap();
    assert!(matches!(result.outcome, Outcome::Denied { .. }), "{result:?}");
    assert_eq!(world.env.now().wall, of_run(runs[1]).expires_at, "the restart did not prolong it");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_expired_while_no_board_ran_is_denied_at_the_start() {
    let world = World::new();
    let start = || handoffs_ask(handing_off(world.board())).start();
    let first = start().await.unwrap();
    let run = submit(&first, "a").await.id();
    let id = open(&first, 1).await[0].id();
    first.shutdown().await;
    tokio::time::advance(HOUR * 24 * 8).await;
    let second = start().await.unwrap();
    let late = second.people().approve(id, "ann").await;
    assert_eq!(late, Err(AnswerError::NotOpen(id.into())));
    let result = second.run(run).result().await.unwrap();
    assert!(matches!(result.outcome, Outcome::Denied { .. }), "{result:?}");
    second.shutdown().await;
}

/// The id and the journal of a run that an older version left with a pending approval, from before questions had a version and a
/// kind.
fn left_by_an_older_version(name: &str) -> (String, Vec<Arc<[u8]>>) {
    let path = format!("{}/tests/golden/pending_approvals/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let (id, records) = text.split_once('\n').unwrap();
    let byte = |line: &str, at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    let bytes = |line: &str| (0..line.len()).step_by(2).map(|at| byte(line, at)).collect();
    (id.to_owned(), records.lines().map(bytes).collect())
}

#[tokio::test(start_paused = true)]
async fn approvals_that_are_pending_in_a_store_of_an_older_version_can_be_decided() {
    for (name, approves) in [("action", true), ("action", false), ("handoff", true), ("handoff", false)] {
        let world = World::new();
        let (id, records) = left_by_an_older_version(name);
        let run: RunId = "019b76da-a800-783d-be35-de1817499667".parse().unwrap();
        let journal = callboard::storage::Journal::new(Arc::clone(&world.storage));
        journal.mark_open(run, "an older board").await.unwrap();
        for (expected, payload) in (0..).zip(records) {
            let stream = callboard::storage::Journal::stream(run);
            let durability = Durability::Sync;
            world.storage.append(Append { durability, ..Append::new(stream, expected, payload) }).await.unwrap();
        }
        let board = handing_off(asking(world.board())).start().await.unwrap();
        let asked = open(&board, 1).await.remove(0);
        assert_eq!(asked.id().to_string(), id, "it keeps its canonical bytes");
        let kind = if name == "handoff" { ActionKind::Handoff } else { ActionKind::Requested };
        assert_eq!((asked.version, asked.kind), (0, kind));
        if approves {
            board.people().approve(asked.id(), "ann").await.unwrap();
        } else {
            board.people().deny(asked.id(), "ann", "no").await.unwrap();
        }
        let result = board.run(run).result().await.unwrap();
        match (name, approves) {
            ("action", true) => assert_eq!(result.output.value()["same"], true),
            ("action", false) => {
                assert!(result.output.value()["error"].as_str().unwrap().ends_with("denied by ann: no"))
            }
            (_, true) => assert_eq!(result.output, "b got from a"),
            (_, false) => assert!(matches!(result.outcome, Outcome::Denied { .. }), "{result:?}"),
        }
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn new_questions_have_a_version_and_the_kind_of_their_action() {
    let policy = |question: &PolicyQuestion<'_>| match question.kind {
        ActionKind::Handoff | ActionKind::Requested => Consent::Ask,
        ActionKind::Delegation => Consent::Auto,
    };
    for (to, kind, name) in [("writer", ActionKind::Requested, "requested"), ("a", ActionKind::Handoff, "handoff")] {
        let board = handing_off(asking(World::new().board())).approval_policy(policy).start().await.unwrap();
        submit(&board, to).await;
        let asked = open(&board, 1).await.remove(0);
        assert_eq!((asked.version, asked.kind), (Envelope::VERSION, kind));
        let canonical: serde_json::Value = serde_json::from_slice(&asked.canonical()).unwrap();
        assert_eq!((&canonical["version"], &canonical["kind"]), (&json!(3), &json!(name)));
        board.shutdown().await;
    }
}

/// What a board writes that dies between storing a decision and delivering it: ann denies, because it is "too long".
fn stored_decision() -> Vec<u8> {
    let text: String = include_str!("../golden/approval-decision-v1.hex").split_whitespace().collect();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_was_stored_and_not_delivered_is_delivered_after_the_restart() {
    let world = World::new();
    let start = || asking(world.board()).start();
    let first = start().await.unwrap();
    let run = submit(&first, "writer").await.id();
    let id = open(&first, 1).await[0].id();
    first.shutdown().await;
    let put = Put {
        expected: Expected::Absent,
        ..Put::new(Key::new(["approval", &*id.to_string()]), stored_decision().into())
    };
    world.storage.put_if_revision(put).await.unwrap();
    let second = start().await.unwrap();
    let output = second.run(run).result().await.unwrap().output;
    assert!(output.value()["error"].as_str().unwrap().ends_with("denied by ann: too long"), "{output}");
    let late = second.people().approve(id, "bob").await.unwrap_err();
    assert!(matches!(&late, AnswerError::AlreadyDecided { decision } if &*decision.by == "ann"), "{late}");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_run_withdraws_its_approvals() {
    let board = handoffs_ask(handing_off(asking(World::new().board())))
        .approval_policy(|_| Consent::Ask)
        .start()
        .await
        .unwrap();
    let runs = [submit(&board, "writer").await, submit(&board, "a").await];
    let asked = open(&board, 2).await;
    for run in &runs {
        assert!(run.cancel("enough").await.unwrap());
        assert_eq!(run.result().await.unwrap().outcome, Outcome::Cancelled { reason: "enough".into() });
        assert!(!run.cancel("again").await.unwrap());
    }
    for envelope in asked {
        let id = envelope.id();
        assert_eq!(board.people().approve(id, "ann").await, Err(AnswerError::NotOpen(id.into())));
    }
    tokio::time::advance(HOUR * 24 * 8).await;
    let load = board.load();
    assert_eq!((load.open_approvals, load.waiting_turns, load.turns_at_work, load.runs), (0, 0, 0, 0));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_attempt_gets_the_decision_that_was_recorded() {
    let board = World::new()
        .board()
        .agent("writer", |turn: Turn| async move {
            turn.people().approve(write_file()).await?;
            if turn.attempt() == 1 { Err(TurnError::transient("flaky")) } else { Ok(Command::output("done")) }
        })
        .start()
        .await
        .unwrap();
    let run = submit(&board, "writer").await;
    let id = open(&board, 1).await[0].id();
    board.people().approve(id, "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("done"));
    let asked = run.history().await.unwrap().iter().filter(|e| matches!(e, RunEvent::ApprovalAsked { .. })).count();
    assert_eq!(asked, 1);
    board.shutdown().await;
}

/// Asks three questions at once and gives the answers in that order.
fn curious(builder: Builder) -> Builder {
    builder.agent("curious", |turn: Turn| async move {
        let asked = ["one?", "two?", "three?"].map(|question| turn.people().ask(question));
        let answers: Result<Vec<Json>, TurnError> = futures::future::join_all(asked).await.into_iter().collect();
        Ok(Command::output(json!(answers?)))
    })
}

#[tokio::test(start_paused = true)]
async fn each_of_several_questions_is_answered_by_itself_and_null_is_an_answer() {
    let world = World::new();
    let board = curious(world.board()).start().await.unwrap();
    let run = submit(&board, "curious").await;
    let asked = questions(&run, 3).await;
    let texts: Vec<&str> = asked.iter().filter_map(|question| question.question.as_str()).collect();
    assert_eq!(texts, ["one?", "two?", "three?"]);
    board.people().answer(asked[2].id, 3, "ann").await.unwrap();
    assert_eq!(people::questions(&run).await.len(), 2);
    board.people().answer(asked[0].id, Json::null(), "bob").await.unwrap();
    let again = board.people().answer(asked[0].id, 1, "ann").await;
    assert_eq!(again, Err(AnswerError::Answered(asked[0].id)), "null was the answer");
    tokio::time::advance(HOUR * 1000).await;
    assert_eq!(people::questions(&run).await.len(), 1, "questions do not expire");
    board.people().answer(asked[1].id, json!({ "two": 2 }), "cat").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.output, json!([null, { "two": 2 }, 3]));
    let attempts = run.history().await.unwrap().iter().filter(|e| matches!(e, RunEvent::AttemptFailed { .. })).count();
    assert_eq!(attempts, 0);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_what_was_not_asked_is_a_typed_error() {
    let board = curious(World::new().board()).start().await.unwrap();
    let run = submit(&board, "curious").await;
    let asked = questions(&run, 3).await;
    let QuestionId { request, nonce } = asked[0].id;
    let unknown = QuestionId { request, nonce: nonce.wrapping_add(1) };
    assert_eq!(board.people().answer(unknown, 1, "ann").await, Err(AnswerError::NotOpen(unknown.into())));
    let mut elsewhere = asked[0].id;
    elsewhere.request.ordinal = 77;
    assert_eq!(board.people().answer(elsewhere, 1, "ann").await, Err(AnswerError::NotOpen(elsewhere.into())));
    let mut unknown = asked[0].id;
    unknown.request.turn.run = RunId(uuid::Uuid::from_u128(7));
    assert_eq!(board.people().answer(unknown, 1, "ann").await, Err(AnswerError::NotOpen(unknown.into())));
    for question in &asked {
        board.people().answer(question.id, 1, "ann").await.unwrap();
    }
    run.result().await.unwrap();
    let late = board.people().answer(asked[0].id, 1, "ann").await;
    assert_eq!(late, Err(AnswerError::NotOpen(asked[0].id.into())), "when nothing is pending");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_process_lives_a_turn_that_asks_is_not_replayed() {
    let begun = Counter::default();
    let count = begun.clone();
    let board = World::new()
        .board()
        .agent("asker", move |turn: Turn| {
            count.count();
            async move {
                let first = turn.people().ask("first?").await?;
                let second = turn.people().ask("second?").await?;
                Ok(Command::output(json!([first, second])))
            }
        })
        .start()
        .await
        .unwrap();
    let run = submit(&board, "asker").await;
    for n in 0..2 {
        let question = questions(&run, 1).await.remove(0);
        board.people().answer(question.id, n, "ann").await.unwrap();
    }
    assert_eq!(run.result().await.unwrap().output, json!([0, 1]));
    assert_eq!(begun.get(), 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_is_decided_or_withdrawn_leaves_no_timer() {
    let board = asking(Callboard::builder().env(Env::repeatable(1))).start().await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for number in 0..40 {
        let run = board.submit(Task::new("x")).await.unwrap();
        let open = people::approval(&board).await;
        if number % 2 == 0 {
            board.people().approve(open.id(), "ann").await.unwrap();
        } else {
            run.cancel("nobody answers").await.unwrap();
        }
        run.result().await.unwrap();
    }
    // Those that look after a turn that was stopped go after 5 s.
    tokio::time::sleep(Duration::from_secs(10)).await;
    const POOL: usize = 5;
    assert!(tasks() <= before + POOL, "{} tasks, {before} before; only workers may be idle", tasks());
    board.shutdown().await;
}
