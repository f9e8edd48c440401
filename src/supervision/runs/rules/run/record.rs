//! What an open turn has asked its run for, with the answers: a repeated attempt is answered from here.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::{Delta, RunFigures};
use crate::messages::{
    Action, AgentName, Answer, AskedOutcome, Decision, Envelope, Failure, Intent, Json, Order, Refusal, Resolution,
    Timestamp,
};

pub(crate) use crate::messages::HANDOFF_ORDINAL;

/// The ordinal under which the answer to a detached delegation comes with the turn that it caused.
pub(in crate::supervision::runs) const LATE_ORDINAL: u32 = u32::MAX - 1;

/// The ordinal under which a turn has what its run had used when it was admitted. It is nothing that the turn asked for.
pub(in crate::supervision::runs) const FIGURES_ORDINAL: u32 = u32::MAX - 2;

/// What a turn asked for, and the answer if there is one yet. A repeated attempt is answered from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// A step that has begun.
    StepStarted {
        /// Its name.
        name: Arc<str>,
    },
    /// A step and its result.
    Step {
        /// Its name.
        name: Arc<str>,
        /// Its result.
        value: Json,
        /// The turn had read untrusted input by then, so a turn that is given the result is tainted too.
        is_tainted: bool,
    },
    /// A delegation.
    Delegation {
        /// What was asked.
        order: Order,
        /// The answer, or why there will be none.
        reply: Option<Result<Answer, Refusal>>,
        /// When it was asked and answered, in events; what the child wrote.
        deltas: ChildDeltas,
    },
    /// A question to people.
    Question {
        /// What was asked.
        question: Json,
        /// Part of the question's id.
        nonce: u64,
        /// When.
        asked_at: Timestamp,
        /// The answer.
        answer: Option<Json>,
    },
    /// A request for consent.
    Approval {
        /// The exact question.
        envelope: Box<Envelope>,
        /// What the turn asked for, if people have changed it.
        asked: Option<Box<Action>>,
        /// The decision.
        decision: Option<Decision>,
    },
    /// An agent that was made, or changed.
    Made {
        /// What it is called by.
        name: Arc<str>,
        /// What it is.
        draft: Json,
        /// It was there before.
        is_change: bool,
        /// The agent, or why there is none.
        made: Result<AgentName, Refusal>,
    },
    /// Whether control might go.
    HandoffCheck {
        /// To whom.
        to: Vec<Arc<str>>,
        /// Why not, if not.
        refusal: Option<Refusal>,
    },
    /// Something that must not be repeated by itself was begun.
    Once(Once),
    /// Something that must not be repeated by itself has failed.
    StepFailed {
        /// Its name.
        name: Arc<str>,
        /// How.
        failure: Failure,
        /// As for a step.
        is_tainted: bool,
    },
    /// A question to people that expires.
    TimedQuestion {
        /// What was asked.
        question: Json,
        /// Part of the question's id.
        nonce: u64,
        /// When.
        asked_at: Timestamp,
        /// When the turn continues without an answer.
        expires_at: Timestamp,
        /// What came of it.
        state: QuestionState,
    },
    /// What the run had used when the turn was admitted.
    Figures(RunFigures),
}

impl Record {
    /// Whether people are to decide or answer it before its turn continues.
    pub(super) fn waits_for_people(&self) -> bool {
        match self {
            Self::Question { answer, .. } => answer.is_none(),
            Self::TimedQuestion { state, .. } => matches!(state, QuestionState::Open),
            Self::Approval { decision, .. } => decision.is_none(),
            Self::Once(once) => matches!(once.state, OnceState::Asked(_)),
            Self::StepStarted { .. }
            | Self::Step { .. }
            | Self::StepFailed { .. }
            | Self::Delegation { .. }
            | Self::HandoffCheck { .. }
            | Self::Figures(_)
            | Self::Made { .. } => false,
        }
    }
}

/// What came of a question that expires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum QuestionState {
    /// Nothing yet.
    Open,
    /// An answer.
    Answered(Json),
    /// No answer came in time.
    Expired,
}

/// An effect that must not be repeated by itself and whose result the runtime does not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Once {
    /// What was begun.
    pub intent: Intent,
    /// How often it was begun or asked about before: distinguishes a repeated request from a new one.
    pub round: u32,
    /// What is known about it.
    pub state: OnceState,
}

/// What is known about a `once` effect without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum OnceState {
    /// It was begun.
    Begun,
    /// A person is asked.
    Asked(AskedOutcome),
    /// This is to follow.
    Resolved(Resolution),
}

/// What a delegated branch wrote, and when it ran as seen by its parent (event numbers).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChildDeltas {
    pub(in crate::supervision::runs) asked: u64,
    pub(in crate::supervision::runs) answered: Option<u64>,
    pub(in crate::supervision::runs) deltas: Vec<Delta>,
    /// When it was answered, the run had read untrusted input.
    pub(in crate::supervision::runs) is_tainted: bool,
}

impl AsRef<[Delta]> for ChildDeltas {
    fn as_ref(&self) -> &[Delta] {
        &self.deltas
    }
}
