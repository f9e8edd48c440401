//! What an event asks the machinery to do, and what deciding about an event has computed already.

use std::sync::Arc;

use crate::messages::state::Delta;
use crate::messages::{AgentName, Answer, ApprovalId, State, Timestamp};
use crate::supervision::runs::rules::guard::Fingerprint;
use crate::supervision::runs::rules::requests::RequestKey;

/// What an event asks the actors to do, once it is journaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The turn may be taken.
    Start(u32),
    /// The turn waits for a person.
    Interrupted(u32),
    /// The turn may be taken again at this time.
    Retry(u32, Timestamp),
    /// The turn is over. A worker that still has it is to stop.
    Close {
        /// The turn.
        turn: u32,
        /// Whose it was.
        agent: AgentName,
        /// The turn that waited for its branch, with its agent.
        waiter: Option<(u32, AgentName)>,
    },
    /// The deadline of a delegation or question is to be armed.
    ArmDeadline {
        /// The delegation or question.
        request: RequestKey,
        /// By when.
        at: Timestamp,
    },
    /// A request of a turn has its answer.
    Reply(RequestKey),
    /// A delegation was answered.
    Answered(Box<Answered>),
    /// A decision is needed.
    RequestApproval(RequestKey),
    /// A decision is no longer needed.
    WithdrawApproval(ApprovalId),
    /// It is to be found out when the run's turn in its conversation comes.
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

/// What deciding about an event has worked out already. It follows from the run and the event alone, so replay, which
/// has none of it, computes it again with the same result.
#[derive(Debug, Default)]
pub(crate) struct WorkedOut {
    /// The view and the deltas that an ended turn's update makes.
    pub(in crate::supervision::runs) settled: Option<(State, Vec<Delta>)>,
    /// The fingerprint of the handoff that it ends with.
    pub(in crate::supervision::runs) fingerprint: Option<Fingerprint>,
}

/// A delegation and what came of it.
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
