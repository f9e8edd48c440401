//! Coordinators with workers, and workflows as agents: what workers see, what they cost, and how they end.

use std::sync::Arc;

use crate::common::{Processes, assert_nothing_left, builder, finish, found, until};
use callboard::messages::{Complexity, Message, Refusal, RunEvent, RunId, Usage};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::testing::Script;
use callboard::workflow::patterns::{Peers, Pipeline};
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Definition, Model, Team};
use serde_json::json;

fn definition(name: &str, rest: &str) -> Definition {
    let prompt = "You are {{ agent.name }} of {{ team | length }} others. {{ state }}";
    let text = format!("[agent]\nname = \"{name}\"\ndescription = \"{name}s\"\nsystem_prompt = \"{prompt}\"\n{rest}");
    Definition::from_toml("agent.toml", &text).unwrap()
}

fn team(lead: &ScriptedModel, worker: impl Model) -> Team {
    Team::new(definition("lead", ""), Arc::new(lead.clone())).worker(definition("worker", ""), Arc::new(worker))
}

fn with(builder: Builder, team: &Team) -> Builder {
    team.specs().unwrap().into_iter().fold(builder, Builder::with)
}

fn task(agent: &str, task: &str) -> (&'static str, Json) {
    ("Task", json!({ "agent": agent, "task": task }).into())
}

fn tools(model: &ScriptedModel) -> Vec<String> {
    model.requests()[0].tools.iter().map(|tool| tool.name.to_string()).collect()
}

/// The other run, as soon as there is one.
async fn begun_beside(board: &Callboard, run: RunId) -> RunHandle {
    found(async || board.runs().await.unwrap().into_iter().find(|other| other.id() != run)).await
}

#[tokio::test(start_paused = true)]
async fn a_worker_sees_its_task_and_nothing_of_the_coordinators_conversation() {
    let lead = ScriptedModel::new()
        .calls_all([task("worker", "Count the boats.")])
        .calls_all([task("worker", "Count the men.")])
        .says("Two boats, five men.");
    let worker = ScriptedModel::new().says("two").says("five");
    let team = team(&lead, worker.clone());
    let board = with(builder(), &team).start().await.unwrap();
    let result = finish(&board, team.task("The secret plan: how many are out?")).await;
    assert_eq!(result.output, "Two boats, five men.");
    let asked = worker.requests();
    assert_eq!(*asked[0].messages, vec![Message::user("Count the boats.")]);
    assert_eq!(*asked[1].messages, vec![Message::user("Count the men.")]);
    let all = format!("{asked:?}");
    assert!(!all.contains("secret"), "{all}");
    let beginning = r#"You are worker of 0 others. {"context":{"previous_agent":"lead"},"metrics":{"retry_count""#;
    assert!(asked[0].system.starts_with(beginning), "{}", asked[0].system);
    assert_eq!(tools(&worker), ["AskUser"]);
    assert_eq!(tools(&lead), ["AskUser", "Task"]);
    let reported = &lead.requests()[0].tools[1].description;
    assert!(reported.contains("- worker: workers"), "{reported}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_has_the_tool_for_tasks_whatever_its_file_allows_and_receives_what_failed() {
    let lead = ScriptedModel::new().calls_all([task("worker", "x"), task("clerk", "y")]).says("One of them did it.");
    let coordinator = definition("lead", "[agent.capabilities]\nallowed_tools = [\"AskUser\"]");
    let team = Team::new(coordinator, Arc::new(lead.clone()))
        .worker(definition("worker", ""), Arc::new(ScriptedModel::new()))
        .with("clerk", "files");
    let board = with(builder(), &team).agent("clerk", Script::new().reply("filed")).start().await.unwrap();
    assert_eq!(finish(&board, team.task("go")).await.output, "One of them did it.");
    let answers = serde_json::to_string(&lead.requests()[1].messages[2..]).unwrap();
    assert!(answers.contains("\"filed\"") && answers.contains("has no answer number 1"), "{answers}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_has_room_for_all_workers_of_its_team() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let lead = ScriptedModel::new().calls_all(names.map(|name| task(name, "x"))).says("done");
    let team = names.into_iter().fold(team(&lead, ScriptedModel::new()), |team, name| team.with(name, "works"));
    let board =
        names.into_iter().fold(with(builder(), &team), |board, name| board.agent(name, Script::new().reply("ok")));
    let board = board.start().await.unwrap();
    assert_eq!(finish(&board, team.task("go")).await.metrics.handoffs, 7);
    let limits = team.task("go").limits.unwrap();
    assert_eq!((limits.agents, limits.handoffs, limits.tokens), (9, 32, 150_000));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_be_peers_and_their_tokens_count_where_they_were_asked() {
    let usage = Usage::of(700, 30);
    let lead = ScriptedModel::new().calls_all([task("panel", "How many?")]).says("Seven.");
    let ann = ScriptedModel::new().says("Seven.\nDONE").using(usage);
    let peers = Peers::new("discussion").with("ann").with("bob").build().unwrap();
    let member = Team::new(definition("ann", ""), Arc::new(ann.clone()));
    let team = team(&lead, ScriptedModel::new()).with("panel", "discusses");
    let board = with(with(builder(), &team), &member)
        .agent("bob", Script::new().reply("I agree.\nDONE"))
        .workflow("panel", &peers, Complexity::Medium)
        .start()
        .await
        .unwrap();
    let run = board.submit(team.task("go")).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.output.as_str(), result.metrics.usage.total()), (Some("Seven."), 240 + 730));
    let answer = serde_json::to_string(&lead.requests()[1].messages[2]).unwrap();
    assert!(answer.contains("I agree.") && answer.contains("\\\"done\\\":true"), "{answer}");
    let given = serde_json::to_string(&ann.requests()[0].messages[0]).unwrap();
    assert!(given.contains("How many?") && !given.contains("go"), "{given}");
    assert_eq!(board.runs().await.unwrap().len(), 2);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn turns_that_wait_for_their_runs_hold_no_permits() {
    let inner = Pipeline::new("inner").then("worker").build().unwrap();
    let outer = callboard::workflow::Workflow::from_line("", r#"map(over="input") { panel }"#).unwrap();
    let board = builder()
        .pool(1)
        .agent("worker", Script::new().reply("done"))
        .workflow("panel", &inner, Limits { tokens: 1_000, ..Limits::default() })
        .start()
        .await
        .unwrap();
    let result = finish(&board, outer.task(json!([1, 2, 3]))).await;
    assert_eq!(result.output, json!(["done", "done", "done"]));
    assert_nothing_left(&board, 1).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_fails_fails_the_turn_that_waits_for_it_for_good() {
    let inner = Pipeline::new("inner").then("worker").build().unwrap();
    let worker = Script::new().fail_for_good("no ink");
    let board = builder()
        .agent("worker", worker.clone())
        .workflow("printer", &inner, Complexity::Simple)
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("printer")).await;
    assert!(result.outcome.to_string().ends_with("node worker: terminal error: no ink"), "{}", result.outcome);
    assert_eq!(worker.turns().len(), 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_whose_tokens_do_not_fit_the_asking_run_is_not_begun() {
    let inner = Pipeline::new("inner").then("worker").build().unwrap();
    let worker = Script::new().reply("x");
    let board = builder()
        .agent("worker", worker.clone())
        .workflow("printer", &inner, Complexity::Medium)
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("printer").limits(Complexity::Simple)).await;
    assert!(matches!(&result.outcome, Outcome::Refused(Refusal::TokenBudget { .. })), "{}", result.outcome);
    assert_eq!((worker.turns().len(), board.runs().await.unwrap().len()), (0, 1));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_cancelled_with_the_turn_that_waits_for_it() {
    let inner = Pipeline::new("inner").then("worker").build().unwrap();
    let board = builder()
        .agent("worker", Script::new().hang())
        .workflow("printer", &inner, Complexity::Simple)
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("printer")).await.unwrap();
    let inner = begun_beside(&board, run.id()).await;
    run.cancel("enough").await.unwrap();
    let reported = inner.result().await.unwrap().outcome.to_string();
    assert!(reported.contains("the turn that waited for it was stopped"), "{reported}");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_within_itself_is_refused_by_name() {
    let inner = Pipeline::new("inner").then("panel").build().unwrap();
    let board = builder().workflow("panel", &inner, Limits { tokens: 0, ..Limits::default() }).start().await.unwrap();
    let result = finish(&board, Task::new("x").to("panel")).await;
    assert!(result.outcome.to_string().contains("the workflow inner would run within itself"), "{}", result.outcome);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_run_of_a_workflow_agent_keeps_the_trace_of_the_turn_that_submits_it() {
    let inner = Pipeline::new("inner").then("worker").build().unwrap();
    let board = builder()
        .agent("lead", Script::new().delegate("printer", "print it").reply_with_answers())
        .agent("worker", Script::new().reply("printed"))
        .workflow("printer", &inner, Complexity::Medium)
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    let inner = begun_beside(&board, run.id()).await.read().await.unwrap();
    let outer = run.read().await.unwrap();
    assert_eq!(inner.submission().trace, outer.submission().trace);
    assert_ne!(inner.submission().trace.0, inner.submission().run.0);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_a_workflow_cannot_delegate_to_the_agent_that_waits_for_the_workflow() {
    let inner = Pipeline::new("inner").then("worker").build().unwrap();
    let board = builder()
        .agent("lead", Script::new().delegate("printer", "print it").reply_with_answers())
        .agent("worker", Script::new().delegate("lead", "do it yourself"))
        .workflow("printer", &inner, Complexity::Medium)
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let inner = begun_beside(&board, run.id()).await;
    let outcome = inner.result().await.unwrap().outcome;
    assert!(matches!(&outcome, Outcome::Refused(Refusal::AlreadyInChain { .. })), "{outcome:?}");
    assert!(!run.result().await.unwrap().outcome.is_finished());
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[test]
fn a_turn_that_begins_again_after_a_crash_or_a_shutdown_finds_its_run() {
    for is_shut_down in [false, true] {
        let processes = Processes::new();
        let inner = Pipeline::new("inner").then("first").then("second").build().unwrap();
        let first = Script::new().reply("one");
        let board = |builder: Builder, second: Script| {
            let limits = Limits { tokens: 1_000, ..Limits::default() };
            builder.agent("first", first.clone()).agent("second", second).workflow("printer", &inner, limits)
        };
        let run = processes.run(async |builder| {
            let board = board(builder, Script::new().hang()).start().await.unwrap();
            // What the workflow may take fits in once.
            let task = Task::new("x").to("printer").limits(Limits { tokens: 1_500, ..Limits::default() });
            let run = board.submit(task).await.unwrap().id();
            let inner = begun_beside(&board, run).await;
            until(&inner, |event| matches!(event, RunEvent::TurnEnded { .. })).await;
            if is_shut_down {
                board.shutdown().await;
            }
            run
        });
        processes.run(async |builder| {
            let board = board(builder, Script::new().reply("two")).start().await.unwrap();
            assert_eq!(board.run(run).result().await.unwrap().output, "two");
            assert_eq!((first.turns().len(), board.runs().await.unwrap().len()), (1, 2));
        });
    }
}
