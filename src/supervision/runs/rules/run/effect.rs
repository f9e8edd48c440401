//! The effects of events, and values that deciding about an event has already computed.

use std::sync::Arc;

use crate::messages::state::Delta;
use crate::messages::{AgentName, Answer, ApprovalId, State, Timestamp};
use crate::supervision::runs::rules::guard::Fingerprint;
use crate::supervision::runs::rules::requests::RequestKey;

/// An effect of an event, to be carried out once the event is journaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The turn may start.
    Start(u32),
    /// The turn waits for a person.
    Interrupted(u32),
    /// The turn may be retried at this time.
    Retry(u32, Timestamp),
    /// The turn is over. A worker that still runs it is to stop.
    Close {
        /// The turn.
        turn: u32,
        /// The turn's agent.
        agent: AgentName,
        /// The turn that waited for its branch, with its agent.
        waiter: Option<(u32, AgentName)>,
    },
    /// The turn is over, and the run that it is at another board is to be cancelled, unless this event has ended the run.
    CancelElsewhere(u32),
    /// Arm the deadline of a delegation or question.
    ArmDeadline {
        /// The delegation or question.
        request: RequestKey,
        /// The deadline.
        at: Timestamp,
    },
    /// A request of a turn has its answer.
    Reply(RequestKey),
    /// A delegation was answered.
    Answered(Box<Answered>),
    /// Ask people for a decision.
    RequestApproval(RequestKey),
    /// Withdraw the question.
    WithdrawApproval(ApprovalId),
    /// Find out when the run may start in its conversation.
    EnterConversation,
    /// The run has its result.
    Ended,
}

impl Effect {
    /// The turn that may be taken, or waits for a person.
    #[must_use]
    pub(crate) fn begun(&self) -> Option<u32> {
        match self {
            Self::Start(turn) | Self::Interrupted(turn) => Some(*turn),
            Self::Close { .. }
            | Self::Retry(..)
            | Self::CancelElsewhere(_)
            | Self::ArmDeadline { .. }
            | Self::Reply(_)
            | Self::Answered(_)
            | Self::RequestApproval(_)
            | Self::WithdrawApproval(_)
            | Self::EnterConversation
            | Self::Ended => None,
        }
    }

    /// The turn that is over.
    #[must_use]
    pub(crate) fn closed(&self) -> Option<u32> {
        match self {
            Self::Close { turn, .. } => Some(*turn),
            Self::Start(_)
            | Self::Interrupted(_)
            | Self::Retry(..)
            | Self::CancelElsewhere(_)
            | Self::ArmDeadline { .. }
            | Self::Reply(_)
            | Self::Answered(_)
            | Self::RequestApproval(_)
            | Self::WithdrawApproval(_)
            | Self::EnterConversation
            | Self::Ended => None,
        }
    }
}

/// Values that were computed while deciding about an event. They follow from the run and the event alone, so a replay, which does
/// not have them, computes them again with the same result.
#[derive(Debug, Default)]
pub(crate) struct WorkedOut {
    /// The view and the deltas that an ended turn's update makes.
    pub(in crate::supervision::runs) settled: Option<(State, Vec<Delta>)>,
    /// The fingerprint of the handoff that it ends with.
    pub(in crate::supervision::runs) fingerprint: Option<Fingerprint>,
}

/// A delegation and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    /// Which one.
    pub request: RequestKey,
    /// Who asked.
    pub asker: AgentName,
    /// Whom, as the asking turn wrote it.
    pub to: Arc<str>,
    /// The answer.
    pub answer: Answer,
    /// When the event that brought it happened.
    pub at: Timestamp,
    /// How many events the run had with it.
    pub sequence: u64,
}
