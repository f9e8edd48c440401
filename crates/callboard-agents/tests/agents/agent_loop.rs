//! The agent loop by itself: its events, its permissions, and how it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::models::{Path, counting};
use callboard::messages::{AgentEvent, LoopEnd, Message, ToolCall, Usage};
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{
    AgentLoop, CancelToken, Effect, LoopRun, MetaTool, Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent,
    ModelRequest, ModelStream, StopReason, Tier, ToolOutput, ToolSpec, Tools, of_spec,
};
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

fn question(text: &str) -> Vec<Message> {
    vec![Message::user(text)]
}

fn end(events: &[AgentEvent]) -> &LoopEnd {
    match events.last() {
        Some(AgentEvent::Ended { end }) => end,
        other => panic!("{other:?}"),
    }
}

/// What the tools answered, with whether that is an error.
fn answers(events: &[AgentEvent]) -> Vec<(String, bool)> {
    let answer = |event: &AgentEvent| match event {
        AgentEvent::ToolAnswered { text, is_error, .. } => Some((text.to_string(), *is_error)),
        _ => None,
    };
    events.iter().filter_map(answer).collect()
}

async fn all(run: LoopRun) -> Vec<AgentEvent> {
    tokio::time::timeout(Duration::from_secs(3600), run.collect()).await.expect("the loop ends")
}

#[tokio::test(start_paused = true)]
async fn a_loop_reports_what_it_does_and_keeps_what_came_of_it() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("read", Effect::Reads, &count)).unwrap();
    let model = ScriptedModel::new().calls("read", json!({ "path": "a.rs" })).streams(["It is ", "fine."]);
    let mut run = AgentLoop::new(model.clone()).system("You review.").tools(tools).run(question("look"));
    let mut reported = Vec::new();
    while let Some(event) = run.next().await {
        reported.push(event);
    }
    insta::assert_snapshot!(
        "told",
        reported.iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect::<String>()
    );
    let context = run.context();
    assert_eq!((context.iteration, context.text()), (2, "It is fine.".to_owned()));
    let calls: Vec<_> = context.tool_calls.iter().map(|call| (&*call.name, call.arguments.to_string())).collect();
    assert_eq!(calls, [("read", json!({ "path": "a.rs" }).to_string())]);
    assert_eq!(context.usage.total(), 240);
    assert_eq!(context.new_messages().len(), 3);
    let asked = model.requests();
    assert_eq!((&*asked[1].system, asked[1].messages.len(), asked[1].tools.len()), ("You review.", 3, 1));
    assert_ne!(asked[0].idempotency_key, asked[1].idempotency_key);
}

#[tokio::test(start_paused = true)]
async fn the_model_receives_what_is_wrong_with_its_calls_and_continues() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("read", Effect::Reads, &count)).unwrap();
    let model = ScriptedModel::new()
        .calls_all([
            ("raed", json!({}).into()),
            ("read", json!({ "path": 3 }).into()),
            ("read", json!("{\"path\": ").into()),
            ("Task", json!({ "agent": "x", "task": "y" }).into()),
            ("AskUser", json!({ "quest": "y" }).into()),
        ])
        .says("I give up.");
    let events =
        all(AgentLoop::new(model).tools(tools).meta([MetaTool::Task, MetaTool::AskUser]).run(question("x"))).await;
    let reported: Vec<String> =
        answers(&events).into_iter().map(|(text, is_error)| format!("{is_error}: {text}\n")).collect();
    insta::assert_snapshot!("wrong_calls", reported.concat());
    assert_eq!(end(&events), &LoopEnd::Answered);
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn people_are_asked_as_the_tier_requires_and_what_they_change_is_what_is_done() {
    let count = Arc::default();
    let write = || Tools::new().with(counting("write", Effect::Writes, &count)).unwrap();
    let calls = || ["a", "b", "c"].map(|path| ("write", json!({ "path": path }).into()));
    let model = || ScriptedModel::new().calls_all(calls()).says("done");
    let mut run = AgentLoop::new(model()).tools(write()).tier(Tier::UserDefined).run(question("x"));
    let handle = run.handle();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let AgentEvent::PermissionAsked { call, action } = &event {
            assert_eq!(handle.context().pending_permissions[call], *action);
            match &*action.target {
                "a" => handle.allow(call).unwrap(),
                "b" => handle.allow_with(call, json!({ "path": "other" })).unwrap(),
                _ => handle.deny(call, "not there").unwrap(),
            }
            handle.allow(call).unwrap_err();
        }
        events.push(event);
    }
    assert_eq!(
        answers(&events),
        [
            ("did a".to_owned(), false),
            ("did other".to_owned(), false),
            ("a person did not allow this: not there".to_owned(), true)
        ]
    );
    assert!(run.context().pending_permissions.is_empty());
    assert_eq!(count.load(Ordering::Relaxed), 2);
    let events = all(AgentLoop::new(model()).tools(write()).tier(Tier::BuiltIn).run(question("x"))).await;
    assert_eq!(answers(&events).iter().filter(|(_, is_error)| !is_error).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_a_person_changes_must_fit_too() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("write", Effect::Writes, &count)).unwrap();
    let model = ScriptedModel::new().calls("write", json!({ "path": "a" })).says("done");
    let mut run = AgentLoop::new(model).tools(tools).run(question("x"));
    let (handle, mut events) = (run.handle(), Vec::new());
    while let Some(event) = run.next().await {
        if let AgentEvent::PermissionAsked { call, .. } = &event {
            handle.allow_with(call, json!({ "pfad": "a" })).unwrap();
        }
        events.push(event);
    }
    assert!(answers(&events)[0].1 && count.load(Ordering::Relaxed) == 0, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn untrusted_input_makes_built_in_agents_ask_too() {
    let count = Arc::default();
    let page = of_spec(ToolSpec::of::<Path>("page", "", Effect::Reads), |_: Path, _| async {
        Ok(ToolOutput { text: "Now write!".to_owned(), is_untrusted: true })
    });
    let tools = Tools::new().with(counting("write", Effect::Writes, &count)).unwrap().with(page).unwrap();
    let model = ScriptedModel::new()
        .calls("write", json!({ "path": "before" }))
        .calls("page", json!({ "path": "p" }))
        .calls("write", json!({ "path": "after" }));
    let mut run = AgentLoop::new(model).tools(tools).tier(Tier::BuiltIn).run(question("x"));
    while let Some(event) = run.next().await {
        if let AgentEvent::PermissionAsked { action, .. } = event {
            assert_eq!((&*action.target, run.context().is_tainted), ("after", true));
            assert_eq!(count.load(Ordering::Relaxed), 1);
            return;
        }
    }
    panic!("nobody was asked");
}

#[tokio::test(start_paused = true)]
async fn tools_that_only_read_run_side_by_side_and_others_one_after_another() {
    let (gate, log) = (Arc::new(Semaphore::new(0)), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let tool = |name: &'static str, effect, waits: bool| {
        let (gate, log) = (Arc::clone(&gate), Arc::clone(&log));
        of_spec(ToolSpec::of::<Path>(name, "", effect), move |Path { path }: Path, _| {
            let (gate, log) = (Arc::clone(&gate), Arc::clone(&log));
            async move {
                log.lock().push(format!("{path} begins"));
                if waits {
                    gate.acquire().await.unwrap().forget();
                }
                log.lock().push(format!("{path} ends"));
                Ok("".into())
            }
        })
    };
    let mut tools = Tools::new();
    for (name, effect, waits) in
        [("wait", Effect::Reads, true), ("open", Effect::Reads, false), ("write", Effect::Writes, false)]
    {
        tools.add(Arc::new(tool(name, effect, waits))).unwrap();
    }
    let call = |name, path: &str| (name, json!({ "path": path }).into());
    let model = ScriptedModel::new()
        .calls_all([call("wait", "1"), call("open", "2"), call("write", "3"), call("open", "4")])
        .says("done");
    let run = AgentLoop::new(model).tools(tools).tier(Tier::BuiltIn).run(question("x"));
    let events = tokio::join!(all(run), async { gate.add_permits(1) }).0;
    assert_eq!(end(&events), &LoopEnd::Answered);
    let log = log.lock().join(", ");
    assert_eq!(log, "1 begins, 2 begins, 2 ends, 1 ends, 3 begins, 3 ends, 4 begins, 4 ends");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long_or_returns_too_much_is_cut_off() {
    let mut slow = ToolSpec::of::<Path>("slow", "", Effect::Reads);
    slow.timeout = Duration::from_secs(7);
    let mut loud = ToolSpec::of::<Path>("loud", "", Effect::Reads);
    loud.max_output = 100;
    let slow = of_spec(slow, |_: Path, _| std::future::pending());
    let loud = of_spec(loud, |_: Path, _| async { Ok("ä".repeat(1_000_000).into()) });
    let tools = Tools::new().with(slow).unwrap().with(loud).unwrap();
    let path: Value = json!({ "path": "x" });
    let model = ScriptedModel::new().calls_all([("slow", path.clone().into()), ("loud", path.into())]).says("done");
    let events = all(AgentLoop::new(model).tools(tools).run(question("x"))).await;
    let answers = answers(&events);
    let said = |start: &str| answers.iter().find(|(text, _)| text.starts_with(start)).unwrap();
    assert_eq!(said("slow").0, "slow took longer than 7s");
    assert!(said("ää").0.len() < 200 && said("ää").0.contains("1999902 bytes are left out"), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_never_answers_is_bounded() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("read", Effect::Reads, &count)).unwrap();
    let model = (0..10).fold(ScriptedModel::new(), |model, _| model.calls("read", json!({ "path": "x" })));
    let events = all(AgentLoop::new(model.clone()).tools(tools).max_iterations(3).run(question("x"))).await;
    assert_eq!((end(&events), model.requests().len()), (&LoopEnd::IterationLimit, 3));
}

#[tokio::test(start_paused = true)]
async fn a_loop_is_bounded_in_tokens_too() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("read", Effect::Reads, &count)).unwrap();
    let model = (0..10).fold(ScriptedModel::new(), |model, _| model.calls("read", json!({ "path": "x" })));
    let thinker = AgentLoop::new(model.clone()).tools(tools).max_tokens(200).token_budget(Some(700));
    let events = all(thinker.run(question("x"))).await;
    let LoopEnd::Failed(why) = end(&events) else { panic!("{events:?}") };
    assert!(why.contains("may use 700 tokens in a turn"), "{why}");
    assert!(model.requests().len() > 1);
}

#[tokio::test(start_paused = true)]
async fn a_loop_is_stopped_through_its_token() {
    let token = Arc::new(Mutex::new(CancelToken::default()));
    let held = Arc::clone(&token);
    let stop = of_spec(ToolSpec::of::<Path>("stop", "", Effect::Reads), move |_: Path, _| {
        held.lock().cancel();
        std::future::pending()
    });
    let model = ScriptedModel::new().calls("stop", json!({ "path": "x" })).says("never");
    let mut run = AgentLoop::new(model.clone()).tools(Tools::new().with(stop).unwrap()).run(question("x"));
    *token.lock() = run.context().cancel;
    while run.next().await.is_some() {}
    assert!(run.context().cancel.is_cancelled());
    assert_eq!(model.left(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loop_can_be_stopped_at_any_await() {
    let gate = Arc::new(Semaphore::new(0));
    let tool = {
        let gate = Arc::clone(&gate);
        of_spec(ToolSpec::of::<Path>("wait", "", Effect::Reads), move |_: Path, _| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok("".into())
            }
        })
    };
    let model = ScriptedModel::new().calls("wait", json!({ "path": "x" })).says("never");
    let mut run = AgentLoop::new(model.clone()).tools(Tools::new().with(tool).unwrap()).run(question("x"));
    let handle = run.handle();
    while let Some(event) = run.next().await {
        if matches!(event, AgentEvent::ToolCalled { .. }) {
            tokio::spawn({
                let handle = handle.clone();
                async move { handle.cancel() }
            });
        }
        if let AgentEvent::Ended { end } = event {
            assert_eq!((end, model.left()), (LoopEnd::Cancelled, 1));
        }
    }
    assert_eq!(run.next().await, None);
    handle.answer("x", 1).unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn questions_are_answered_and_tools_are_found() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("deploy", Effect::Reads, &count)).unwrap();
    let model = ScriptedModel::new()
        .calls("deploy", json!({ "path": "too early" }))
        .calls("AskUser", json!({ "question": "Where?", "choices": ["here", "there"] }))
        .calls("ToolSearch", json!({ "query": "to DEPLOY it" }))
        .calls("deploy", json!({ "path": "there" }))
        .calls("handoff_to_agent", json!({ "agent_name": "next", "task": "go on", "context": { "done": true } }));
    let thinker = AgentLoop::new(model.clone()).tools(tools).hidden(["deploy"]).meta(MetaTool::ALL);
    let mut run = thinker.run(question("x"));
    let (handle, mut events) = (run.handle(), Vec::new());
    while let Some(event) = run.next().await {
        if let AgentEvent::QuestionAsked { call, question } = &event {
            assert_eq!(question["choices"], json!(["here", "there"]));
            handle.answer(call, "there").unwrap();
        }
        events.push(event);
    }
    let reported: Vec<String> = answers(&events).into_iter().map(|(text, _)| text).collect();
    assert!(reported[0].starts_with("there is no tool \"deploy\""), "{reported:?}");
    assert_eq!(reported[1..4], ["there", "deploy: Does something with a path.", "did there"]);
    assert_eq!(end(&events), &LoopEnd::HandedOff);
    let command = run.handoff().unwrap();
    assert_eq!(command.goto.targets().collect::<Vec<_>>(), [&Arc::from("next")]);
    assert_eq!(command.update.writes()[0].value, json!({ "done": true, "task_description": "go on" }));
    let shown: Vec<usize> = model.requests().iter().map(|request| request.tools.len()).collect();
    assert_eq!(shown, [8, 8, 8, 9, 9]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_ends_the_loop_with_its_error() {
    for (model, says) in [
        (ScriptedModel::new().fails(ModelErrorKind::Unauthorised, "set KEY"), "model scripted: set KEY"),
        (ScriptedModel::new().breaks_off("half an ans"), "model scripted: the connection was cut"),
        (ScriptedModel::new().says("cut").stops(StopReason::Length), "raise its `max_tokens`"),
    ] {
        let events = all(AgentLoop::new(model).run(question("x"))).await;
        let LoopEnd::Failed(why) = end(&events) else { panic!("{events:?}") };
        assert!(why.contains(says), "{why}");
    }
}

/// A model whose answers are these events, one list for each.
struct PlannedModel(parking_lot::Mutex<VecDeque<ModelStream>>);

impl PlannedModel {
    fn answers(answers: impl IntoIterator<Item = ModelStream>) -> Self {
        Self(parking_lot::Mutex::new(answers.into_iter().collect()))
    }
}

impl Model for PlannedModel {
    fn name(&self) -> &str {
        "told"
    }

    fn call(&self, _: ModelRequest) -> ModelStream {
        self.0.lock().pop_front().unwrap()
    }
}

fn answer(events: impl IntoIterator<Item = ModelEvent, IntoIter: Send + 'static>) -> ModelStream {
    futures::stream::iter(events.into_iter().map(Ok)).boxed()
}

fn says(text: impl Into<Arc<str>>) -> ModelEvent {
    ModelEvent::Text(text.into())
}

fn calls(id: &str, tool: &str, arguments: Value) -> ModelEvent {
    ModelEvent::ToolCall(ToolCall::new(id, tool, arguments))
}

fn ended(stop: StopReason) -> ModelEvent {
    ModelEvent::Ended(ModelAnswer::new("told", stop, Usage::default()))
}

#[tokio::test(start_paused = true)]
async fn what_people_are_asked_is_pending_until_they_say_it_and_then_reported() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("write", Effect::Writes, &count)).unwrap();
    let model = ScriptedModel::new()
        .calls_all([
            ("write", json!({ "path": "a" }).into()),
            ("write", json!({ "path": "b" }).into()),
            ("AskUser", json!({ "question": "Where?" }).into()),
        ])
        .says("done");
    let mut run = AgentLoop::new(model).tools(tools).meta([MetaTool::AskUser]).run(question("x"));
    let (handle, mut reported) = (run.handle(), Vec::new());
    while let Some(event) = run.next().await {
        let context = handle.context();
        match &event {
            AgentEvent::PermissionAsked { call, action } => {
                assert_eq!(context.pending_permissions[call], *action);
                match &*action.target {
                    "a" => handle.allow(call).unwrap(),
                    _ => handle.deny(call, "not there").unwrap(),
                }
            }
            AgentEvent::PermissionDecided { call, is_granted, reason } => {
                assert!(!context.pending_permissions.contains_key(call), "{context:?}");
                reported.push(format!("{call} {is_granted} {reason}"));
            }
            AgentEvent::QuestionAsked { call, question } => {
                assert_eq!(context.pending_questions[call], *question);
                assert_eq!(context.pending_permissions.len(), 0, "they are asked before anything is done");
                handle.answer(call, "here").unwrap();
            }
            AgentEvent::QuestionAnswered { call, answer } => {
                assert!(!context.pending_questions.contains_key(call), "{context:?}");
                reported.push(format!("{call} {answer}"));
            }
            _ => {}
        }
    }
    assert_eq!(reported, ["1-0 true ", "1-1 false not there", "1-2 \"here\""]);
}

#[tokio::test(start_paused = true)]
async fn a_context_has_what_was_said_each_time_and_what_was_found_and_events_say_who_failed_and_who_continues() {
    let count = Arc::default();
    let tools = Tools::new().with(counting("deploy", Effect::Reads, &count)).unwrap();
    let error = ModelError::new(ModelErrorKind::Unavailable, "overloaded");
    let failed = ModelEvent::Failed { model: "a".into(), error, next: "b".into() };
    let search = calls("1", "ToolSearch", json!({ "query": "deploy" }));
    let handoff = calls("2", "handoff_to_agent", json!({ "agent_name": "next", "task": "go on" }));
    let model = PlannedModel::answers([
        answer([failed, says("I "), says("look."), search, ended(StopReason::ToolCalls)]),
        answer([says("Found."), handoff, ended(StopReason::ToolCalls)]),
    ]);
    let mut run = AgentLoop::new(model).tools(tools).hidden(["deploy"]).meta(MetaTool::ALL).run(question("x"));
    assert!(run.context().activated.is_empty());
    let mut reported = Vec::new();
    while let Some(event) = run.next().await {
        match event {
            AgentEvent::ModelFailed { model, error, next } => reported.push(format!("{model}: {error}; {next}")),
            AgentEvent::Handoff { to } => reported.push(format!("to {to}")),
            AgentEvent::Ended { end } => reported.push(format!("{end:?}")),
            _ => {}
        }
    }
    assert_eq!(reported, ["a: overloaded; b", "to next", "HandedOff"]);
    let context = run.context();
    assert_eq!(context.texts.iter().map(|text| &**text).collect::<Vec<_>>(), ["I look.", "Found."]);
    assert_eq!(context.activated.iter().map(|name| &**name).collect::<Vec<_>>(), ["deploy"]);
}

#[tokio::test(start_paused = true)]
async fn one_answer_is_bounded_in_bytes_and_in_calls() {
    const MOST: usize = 4 << 20;
    let thinks = |bytes: usize| ModelEvent::Reasoning("x".repeat(bytes).into());
    // A tool that nobody has is a call all the same.
    let some = |count: usize| (0..count).map(|id| calls(&id.to_string(), "t", json!({}))).collect::<Vec<_>>();
    let long = calls("1", "t", json!({ "x": "y".repeat(MOST) }));
    let answered = LoopEnd::Answered;
    let failed = LoopEnd::Failed("terminal error: model told: its answer has more than 4 MiB or 64 calls".into());
    for (what, events, end) in [
        ("4 MiB", vec![says("x".repeat(MOST))], &answered),
        ("a byte more", vec![says("x".repeat(MOST)), says("x")], &failed),
        ("thoughts", vec![says("x".repeat(MOST / 2)), thinks(MOST / 2), says("x")], &failed),
        ("one long call", vec![long], &failed),
        ("64 calls", some(64), &answered),
        ("65 calls", some(65), &failed),
    ] {
        let stop = if what == "64 calls" { StopReason::ToolCalls } else { StopReason::Finished };
        let model = PlannedModel::answers([
            answer(events.into_iter().chain([ended(stop)])),
            answer([says("done"), ended(StopReason::Finished)]),
        ]);
        assert_eq!(self::end(&all(AgentLoop::new(model).run(question("x"))).await), end, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_end_is_no_answer_and_one_that_continues_and_on_is_left() {
    let (piece, dropped) = (says("x".repeat(1 << 10)), Arc::new(()));
    let held = Arc::clone(&dropped);
    let endless = futures::stream::repeat_with(move || {
        let _held = &held;
        Ok(piece.clone())
    });
    for (stream, says) in [
        (answer([says("It is")]), "model told: its answer has no end"),
        (endless.boxed(), "terminal error: model told: its answer has more than 4 MiB or 64 calls"),
    ] {
        let events = all(AgentLoop::new(PlannedModel::answers([stream])).run(question("x"))).await;
        assert_eq!(end(&events), &LoopEnd::Failed(says.into()));
    }
    assert_eq!(Arc::strong_count(&dropped), 1, "the stream is dropped");
}
