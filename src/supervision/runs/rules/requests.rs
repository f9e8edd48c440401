//! The requests of turns to their runs, the replies, and the outcomes of attempts.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::messages::{
    Action, AgentLimit, AgentName, Answer, Command, Cost, Decision, Failure, Intent, Json, OnUnknown, Order, Rationale,
    Refusal, RequestId, Resolution, Usage,
};

use super::budget::Share;
/// The largest command, in bytes of its parts as text.
pub(crate) const MAX_COMMAND: usize = 8 << 20;

/// The key of a request in its run. It is encoded as a pair of both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct RequestKey {
    /// The number of the asking turn.
    pub(crate) turn: u32,
    /// The index of the request in its turn: a repeated attempt asks again under the same ordinal.
    pub(crate) ordinal: u32,
}

impl From<RequestId> for RequestKey {
    fn from(RequestId { turn, ordinal }: RequestId) -> Self {
        Self { turn: turn.number, ordinal }
    }
}

/// The number of an attempt of a turn, from 1.
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
    /// Write everything so far to disk, because the step of this name is about to have effects.
    StartStep(Arc<str>),
    /// Record a step's result.
    FinishStep {
        /// The name of the step.
        name: Arc<str>,
        /// The result.
        value: Json,
        /// The step was a use of the tool of this name.
        is_tool: bool,
    },
    /// Write to disk an effect that the turn is about to begin and must not repeat by itself; `round` counts its begins.
    Intend {
        /// The effect.
        intent: Intent,
        /// How often it was begun or asked about before.
        round: u32,
        /// The effect is a use of the tool of this name.
        is_tool: bool,
    },
    /// Record the failure of a step that must not be repeated by itself.
    FailStep(Arc<str>, Failure),
    /// Decide what follows an intent without a result.
    Resolve {
        /// The intent that was begun.
        intent: Intent,
        /// How often it was begun or asked about before.
        round: u32,
        /// The rule of the tool or the agent; the board's if neither has one.
        on_unknown: Option<OnUnknown>,
        /// The problem of the previous answer.
        problem: Option<Arc<str>>,
    },
    /// Delegate a task and wait for the answer.
    Delegate(Order),
    /// Read where the delegation with this ordinal stands. It is not journaled.
    Status {
        /// The turn waits for the answer: if that would never come, the reply is the refusal.
        waits: bool,
    },
    /// The turn does not wait for the answer to the delegation with this ordinal any more.
    EndWait,
    /// Ask people a question.
    Ask {
        /// The question.
        question: Json,
        /// The time to live of the question; without limit if unset.
        ttl: Option<Duration>,
    },
    /// Ask people for consent.
    Approve {
        /// The action to approve.
        action: Action,
        /// Asks even if people have approved the action for the whole run.
        each_time: bool,
        /// Why people are asked.
        rationale: Rationale,
    },
    /// Reserve tokens.
    Reserve {
        /// The number of tokens.
        tokens: u64,
        /// The most that the call may cost, if that is known.
        cost: Option<Cost>,
        /// The day and the board that it is charged to, if a limit of a day counts it.
        charged: Option<(u32, Arc<str>)>,
        /// What the asking agent may use in the run.
        of_agent: AgentLimit,
        /// The call continues over attempts: the reservation of an earlier attempt is taken over.
        continues: bool,
        /// A share of what is left is reserved instead ([`Budget::share`](super::budget::Budget::share)).
        is_share: bool,
    },
    /// Settle a reservation with what was used.
    Settle(Settled),
    /// Check whether the guard would admit this command's handoff.
    CheckHandoff(Arc<Command>),
    /// Create an agent for the rest of the run, or change one that the asking agent has created.
    MakeAgent {
        /// The agent's short name.
        name: Arc<str>,
        /// The agent's definition, in the form that the asking agent's kind reads.
        draft: Json,
        /// The agent exists and is changed.
        is_change: bool,
    },
    /// Taint everything after the turn: it has read untrusted input.
    Taint(Arc<str>),
    /// Show observers a notice.
    Notice(Arc<str>),
    /// Journal what the turn has done, in a line.
    Summary(Arc<str>),
}

impl TurnRequest {
    /// Whether it contains JSON that is nested too deep to be stored.
    #[must_use]
    pub(crate) fn is_too_deep(&self) -> bool {
        match self {
            Self::FinishStep { value: json, .. } | Self::Ask { question: json, .. } => json.is_too_deep(),
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
            | Self::Status { .. }
            | Self::EndWait
            | Self::Taint(_)
            | Self::Notice(_)
            | Self::Summary(_) => false,
        }
    }
}

/// What a call has reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// `None` if it is known not to have been sent.
    pub(crate) usage: Option<Usage>,
    /// The model that has answered, if it is known.
    pub(crate) model: Option<Arc<str>>,
    /// It is the usage of a run that the turn began.
    pub(crate) is_of_run: bool,
}

/// The reply to a request of a turn.
#[derive(Debug)]
pub(crate) enum TurnReply {
    /// It is on disk.
    Done,
    /// The reservation's number, or why there is none.
    Reserved(Result<u32, Box<Refusal>>),
    /// The number of a reservation that an earlier attempt has made.
    TakenOver(u32),
    /// A share of what was left is set aside, or was by an earlier attempt.
    Shared { number: u32, is_new: bool, share: Share },
    /// The delegation's answer, or why there is none.
    Delegated {
        /// The answer, shared with the turn's record.
        answer: Arc<Result<Answer, Refusal>>,
        /// The run had read untrusted input by the time of the answer.
        is_tainted: bool,
    },
    /// The delegation, if it is one of this turn: to whom the task was given, and the answer if there is one yet.
    Status(Option<Box<Delegated>>),
    /// The refusal of the handoff, if it would be refused.
    Checked(Option<Box<Refusal>>),
    /// The agent, or why there is none.
    Made(Result<AgentName, Box<Refusal>>),
    /// The answer to a question.
    Answered(Json),
    /// The question expired without an answer.
    QuestionExpired,
    /// The decision about an unknown outcome.
    Resolved(Resolution),
    /// The decision, with the arguments that were approved.
    Decided(Box<(Decision, Action)>),
    /// An earlier attempt made another request under this ordinal.
    Changed(String),
    /// The attempt is obsolete.
    Gone,
}

/// Where a delegation stands.
#[derive(Clone, Debug)]
pub(crate) struct Delegated {
    /// The name, role or capability that was asked for.
    pub(crate) to: Arc<str>,
    /// The turn gave it away, and does not wait for it unless it asks to.
    pub(crate) is_detached: bool,
    /// The answer, or why there is none; `None` while the delegation is open.
    pub(crate) answer: Option<Arc<Result<Answer, Refusal>>>,
    /// The run had read untrusted input by the time of the answer.
    pub(crate) is_tainted: bool,
}

/// The outcome of an attempt, as the worker reports it.
#[derive(Clone, Debug)]
pub(crate) enum TurnOutcome {
    /// The agent returned a command.
    Command(Command),
    /// The attempt failed.
    Failed(Failure),
}
