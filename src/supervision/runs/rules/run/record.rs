//! The requests of an open turn with their answers: a repeated attempt is answered from these records.

use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::messages::state::{Delta, RunFigures};
use crate::messages::{
    Action, AgentName, Answer, AskedOutcome, Decision, Envelope, Failure, Intent, Json, Order, Refusal, Resolution,
    Timestamp,
};
use crate::supervision::runs::rules::rare::Parts;
use crate::supervision::runs::rules::requests::Delegated;
use crate::supervision::runs::rules::small_map::SmallMap;

pub(crate) use crate::messages::HANDOFF_ORDINAL;

/// The ordinal under which a turn has the late answer to a detached delegation.
pub(in crate::supervision::runs) const LATE_ORDINAL: u32 = u32::MAX - 1;

/// The ordinal under which the run's figures at the admission of the turn are stored.
const FIGURES_ORDINAL: u32 = u32::MAX - 2;

/// The ordinal of the record that a run at another board takes the turn. It is not a request of the turn.
pub(in crate::supervision::runs) const ELSEWHERE_ORDINAL: u32 = u32::MAX - 3;

/// What a turn has asked for, by ordinal, with what else is kept of it from one attempt to the next.
pub(crate) type Records = SmallMap<u32, Box<Record>>;

impl Parts for Records {
    fn empty() -> &'static Self {
        static EMPTY: Records = Records::new();
        &EMPTY
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// What an open turn keeps. It is stored as one map: the figures as a record as well.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) records: Records,
    /// The figures of the run when the turn was admitted, if the schema shows them.
    pub(super) figures: Option<RunFigures>,
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { records, figures } = self;
        let mut map = serializer.serialize_map(Some(records.len() + usize::from(figures.is_some())))?;
        let is_before = |ordinal: &u32| *ordinal < FIGURES_ORDINAL;
        for (ordinal, record) in records.iter().filter(|(ordinal, _)| is_before(ordinal)) {
            map.serialize_entry(ordinal, record)?;
        }
        if let Some(figures) = figures {
            map.serialize_entry(&FIGURES_ORDINAL, &Record::Figures(figures.clone()))?;
        }
        for (ordinal, record) in records.iter().filter(|(ordinal, _)| !is_before(ordinal)) {
            map.serialize_entry(ordinal, record)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut records = Records::deserialize(deserializer)?;
        let figures = match records.remove(&FIGURES_ORDINAL).map(|record| *record) {
            Some(Record::Figures(figures)) => Some(figures),
            Some(_) | None => None,
        };
        Ok(Self { records, figures })
    }
}

/// Whether an attempt of the turn has asked for something, such as a step: another agent in its place would not ask for the same.
pub(crate) fn has_requests(records: &Records) -> bool {
    records.keys().any(|ordinal| *ordinal < ELSEWHERE_ORDINAL)
}

/// Whether a run at another board takes the turn, or may.
pub(crate) fn is_taken_elsewhere(records: &Records) -> bool {
    records.contains_key(&ELSEWHERE_ORDINAL)
}

/// A request of a turn, and its answer if there is one. A repeated attempt is answered from it. What few kinds have is boxed: each of
/// them takes the room of the largest.
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
        /// The turn was tainted when it recorded the result, so an attempt that reads the result is tainted too.
        is_tainted: bool,
    },
    /// A delegation.
    Delegation {
        /// The task that was delegated.
        order: Box<Order>,
        /// The answer, or why there will be none.
        reply: Option<Arc<Result<Answer, Refusal>>>,
        /// When it was asked and answered, in event numbers; the child's writes.
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
        /// The turn's original action, if people have changed it.
        asked: Option<Box<Action>>,
        /// The decision.
        decision: Option<Box<Decision>>,
    },
    /// A dynamic agent that was created or changed.
    Made {
        /// The agent's short name.
        name: Arc<str>,
        /// The agent's definition.
        draft: Json,
        /// The agent existed and was changed.
        is_change: bool,
        /// The agent, or the reason of the refusal.
        made: Result<AgentName, Box<Refusal>>,
    },
    /// The check of a handoff.
    HandoffCheck {
        /// The targets.
        to: Vec<Arc<str>>,
        /// The refusal, if it would be refused.
        refusal: Option<Box<Refusal>>,
    },
    /// An effect that must not be repeated by itself was begun.
    Once(Once),
    /// An effect that must not be repeated by itself has failed.
    StepFailed {
        /// Its name.
        name: Arc<str>,
        /// The failure.
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
        /// The time at which the turn continues without an answer.
        expires_at: Timestamp,
        /// The state of the question.
        state: QuestionState,
    },
    /// The figures of the run when the turn was admitted. Only in what is stored.
    Figures(RunFigures),
    /// A run at another board takes the turn, or may: it was asked for.
    TakenElsewhere,
}

impl Record {
    /// Where the delegation stands, if it is one.
    pub(in crate::supervision::runs) fn delegated(&self) -> Option<Delegated> {
        let Self::Delegation { order, reply, deltas } = self else { return None };
        let (to, is_detached) = (Arc::clone(&order.to), order.is_detached);
        Some(Delegated { to, is_detached, answer: reply.clone(), is_tainted: deltas.is_tainted })
    }

    /// Whether it is a delegation whose answer comes in a turn of its own, once the asking turn has ended.
    pub(super) fn leaves_answer(&self) -> bool {
        let Self::Delegation { order, reply, .. } = self else { return false };
        order.is_detached && !matches!(reply.as_deref(), Some(Err(_)))
    }

    /// Whether it is work of the turn that has begun, and whose end is not known.
    pub(super) fn is_under_way(&self) -> bool {
        match self {
            Self::StepStarted { .. } => true,
            Self::Once(once) => matches!(once.state, OnceState::Begun),
            Self::Step { .. }
            | Self::StepFailed { .. }
            | Self::Delegation { .. }
            | Self::Question { .. }
            | Self::TimedQuestion { .. }
            | Self::Approval { .. }
            | Self::HandoffCheck { .. }
            | Self::Figures(_)
            | Self::TakenElsewhere
            | Self::Made { .. } => false,
        }
    }

    /// Whether it waits for a decision or answer of people.
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
            | Self::TakenElsewhere
            | Self::Made { .. } => false,
        }
    }
}

/// The state of a question that expires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum QuestionState {
    /// It has no answer yet.
    Open,
    /// It was answered.
    Answered(Json),
    /// It expired without an answer.
    Expired,
}

/// An effect that must not be repeated by itself and whose result the runtime does not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Once {
    /// What was begun.
    pub intent: Box<Intent>,
    /// How often it was begun or asked about before: distinguishes a repeated request from a new one.
    pub round: u32,
    /// What is known about it.
    pub state: OnceState,
}

/// The state of a `once` effect without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum OnceState {
    /// It was begun.
    Begun,
    /// A person was asked.
    Asked(AskedOutcome),
    /// The decision was made.
    Resolved(Resolution),
}

/// The writes of a delegated branch, and when it ran, in event numbers of its parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChildDeltas {
    pub(in crate::supervision::runs) asked: u64,
    pub(in crate::supervision::runs) answered: Option<u64>,
    pub(in crate::supervision::runs) deltas: Vec<Delta>,
    /// The run was tainted when it was answered.
    pub(in crate::supervision::runs) is_tainted: bool,
}

impl AsRef<[Delta]> for ChildDeltas {
    fn as_ref(&self) -> &[Delta] {
        &self.deltas
    }
}
