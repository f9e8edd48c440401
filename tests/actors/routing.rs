//! Routing: who takes a delegation or handoff, how long it waits for an agent that is away, and how agents announce
//! themselves (SEMANTICS 11).

use std::time::Duration;

use callboard::actors::InboxMessage;
use callboard::env::Env;
use callboard::messages::{Backoff, FailureKind, Presence, Refusal, RequestId, Status, TurnId};
use callboard::prelude::*;
use callboard::runtime::Builder;
use serde_json::json;

use crate::common::{World, assert_nothing_left, builder, finish, pass, quiet, secs};

async fn help(turn: Turn) -> Result<Command, TurnError> {
    Ok(Command::output(format!("helped with {}", turn.input::<String>()?)))
}

/// `lead` delegates to the target in its task.
fn with_lead(builder: Builder) -> Builder {
    builder.agent("lead", |turn: Turn| async move {
        let to = turn.task().body.clone();
        match turn.delegate(&to, "this").await {
            Ok(answer) => Ok(Command::output(answer)),
            Err(error) => Ok(Command::output(error.to_string())),
        }
    })
}

fn ask_for(target: &str) -> Task {
    Task::new(target).to("lead")
}

#[tokio::test(start_paused = true)]
async fn a_delegation_waits_for_a_stopped_agent_to_return_and_holds_nothing() {
    let board = with_lead(builder()).agent("helper", help).pool(1).start().await.unwrap();
    board.agents().stop("helper").await.unwrap();
    let run = board.submit(ask_for("helper")).await.unwrap();
    pass(secs(100)).await;
    let load = board.load();
    assert_eq!((load.free_permits, load.turns_at_work, load.ready_turns), (1, 0, 1), "{load:?}");
    assert_eq!(finish(&board, ask_for("nobody")).await.outcome, Outcome::Finished, "others go on");
    board.agents().spawn(AgentSpec::new("helper", help)).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("helped with this"));
    assert_nothing_left(&board, 1).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn after_two_minutes_it_fails_as_offline_and_can_be_retried_later() {
    let env = Env::repeatable(1);
    let board = with_lead(builder().env(env.clone())).agent("helper", help).start().await.unwrap();
    board.agents().stop("helper").await.unwrap();
    pass(secs(300)).await;
    let asked = env.now().monotonic;
    let output = finish(&board, ask_for("helper")).await.output;
    assert_eq!((env.now().monotonic - asked).as_secs(), 120, "however long it was away before");
    let text = output.as_str().unwrap();
    assert!(text.contains("it was stopped and is offline: nobody has hosted it for 120s"), "{text}");
    let letters = board.dead_letters().list().await.unwrap();
    assert_eq!((letters.len(), letters[0].failure.kind, letters[0].attempts), (1, FailureKind::Refused, 1));
    let inbox = board.agents().inbox("lead").await.unwrap();
    let [InboxMessage::Status { status: Status::Fail, detail, .. }] = &inbox[..] else {
        panic!("not a failure alone, as nobody acknowledged it: {inbox:?}")
    };
    assert!(detail.contains("offline"), "{inbox:?}");

    board.agents().spawn(AgentSpec::new("helper", help)).await.unwrap();
    let fork = board.dead_letters().retry(letters[0].turn).await.unwrap();
    assert_eq!(fork.result().await.unwrap().output, json!("helped with this"));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_away_acknowledges_a_delegation_when_it_is_there_again() {
    let world = World::new();
    let start = async || with_lead(world.board()).agent("helper", help).start().await.unwrap();
    let board = start().await;
    board.agents().stop("helper").await.unwrap();
    let run = board.submit(ask_for("helper")).await.unwrap();
    let id = RequestId { turn: TurnId { run: run.id(), number: 1 }, ordinal: 0 };
    pass(secs(30)).await;
    assert_eq!(board.status(id).await.unwrap(), None);
    assert_eq!(board.agents().inbox("lead").await.unwrap(), []);
    let since = world.env.now().wall;
    board.agents().spawn(AgentSpec::new("helper", help)).await.unwrap();
    run.result().await.unwrap();
    let inbox = board.agents().inbox("lead").await.unwrap();
    let [InboxMessage::Status { status: Status::Ack, at, .. }, InboxMessage::Status { status: Status::Complete, .. }] =
        &inbox[..]
    else {
        panic!("{inbox:?}")
    };
    assert_eq!(*at, since);
    board.agents().stop("helper").await.unwrap();
    finish(&board, ask_for("helper")).await;
    board.shutdown().await;

    let board = start().await;
    let inbox = board.agents().inbox("lead").await.unwrap();
    let statuses = inbox.iter().map(|message| match message {
        InboxMessage::Status { status, .. } => Some(*status),
        InboxMessage::Request { .. } => None,
    });
    let statuses: Vec<_> = statuses.collect();
    assert_eq!(statuses, [Status::Ack, Status::Complete, Status::Fail].map(Some), "the last one has reached nobody");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_handoff_waits_too_and_each_turn_has_its_own_time() {
    let env = Env::repeatable(1);
    let board = builder()
        .env(env.clone())
        .timings(|timings| timings.offline_after(secs(20)))
        .agent("first", |_: Turn| async { Ok(Command::output("a text").goto("second")) })
        .agent("second", help)
        .start()
        .await
        .unwrap();
    board.agents().stop("second").await.unwrap();
    let submitted = env.now().monotonic;
    let ended = async |run: callboard::RunHandle| {
        let outcome = run.result().await.unwrap().outcome;
        let is_offline =
            matches!(&outcome, Outcome::Refused(Refusal::Unavailable { why, .. }) if why.contains("offline"));
        (is_offline, (env.now().monotonic - submitted).as_secs())
    };
    let early = board.submit(Task::new("x").to("first")).await.unwrap();
    pass(secs(15)).await;
    let late = board.submit(Task::new("x").to("first")).await.unwrap();
    let cancelled = board.submit(Task::new("x").to("first")).await.unwrap();
    assert_eq!(ended(early).await, (true, 20));
    assert!(cancelled.cancel("enough").await.unwrap());
    assert_eq!(ended(late).await, (true, 35));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn turns_that_had_not_begun_continue_with_the_agent_that_returns() {
    let board = with_lead(builder())
        .with(
            AgentSpec::new("helper", |_: Turn| async {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Ok(Command::output("old"))
            })
            .concurrency(1),
        )
        .start()
        .await
        .unwrap();
    let runs = [board.submit(ask_for("helper")).await.unwrap(), board.submit(ask_for("helper")).await.unwrap()];
    quiet().await;
    board.agents().stop("helper").await.unwrap();
    pass(secs(60)).await;
    board.agents().spawn(AgentSpec::new("helper", |_: Turn| async { Ok(Command::output("new")) })).await.unwrap();
    let mut outputs = Vec::new();
    for run in runs {
        outputs.push(run.result().await.unwrap().output);
    }
    assert_eq!(outputs, ["old", "new"].map(Json::from));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn who_was_never_there_and_who_failed_too_often_refuse_at_once() {
    let env = Env::repeatable(1);
    let board = with_lead(builder().env(env.clone()))
        .backoff(Backoff { first: Duration::ZERO, max: Duration::ZERO })
        .with(AgentSpec::new("fragile", |_: Turn| async { panic!("out of luck") }).restarts(0, secs(60)))
        .start()
        .await
        .unwrap();
    let started = env.now().monotonic;
    let unknown = finish(&board, ask_for("fragil")).await.output;
    assert!(unknown.as_str().unwrap().contains(r#"did you mean "fragile"?"#), "{unknown}");
    finish(&board, Task::new("x").to("fragile")).await;
    let failed = finish(&board, ask_for("fragile")).await.output;
    assert!(failed.as_str().unwrap().contains("agent fragile does not take work: it failed too often"), "{failed}");
    assert!(env.now().monotonic - started < secs(1));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_for_a_stopped_agent_is_refused_to_its_submitter() {
    let board = with_lead(builder()).agent("helper", help).start().await.unwrap();
    board.agents().stop("helper").await.unwrap();
    let refused = board.submit(Task::new("x").to("helper")).await.unwrap_err();
    assert_eq!(refused.to_string(), "agent helper does not take work: it was stopped");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_role_is_taken_by_who_is_here_and_else_waits_for_who_was() {
    let named = |name: &str| {
        let output = name.to_owned();
        AgentSpec::new(name, move |_: Turn| std::future::ready(Ok(Command::output(&*output)))).role("developer")
    };
    let board = with_lead(builder()).with(named("ann")).with(named("bob").capability("rust")).start().await.unwrap();
    assert_eq!(finish(&board, ask_for("developer")).await.output, json!("ann"));
    board.agents().stop("ann").await.unwrap();
    assert_eq!(finish(&board, ask_for("developer")).await.output, json!("bob"));
    board.agents().stop("bob").await.unwrap();
    let run = board.submit(ask_for("rust")).await.unwrap();
    pass(secs(30)).await;
    board.agents().spawn(named("bob")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("bob"));
    let gone = finish(&board, ask_for("rust")).await.output;
    assert!(
        gone.as_str().unwrap().contains("no agent has the name, role or capability"),
        "what it is now counts: {gone}"
    );
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_announces_at_each_start_and_withdraws_at_its_stop() {
    let board = builder().agent("other", help).start().await.unwrap();
    let mut presence = board.agents().presence();
    let mut news = async || {
        quiet().await;
        let mut news = Vec::new();
        while let Ok(presence) = presence.try_recv() {
            news.push(match presence {
                Presence { agent, instance, is_available: true, .. } => format!("{agent} {instance} is here"),
                Presence { agent, instance, is_available: false, .. } => format!("{agent} {instance} is gone"),
            });
        }
        news
    };
    let spec = |role: &str| {
        AgentSpec::new("coder", |turn: Turn| async move {
            assert!(turn.attempt() > 1, "out of luck");
            Ok(Command::output("done"))
        })
        .role(role)
        .capability("rust")
        .project("callboard")
    };
    board.agents().spawn(spec("developer")).await.unwrap();
    let [coder, other] = board.agents().roster().try_into().unwrap();
    assert_eq!((coder.agent.as_str(), coder.instance, other.agent.as_str()), ("coder", 1, "other"));
    assert_eq!(coder.role.as_deref(), Some("developer"));
    assert_eq!((&*coder.capabilities[0], &*coder.projects[0]), ("rust", "callboard"));
    assert_eq!(news().await, ["coder 1 is here"]);

    assert_eq!(finish(&board, Task::new("x").to("coder")).await.output, json!("done"));
    assert_eq!(news().await, ["coder 2 is here"], "it was made again after its panic");
    board.agents().replace(spec("specialist")).await.unwrap();
    assert_eq!(board.agents().roster()[0].role.as_deref(), Some("specialist"));
    board.agents().restart("coder").await.unwrap();
    assert_eq!(news().await, ["coder 3 is here", "coder 4 is here"]);
    board.agents().stop("coder").await.unwrap();
    assert_eq!(board.agents().roster().len(), 1);
    assert_eq!(news().await, ["coder 4 is gone"]);
    board.shutdown().await;
    assert_eq!(news().await, ["other 1 is gone"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_failed_too_often_withdraws() {
    let board = builder()
        .with(AgentSpec::new("fragile", |_: Turn| async { panic!("out of luck") }).restarts(0, secs(60)))
        .start()
        .await
        .unwrap();
    finish(&board, Task::new("x")).await;
    assert_eq!(board.agents().roster(), []);
    let refused = board.submit(Task::new("x").to("fragile")).await.unwrap_err();
    assert!(matches!(refused, callboard::SubmitError::Refused(Refusal::Unavailable { .. })));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_name_looks_like_that_of_another_is_refused() {
    // Of Cyrillic letters alone.
    const CLERK: &str = "\u{441}\u{43e}\u{440}\u{443}";
    let quiet = |name: &str| AgentSpec::new(name, help);
    let refused = builder().with(quiet("copy")).with(quiet(CLERK)).start().await.unwrap_err().to_string();
    assert!(refused.contains("looks like that of agent "), "{refused}");

    let board = builder().with(quiet("copy")).start().await.unwrap();
    let refused = board.agents().spawn(quiet(CLERK)).await.unwrap_err().to_string();
    assert_eq!(refused, format!("the name of agent {CLERK} looks like that of agent copy; choose another name"));
    board.agents().spawn(quiet("\u{440}\u{435}\u{434}\u{430}\u{43a}\u{442}\u{43e}\u{440}")).await.unwrap();
    board.shutdown().await;
}
