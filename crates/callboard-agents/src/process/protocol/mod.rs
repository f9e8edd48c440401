//! The lines between callboard and a process agent (docs/process-agents.md). Pure: only the format, not the effects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{
    Action, AgentName, Chain, Command, ContextStrategy, EarlierAnswer, Effect, Goto, Intent, Json, Message, OnUnknown,
    Scope, SendTo, TraceId, Usage,
};
use callboard_documents::json;
use callboard_text::{quoted, visible};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The protocol version of this build. Within a version nothing is renamed or removed.
pub(super) const VERSION: u64 = 2;

/// The longest description of a defect in a line, in characters.
const MAX_WHY: usize = 400;

/// The longest text of a notice or an error, in characters.
const MAX_TEXT: usize = 4096;

/// The id of a request, which the process chooses.
pub(super) type Id = u64;

/// A line to a process.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutgoingLine<'a> {
    /// The first line of all.
    Hello { protocol: u64, agent: &'a AgentName },
    /// A turn to take.
    Turn(Box<TurnLine<'a>>),
    /// The step is not recorded: carry it out.
    Go { id: Id },
    /// The result of a request.
    Result { id: Id, value: &'a Json },
    /// The failure of a request.
    Failed {
        id: Id,
        kind: Unmet,
        error: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<&'a Json>,
    },
}

/// A turn as a process sees it.
#[derive(Debug, Serialize)]
pub(super) struct TurnLine<'a> {
    pub(super) id: &'a str,
    pub(super) attempt: u32,
    pub(super) agent: &'a AgentName,
    pub(super) task: &'a str,
    pub(super) input: &'a Json,
    pub(super) state: Json,
    pub(super) previous_agent: Option<&'a AgentName>,
    pub(super) chain: &'a Chain,
    pub(super) trace: TraceId,
    pub(super) traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tracestate: Option<&'a str>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) earlier_answers: Vec<AnswerLine<'a>>,
    pub(super) is_tainted: bool,
    pub(super) authority: Vec<Effect>,
    pub(super) conversation: Vec<Message>,
}

/// The result of a delegation that the asking turn had made before.
#[derive(Debug, Serialize)]
pub(super) struct AnswerLine<'a> {
    pub(super) to: &'a str,
    pub(super) body: &'a str,
    pub(super) outcome: &'a str,
    pub(super) output: &'a Json,
}

impl<'a> From<&'a EarlierAnswer> for AnswerLine<'a> {
    fn from(EarlierAnswer { to, body, answer }: &'a EarlierAnswer) -> Self {
        Self { to, body, outcome: answer.outcome.name(), output: &answer.output }
    }
}

/// The kind of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unmet {
    /// The guard refused it.
    Refused,
    /// People or a policy denied it, or nobody answered in time.
    Denied,
    /// The delegated branch did not finish.
    NotFinished,
    /// The shared context refused it.
    Context,
    /// The run had ended before the call reported.
    TooLate,
    /// It may have been done, and its result is unknown.
    OutcomeUnknown,
}

impl OutgoingLine<'_> {
    /// The line, with its line feed.
    pub(super) fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// Whether a step may be repeated (SEMANTICS 14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepClass {
    Pure,
    #[default]
    Idempotent,
    Once,
}

/// A line from a process, after its first.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// Work that is done once and recorded.
    Step {
        id: Id,
        name: String,
        #[serde(default)]
        class: StepClass,
        #[serde(default)]
        target: String,
        #[serde(default)]
        arguments: Json,
        on_unknown: Option<OnUnknown>,
        /// The step is a use of the tool of this name.
        #[serde(default)]
        tool: bool,
    },
    /// A step was carried out; the value is its result.
    StepDone { id: Id, value: Json },
    /// A task for another agent.
    Delegate {
        id: Id,
        to: String,
        body: String,
        #[serde(default, deserialize_with = "present")]
        input: Option<Json>,
        tokens: Option<u64>,
        deadline_seconds: Option<u64>,
        #[serde(default, deserialize_with = "strategy")]
        sees: ContextStrategy,
        reference: Option<String>,
        #[serde(default)]
        detach: bool,
    },
    /// A question to people.
    Ask { id: Id, question: Json },
    /// Asks for consent.
    Approve {
        id: Id,
        action: String,
        target: String,
        arguments: Json,
        #[serde(default)]
        each_time: bool,
        #[serde(default)]
        reason: String,
    },
    /// Checks whether a handoff would be admitted.
    CheckHandoff {
        id: Id,
        #[serde(deserialize_with = "goto")]
        goto: Goto,
    },
    /// Reads an entry of the shared context.
    ContextGet { id: Id, namespace: Option<String>, key: String },
    /// Writes an entry of the shared context.
    ContextSet {
        id: Id,
        namespace: Option<String>,
        key: String,
        value: String,
        ttl_seconds: Option<u64>,
        #[serde(default, deserialize_with = "revision")]
        if_revision: Option<Option<u64>>,
    },
    /// The newest entries of a namespace.
    ContextQuery { id: Id, namespace: Option<String>, prefix: Option<String>, limit: usize },
    /// The newest entries of several namespaces.
    ContextSearch { id: Id, namespaces: Vec<String>, limit: usize },
    /// Extends the life of an entry: by default to 90 days from now.
    ContextTouch { id: Id, namespace: Option<String>, key: String, ttl_seconds: Option<u64> },
    /// Deletes an entry of the shared context.
    ContextDelete { id: Id, namespace: Option<String>, key: String },
    /// Reserves tokens.
    Reserve { id: Id, tokens: u64 },
    /// Settles a reservation with the tokens that the call used.
    Settle { id: Id, reservation: Id, input_tokens: u64, output_tokens: u64 },
    /// Releases a reservation: the call was not sent.
    Release { id: Id, reservation: Id },
    /// A notice for the observers of the run.
    Notice { text: String },
    /// The turn has read untrusted input, and is tainted.
    Taint { source: String },
    /// Ends the turn with a command.
    Command {
        turn: String,
        #[serde(default, deserialize_with = "present")]
        output: Option<Json>,
        #[serde(default)]
        update: Map<String, Value>,
        #[serde(default)]
        overwrite: Map<String, Value>,
        #[serde(default, deserialize_with = "goto")]
        goto: Goto,
        #[serde(default)]
        scope: PlanScope,
        #[serde(default)]
        keeps_edges: bool,
    },
    /// Fails the attempt: with a text, or with the failure of a request.
    Error {
        turn: String,
        text: Option<String>,
        of: Option<Id>,
        #[serde(default)]
        terminal: bool,
    },
}

/// The form of [`Scope`] in a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PlanScope {
    #[default]
    Current,
    Parent,
}

/// A request whose answer is awaited.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    Step {
        name: String,
        /// The intent, and what follows an unknown outcome, if it must not be repeated by itself.
        once: Option<(Intent, Option<OnUnknown>)>,
        is_tool: bool,
    },
    Delegate(Delegate),
    Ask(Json),
    Approve {
        action: Action,
        /// Whether to ask each time, whatever was decided for the whole run.
        each_time: bool,
        /// Why, in the agent's words; empty without.
        reason: String,
    },
    CheckHandoff(Box<Command>),
    Context(Entry),
    Reserve(u64),
    /// `None`: the call was not sent.
    Settle(Id, Option<Usage>),
}

/// The fields of a delegation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delegate {
    pub(super) to: String,
    pub(super) body: String,
    pub(super) input: Option<Json>,
    pub(super) tokens: Option<u64>,
    pub(super) deadline: Option<Duration>,
    pub(super) sees: ContextStrategy,
    pub(super) reference: Option<String>,
    pub(super) is_detached: bool,
}

/// An operation on the shared context. Without a namespace it is on the agent's own memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    Get { namespace: Option<String>, key: String },
    Set { namespace: Option<String>, key: String, value: String, ttl: Option<Duration>, expected: Option<Option<u64>> },
    Query { namespace: Option<String>, prefix: Option<String>, limit: usize },
    Search { namespaces: Vec<String>, limit: usize },
    Touch { namespace: Option<String>, key: String, ttl: Option<Duration> },
    Delete { namespace: Option<String>, key: String },
}

/// The meaning of a line within a turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum IncomingMessage {
    /// A request.
    Request(Id, Request),
    /// A step was carried out.
    StepDone(Id, Json),
    /// A notice.
    Notice(String),
    /// The process has read untrusted input: its turn is tainted.
    Taint(String),
    /// It ends the turn of this id.
    TurnEnd(String, Ending),
}

/// The end of a turn by the process.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ending {
    Command(Box<Command>),
    /// An error, and whether it is terminal.
    Error(String, bool),
    /// With the failure of this request.
    AsFailed(Id),
}

/// A line that violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; the line is {line}")]
pub(super) struct BadLine {
    why: String,
    line: String,
}

impl BadLine {
    pub(super) fn new(line: &[u8], why: impl fmt::Display) -> Self {
        let why: String = why.to_string().chars().take(MAX_WHY).collect();
        Self { why: visible(&why), line: quoted(&String::from_utf8_lossy(line)) }
    }
}

/// The meaning of a line within a turn.
pub(super) fn read(line: &[u8]) -> Result<IncomingMessage, BadLine> {
    let bad = |why: &dyn fmt::Display| BadLine::new(line, why);
    let fields = object(line)?;
    if let Some(renamed) = renamed(&fields) {
        return Err(bad(&renamed));
    }
    let line = Line::deserialize(Value::Object(fields)).map_err(|error| bad(&error))?;
    line.meaning().map_err(|why| bad(&why))
}

/// The protocol version in the first line of a process. What else that line of another version holds is up to that version; one
/// of this version holds nothing else.
pub(super) fn read_ready(line: &[u8]) -> Result<u64, BadLine> {
    let fields = object(line)?;
    let bad = |why: &dyn fmt::Display| BadLine::new(line, why);
    if let Some(renamed) = renamed(&fields) {
        return Err(bad(&renamed));
    }
    if fields.get("type").and_then(Value::as_str) != Some("ready") {
        return Err(bad(&"the first line has to be of type `ready`"));
    }
    let Some(version) = fields.get("protocol").and_then(Value::as_u64) else {
        return Err(bad(&"`ready` has to say the version that is spoken, as the number `protocol`"));
    };
    match fields.keys().find(|field| !matches!(field.as_str(), "type" | "protocol")) {
        Some(unknown) if version == VERSION => {
            Err(bad(&format!("unknown field `{unknown}`, expected `type` or `protocol`")))
        }
        Some(_) | None => Ok(version),
    }
}

/// The error about a process of another protocol version, with the changes that it needs.
pub(super) fn refused_version(version: u64) -> String {
    let change = match version {
        1 => {
            "in which the field `is_marked` is `is_tainted` and the message `mark` is `taint`; rename both in the program, and \
             have it send version 2 (docs/process-agents.md)"
        }
        _ => "which docs/process-agents.md describes; use a program that speaks it",
    };
    format!("speaks version {version} of the protocol, and callboard speaks version {VERSION}, {change}")
}

/// The error text about lines that are not allowed here, besides the lines themselves.
pub(super) fn hint_of_misplaced(lines: &[u8]) -> Option<&'static str> {
    let first = lines.split(|byte| *byte == b'\n').next()?;
    renamed(&object(first).ok()?)
}

/// The new name of a message of version 1.
fn renamed(fields: &Map<String, Value>) -> Option<&'static str> {
    (fields.get("type")?.as_str()? == "mark").then_some("`mark` is called `taint`")
}

/// The object of a line. A repeated key at any depth is refused, because it would be unclear which value counts.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, BadLine> {
    match json::parse(line) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err(BadLine::new(line, "it is no JSON object"))
        }
        Err(error) => Err(BadLine::new(line, format!("it is no JSON object: {error}"))),
    }
}

impl Line {
    fn meaning(self) -> Result<IncomingMessage, &'static str> {
        let seconds = Duration::from_secs;
        Ok(match self {
            Self::Step { class: StepClass::Pure | StepClass::Idempotent, on_unknown: Some(_), .. } => {
                return Err("`on_unknown` is for a step of the class \"once\"");
            }
            Self::Step { id, name, class, target, arguments, on_unknown, tool } => {
                let once = (class == StepClass::Once).then(|| (Intent::new(&name, &target, &arguments), on_unknown));
                IncomingMessage::Request(id, Request::Step { name, once, is_tool: tool })
            }
            Self::StepDone { id, value } => IncomingMessage::StepDone(id, value),
            Self::Delegate { id, to, body, input, tokens, deadline_seconds, sees, reference, detach } => {
                let (deadline, is_detached) = (deadline_seconds.map(seconds), detach);
                let delegate = Delegate { to, body, input, tokens, deadline, sees, reference, is_detached };
                IncomingMessage::Request(id, Request::Delegate(delegate))
            }
            Self::Ask { id, question } => IncomingMessage::Request(id, Request::Ask(question)),
            Self::Approve { id, action, target, arguments, each_time, reason } => {
                let action = Action::new(&action, &target, arguments);
                IncomingMessage::Request(id, Request::Approve { action, each_time, reason })
            }
            Self::CheckHandoff { id, goto } => {
                IncomingMessage::Request(id, Request::CheckHandoff(Box::new(Command { goto, ..Command::default() })))
            }
            Self::ContextGet { id, namespace, key } => entry(id, Entry::Get { namespace, key }),
            Self::ContextSet { id, namespace, key, value, ttl_seconds, if_revision } => {
                let (ttl, expected) = (ttl_seconds.map(seconds), if_revision);
                entry(id, Entry::Set { namespace, key, value, ttl, expected })
            }
            Self::ContextQuery { id, namespace, prefix, limit } => entry(id, Entry::Query { namespace, prefix, limit }),
            Self::ContextSearch { id, namespaces, limit } => entry(id, Entry::Search { namespaces, limit }),
            Self::ContextTouch { id, namespace, key, ttl_seconds } => {
                entry(id, Entry::Touch { namespace, key, ttl: ttl_seconds.map(seconds) })
            }
            Self::ContextDelete { id, namespace, key } => entry(id, Entry::Delete { namespace, key }),
            Self::Reserve { id, tokens } => IncomingMessage::Request(id, Request::Reserve(tokens)),
            Self::Settle { id, reservation, input_tokens, output_tokens } => {
                IncomingMessage::Request(id, Request::Settle(reservation, Some(Usage::of(input_tokens, output_tokens))))
            }
            Self::Release { id, reservation } => IncomingMessage::Request(id, Request::Settle(reservation, None)),
            Self::Notice { text } => IncomingMessage::Notice(shortened(text)),
            Self::Taint { source } => IncomingMessage::Taint(shortened(source)),
            Self::Command { turn, output, update, overwrite, goto, scope, keeps_edges } => {
                let scope = match scope {
                    PlanScope::Current => Scope::Current,
                    PlanScope::Parent => Scope::Parent,
                };
                let mut command = Command { output, goto, scope, keeps_edges, ..Command::default() };
                for (writes, overwrites) in [(update, false), (overwrite, true)] {
                    for (channel, value) in writes {
                        command.update.push(&channel, value.into(), overwrites);
                    }
                }
                IncomingMessage::TurnEnd(turn, Ending::Command(Box::new(command)))
            }
            Self::Error { turn, text: Some(text), of: None, terminal } => {
                IncomingMessage::TurnEnd(turn, Ending::Error(shortened(text), terminal))
            }
            Self::Error { turn, text: None, of: Some(id), terminal: false } => {
                IncomingMessage::TurnEnd(turn, Ending::AsFailed(id))
            }
            Self::Error { .. } => {
                return Err("an error has a `text`, and may be `terminal`; or it has an `of`, and neither of those");
            }
        })
    }
}

fn entry(id: Id, entry: Entry) -> IncomingMessage {
    IncomingMessage::Request(id, Request::Context(entry))
}

/// A text within the limit: what was cut is noted.
fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        None => text,
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
    }
}

/// A field that is present, also if it is null.
pub(super) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

/// A revision, or null for an entry that must not exist.
fn revision<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

fn goto<'de, D: Deserializer<'de>>(from: D) -> Result<Goto, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct One {
        to: String,
        input: Json,
    }
    match Value::deserialize(from)? {
        Value::Null => Ok(Goto::Next),
        Value::String(name) if name == "end" => Ok(Goto::End),
        Value::String(name) => Ok(Goto::Agent(name.into())),
        list @ Value::Array(_) => {
            let sends = Vec::<One>::deserialize(list).map_err(|error| de::Error::custom(format!("`goto`: {error}")))?;
            Ok(Goto::Many(sends.into_iter().map(|One { to, input }| SendTo::new(&to, input)).collect()))
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            Err(de::Error::custom("`goto` is a name, \"end\", or a list of {\"to\", \"input\"}"))
        }
    }
}

fn strategy<'de, D: Deserializer<'de>>(from: D) -> Result<ContextStrategy, D::Error> {
    let refuse = || de::Error::custom("`sees` is \"none\", \"all\", or a list of channels");
    match Value::deserialize(from)? {
        Value::String(word) if word == "none" => Ok(ContextStrategy::None),
        Value::String(word) if word == "all" => Ok(ContextStrategy::Full),
        list @ Value::Array(_) => {
            Vec::<Arc<str>>::deserialize(list).map(ContextStrategy::Channels).map_err(|_| refuse())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => Err(refuse()),
    }
}

#[cfg(test)]
mod tests;
