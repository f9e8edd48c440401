//! A model that does not think, for trying agents where there is no other.

use std::any::Any;
use std::sync::Arc;

use callboard::messages::{Message, ToolCall, Usage};

use crate::StopReason;
use futures::StreamExt;
use futures::stream;
use serde_json::{Map, Value, json};

use super::meta::MetaTool;
use super::model::{Model, ModelAnswer, ModelError, ModelEvent, ModelRequest, ModelStream};
use super::prices::Prices;
use super::tool::ToolSpec;

/// Answers without thinking and without a network: it uses the tool that the task names, gives tasks to the agents that it knows of,
/// or searches files, and then repeats what it was asked and what it was told. Always the same.
///
/// A task names a tool if it is the tool's name and, after a space, its arguments as a JSON object, such as `AskUser {"question":
/// "Which port?"}`.
///
/// ```
/// use callboard::messages::Message;
/// use callboard_agents::{AgentLoop, FakeModel};
/// use futures::StreamExt;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let mut run = AgentLoop::new(FakeModel).run(vec![Message::user("2 + 2?")]);
/// while run.next().await.is_some() {}
/// assert!(run.context().text().contains("2 + 2?"));
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeModel;

/// The most characters of a text that it repeats.
const SHOWN: usize = 200;

/// The most agents that it gives tasks to.
const MAX_TASKS: usize = 3;

impl Model for FakeModel {
    fn name(&self) -> &str {
        "fake"
    }

    fn prices(&self) -> Option<Prices> {
        Some(Prices { input: 0.0, output: 0.0 })
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        let mut events: Vec<Result<ModelEvent, ModelError>> = Vec::new();
        let is_new = request.messages.iter().all(|message| matches!(message, Message::User { .. }));
        let calls = if is_new { calls(&request) } else { Vec::new() };
        let stop = if calls.is_empty() { StopReason::Finished } else { StopReason::ToolCalls };
        let mut written = 0;
        if calls.is_empty() {
            let text = said(&request.messages);
            written += text.len();
            events.extend(text.split_inclusive(' ').map(|word| Ok(ModelEvent::Text(word.into()))));
        }
        for call in calls {
            written += call.size();
            events.push(Ok(ModelEvent::ToolCall(call)));
        }
        let usage = Usage::of(request.estimated_tokens(), written.div_ceil(3) as u64);
        events.push(Ok(ModelEvent::Ended(ModelAnswer::new("fake", stop, usage))));
        stream::iter(events).boxed()
    }

    fn is_same(&self, other: &dyn Model) -> bool {
        (other as &dyn Any).is::<Self>()
    }
}

/// The tool calls of its first answer.
fn calls(request: &ModelRequest) -> Vec<ToolCall> {
    let asked = asked(&request.messages);
    let call = |number: usize, name: &str, arguments: Value| ToolCall::new(&format!("fake-{number}"), name, arguments);
    if let Some((name, arguments)) = named_call(&asked, &request.tools) {
        return vec![call(0, name, arguments)];
    }
    let task = request.tools.iter().find(|tool| *tool.name == *MetaTool::Task.name());
    // An agent with a team has the team's names in the tool's schema.
    let team = task.and_then(|task| task.parameters.pointer("/properties/agent/examples")).and_then(Value::as_array);
    let team = team.into_iter().flatten().take(MAX_TASKS).filter_map(Value::as_str);
    let tasks: Vec<ToolCall> = team
        .enumerate()
        .map(|(number, agent)| call(number, MetaTool::Task.name(), json!({ "agent": agent, "task": &*asked })))
        .collect();
    if !tasks.is_empty() {
        return tasks;
    }
    let search = request.tools.iter().find(|tool| &*tool.name == "FileSearch");
    search
        .into_iter()
        .map(|tool| call(0, &tool.name, json!({ "pattern": "TODO|FIXME|unsafe|unwrap", "max": 5 })))
        .collect()
}

/// The tool that a task names, and its arguments.
fn named_call<'a>(asked: &'a str, tools: &[Arc<ToolSpec>]) -> Option<(&'a str, Value)> {
    let (name, arguments) = asked.split_once(' ')?;
    let arguments: Map<String, Value> = serde_json::from_str(arguments).ok()?;
    tools.iter().any(|tool| &*tool.name == name).then_some((name, Value::Object(arguments)))
}

fn said(messages: &[Message]) -> String {
    let mut text = format!(
        "The fake model does not think; it only shows how things go. It was asked: {}",
        shown(&asked(messages))
    );
    let answers = messages.iter().filter_map(|message| match message {
        Message::Tool { name, text, is_error, .. } => Some((name, text, *is_error)),
        Message::User { .. } | Message::Assistant { .. } => None,
    });
    for (name, answer, is_error) in answers {
        let how = if is_error { "failed with" } else { "answered" };
        text.push_str(&format!("\n- {name} {how}: {}", shown(answer)));
    }
    text
}

fn asked(messages: &[Message]) -> Arc<str> {
    let first = messages.iter().find_map(|message| match message {
        Message::User { text } => Some(Arc::clone(text)),
        Message::Assistant { .. } | Message::Tool { .. } => None,
    });
    first.unwrap_or_default()
}

fn shown(text: &str) -> String {
    let line = text.lines().collect::<Vec<_>>().join(" / ");
    match line.char_indices().nth(SHOWN) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effect;

    #[test]
    fn a_task_names_a_tool_by_its_name_and_its_arguments() {
        let tools = [Arc::new(ToolSpec::new("FileWrite", "Writes.", json!({ "type": "object" }), Effect::Writes))];
        let called = named_call(r#"FileWrite {"path": "notes.txt", "content": "hello"}"#, &tools);
        assert_eq!(called, Some(("FileWrite", json!({ "path": "notes.txt", "content": "hello" }))));
        for task in ["FileWrite", "FileWrite notes.txt", "FileWrite [1]", "FileRead {}", "use FileWrite {}", ""] {
            assert_eq!(named_call(task, &tools), None, "{task}");
        }
    }
}
