//! Effects outside of the runtime: whether they may be repeated, and what follows when it is not known whether one happened.

use std::fmt;
use std::sync::Arc;

use callboard_text::{cut, quoted};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Json, Timestamp};

/// Whether an effect outside of the runtime may happen again (SEMANTICS 14). What kind of change it is, is its
/// [`Effect`](super::Effect).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// It changes nothing outside: it may run again.
    Pure,
    /// It may run again: the outside system recognises its key, or a repetition changes nothing.
    Idempotent,
    /// It must not run again by itself. Its intent is journaled and synced before it begins.
    Once,
}

/// What follows when it is unknown whether a `once` effect has happened (SEMANTICS 14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// A person decides whether the effect happened. If nobody answers before the question expires, the turn fails.
    #[default]
    Ask,
    /// The caller receives an error of the kind [`FailureKind::OutcomeUnknown`](super::FailureKind::OutcomeUnknown) and
    /// continues; a model reads that the tool may have run.
    Report,
    /// The turn fails with [`FailureKind::OutcomeUnknown`](super::FailureKind::OutcomeUnknown).
    Fail,
    /// The effect is carried out again, although it may have happened already.
    Repeat,
}

impl OnUnknown {
    /// Returns the value of `on_unknown` in files: `ask`, `report`, `fail` or `repeat`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Report => "report",
            Self::Fail => "fail",
            Self::Repeat => "repeat",
        }
    }
}

/// What a turn is about to do that must not be repeated by itself.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// The name of the step or tool.
    pub name: Arc<str>,
    /// What it is done to, for the person who is asked; may be empty.
    pub target: Arc<str>,
    /// SHA-256 of the canonical arguments.
    pub arguments: [u8; 32],
    /// What the outside state was before, noted so that it can be found out later whether it happened; null if nothing was noted.
    pub before: Json,
}

impl Intent {
    /// The intent to do something with these arguments.
    #[must_use]
    pub fn new(name: &str, target: &str, arguments: &Json) -> Self {
        let arguments = Sha256::digest(arguments.canonical()).into();
        Self { name: name.into(), target: target.into(), arguments, before: Json::null() }
    }

    /// Whether both are to do the same, whatever was there before.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.target, &self.arguments) == (&other.name, &other.target, &other.arguments)
    }

    /// The hash of the arguments in hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> String {
        self.arguments.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Name and target, such as `charge order 7`; the name alone if there is no target. Long ones are cut.
impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cut(&self.name))?;
        if self.target.is_empty() { Ok(()) } else { write!(f, " {}", cut(&self.target)) }
    }
}

impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, target, .. } = self;
        f.debug_struct("Intent").field("name", name).field("target", target).field("arguments", &self.digest()).finish()
    }
}

/// What a tool or step finds out about an effect that it may have had.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled<T = Json> {
    /// The effect happened. The turn receives this result.
    Done(T),
    /// The effect did not happen. It is carried out now.
    NotDone,
    /// It cannot be found out whether the effect happened. [`OnUnknown`] decides what follows.
    Unknown,
}

/// How it was settled that the outcome of an effect was unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Resolution {
    /// The effect happened. The turn receives this result; if it does not have the type that the turn expects, the
    /// question is asked again.
    Done(Json),
    /// The effect is carried out again: a person decided so, or [`OnUnknown::Repeat`].
    Repeat,
    /// The turn fails: a person gave up, the question expired, or [`OnUnknown::Fail`] decided so.
    GiveUp,
    /// The caller receives an error and may continue, as [`OnUnknown::Report`] decided.
    Report,
}

/// The answers that [`Resolution::of_answer`] takes, besides an object with the result.
const RUN_AGAIN: &str = "run it again";
const GIVE_UP: &str = "give up";

impl Resolution {
    /// Parses a person's answer: `"run it again"`, `"give up"` or `{"done": RESULT}`.
    #[must_use]
    pub fn of_answer(answer: &Json) -> Option<Self> {
        match answer.value() {
            serde_json::Value::String(text) if text == RUN_AGAIN => Some(Self::Repeat),
            serde_json::Value::String(text) if text == GIVE_UP => Some(Self::GiveUp),
            serde_json::Value::Object(fields) if fields.len() == 1 => {
                fields.get("done").map(|result| Self::Done(result.clone().into()))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(result) => write!(f, "it was done: {}", cut(&result.to_string())),
            Self::Repeat => f.write_str(RUN_AGAIN),
            Self::GiveUp => f.write_str(GIVE_UP),
            Self::Report => f.write_str("the agent is notified that it may have run"),
        }
    }
}

/// A question to a person about an effect whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedOutcome {
    /// Random part of the question's id ([`QuestionId::nonce`](super::QuestionId::nonce)): an answer to an earlier
    /// question is refused.
    pub nonce: u64,
    /// When the question was asked, by the wall clock.
    pub at: Timestamp,
    /// When the question expires. Without an answer by then, it is resolved as [`Resolution::GiveUp`].
    pub expires_at: Timestamp,
    /// Why the result in the answer before did not fit; `None` if no answer was rejected.
    pub problem: Option<Arc<str>>,
}

impl AskedOutcome {
    /// The question as people read it and programs parse it.
    #[must_use]
    pub fn question(&self, intent: &Intent) -> Json {
        let problem = self.problem.as_ref().map(|problem| format!("{problem} ")).unwrap_or_default();
        let text = format!(
            "{problem}{intent} was begun, and its result was lost: it may have run. Look whether it has, and answer \
             {}, {} or {{\"done\": RESULT}} if it was done. Without an answer the turn gives up at {}.",
            quoted(RUN_AGAIN),
            quoted(GIVE_UP),
            self.expires_at
        );
        json!({
            "question": text,
            "choices": [RUN_AGAIN, GIVE_UP],
            "outcome_unknown": { "name": intent.name, "target": intent.target, "arguments_sha256": intent.digest() },
        })
        .into()
    }
}
