//! What consent is given to: once, for a whole run, or with other arguments. It holds for the full canonical arguments and for
//! nothing that only looks like them.

use std::time::Duration;

use crate::common::models::{self, Nothing};
use crate::common::{Counter, builder, people};
use callboard::AnswerError;
use callboard::messages::{Action, Consent, Envelope, RunEvent, Terms};
use callboard::prelude::*;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Effect, ToolSpec, Tools, of_spec};
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

fn run_shell(arguments: Value) -> Action {
    let target = arguments.get("command").and_then(Value::as_str).unwrap_or_default().to_owned();
    Action::new("ShellExec", &target, arguments)
}

/// Asks for each of its actions, one after the other, and returns what it did.
fn asks(actions: Vec<Action>) -> AgentSpec {
    AgentSpec::new("coder", move |turn: Turn| {
        let actions = actions.clone();
        async move {
            let mut done = Vec::new();
            for action in actions {
                done.push(turn.people().approve(action).await?.arguments);
            }
            Ok(Command::output(done.into_iter().collect::<Json>()))
        }
    })
}

async fn board(spec: AgentSpec) -> Callboard {
    builder().with(spec).start().await.unwrap()
}

async fn next(board: &Callboard) -> Envelope {
    people::approval(board).await
}

#[tokio::test(start_paused = true)]
async fn what_is_approved_for_a_run_is_not_asked_again_in_it_until_it_expires() {
    let same = || run_shell(json!({ "command": "make test", "timeout": 60 }));
    let reordered = run_shell(json!({ "timeout": 60, "command": "make test" }));
    let agent = AgentSpec::new("coder", move |turn: Turn| {
        let reordered = reordered.clone();
        async move {
            for action in [same(), same(), reordered] {
                turn.people().approve(action).await?;
            }
            turn.people().ask("and later?").await?;
            turn.people().approve(same()).await?;
            Ok(Command::output("done"))
        }
    });
    let board = board(agent).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    let id = next(&board).await.id();
    board.people().answer(id, Response::ApproveForRun(HOUR), "ann").await.unwrap();
    let decided = board.people().decision(id).await.unwrap().unwrap();
    assert!(matches!(decided.terms, Terms::Run { .. }));
    let question = people::question(&run).await;
    let events = run.history().await.unwrap();
    let by: Vec<(&str, &str)> = events
        .iter()
        .filter_map(|event| match event {
            RunEvent::Decided { decision, .. } => Some((&*decision.by, &*decision.reason)),
            _ => None,
        })
        .collect();
    assert_eq!(by, [("ann", ""), ("ann", "for the whole run"), ("ann", "for the whole run")]);
    tokio::time::advance(HOUR).await;
    board.people().answer(question.id, "later", "ann").await.unwrap();
    let late = next(&board).await;
    board.people().approve(late.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "done");
    // Another run begins without it.
    let other = board.submit(Task::new("x")).await.unwrap();
    next(&board).await;
    other.cancel("enough").await.unwrap();
    board.shutdown().await;
}

/// Commands that a pattern would take for `make test`.
fn variants() -> Vec<Value> {
    let commands = [
        "make  test",
        " make test",
        "make test ",
        "make\ttest",
        "make test\n",
        "make test #",
        "make test;",
        "make test; id",
        "make test && id",
        "make test | sh",
        "make test > x",
        "make test &",
        "(make test)",
        "{ make test; }",
        "$(make test)",
        "`make test`",
        "sh -c 'make test'",
        "bash -lc 'make test'",
        "env make test",
        "env X=1 make test",
        "X=1 make test",
        "nohup make test",
        "timeout 5 make test",
        "sudo make test",
        "command make test",
        "exec make test",
        "./make test",
        "/usr/bin/make test",
        "make test -k",
        "make -C / test",
        "make TEST",
        "Make test",
        "make test\u{0}",
        "make\u{a0}test",
        "make\u{200b} test",
        "ｍake test",
        "mаke test",
        "make test\u{202e}",
        "\u{feff}make test",
        "make te\u{301}st",
        "ma\\ke test",
        "'make' test",
        "\"make test\"",
        "make test*",
        "make ${IFS}test",
        "make $0",
        "eval make test",
        "xargs make test",
        "make tes?",
    ];
    let mut variants: Vec<Value> =
        commands.iter().map(|command| json!({ "command": command, "timeout": 60 })).collect();
    variants.extend([
        json!({ "command": "make test" }),
        json!({ "command": "make test", "timeout": 61 }),
        json!({ "command": "make test", "timeout": "60" }),
        json!({ "command": "make test", "timeout": 60.0 }),
        json!({ "command": "make test", "timeout": 60, "cwd": "/" }),
        json!({ "command": ["make test"], "timeout": 60 }),
        json!(["make test", 60]),
        json!("make test"),
        json!(null),
    ]);
    variants
}

#[tokio::test(start_paused = true)]
async fn what_only_looks_like_what_was_approved_for_a_run_is_asked_again() {
    let approved = run_shell(json!({ "command": "make test", "timeout": 60 }));
    let mut actions: Vec<Action> = variants().into_iter().map(run_shell).collect();
    let elsewhere = Action::new("ShellExec", "other", approved.arguments.clone());
    let renamed = Action::new("ShellExec2", "make test", approved.arguments.clone());
    actions.extend([elsewhere, renamed]);
    assert!(actions.len() >= 50);
    let asked = actions.len();
    actions.insert(0, approved.clone());
    actions.push(approved);
    let board = board(asks(actions)).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    board.people().answer(next(&board).await.id(), Response::ApproveForRun(HOUR), "ann").await.unwrap();
    for _ in 0..asked {
        board.people().approve(next(&board).await.id(), "ann").await.unwrap();
    }
    assert!(run.result().await.unwrap().outcome.is_finished());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn consent_for_a_run_is_the_agents_who_asked_and_not_anothers() {
    let agent = |name: &str, next: Option<&'static str>| {
        AgentSpec::new(name, move |turn: Turn| async move {
            turn.people().approve(run_shell(json!({ "command": "make" }))).await?;
            let done = Command::output("done");
            Ok(match next {
                Some(next) => done.goto(next),
                None => done,
            })
        })
    };
    let board = builder()
        .with(agent("one", Some("two")))
        .with(agent("two", None))
        .approval_policy(|question| if &*question.action.action == "handoff" { Consent::Auto } else { Consent::Ask })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("one")).await.unwrap();
    board.people().answer(next(&board).await.id(), Response::ApproveForRun(HOUR), "ann").await.unwrap();
    let envelope = next(&board).await;
    assert_eq!(envelope.agent.as_str(), "two");
    board.people().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "done");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_each_time_is_asked_each_time() {
    let agent = AgentSpec::new("coder", |turn: Turn| async move {
        let action = || run_shell(json!({ "command": "make" }));
        turn.people().approve(action()).await?;
        turn.people().approve_each_time(action()).await?;
        Ok(Command::output("done"))
    });
    let board = board(agent).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    board.people().answer(next(&board).await.id(), Response::ApproveForRun(HOUR), "ann").await.unwrap();
    let envelope = next(&board).await;
    let refused = board.people().answer(envelope.id(), Response::ApproveForRun(HOUR), "ann").await.unwrap_err();
    assert_eq!(refused, AnswerError::NotForRun { id: envelope.id() });
    board.people().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "done");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_definition_asks_about_is_asked_each_time() {
    let tool = ToolSpec::of::<Nothing>("page", "A page.", Effect::Reads);
    let tool = of_spec(tool, |_: Nothing, _| async { Ok("text".into()) });
    // One that only analyses is asked nothing else.
    let toml = "[agent]\nname = \"reader\"\nmode = \"explore\"\n[agent.capabilities]\nask = [\"page\"]";
    let model = ScriptedModel::new().calls("page", json!({})).calls("page", json!({})).says("read");
    let tools = Tools::new().with(tool).unwrap();
    let board = board(models::agent(toml, model, &tools)).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    for _ in 0..2 {
        let asked = next(&board).await;
        assert_eq!(&*asked.policy, "ask each time");
        let id = asked.id();
        let refused = board.people().answer(id, Response::ApproveForRun(HOUR), "ann").await.unwrap_err();
        assert_eq!(refused, AnswerError::NotForRun { id });
        board.people().approve(id, "ann").await.unwrap();
    }
    assert_eq!(run.result().await.unwrap().output, "read");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_has_the_last_word_about_arguments_that_were_changed() {
    let policy = |target: &str| if target == "rm" { Consent::Deny } else { Consent::Ask };
    let board = builder()
        .with(asks(vec![run_shell(json!({ "command": "ls" }))]))
        .approval_policy(move |question| policy(&question.action.target))
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let id = next(&board).await.id();
    let gone =
        board.people().answer(id, Response::ApproveEdited(json!({ "shell": "rm" }).into()), "ann").await.unwrap_err();
    assert_eq!(gone, AnswerError::NotEditable { id }, "nobody can say what it would be done to");
    board.people().answer(id, Response::ApproveEdited(json!({ "command": "rm" }).into()), "ann").await.unwrap();
    let Outcome::Denied { reason, .. } = run.result().await.unwrap().outcome else { panic!("it was done") };
    assert!(reason.contains("the policy does not allow what it was changed to"), "{reason}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn arguments_that_a_person_has_changed_are_a_question_of_their_own_and_are_what_is_done() {
    let tries = Counter::default();
    let counted = tries.clone();
    let agent = AgentSpec::new("coder", move |turn: Turn| {
        let tries = counted.clone();
        async move {
            let done = turn.people().approve(run_shell(json!({ "command": "rm -r x", "timeout": 60 }))).await?;
            if tries.count() == 0 {
                return Err(TurnError::transient("once"));
            }
            Ok(Command::output(json!([done.target, done.arguments])))
        }
    });
    let board = board(agent).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    let envelope = next(&board).await;
    let safer = json!({ "command": "rm -ri x", "timeout": 60 });
    board.people().answer(envelope.id(), Response::ApproveEdited(safer.clone().into()), "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.output, result.metrics.retries), (json!(["rm -ri x", safer]).into(), 1));
    let events = run.history().await.unwrap();
    let asked: Vec<&Envelope> = events
        .iter()
        .filter_map(|event| if let RunEvent::ApprovalAsked { envelope, .. } = event { Some(&**envelope) } else { None })
        .collect();
    let [first, changed] = asked[..] else { panic!("{asked:?}") };
    assert_eq!((first, &changed.action.arguments), (&envelope, &Json::from(safer)));
    let consumed = events.iter().find_map(|event| match event {
        RunEvent::Decided { approval, .. } => Some(*approval),
        _ => None,
    });
    assert_eq!(consumed, Some(changed.id()), "the one that was answered is the changed one");
    let late = board.people().approve(envelope.id(), "bob").await.unwrap_err();
    assert!(matches!(late, AnswerError::AlreadyDecided { .. }));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_handoff_is_neither_edited_nor_approved_for_a_run() {
    let board = builder()
        .agent("lead", |_: Turn| async { Ok(Command::output("plan").goto("writer")) })
        .agent("writer", |_: Turn| async { Ok(Command::output("written")) })
        .approval_policy(|_| Consent::Ask)
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let id = next(&board).await.id();
    let people = board.people();
    let for_run = people.answer(id, Response::ApproveForRun(HOUR), "ann").await;
    assert_eq!(for_run, Err(AnswerError::NotForRun { id }));
    let edited = people.answer(id, Response::ApproveEdited("other".into()), "ann").await;
    assert_eq!(edited, Err(AnswerError::NotEditable { id }));
    people.approve(id, "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "written");
    board.shutdown().await;
}
