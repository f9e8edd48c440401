use std::collections::BTreeSet;
use std::sync::Mutex;

use callboard::Callboard;
use callboard::actors::{StreamMode, Watched};
use callboard::env::Env;
use callboard::messages::{AgentName, Complexity, Response, Task, ToolCall};
use callboard::prelude::{AgentSpec, Command, Memory, Turn, TurnError, Usage};
use callboard::workflow::Workflow;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{
    CallPolicy, Definition, Effect, LlmAgent, Model, ModelAnswer, ModelChoice, ModelEntry, ModelError, ModelErrorKind,
    ModelEvent, ModelRequest, ModelStream, Models, StopReason, Tools, tool,
};
use futures::StreamExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::*;

fn provider_of(model: &str) -> Option<Arc<str>> {
    (model == "large").then(|| "openai-compatible".into())
}

/// The spans of a task's run and of those that its turns begin.
async fn spans_of(board: Callboard, task: Task) -> Vec<SpanData> {
    let mut watched = board.watch(&[StreamMode::Debug, StreamMode::Live]);
    board.submit(task).await.unwrap().result().await.unwrap();
    board.shutdown().await;
    let mut spans = Spans::new(board.state_rules().clone(), Arc::new(provider_of));
    while let Some(watched) = watched.next().await {
        match watched {
            Watched::Event { run, sequence, event } => assert!(spans.take(run, sequence, &event)),
            Watched::Live { turn, event, .. } => spans.take_live(turn, &event, Timestamp::default()),
            Watched::Missed(events) => panic!("{events} events were missed"),
        }
    }
    spans.take_ended()
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|it| it.key.as_str() == name).map(|it| it.value.to_string())
}

/// Each span with its outcome or tokens and its error, below its parent.
fn tree(spans: &[SpanData], parent: SpanId, depth: usize) -> String {
    let below = spans.iter().filter(|span| span.parent_span_id == parent);
    below
        .map(|span| {
            let shown = [names::OUTCOME, names::NODE, names::INPUT_TOKENS, names::OUTPUT_TOKENS, names::ERROR];
            let shown: Vec<_> = shown.into_iter().filter_map(|name| attribute(span, name)).collect();
            let events: String = span.events.iter().map(|event| format!(" + {}", event.name)).collect();
            let line = format!("{}{} ({}){events}\n", "  ".repeat(depth), span.name, shown.join(", "));
            line + &tree(spans, span.span_context.span_id(), depth + 1)
        })
        .collect()
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// An agent with a model, which uses a tool.
fn coder() -> AgentSpec {
    let mut definition = Definition::built_in(AgentName::new("coder").unwrap());
    definition.allowed_tools = Some(vec!["echo".into()]);
    let model = ScriptedModel::named("large").calls("echo", json!({ "text": "a secret" }));
    let model = model.calls("a_secret_tool", json!({})).says("a secret, too");
    let echo = tool("echo", "Repeats.", Effect::Reads, |it: Text, _| async move { Ok(it.text.into()) });
    let tools = Tools::new().with(echo).unwrap();
    LlmAgent::new(&definition, Arc::new(model), &tools, &[]).unwrap().spec()
}

#[tokio::test(start_paused = true)]
async fn a_run_has_spans_of_its_turns_its_models_and_its_tools_in_the_trace_of_its_task() {
    let lead = |turn: Turn| async move {
        if turn.attempt() == 1 {
            return Err(TurnError::transient("a secret"));
        }
        let answer = turn.delegate("coder", "a secret").await?;
        turn.reserve(400).await?.settle_by("small", Usage::of(30, 2)).await.unwrap();
        Ok(Command::output(answer).goto("writer"))
    };
    let writer = |_: Turn| async { Err::<Command, _>(TurnError::terminal("a secret")) };
    let board = Callboard::builder().agent("lead", lead).agent("writer", writer);
    let board = board.with(coder()).start().await.unwrap();
    let parent = TraceParent { trace: 7, span: 9, is_sampled: true, state: None }.with_state("vendor=1");
    let task = Task { trace_parent: Some(Box::new(parent)), ..Task::new("a secret").to("lead") };
    let spans = spans_of(board, task).await;
    assert_eq!(
        tree(&spans, SpanId::from(9), 0),
        "\
run lead (failed, failed)
  invoke_agent lead (finished) + callboard.attempt_failed
    invoke_agent coder (finished)
      chat large (100, 20)
      execute_tool echo ()
      chat large (100, 20)
      execute_tool unknown (tool_error)
      chat large (100, 20)
    chat small (30, 2)
  invoke_agent writer (failed, terminal_error)
"
    );
    assert!(spans.iter().all(|span| span.span_context.trace_id() == TraceId::from(7)));
    assert!(spans.iter().all(|span| span.span_context.trace_state().header() == "vendor=1"));
    let provider = |span: &SpanData| attribute(span, names::PROVIDER);
    let providers: BTreeSet<_> = spans.iter().filter_map(|span| Some((span.name.clone(), provider(span)?))).collect();
    assert_eq!(
        providers,
        BTreeSet::from([("chat large".into(), "openai".to_owned())]),
        "that of the other is not known"
    );
    assert!(!format!("{spans:?}").contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn the_run_of_a_workflow_that_is_an_agent_is_a_part_of_its_turn() {
    let workflow = Workflow::from_line("build", "first(agent=\"coder\") -> second(agent=\"coder\")").unwrap();
    let coder = |_: Turn| async { Ok(Command::output("done")) };
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("builder", "it").await?)) };
    let board = Callboard::builder().agent("coder", coder).agent("lead", lead);
    let board = board.workflow("builder", &workflow, Complexity::Medium).start().await.unwrap();
    let spans = spans_of(board, Task::new("x").to("lead")).await;
    assert_eq!(
        tree(&spans, SpanId::INVALID, 0),
        "\
run lead (finished)
  invoke_agent lead (finished)
    invoke_agent builder (finished)
      invoke_workflow workflow (finished)
        invoke_agent coder (finished, first)
        invoke_agent coder (finished, second)
"
    );
}

/// A model that keeps what it is asked with; the first call fails, so that another model is asked.
#[derive(Clone)]
struct Recording {
    name: &'static str,
    fails: Option<ModelErrorKind>,
    asked: Arc<Mutex<Vec<(&'static str, TraceParent)>>>,
}

impl Model for Recording {
    fn name(&self) -> &str {
        self.name
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        self.asked.lock().unwrap().push((self.name, request.trace_parent.unwrap()));
        let used = Usage::of(10, 1);
        let events = match self.fails {
            Some(kind) => vec![Err(ModelError::new(kind, "a secret"))],
            None if request.messages.len() > 1 => {
                let answer = ModelAnswer::new(self.name, StopReason::Finished, used);
                vec![Ok(ModelEvent::Text("done".into())), Ok(ModelEvent::Ended(answer))]
            }
            None => {
                let answer = ModelAnswer::new(self.name, StopReason::ToolCalls, used);
                let call = ToolCall::new("1", "echo", json!({ "text": "a" }));
                vec![Ok(ModelEvent::ToolCall(call)), Ok(ModelEvent::Ended(answer))]
            }
        };
        futures::stream::iter(events).boxed()
    }
}

/// A try that may have cost something has a reservation of its own, and one that has not shares that of the next.
#[tokio::test(start_paused = true)]
async fn each_try_of_a_model_is_given_the_span_that_it_has_then() {
    for kind in [ModelErrorKind::NotSent, ModelErrorKind::Unavailable] {
        let asked = Arc::default();
        let model = |name, fails| Recording { name, fails, asked: Arc::clone(&asked) };
        let [first, second] = [("large", Some(kind)), ("small", None)].map(|(name, fails)| model(name, fails));
        let mut policy = CallPolicy::default();
        policy.retries = 1;
        let entries = [ModelEntry::of(first).fallback("small"), ModelEntry::of(second)];
        let models = Models::of(&Env::repeatable(1), entries).unwrap().with_policy(policy);
        let mut definition = Definition::built_in(AgentName::new("coder").unwrap());
        definition.allowed_tools = Some(vec!["echo".into()]);
        let echo = tool("echo", "Repeats.", Effect::Reads, |it: Text, _| async move { Ok(it.text.into()) });
        let tools = Tools::new().with(echo).unwrap();
        let chosen = models.chosen(&ModelChoice::of("large")).unwrap();
        let coder = LlmAgent::new(&definition, Arc::new(chosen), &tools, &[]).unwrap().spec();
        let parent = TraceParent { trace: 7, span: 9, is_sampled: true, state: None };
        let task = Task { trace_parent: Some(Box::new(parent)), ..Task::new("x") };
        let board = Callboard::builder().with(coder).start().await.unwrap();
        let spans = spans_of(board, task).await;
        let calls = spans.iter().filter(|span| attribute(span, names::OPERATION).as_deref() == Some(names::CHAT));
        let calls = calls.map(|span| (attribute(span, names::MODEL).unwrap(), span.span_context.span_id()));
        let asked: Vec<(&str, TraceParent)> = asked.lock().unwrap().clone();
        assert_eq!(asked.iter().map(|(model, _)| *model).collect::<Vec<_>>(), ["large", "large", "small"].repeat(2));
        let given = asked.iter().map(|(model, span)| ((*model).to_owned(), SpanId::from(span.span)));
        assert_eq!(calls.collect::<Vec<_>>(), given.collect::<Vec<_>>(), "{kind:?}");
        let different: BTreeSet<u64> = asked.iter().map(|(_, span)| span.span).collect();
        assert_eq!(different.len(), asked.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_trace_that_is_not_recorded_has_no_spans() {
    let board = Callboard::builder().agent("coder", |_: Turn| async { Ok(Command::output("done")) });
    let parent = TraceParent { trace: 7, span: 9, is_sampled: false, state: None };
    let task = Task { trace_parent: Some(Box::new(parent)), ..Task::new("x") };
    assert_eq!(spans_of(board.start().await.unwrap(), task).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_first_events_were_missed_is_continued_from_its_journal() {
    let store = Memory::default();
    let coder = |turn: Turn| async move { Ok(Command::output(turn.people().ask("go?").await?)) };
    let board = Callboard::builder().agent("coder", coder).storage(store).start().await.unwrap();
    let mut watched = board.watch(&[StreamMode::Debug]);
    let run = board.submit(Task::new("x")).await.unwrap();
    let asked = run.next_pending_where(|_| true).await.unwrap().unwrap();
    let mut spans = Spans::new(board.state_rules().clone(), Arc::new(provider_of));
    spans.catch_up(1, run.read().await.unwrap());
    board.people().answer(asked.id(), Response::Value("yes".into()), "ann").await.unwrap();
    run.result().await.unwrap();
    board.shutdown().await;
    while let Some(watched) = watched.next().await {
        let Watched::Event { run, sequence, event } = watched else { panic!("{watched:?}") };
        assert!(spans.take(run, sequence, &event));
    }
    let ended = spans.take_ended();
    assert_eq!(tree(&ended, SpanId::INVALID, 0), "run coder (finished)\n  invoke_agent coder (finished)\n");
    assert!(!spans.take(run.id(), 5, &RunEvent::Recovered { at: Timestamp::default(), new_process: true }));
}
