//! Agents that think with a model, on a board: what is journaled, what people decide, and how they work together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::models::{self, Path, counting};
use crate::common::{assert_nothing_left, builder, finish, people, until};
use callboard::actors::{Agent, StreamMode, Watched};
use callboard::env::Env;
use callboard::messages::{AgentEvent, Cost, Message, Rationale, Refusal, RunEvent, StateRules, Usage};
use callboard::prelude::*;
use callboard::supervision::runs::Replay;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{
    Effect, LlmAgent, Model, ModelChoice, ModelEntry, ModelErrorKind, Models, ToolError, ToolSpec, Tools, of_spec,
};
use futures::StreamExt;
use serde_json::json;

fn agent(toml: &str, model: impl Model, tools: &Tools) -> AgentSpec {
    models::agent_of(&models::definition(toml), model, tools, &["lead", "helper", "other"])
}

const LEAD: &str = "[agent]\nname = \"lead\"\nmode = \"build\"\nsystem_prompt = \"You lead. Task: {{ task }}\"";
const HELPER: &str = "[agent]\nname = \"helper\"\nsystem_prompt = \"You help {{ previous_agent }}.\"";

#[tokio::test(start_paused = true)]
async fn a_crash_of_a_turn_pays_for_no_answer_twice_and_uses_no_tool_twice() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("read", Effect::Reads, &count)).unwrap();
    let model = ScriptedModel::new()
        .calls("read", json!({ "path": "a" }))
        .fails(ModelErrorKind::Unavailable, "overloaded")
        .says("It is fine.");
    let board = builder().with(agent(LEAD, model.clone(), &tools)).start().await.unwrap();
    let result = finish(&board, Task::new("look")).await;
    assert_eq!((result.output.as_str(), result.metrics.retries), (Some("It is fine."), 1));
    assert_eq!((model.requests().len(), count.load(Ordering::Relaxed)), (3, 1));
    assert_eq!(model.requests()[0].system.lines().next(), Some("You lead. Task: look"));
    assert_eq!(model.requests()[1].idempotency_key, model.requests()[2].idempotency_key);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

/// Returns the size of the future of another agent's turn.
struct Measured(LlmAgent);

impl Agent for Measured {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        Ok(Command::output(size_of_val(&self.0.turn(turn))))
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_of_a_turn_while_its_model_is_waited_for_is_small() {
    let measured = || {
        let (definition, model) = (models::definition(LEAD), Arc::new(ScriptedModel::new()));
        Measured(LlmAgent::new(&definition, model, &Tools::new(), &[]).unwrap())
    };
    let board = builder().with(AgentSpec::new("measured", measured)).start().await.unwrap();
    let size: usize = finish(&board, Task::new("x")).await.output.parse().unwrap();
    assert!(size <= 480, "{size} bytes");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_providers_report_is_what_a_run_has_spent() {
    let usage = Usage::of(700, 30);
    let model = ScriptedModel::named("m").fails(ModelErrorKind::NotSent, "no route").says("done").using(usage);
    // A million tokens for 10 and 100 dollars.
    let models = Models::of(&Env::repeatable(1), [ModelEntry::of(model).prices(10.0, 100.0)]).unwrap();
    let model = models.chosen(&ModelChoice::of("m")).unwrap();
    let board = builder().with(agent(LEAD, model, &Tools::new())).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.metrics.usage.total(), result.metrics.usage.cost.to_string()), (730, "$0.0100".to_owned()));
    let replay = Replay::of(run.history().await.unwrap(), &StateRules::default()).unwrap();
    assert_eq!(replay.turns().next().unwrap().usage.cost, Cost(10_000_000), "each turn has its own");
    board.shutdown().await;
}

/// The provider may count each try, whatever the result of the next one.
#[tokio::test(start_paused = true)]
async fn a_try_that_may_have_been_paid_for_stays_spent_when_another_has_answered() {
    let usage = Usage::of(700, 30);
    let spent = async |kind: ModelErrorKind| {
        let first = ModelEntry::of(ScriptedModel::named("first").fails(kind, "cut")).fallback("second");
        let second = ModelEntry::of(ScriptedModel::named("second").says("done").using(usage));
        let models = Models::of(&Env::repeatable(1), [first, second]).unwrap();
        let model = models.chosen(&ModelChoice::of("first")).unwrap();
        let board = builder().with(agent(LEAD, model, &Tools::new())).start().await.unwrap();
        let limits = Limits { tokens: 8_000, ..Limits::default() };
        let result = finish(&board, Task::new("x").limits(limits)).await;
        board.shutdown().await;
        result
    };
    let free = spent(ModelErrorKind::RateLimited(None)).await;
    assert_eq!((free.output, free.metrics.usage.total()), (json!("done").into(), 730));
    let owed = spent(ModelErrorKind::CutOff).await;
    let Outcome::Refused(Refusal::TokenBudget { reserved, .. }) = owed.outcome else { panic!("{:?}", owed.outcome) };
    assert!(reserved > 4_000, "what the first may have taken is not given to the second");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_wants_us_to_wait_for_long_is_not_asked_again_in_the_turn() {
    for (wait, asked) in [(61, 1), (60, 3)] {
        let limited = ModelErrorKind::RateLimited(Some(Duration::from_secs(wait)));
        let model = (0..3).fold(ScriptedModel::new(), |model, _| model.fails(limited, "slow down"));
        let board = builder().with(agent(LEAD, model.clone(), &Tools::new())).start().await.unwrap();
        assert!(!finish(&board, Task::new("x")).await.outcome.is_finished());
        assert_eq!(model.requests().len(), asked, "{wait} s");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_or_a_bill_that_a_provider_refuses_waits_for_a_person_and_is_never_asked_again_by_itself() {
    for kind in [ModelErrorKind::Unauthorised, ModelErrorKind::Unpaid] {
        let model = ScriptedModel::named("m").fails(kind, "the account is empty").says("done");
        let models = Models::of(&Env::repeatable(1), [ModelEntry::of(model.clone())]).unwrap();
        let chosen = models.chosen(&ModelChoice::of("m")).unwrap();
        let board = builder().with(agent(LEAD, chosen, &Tools::new())).start().await.unwrap();
        let run = board.submit(Task::new("x")).await.unwrap();
        run.next_pending_where(|open| matches!(open, Pending::Attention { .. })).await.unwrap();
        let (_, why) = people::attention(&run).await.remove(0);
        assert_eq!((why.as_str(), model.requests().len()), ("model m: the account is empty", 1));
        let metrics = run.read().await.unwrap().metrics();
        assert_eq!((metrics.tokens_spent, metrics.retries), (0, 0), "the call is known to be free");
        assert_eq!(people::restart_turns(&board, &run).await, 1);
        assert_eq!(run.result().await.unwrap().output, "done");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_never_answers_is_left_alone_after_three_times() {
    let count = Arc::new(AtomicU32::new(0));
    let used = Arc::clone(&count);
    let mut spec = ToolSpec::of::<Path>("slow", "", Effect::Reads);
    spec.timeout = Duration::from_secs(1);
    let slow = of_spec(spec, move |Path { path }: Path, _| {
        used.fetch_add(1, Ordering::Relaxed);
        async move {
            if path == "never" {
                std::future::pending::<()>().await;
            }
            if path == "wrong" { Err(ToolError("no such file".to_owned())) } else { Ok("there".into()) }
        }
    });
    let tools = Tools::new().with(slow).unwrap();
    // One that answers with errors is there.
    let paths = ["wrong", "wrong", "wrong", "never", "never", "fine", "never", "never", "never", "fine"];
    let reported =
        ["no such file", "no such file", "no such file", "longer", "longer", "there", "longer", "longer", "longer"];
    let model = paths.iter().fold(ScriptedModel::new(), |model, path| model.calls("slow", json!({ "path": path })));
    let model = model.says("done");
    let board = builder().with(agent(LEAD, model.clone(), &tools)).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, "done");
    let last = model.requests().pop().unwrap();
    let answers: Vec<String> = last.messages.iter().map(|message| serde_json::to_string(message).unwrap()).collect();
    let answers: Vec<&String> = answers.iter().filter(|answer| answer.starts_with(r#"{"role":"tool""#)).collect();
    for (answer, reported) in answers.iter().zip(reported.iter().chain(&["it may be used again in 30 s"])) {
        assert!(answer.contains(reported), "{reported}: {answer}");
    }
    assert_eq!((answers.len(), count.load(Ordering::Relaxed)), (10, 9));
    // Another agent finds it so too, and after its time one use goes through.
    tokio::time::advance(Duration::from_secs(30)).await;
    let model = ScriptedModel::new().calls("slow", json!({ "path": "fine" })).says("there it is");
    board.agents().spawn(agent(HELPER, model, &tools)).await.unwrap();
    assert_eq!(finish(&board, Task::new("x").to("helper")).await.output, "there it is");
    assert_eq!(count.load(Ordering::Relaxed), 10);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_budget_does_not_allow_is_not_made() {
    let model = ScriptedModel::new().says("never");
    let board = builder().with(agent(LEAD, model.clone(), &Tools::new())).start().await.unwrap();
    let limits = Limits { tokens: 4_000, ..Limits::default() };
    let result = finish(&board, Task::new("x").limits(limits)).await;
    assert!(matches!(&result.outcome, Outcome::Refused(Refusal::TokenBudget { .. })), "{:?}", result.outcome);
    assert_eq!(model.left(), 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_model_never_answers_fails_for_good_and_reports_what_to_raise() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("read", Effect::Reads, &count)).unwrap();
    let model = (0..9).fold(ScriptedModel::new(), |model, _| model.calls("read", json!({ "path": "x" })));
    let toml = format!("{LEAD}\n[agent.capabilities]\nmax_iterations = 2");
    let board = builder().with(agent(&toml, model.clone(), &tools)).start().await.unwrap();
    let result = finish(&board, Task::new("x")).await;
    let Outcome::Failed { error } = result.outcome else { panic!("{:?}", result.outcome) };
    assert!(error.contains("the model was asked 2 times and wants tools still: raise max_iterations"), "{error}");
    assert_eq!((model.requests().len(), result.metrics.retries), (2, 0));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn tasks_run_side_by_side_and_their_answers_come_in_order() {
    let lead = ScriptedModel::new()
        .calls_all([
            ("Task", json!({ "agent": "helper", "task": "one" }).into()),
            ("Task", json!({ "agent": "other", "task": "two", "input": { "n": 2 } }).into()),
            ("Task", json!({ "agent": "nobody", "task": "three" }).into()),
        ])
        .says("both done");
    let (one, two) = (ScriptedModel::new().says("first"), ScriptedModel::new().says("second"));
    let board = builder()
        .with(agent(LEAD, lead.clone(), &Tools::new()))
        .with(agent(HELPER, one.clone(), &Tools::new()))
        .with(agent(&HELPER.replace("\"helper\"", "\"other\""), two.clone(), &Tools::new()))
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!(result.output, "both done");
    let answers: Vec<String> =
        lead.requests()[1].messages[2..].iter().map(|message| serde_json::to_string(message).unwrap()).collect();
    assert!(answers[0].contains("\"first\"") && answers[1].contains("\"second\""), "{answers:?}");
    assert!(answers[2].contains("nobody") && answers[2].contains("\"is_error\":true"), "{answers:?}");
    assert!(one.requests()[0].system.starts_with("You help lead."));
    assert_eq!(two.requests()[0].messages[0], callboard::messages::Message::user("{\"n\":2}"));
    let task = &lead.requests()[0].tools.iter().find(|tool| &*tool.name == "Task").unwrap().clone();
    assert!(task.description.contains("- helper: helps") && !task.description.contains("lead"), "{}", task.description);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_refused_is_an_error_to_the_model_and_the_run_continues_without_it() {
    let task = json!({ "agent": "helper", "task": "one" });
    let lead = ScriptedModel::new().calls("Task", task.clone()).calls("Task", task).says("I did it myself.");
    let helper = ScriptedModel::new().says("helped");
    let board = builder()
        .with(agent(LEAD, lead.clone(), &Tools::new()))
        .with(agent(HELPER, helper.clone(), &Tools::new()))
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 1, ..Limits::default() };
    let result = finish(&board, Task::new("x").to("lead").limits(limits)).await;
    assert_eq!((result.outcome, result.output.as_str()), (Outcome::Finished, Some("I did it myself.")));
    let requests = lead.requests();
    let answers: Vec<(&str, bool)> = requests[2]
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::Tool { text, is_error, .. } => Some((&**text, *is_error)),
            Message::User { .. } | Message::Assistant { .. } => None,
        })
        .collect();
    let refusal = Refusal::HandoffLimit { max: 1, asked: 1 }.to_string();
    assert_eq!(answers, [("helped", false), (refusal.as_str(), true)]);
    assert_eq!((helper.requests().len(), result.metrics.handoffs), (1, 1), "it was given one task");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

/// The answer that the model of a helper receives when it gives a task to another agent, itself working on a task of the lead.
async fn answer_to_a_helper(to: &str, depth: usize) -> String {
    let task = |agent: &str| json!({ "agent": agent, "task": "one" });
    let lead = ScriptedModel::new().calls("Task", task("helper")).says("done");
    let helper = ScriptedModel::new().calls("Task", task(to)).says("I did it myself.");
    let other = ScriptedModel::new().says("never asked");
    let board = builder()
        .with(agent(LEAD, lead, &Tools::new()))
        .with(agent(&HELPER.replace("[agent]", "[agent]\nmode = \"build\""), helper.clone(), &Tools::new()))
        .with(agent("[agent]\nname = \"other\"\nsystem_prompt = \"You help.\"", other, &Tools::new()))
        .start()
        .await
        .unwrap();
    let limits = Limits { depth, ..Limits::default() };
    let result = finish(&board, Task::new("x").to("lead").limits(limits)).await;
    assert_eq!((result.outcome, result.output.as_str()), (Outcome::Finished, Some("done")));
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
    match helper.requests().last().and_then(|request| request.messages.last().cloned()) {
        Some(Message::Tool { text, is_error: true, .. }) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_gives_a_task_back_into_its_chain_or_too_deep_is_answered_with_the_chain() {
    let [back, deep] = [answer_to_a_helper("lead", 3).await, answer_to_a_helper("other", 1).await];
    let chain = "lead → helper";
    assert_eq!(back, format!("lead is already in the delegation chain {chain}; give the task to an agent outside it"));
    let expected = format!(
        "delegation depth 1 is used up by {chain}; split the task differently, or raise `limits.depth` of the task to at least this: "
    );
    assert!(deep.starts_with(&expected), "{deep}");
}

#[tokio::test(start_paused = true)]
async fn a_handoff_carries_its_context_to_the_next_agent() {
    let lead = ScriptedModel::new().calls(
        "handoff_to_agent",
        json!({ "agent_name": "helper", "task": "write it", "context": { "artifacts_created": ["notes.md"] } }),
    );
    let helper = ScriptedModel::new().calls("accept_handoff", json!({})).says("written");
    let board = builder()
        .with(agent(LEAD, lead, &Tools::new()))
        .with(agent(HELPER, helper.clone(), &Tools::new()))
        .start()
        .await
        .unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!((result.output.as_str(), result.metrics.handoffs), (Some("written"), 1));
    let requests = helper.requests();
    assert_eq!(requests[0].messages[0], callboard::messages::Message::user("write it"));
    let seen = serde_json::to_string(&requests[1].messages[2]).unwrap();
    assert!(seen.contains("notes.md") && seen.contains("write it") && seen.contains("lead"), "{seen}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_sees_which_tools_were_used_before_it_and_calls_of_the_model_are_none() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("read", Effect::Reads, &count)).unwrap();
    let tools = tools.with(counting("write", Effect::Writes, &count)).unwrap();
    let lead = ScriptedModel::new()
        .calls_all(["a", "b"].map(|path| ("read", json!({ "path": path }).into())))
        .calls("write", json!({ "path": "c" }))
        .fails(ModelErrorKind::Unavailable, "overloaded")
        .calls("handoff_to_agent", json!({ "agent_name": "helper", "task": "check it" }));
    let helper = ScriptedModel::new().says("checked");
    let prompt = "[agent]\nname = \"helper\"\nsystem_prompt = \"Used: {{ state.metrics.tools_used | tojson }}\"";
    let board = builder()
        .with(agent(LEAD, lead, &tools))
        .with(agent(prompt, helper.clone(), &Tools::new()))
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    board.people().approve(people::approval(&board).await.id(), "ann").await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.output.as_str(), result.metrics.retries), (Some("checked"), 1), "one attempt is repeated");
    let system = &helper.requests()[0].system;
    assert_eq!(system.lines().next(), Some("Used: {\"read\": 2, \"write\": 1}"), "{system}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_used_with_the_bytes_that_were_approved_and_a_denial_reaches_the_model() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("write", Effect::Writes, &count)).unwrap();
    let model = ScriptedModel::new()
        .calls_all([("write", json!({ "path": "a" }).into()), ("write", json!({ "path": "b" }).into())])
        .saying("Both files lack a title.")
        .says("done");
    let board = builder().with(agent(LEAD, model.clone(), &tools)).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    for _ in 0..2 {
        let envelope = people::approval(&board).await;
        let Rationale { reason, effect, tier, rule } = &envelope.rationale;
        assert_eq!((reason.as_deref(), *effect), (Some("Both files lack a title."), Some(Effect::Writes)));
        let because = "people are asked before an agent of a file changes or discloses anything";
        assert_eq!((tier.as_deref(), rule.as_deref()), (Some("user_defined"), Some(because)));
        assert_eq!((&*envelope.action.action, count.load(Ordering::Relaxed)), ("write", 0));
        match &*envelope.action.target {
            "a" => board.people().approve(envelope.id(), "ann").await.unwrap(),
            _ => board.people().deny(envelope.id(), "ann", "b is mine").await.unwrap(),
        };
    }
    assert_eq!(run.result().await.unwrap().output, "done");
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let seen = serde_json::to_string(&model.requests()[1].messages[2..]).unwrap();
    assert!(seen.contains("did a") && seen.contains("a person did not allow this: b is mine"), "{seen}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_suspends_the_turn_and_its_answer_continues_with_it() {
    let model = ScriptedModel::new().calls("AskUser", json!({ "question": "Which?" })).says("that one");
    let board = builder().with(agent(LEAD, model.clone(), &Tools::new())).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let question = people::question(&run).await;
    assert_eq!((question.question.as_str(), board.load().free_permits), (Some("Which?"), 5));
    board.people().answer(question.id, "the left", "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "that one");
    let seen = serde_json::to_string(&model.requests()[1].messages[2]).unwrap();
    assert!(seen.contains("the left"), "{seen}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_receives_the_words_of_a_model_as_they_come() {
    let model = ScriptedModel::new().streams(["It ", "is ", "fine."]);
    let board = builder().with(agent(LEAD, model, &Tools::new())).start().await.unwrap();
    let mut watched = board.watch(&[StreamMode::Live]);
    let run = board.submit(Task::new("x")).await.unwrap();
    run.result().await.unwrap();
    let mut said = Vec::new();
    while let Some(Watched::Live { turn, agent, event }) = watched.next().await {
        assert_eq!((turn.run, agent.as_str()), (run.id(), "lead"));
        match &*event {
            AgentEvent::Text { text } => said.push(text.to_string()),
            AgentEvent::Ended { .. } => break,
            _ => {}
        }
    }
    assert_eq!(said, ["It ", "is ", "fine."]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_from_a_prompt_ends_the_turn_with_its_name() {
    let definition = LEAD.replace("{{ task }}", "{{ input.nothing }}");
    let board = builder().with(agent(&definition, ScriptedModel::new(), &Tools::new())).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let failed = until(&run, |event| matches!(event, RunEvent::TurnFailed { .. })).await;
    assert!(format!("{failed:?}").contains("the prompt, in system_prompt"), "{failed:?}");
    board.shutdown().await;
}

#[cfg(all(target_os = "linux", feature = "shell"))]
#[tokio::test]
async fn what_an_earlier_try_of_a_command_has_left_is_ended_before_it_is_done_again() {
    use callboard::messages::RunId;
    use callboard_agents::tools::{Root, ShellExec};
    use std::process::{Command as Program, Stdio};

    let folder = tempfile::tempdir().unwrap();
    let run = RunId(uuid::Uuid::from_u128(0x017f_0000_7000_8000_0000_0000_0000_0001 ^ u128::from(std::process::id())));
    // As a board leaves it that is killed.
    let left = |key: String| {
        let mut left = Program::new("setsid");
        left.args(["cat"]).env("CALLBOARD_KEY", key).stdin(Stdio::piped()).spawn().unwrap()
    };
    let (mut same, mut other) = (left(format!("{run}/1/tool-1-0")), left(format!("{run}/1/tool-2-0")));
    let model = ScriptedModel::new().calls("ShellExec", json!({ "command": "echo $CALLBOARD_KEY" })).says("done");
    let tools = Tools::new().with(ShellExec::new(&Root::open(folder.path()).unwrap()).unconfined()).unwrap();
    let board = builder().with(agent(LEAD, model.clone(), &tools)).start().await.unwrap();
    let handle = board.submit(Task::new("x").id(run)).await.unwrap();
    let asked = people::approval(&board).await;
    board.people().approve(asked.id(), "ann").await.unwrap();
    assert_eq!(handle.result().await.unwrap().output, "done");
    let reported = format!("{:?}", model.requests()[1].messages.last());
    assert!(reported.contains(&format!("{run}/1/tool-1-0")), "{reported}");
    assert!(!same.wait().unwrap().success());
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success(), "it is another's");
    board.shutdown().await;
}
