//! The part of a conversation that other agents receive, and conversations that have become too long.

use crate::common::models::{self, Path};
use crate::common::{assert_nothing_left, builder};
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{AgentEvent, ConversationStrategy, LoopEnd, Message, RunResult};
use callboard::prelude::*;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{
    AgentLoop, BuiltIn, Definition, Effect, Model, ModelErrorKind, ModelRequest, ToolScope, Tools, tool,
};
use futures::StreamExt;
use serde_json::json;

/// A tool that answers with a long text about its path.
fn tools() -> Tools {
    let read = tool("read", "Reads a file.", Effect::Reads, |Path { path }: Path, _: ToolScope| async move {
        Ok(format!("{path} begins.\n{}\n{path} ends.", "Nothing of note. ".repeat(60)).into())
    });
    Tools::new().with(read).unwrap()
}

fn agent(definition: &Definition, model: impl Model) -> AgentSpec {
    models::agent_of(definition, model, &tools(), &["helper"])
}

fn lead(delegation: &str) -> Definition {
    let text = format!(
        "[agent]\nname = \"lead\"\nsystem_prompt = \"You lead.\"\n[agent.capabilities]\nallowed_tools = [\"read\", \"Task\"]\n\
         {delegation}"
    );
    models::definition(&text)
}

fn helper(name: &str) -> Definition {
    models::definition(&format!("[agent]\nname = \"{name}\""))
}

fn asks(agent: &str, task: &str) -> (&'static str, Json) {
    ("Task", json!({ "agent": agent, "task": task }).into())
}

/// The last message with the role of the user.
fn asked(request: &ModelRequest) -> &str {
    let text = |message: &Message| matches!(message, Message::User { .. });
    match request.messages.iter().rfind(|message| text(message)) {
        Some(Message::User { text }) => text,
        other => panic!("{other:?}"),
    }
}

/// Runs a task for the lead; returns its result and what the lead did.
async fn work(board: &Callboard, task: &str) -> (RunResult, Vec<AgentEvent>) {
    let mut watched = board.watch(&[StreamMode::Live]);
    let run = board.submit(Task::new(task).to("lead")).await.unwrap();
    let result = run.result().await.unwrap();
    let mut reported = Vec::new();
    while let Some(Watched::Live { agent, event, .. }) = watched.next().await {
        if agent.as_str() == "lead" {
            let is_last = matches!(&*event, AgentEvent::Ended { end } if !matches!(end, LoopEnd::Failed(_)));
            reported.push((*event).clone());
            if is_last {
                break;
            }
        }
    }
    (result, reported)
}

#[tokio::test(start_paused = true)]
async fn an_agent_receives_the_conversation_before_its_task_if_its_file_has_it() {
    let model = ScriptedModel::new()
        .calls("read", json!({ "path": "parser.rs" }))
        .calls_all([
            asks("helper", "Find the defect."),
            ("Task", json!({ "agent": "other", "task": "Alone.", "context": "none" }).into()),
        ])
        .says("done");
    let (one, other) = (ScriptedModel::new().says("found"), ScriptedModel::new().says("did"));
    let board = builder()
        .with(agent(&lead("[agent.delegation]\ncontext = \"full\""), model.clone()))
        .with(agent(&helper("helper"), one.clone()))
        .with(agent(&helper("other"), other.clone()))
        .start()
        .await
        .unwrap();
    let (result, reported) = work(&board, "Review it.").await;
    assert_eq!((result.output.as_str(), result.metrics.handoffs), (Some("done"), 2));
    let requests = (one.requests(), other.requests());
    let text = asked(&requests.0[0]);
    assert!(text.contains("the conversation so far, 3 messages") && text.contains("[user]\n  Review it."), "{text}");
    assert!(
        text.contains("[read answers]\n  parser.rs begins.") && text.ends_with("Your task:\nFind the defect."),
        "{text}"
    );
    assert!(!text.contains("Alone."), "the calls that are being made are not part of it: {text}");
    assert_eq!(asked(&requests.1[0]), "Alone.", "the model says otherwise");
    let given: Vec<_> = reported.iter().filter(|event| matches!(event, AgentEvent::ContextGiven { .. })).collect();
    let [AgentEvent::ContextGiven { to, strategy, tokens, passages, left_out, summary_tokens, problem }] = given[..]
    else {
        panic!("{given:?}")
    };
    assert_eq!((&**to, *strategy, *passages, *left_out), ("helper", ConversationStrategy::Full, 3, 0));
    assert!(*tokens > 300 && *summary_tokens == 0 && problem.is_none(), "{tokens}");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn passages_are_those_that_fit_and_no_more_than_may_be() {
    let model = ScriptedModel::new()
        .calls_all(["parser.rs", "lexer.rs"].map(|path| ("read", json!({ "path": path }).into())))
        .calls_all([asks("helper", "How does parser.rs end?")])
        .says("done");
    let one = ScriptedModel::new().says("well");
    let board = builder()
        .with(agent(&lead("[agent.delegation]\ncontext = \"filtered\"\nmax_tokens = 500"), model))
        .with(agent(&helper("helper"), one.clone()))
        .start()
        .await
        .unwrap();
    let (_, reported) = work(&board, "Review it.").await;
    let requests = one.requests();
    let text = asked(&requests[0]);
    assert!(text.contains("parser.rs ends.") && !text.contains("lexer.rs begins"), "{text}");
    let is_bounded = |event: &AgentEvent| match event {
        AgentEvent::ContextGiven { strategy: ConversationStrategy::Filtered, tokens, passages, left_out, .. } => {
            (300..600).contains(tokens) && *passages >= 1 && *left_out >= 1
        }
        _ => false,
    };
    assert!(reported.iter().any(is_bounded), "{reported:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_summary_is_made_once_for_all_tasks_of_a_message_and_over_attempts() {
    let model = ScriptedModel::new()
        .calls("read", json!({ "path": "parser.rs" }))
        .calls_all([asks("helper", "one"), asks("other", "two")])
        .fails(ModelErrorKind::Unavailable, "overloaded")
        .says("done");
    let summarizer = ScriptedModel::new().says("The parser was read.");
    let (one, other) = (ScriptedModel::new().says("first"), ScriptedModel::new().says("second"));
    let board = builder()
        .with(agent(&lead("[agent.delegation]\ncontext = \"summary\""), model))
        .with(agent(&BuiltIn::Summarizer.definition(), summarizer.clone()))
        .with(agent(&helper("helper"), one.clone()))
        .with(agent(&helper("other"), other.clone()))
        .start()
        .await
        .unwrap();
    let (result, reported) = work(&board, "Review it.").await;
    // Counted and paid for as any other delegation, and asked for no second time by the attempt that came after the failure.
    assert_eq!((result.output.as_str(), result.metrics.retries, result.metrics.handoffs), (Some("done"), 1, 3));
    assert_eq!((result.metrics.usage.total(), summarizer.requests().len()), (6 * 120, 1));
    let requests = summarizer.requests();
    assert!(asked(&requests[0]).contains("[read answers]\n  parser.rs begins."), "{}", asked(&requests[0]));
    for (model, task) in [(&one, "one"), (&other, "two")] {
        let requests = model.requests();
        let text = asked(&requests[0]);
        assert!(
            text.contains("a summary") && text.contains("  The parser was read.") && text.ends_with(task),
            "{text}"
        );
        assert!(!text.contains("parser.rs begins"), "{text}");
    }
    let is_paid =
        |event: &&AgentEvent| matches!(event, AgentEvent::ContextGiven { summary_tokens, .. } if *summary_tokens > 300);
    assert!(reported.iter().filter(is_paid).count() >= 2, "{reported:?}");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_without_a_summary_if_no_agent_makes_one_and_reports_it() {
    let failing = ScriptedModel::new().fails(ModelErrorKind::Rejected, "too long");
    let silent = ScriptedModel::new().says(" ");
    for (summarizer, says) in
        [(None, "summarizer"), (Some(failing), "did not finish"), (Some(silent), "the summary is empty")]
    {
        let model = ScriptedModel::new().calls_all([asks("helper", "Do it.")]).says("done");
        let one = ScriptedModel::new().says("did");
        let mut builder = builder()
            .with(agent(&lead("[agent.delegation]\ncontext = \"summary\""), model))
            .with(agent(&helper("helper"), one.clone()));
        if let Some(summarizer) = summarizer {
            builder = builder.with(agent(&BuiltIn::Summarizer.definition(), summarizer));
        }
        let board = builder.start().await.unwrap();
        let (result, reported) = work(&board, "Review it.").await;
        assert_eq!(result.output, "done");
        let requests = one.requests();
        let text = asked(&requests[0]);
        assert!(
            text.contains(says) && text.contains("You receive nothing of it.") && text.ends_with("\nDo it."),
            "{text}"
        );
        let problems: Vec<_> = reported
            .iter()
            .filter_map(|event| match event {
                AgentEvent::ContextGiven { problem, tokens: 0, .. } => problem.clone(),
                _ => None,
            })
            .collect();
        assert!(problems.len() == 1 && problems[0].contains(says), "{problems:?}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn values_to_work_on_stand_after_the_task_and_a_context_that_is_none_is_reported_to_the_model() {
    let call = |context: &str| {
        let arguments = json!({ "agent": "helper", "task": "Add them.", "input": [2, 3], "context": context });
        ("Task", Json::from(arguments))
    };
    let model = ScriptedModel::new().calls_all([call("full"), call("everything")]).says("done");
    let one = ScriptedModel::new().says("5");
    let board = builder()
        .with(agent(&lead(""), model.clone()))
        .with(agent(&helper("helper"), one.clone()))
        .start()
        .await
        .unwrap();
    work(&board, "Sum.").await;
    let requests = one.requests();
    assert_eq!(requests.len(), 1);
    assert!(asked(&requests[0]).ends_with("Your task:\nAdd them.\n\nTo work on:\n[2,3]"), "{}", asked(&requests[0]));
    let answers = serde_json::to_string(&model.requests()[1].messages[2..]).unwrap();
    assert!(answers.contains("the arguments of Task do not fit") && answers.contains("`filtered`"), "{answers}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_knows_of_built_in_agents_only_if_its_file_names_them() {
    for (delegation, knows) in [("", false), ("[agent.delegation]\nbuilt_in = [\"enricher\"]", true)] {
        let model = ScriptedModel::new().says("done");
        let board = builder().with(agent(&lead(delegation), model.clone())).start().await.unwrap();
        work(&board, "x").await;
        let task = model.requests()[0].tools.iter().find(|tool| &*tool.name == "Task").unwrap().clone();
        assert_eq!(task.description.contains("\n- enricher: Adds to a task"), knows, "{}", task.description);
        assert!(task.description.contains("\n- helper: helps"), "{}", task.description);
        board.shutdown().await;
    }
}

/// A model that reads five files, one after the other.
fn reader() -> ScriptedModel {
    (1..=5).fold(ScriptedModel::new(), |model, number| model.calls("read", json!({ "path": format!("{number}.rs") })))
}

const COMPACT: &str = "[agent.model]\ncompact_at = 1500\nmax_tokens = 100";

#[tokio::test(start_paused = true)]
async fn a_conversation_that_is_too_long_continues_with_a_summary_and_its_newest_messages() {
    let model = reader().fails(ModelErrorKind::Unavailable, "overloaded").says("done");
    let compactor = ScriptedModel::new().says("Done: 1.rs was read.").says(&"Done. ".repeat(5_000));
    let board = builder()
        .with(agent(&lead(COMPACT), model.clone()))
        .with(agent(&BuiltIn::Compactor.definition(), compactor.clone()))
        .start()
        .await
        .unwrap();
    let (result, reported) = work(&board, "Read them all.").await;
    assert_eq!((result.output.as_str(), result.metrics.retries), (Some("done"), 1));
    let compactions = compactor.requests();
    assert_eq!((result.metrics.handoffs, compactions.len()), (2, 2), "no attempt asks for one again");
    let first = asked(&compactions[0]);
    assert!(first.starts_with("The task:\nRead them all.\n") && first.contains("1.rs begins."), "{first}");
    let requests = model.requests();
    for request in &requests {
        assert!(request.estimated_tokens() <= 1_500, "{}", request.estimated_tokens());
    }
    let last = &requests.last().unwrap().messages;
    let Message::User { text } = &last[0] else { panic!("{last:?}") };
    assert!(text.starts_with("Read them all.\n\n[The older part") && text.contains("\nDone. Done."), "{text}");
    assert!(
        text.len() < 1_500 && text.contains("bytes are left out here"),
        "a summary has a quarter at most: {}",
        text.len()
    );
    assert!(serde_json::to_string(&last).unwrap().contains("5.rs ends."), "{last:?}");
    // The attempt after the failure asks the same again.
    let [.., failed, again] = &requests[..] else { panic!("{}", requests.len()) };
    assert_eq!((&failed.messages, &failed.idempotency_key), (&again.messages, &again.idempotency_key));
    let shorter = |event: &&AgentEvent| match event {
        AgentEvent::Compacted { messages, tokens_before, tokens_after } => {
            *messages >= 2 && *tokens_before > 1_500 && tokens_after < tokens_before
        }
        _ => false,
    };
    assert!(reported.iter().filter(shorter).count() >= compactions.len(), "{reported:?}");
    let second = asked(&compactions[1]);
    assert!(
        second.contains("this is a summary:\n  Done: 1.rs was read.") && !second.contains("1.rs begins."),
        "{second}"
    );
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_summary_nothing_is_left_out_and_it_is_tried_once() {
    let model = reader().says("done");
    let board = builder().with(agent(&lead(COMPACT), model.clone())).start().await.unwrap();
    let (result, reported) = work(&board, "Read them all.").await;
    assert_eq!(result.output, "done");
    assert_whole(&model, reported);
    board.shutdown().await;
    // Without a board.
    let model = reader().says("done");
    let thinker = AgentLoop::new(model.clone()).tools(tools()).compact_at(Some(1_000));
    let run = thinker.run(vec![Message::user("Read them all.")]);
    assert_whole(&model, run.collect().await);
}

fn assert_whole(model: &ScriptedModel, reported: Vec<AgentEvent>) {
    let refusals = reported.iter().filter(|event| matches!(event, AgentEvent::NotCompacted { .. })).count();
    assert_eq!((refusals, reported.last()), (1, Some(&AgentEvent::Ended { end: LoopEnd::Answered })));
    assert_eq!(model.requests().last().unwrap().messages.len(), 11);
}
