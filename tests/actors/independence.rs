//! Agents that may not pass control on, or cannot, finish alone within the same limits, and the result lists them.

use crate::common::{assert_nothing_left, builder, finish, models};
use callboard::messages::{Alone, Refusal, RunEvent, SendTo};
use callboard::prelude::*;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Model, Tools};
use serde_json::json;

fn thinker(name: &str, model: impl Model) -> AgentSpec {
    let definition = models::definition(&format!("[agent]\nname = \"{name}\""));
    models::agent_of(&definition, model, &Tools::new(), &["lead", "writer"])
}

fn hands_off() -> ScriptedModel {
    ScriptedModel::new().calls("handoff_to_agent", json!({ "agent_name": "writer", "task": "write it" }))
}

fn writer() -> AgentSpec {
    AgentSpec::new("writer", |_: Turn| async move { Ok(Command::output("written by the writer")) })
}

fn no_handoffs() -> Limits {
    Limits { handoffs: 0, ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_pass_control_on_finishes_alone_and_the_result_reports_it() {
    let lead = hands_off().says("written by myself");
    let board = builder().with(thinker("lead", lead.clone())).with(writer()).start().await.unwrap();
    let result = finish(&board, Task::new("x").to("lead").limits(no_handoffs())).await;
    assert_eq!((&result.outcome, result.output.as_str()), (&Outcome::Finished, Some("written by myself")));
    let [Alone { turn: 1, agent, to, refusal: Refusal::HandoffLimit { max: 0, asked: 1 } }] = &result.alone[..] else {
        panic!("{:?}", result.alone)
    };
    assert_eq!((agent.as_str(), &*to[0]), ("lead", "writer"));
    assert_eq!(
        result.alone[0].to_string(),
        "lead finished alone what was to go to writer: the run has used its 0 handoffs and delegations, and 1 more is asked \
         for; raise `limits.handoffs` of the task to at least this: --limits '{\"handoffs\": 1}' on the command line, \
         .limits(Limits { handoffs: 1, ..Limits::default() }) in Rust"
    );
    let seen = serde_json::to_string(&lead.requests()[1].messages[2]).unwrap();
    assert!(seen.contains("control cannot pass on") && seen.contains("finish yourself"), "{seen}");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_finishes_alone_has_what_was_left_and_no_more() {
    let definition = "[agent]\nname = \"lead\"\n[agent.capabilities]\nmax_iterations = 2";
    // Each answer takes 120 tokens.
    let lead = || hands_off().calls("ToolSearch", json!({ "query": "x" })).says("a third answer");
    let thinker = |model: &ScriptedModel| models::agent(definition, model.clone(), &Tools::new());
    let model = lead();
    let board = builder().with(thinker(&model)).with(writer()).start().await.unwrap();
    let task = || Task::new("x").to("lead");
    let result = finish(&board, task().limits(Limits { attempts: 1, ..no_handoffs() })).await;
    assert!(result.outcome.to_string().contains("the model was asked 2 times"), "{}", result.outcome);
    assert_eq!((model.left(), result.metrics.usage.total()), (1, 240));
    board.shutdown().await;
    let first = &model.requests()[0];
    let tokens = first.estimated_tokens() + u64::from(first.max_tokens) + 100;
    let model = lead();
    let board = builder().with(thinker(&model)).with(writer()).start().await.unwrap();
    // The second request does not fit any more.
    let result = finish(&board, task().limits(Limits { tokens, ..no_handoffs() })).await;
    assert!(matches!(result.outcome, Outcome::Refused(Refusal::TokenBudget { .. })), "{}", result.outcome);
    assert_eq!(model.left(), 2);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_strict_ends_refused_as_before() {
    let board = builder().with(thinker("lead", hands_off())).with(writer()).start().await.unwrap();
    let task = Task::new("x").to("lead").limits(no_handoffs()).handoffs(Handoffs::Strict);
    let result = finish(&board, task).await;
    assert!(matches!(result.outcome, Outcome::Refused(Refusal::HandoffLimit { .. })), "{:?}", result.outcome);
    assert_eq!(result.alone, []);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_in_rust_finishes_alone_with_its_own_output_if_it_is_made_so() {
    let lead = |turn: Turn| async move {
        let to = turn.input::<String>()?;
        Ok(Command::output("written by myself").goto(&to))
    };
    let board = builder()
        .with(AgentSpec::new("lead", lead).or_alone())
        .with(AgentSpec::new("plain", lead))
        .with(writer())
        .start()
        .await
        .unwrap();
    let task = |agent: &str| Task::new("writer").to(agent);
    let admitted = finish(&board, task("lead")).await;
    assert_eq!((admitted.output.as_str(), &admitted.alone[..]), (Some("written by the writer"), &[][..]));
    let alone = finish(&board, task("lead").limits(no_handoffs())).await;
    assert_eq!((&alone.outcome, alone.output.as_str()), (&Outcome::Finished, Some("written by myself")));
    assert!(matches!(alone.alone[..], [Alone { refusal: Refusal::HandoffLimit { .. }, .. }]), "{:?}", alone.alone);
    for refused in [task("plain").limits(no_handoffs()), task("lead").limits(no_handoffs()).handoffs(Handoffs::Strict)]
    {
        let refused = finish(&board, refused).await;
        assert!(matches!(refused.outcome, Outcome::Refused(_)) && refused.alone.is_empty(), "{refused:?}");
    }
    // A name that nobody has is a mistake, and not a reason to finish alone.
    let unknown = finish(&board, Task::new("wirter").to("lead")).await.outcome;
    assert!(unknown.to_string().contains("writer") && !unknown.is_finished(), "{unknown}");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn where_handoffs_are_off_no_model_reads_of_them_and_tasks_are_given_all_the_same() {
    let lead = ScriptedModel::new()
        .calls("handoff_to_agent", json!({ "agent_name": "writer", "task": "write it" }))
        .calls("Task", json!({ "agent": "writer", "task": "write it" }))
        .says("done");
    let board = builder().with(thinker("lead", lead.clone())).with(writer()).start().await.unwrap();
    let result = finish(&board, Task::new("x").to("lead").handoffs(Handoffs::Off)).await;
    assert_eq!((result.output.as_str(), result.handoffs, &result.alone[..]), (Some("done"), Handoffs::Off, &[][..]));
    let requests = lead.requests();
    let reported: Vec<&str> = requests[0].tools.iter().map(|tool| &*tool.name).collect();
    assert!(reported.contains(&"Task") && !reported.iter().any(|name| name.contains("handoff")), "{reported:?}");
    let seen = serde_json::to_string(&requests[2].messages).unwrap();
    assert!(
        seen.contains("there is no tool \\\"handoff_to_agent\\\"") && seen.contains("written by the writer"),
        "{seen}"
    );
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_continues_where_handoffs_are_off_is_refused() {
    let board = builder()
        .agent("lead", |_: Turn| async move { Ok(Command::output("half").goto("writer")) })
        .agent("all", |_: Turn| async move {
            Ok(Command::new().goto_many([SendTo::new("writer", 1), SendTo::new("writer", 2)]))
        })
        .with(writer())
        .start()
        .await
        .unwrap();
    for agent in ["lead", "all"] {
        let result = finish(&board, Task::new("x").to(agent).handoffs(Handoffs::Off)).await;
        assert_eq!(result.outcome, Outcome::Refused(Refusal::HandoffsOff), "{agent}");
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_handoffs_in_one_answer_the_first_that_can_go_goes() {
    let call = |to: &str| ("handoff_to_agent", json!({ "agent_name": to, "task": "write it" }).into());
    let lead = ScriptedModel::new().calls_all([call("nobody"), call("writer"), call("writer")]);
    let board = builder().with(thinker("lead", lead)).with(writer()).start().await.unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!((result.output.as_str(), result.alone.len()), (Some("written by the writer"), 0));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_check_is_answered_from_the_journal_when_its_turn_is_tried_again() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            let handoff = Command::output("x").goto("writer");
            let refusal = turn.check_handoff(&handoff).await?;
            if turn.attempt() == 1 {
                return Err(TurnError::transient("once"));
            }
            Ok(Command::output(refusal.is_none()))
        })
        .with(writer())
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, true);
    let checks = run.history().await.unwrap();
    let checks = checks.iter().filter(|event| matches!(event, RunEvent::HandoffChecked { .. }));
    assert_eq!(checks.count(), 1);
    board.shutdown().await;
}
