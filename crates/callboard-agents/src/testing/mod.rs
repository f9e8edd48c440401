//! A scripted model for tests.

use std::collections::VecDeque;
use std::sync::Arc;

use callboard::messages::{Json, ToolCall, Usage};

use crate::StopReason;
use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;

use crate::{Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};

/// A language model for tests: it gives one answer after another, as they were written down, and remembers what it was asked.
/// A clone is the same model.
///
/// ```
/// use callboard::messages::Message;
/// use callboard_agents::testing::ScriptedModel;
/// use callboard_agents::{AgentLoop, MetaTool};
/// use futures::StreamExt;
/// use serde_json::json;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let model = ScriptedModel::new().calls("accept_handoff", json!({})).says("Nothing was left.");
/// let thinker = AgentLoop::new(model.clone()).meta([MetaTool::AcceptHandoff]);
/// let events: Vec<_> = thinker.run(vec![Message::user("What is there?")]).collect().await;
/// assert_eq!(model.requests().len(), 2);
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a model does nothing until it is asked"]
pub struct ScriptedModel(Arc<Part>);

struct Part {
    name: String,
    lines: Mutex<VecDeque<Line>>,
    requests: Mutex<Vec<ModelRequest>>,
}

/// The scripted answer to one call.
#[derive(Clone, Debug)]
struct Line {
    pieces: Vec<String>,
    calls: Vec<(String, Json)>,
    stop: Option<StopReason>,
    usage: Usage,
    error: Option<ModelError>,
}

impl Default for Line {
    fn default() -> Self {
        let usage = Usage::of(100, 20);
        Self { pieces: Vec::new(), calls: Vec::new(), stop: None, usage, error: None }
    }
}

impl Default for ScriptedModel {
    fn default() -> Self {
        Self::new()
    }
}

impl ScriptedModel {
    /// Creates a model named `scripted`, without answers. A call for which no answer is left fails with
    /// [`ModelErrorKind::Rejected`].
    pub fn new() -> Self {
        Self::named("scripted")
    }

    /// Creates a model of this name, without answers.
    pub fn named(name: &str) -> Self {
        Self(Arc::new(Part { name: name.to_owned(), lines: Mutex::default(), requests: Mutex::default() }))
    }

    fn with(self, line: Line) -> Self {
        self.0.lines.lock().push_back(line);
        self
    }

    /// Adds an answer that is this text and calls no tool.
    pub fn says(self, text: &str) -> Self {
        self.with(Line { pieces: vec![text.to_owned()], ..Line::default() })
    }

    /// Adds an answer as [`ScriptedModel::says`] does, in pieces.
    pub fn streams<'a>(self, pieces: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(Line { pieces: pieces.into_iter().map(str::to_owned).collect(), ..Line::default() })
    }

    /// Adds an answer that calls this tool.
    pub fn calls(self, tool: &str, arguments: impl Into<Json>) -> Self {
        self.calls_all([(tool, arguments.into())])
    }

    /// Adds an answer that calls these tools, in this order.
    pub fn calls_all<'a>(self, calls: impl IntoIterator<Item = (&'a str, Json)>) -> Self {
        let calls = calls.into_iter().map(|(tool, arguments)| (tool.to_owned(), arguments)).collect();
        self.with(Line { calls, ..Line::default() })
    }

    /// Sets the text that the last answer has before its calls.
    pub fn saying(self, text: &str) -> Self {
        if let Some(line) = self.0.lines.lock().back_mut() {
            line.pieces = vec![text.to_owned()];
        }
        self
    }

    /// Sets the reason for which the last answer stops.
    pub fn stops(self, stop: StopReason) -> Self {
        if let Some(line) = self.0.lines.lock().back_mut() {
            line.stop = Some(stop);
        }
        self
    }

    /// Sets the tokens that the last answer took, in place of 100 read and 20 written.
    pub fn using(self, usage: Usage) -> Self {
        if let Some(line) = self.0.lines.lock().back_mut() {
            line.usage = usage;
        }
        self
    }

    /// Adds an answer that fails in this way before anything is said.
    pub fn fails(self, kind: ModelErrorKind, text: &'static str) -> Self {
        self.with(Line { error: Some(ModelError::new(kind, text)), ..Line::default() })
    }

    /// Adds an answer that says this and breaks off with [`ModelErrorKind::CutOff`].
    pub fn breaks_off(self, text: &str) -> Self {
        let error = Some(ModelError::new(ModelErrorKind::CutOff, "the connection was cut"));
        self.with(Line { pieces: vec![text.to_owned()], error, ..Line::default() })
    }

    /// Returns the requests so far, oldest first. A request counts once its stream is polled.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.0.requests.lock().clone()
    }

    /// Returns how many answers were not asked for yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.lines.lock().len()
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        let part = Arc::clone(&self.0);
        let answer = async move {
            let number = {
                let mut requests = part.requests.lock();
                requests.push(request);
                requests.len()
            };
            let Some(line) = part.lines.lock().pop_front() else {
                let text = format!("the script of the model {} has no answer number {number}", part.name);
                return stream::iter(vec![Err(ModelError::new(ModelErrorKind::Rejected, text))]);
            };
            stream::iter(line.events(&part.name, number))
        };
        stream::once(answer).flatten().boxed()
    }
}

impl Line {
    fn events(self, model: &str, number: usize) -> Vec<Result<ModelEvent, ModelError>> {
        let mut events: Vec<_> = self.pieces.iter().map(|piece| Ok(ModelEvent::Text(piece.as_str().into()))).collect();
        let usual = if self.calls.is_empty() { StopReason::Finished } else { StopReason::ToolCalls };
        for (position, (tool, arguments)) in self.calls.into_iter().enumerate() {
            events.push(Ok(ModelEvent::ToolCall(ToolCall::new(&format!("{number}-{position}"), &tool, arguments))));
        }
        events.push(match self.error {
            Some(error) => Err(error),
            None => Ok(ModelEvent::Ended(ModelAnswer::new(model, self.stop.unwrap_or(usual), self.usage))),
        });
        events
    }
}
