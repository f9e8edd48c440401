//! Delegations: what is asked, where it stands, and what came of it (SEMANTICS 11).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Json, Outcome};

/// What a delegation asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The name, role or capability as the agent wrote it.
    pub to: Arc<str>,
    /// What to do, in words.
    pub body: Arc<str>,
    /// What to work on.
    pub input: Json,
    /// An outside resource that the task is about.
    pub reference: Option<Arc<str>>,
    /// The asking turn does not wait: the answer comes with a turn of its own.
    pub is_detached: bool,
    /// What the delegated turns may reserve together, within what their parent may.
    pub tokens: Option<u64>,
    /// How long the answer may take, within what is left to the parent.
    pub deadline: Option<Duration>,
    /// What the delegated turns see of the state.
    pub sees: ContextStrategy,
}

impl Order {
    /// A task for the agent that the target resolves to; the input is the body.
    #[must_use]
    pub fn new(to: &str, body: &str) -> Self {
        Self {
            to: to.into(),
            body: body.into(),
            input: Json::from(body),
            reference: None,
            is_detached: false,
            tokens: None,
            deadline: None,
            sees: ContextStrategy::None,
        }
    }
}

/// How much of its parent's state a delegated turn sees (SEMANTICS 5). What it writes goes back to the parent whatever it
/// saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContextStrategy {
    /// Nothing: its input has to contain everything.
    #[default]
    None,
    /// These channels.
    Channels(Vec<Arc<str>>),
    /// All of it.
    Full,
}

/// Where a delegation stands. Statuses only move forward, and one of the last two comes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The target has it.
    Ack,
    /// The target reports progress.
    Notice,
    /// The answer is there.
    Complete,
    /// There will be no answer.
    Fail,
}

impl Status {
    /// Whether nothing comes after it.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Complete | Self::Fail => true,
            Self::Ack | Self::Notice => false,
        }
    }

    /// Whether `next` may follow: never after a terminal status, and never back to `Ack`.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        !self.is_terminal() && !matches!(next, Self::Ack)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ack => "ack",
            Self::Notice => "notice",
            Self::Complete => "complete",
            Self::Fail => "fail",
        })
    }
}

/// How a delegation ended, with its output. A turn that awaits a [`Delegation`](crate::actors::Delegation) receives the output of a
/// finished one alone; [`EarlierAnswer`] and [`LateAnswer`] have the whole answer.
///
/// What a person answers is no `Answer`: to a question it is a JSON value, and to anything that waits a [`Response`](super::Response).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// How the delegated branch ended.
    pub outcome: Outcome,
    /// Its output.
    pub output: Json,
}

/// The result of an earlier delegation of the same turn, for those that it asks after that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierAnswer {
    /// Whom it was given to, as the asking turn wrote it.
    pub to: Arc<str>,
    /// What was asked.
    pub body: Arc<str>,
    /// What came of it.
    pub answer: Answer,
}

/// The input of a turn that is there because a detached delegation was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateAnswer {
    /// The delegation.
    pub request: String,
    /// Whom it was given to, as the asking turn wrote it.
    pub to: Arc<str>,
    /// What was asked.
    pub body: Arc<str>,
    /// What came of it.
    pub answer: Answer,
    /// What the asking turn worked on.
    pub original_input: Json,
}
