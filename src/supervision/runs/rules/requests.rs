//! What a turn asks its run for, what it receives, and how its attempts end.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::messages::{
    Action, AgentName, Answer, Command, Decision, Failure, Intent, Json, OnUnknown, Order, Refusal, RequestId,
    Resolution, Usage,
};

/// The largest command, in bytes of its parts as text.
pub(crate) const MAX_COMMAND: usize = 8 << 20;

/// A request by its place in its run. In bytes it is as a pair of both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct RequestKey {
    /// The number of the asking turn.
    pub(crate) turn: u32,
    /// Which of the turn's requests: a repeated attempt asks again under the same ordinal.
    pub(crate) ordinal: u32,
}

impl From<RequestId> for RequestKey {
    fn from(RequestId { turn, ordinal }: RequestId) -> Self {
        Self { turn: turn.number, ordinal }
    }
}

/// Which try of a turn, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Attempt(pub(crate) u32);

impl Attempt {
    /// The first try.
    pub(crate) const FIRST: Self = Self(1);

    /// The try after this one.
    #[must_use]
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A request of a turn to its run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TurnRequest {
    /// To have everything so far on disk, because the step of this name is about to have effects.
    StartStep(Arc<str>),
    /// To keep a step's result.
    FinishStep(Arc<str>, Json),
    /// To have on disk what the turn is about to do and must not repeat by itself; `round` says which time it is begun.
    Intend {
        /// What.
        intent: Intent,
        /// How often it was begun or asked about before.
        round: u32,
    },
    /// To keep how something failed that must not be repeated by itself.
    FailStep(Arc<str>, Failure),
    /// To know what is to follow an intent without a result.
    Resolve {
        /// What was begun.
        intent: Intent,
        /// How often it was begun or asked about before.
        round: u32,
        /// The rule of the tool or the agent; the board's if neither has one.
        on_unknown: Option<OnUnknown>,
        /// What was wrong with the answer before.
        problem: Option<Arc<str>>,
    },
    /// To have another agent do something, and wait for it.
    Delegate(Order),
    /// To have people answer.
    Ask {
        /// What.
        question: Json,
        /// How long they have; without limit if unset.
        ttl: Option<Duration>,
    },
    /// To have people consent.
    Approve {
        /// To what.
        action: Action,
        /// Whatever they have decided for the whole run.
        each_time: bool,
    },
    /// To set tokens aside.
    Reserve {
        /// How many.
        tokens: u64,
        /// What they are for continues over attempts: those that an attempt before has set aside are taken over.
        continues: bool,
    },
    /// To count what a reservation was used for.
    Settle(Option<Usage>),
    /// To know whether control may go where this command has it go.
    CheckHandoff(Arc<Command>),
    /// To have an agent for the rest of the run, or to change one that the asking agent has made.
    MakeAgent {
        /// What it is called by.
        name: Arc<str>,
        /// What it is, as the asking agent reads it.
        draft: Json,
        /// It is there.
        is_change: bool,
    },
    /// To taint what comes after the turn: it has read untrusted input.
    Taint(Arc<str>),
    /// To show observers a notice.
    Notice(Arc<str>),
}

impl TurnRequest {
    /// Whether it holds JSON that nests deeper than can be stored.
    #[must_use]
    pub(crate) fn is_too_deep(&self) -> bool {
        match self {
            Self::FinishStep(_, json) | Self::Ask { question: json, .. } => json.is_too_deep(),
            Self::Delegate(order) => order.input.is_too_deep(),
            Self::Approve { action, .. } => action.arguments.is_too_deep(),
            Self::CheckHandoff(command) => command.is_too_deep(),
            Self::MakeAgent { draft, .. } => draft.is_too_deep(),
            Self::StartStep(_)
            | Self::Intend { .. }
            | Self::FailStep(..)
            | Self::Resolve { .. }
            | Self::Reserve { .. }
            | Self::Settle(_)
            | Self::Taint(_)
            | Self::Notice(_) => false,
        }
    }
}

/// What a turn receives for a request.
#[derive(Debug)]
pub(crate) enum TurnReply {
    /// It is on disk.
    Done,
    /// The reservation's number, or why there is none.
    Reserved(Result<u32, Refusal>),
    /// That of one that an attempt before has set aside.
    TakenOver(u32),
    /// The delegation's answer, or why there is none.
    Delegated {
        /// The answer.
        answer: Result<Answer, Refusal>,
        /// By then the run had read untrusted input.
        is_tainted: bool,
    },
    /// Why control may not go, if it may not.
    Checked(Option<Refusal>),
    /// The agent, or why there is none.
    Made(Result<AgentName, Refusal>),
    /// The answer to a question.
    Answered(Json),
    /// No answer came in time.
    QuestionExpired,
    /// What is to follow an unknown outcome.
    Resolved(Resolution),
    /// The decision, with the arguments that were approved.
    Decided(Decision, Action),
    /// An earlier attempt asked for something else under this ordinal.
    Changed(String),
    /// The attempt is no longer wanted.
    Gone,
}

/// How an attempt ended, as the agent's side saw it.
#[derive(Clone, Debug)]
pub(crate) enum TurnOutcome {
    /// The agent returned a command.
    Command(Command),
    /// The attempt failed.
    Failed(Failure),
}
