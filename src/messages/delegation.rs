//! Delegations: what is asked, where it stands, and what came of it (SEMANTICS 11).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Json, Outcome};

/// A task that a turn gives to another agent, as [`Turn::delegate`](crate::actors::Turn::delegate) builds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The name, role or capability as the agent wrote it.
    pub to: Arc<str>,
    /// The task in words. It becomes the task of the delegation's step in the [`Chain`](super::Chain).
    pub body: Arc<str>,
    /// The input of the delegated turn: the body, unless [`Delegation::input`](crate::actors::Delegation::input) sets
    /// another.
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
    /// The named channels alone; a name that the state does not hold is left out.
    Channels(Vec<Arc<str>>),
    /// All channels, as the asking turn's branch holds them when the delegation is admitted.
    Full,
}

/// Where a delegation stands. Statuses only move forward, and one of the last two comes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The delegation was admitted, and the actor of its target is there, whether or not the target has begun. If it is away, this
    /// comes when it announces itself.
    Ack,
    /// A turn that works on the delegation reported progress with [`Turn::notice`](crate::actors::Turn::notice).
    Notice,
    /// The delegated branch finished: its output is the answer.
    Complete,
    /// The delegation was refused, or its branch ended with an outcome other than [`Outcome::Finished`], as after its
    /// deadline.
    Fail,
}

impl Status {
    /// Returns whether no other status can follow: `true` for [`Status::Complete`] and [`Status::Fail`].
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
    /// The output of the delegated branch; null if it has none, as after a failed turn or a deadline.
    pub output: Json,
}

/// The result of an earlier delegation of the same turn, for those that it asks after that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierAnswer {
    /// Whom it was given to, as the asking turn wrote it.
    pub to: Arc<str>,
    /// The earlier task in words ([`Order::body`]).
    pub body: Arc<str>,
    /// How the earlier delegation ended, with its output; it need not have finished.
    pub answer: Answer,
}

/// The input of a turn that is there because a detached delegation was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateAnswer {
    /// The [`RequestId`](super::RequestId) of the delegation as text, `RUN/TURN.ORDINAL`: the id that
    /// [`Delegation::detach`](crate::actors::Delegation::detach) returned.
    pub request: String,
    /// Whom it was given to, as the asking turn wrote it.
    pub to: Arc<str>,
    /// The task in words ([`Order::body`]).
    pub body: Arc<str>,
    /// How the delegation ended, with its output; it need not have finished.
    pub answer: Answer,
    /// The input of the turn that made the delegation.
    pub original_input: Json,
}
