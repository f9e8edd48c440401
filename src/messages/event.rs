//! The events of a run's journal.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    AgentName, ApprovalId, AskedOutcome, Authority, Command, ConversationId, Decision, Envelope, Failure, Intent, Json,
    Order, Outcome, Refusal, Resolution, Submission, Timestamp, TurnId, Update, Usage, Verdict,
};

/// What happened in a run, in the order in which it was journaled. The run's state is a fold over these; everything that
/// came from outside (verdicts, clock readings, ids, winners of races) is in them, so replay never asks again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RunEvent {
    /// The task was accepted and its first turn admitted.
    Submitted(Arc<Submission>),
    /// A turn is about to cause an effect outside: everything before it is on disk.
    StepStarted {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// The step's name.
        name: Arc<str>,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
    },
    /// A step has its result.
    StepFinished {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// The step's name.
        name: Arc<str>,
        /// The result.
        value: Json,
        /// The turn had read untrusted input by then.
        is_tainted: bool,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
    },
    /// A turn gave a task to another agent, or was refused to.
    Delegated {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// What it asked for.
        order: Order,
        /// The guard's verdict.
        verdict: Verdict,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The answer to a delegation did not come in time: its branch is cancelled.
    DelegationExpired {
        /// The turn that asked.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// Tokens were set aside for a call, or refused.
    Reserved {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// How many.
        tokens: u64,
        /// The guard's verdict.
        verdict: Verdict,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
    },
    /// A call reported what it used, or is known not to have been sent (`None`).
    Settled {
        /// The turn.
        turn: u32,
        /// The reservation.
        ordinal: u32,
        /// What the provider reported.
        usage: Option<Usage>,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
    },
    /// A turn asked people a question.
    Asked {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// What it asks.
        question: Json,
        /// Makes the question's id unique.
        nonce: u64,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A person answered.
    Answered {
        /// The turn.
        turn: u32,
        /// The question.
        ordinal: u32,
        /// The answer; null is one.
        answer: Json,
        /// The person who answered, as the channel authenticated them.
        by: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn asked for consent.
    ApprovalAsked {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// The exact question.
        envelope: Box<Envelope>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A decision arrived; the approval is consumed by what this record admits.
    Decided {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// The approval.
        approval: ApprovalId,
        /// What was decided.
        decision: Decision,
        /// The guard's verdict now, for a handoff that was parked.
        verdict: Verdict,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn asked whether control may go from it.
    HandoffChecked {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// To whom, as the agent wrote it.
        to: Vec<Arc<str>>,
        /// Why not, if not.
        refusal: Option<Refusal>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn made an agent for the rest of the run, or changed one that its agent had made; or was refused to.
    AgentMade {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// What it is called by.
        name: Arc<str>,
        /// What it is, as its maker reads it.
        draft: Json,
        /// It was there before.
        is_change: bool,
        /// What it may cause.
        authority: Authority,
        /// The agent, or why there is none.
        made: Result<AgentName, Refusal>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn has read untrusted input: turns that come after it are tainted. It is reported at most once in an attempt.
    Tainted {
        /// The turn.
        turn: u32,
        /// What it read.
        source: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn reported something to its observers.
    Noticed {
        /// The turn.
        turn: u32,
        /// The report, a line for people.
        text: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// An attempt failed and the turn will be tried again.
    AttemptFailed {
        /// The turn.
        turn: u32,
        /// The attempt, from 1.
        attempt: u32,
        /// What went wrong.
        failure: Failure,
        /// When the next attempt may start.
        retry_at: Timestamp,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn ended with a command.
    TurnEnded {
        /// The turn.
        turn: u32,
        /// Whose it was.
        agent: AgentName,
        /// The attempt that ended it.
        attempt: u32,
        /// What it returned.
        command: Arc<Command>,
        /// The guard's verdict on where it goes.
        verdict: Verdict,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn failed for good: it is a dead letter, and its branch has failed.
    TurnFailed {
        /// The turn.
        turn: u32,
        /// Whose it was.
        agent: AgentName,
        /// What it worked on.
        input: Json,
        /// The last attempt.
        attempt: u32,
        /// What went wrong.
        failure: Failure,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The run was found unfinished when its supervisor started; its open turns were dispatched again.
    Recovered {
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
        /// Whether a new process found it (and not a restarted supervisor in the same one).
        new_process: bool,
    },
    /// The run cannot continue by itself: a person restarts the turn or cancels.
    NeedsAttention {
        /// The turn.
        turn: u32,
        /// It asked for other things than an earlier attempt: what that one had asked for does not fit.
        has_changed: bool,
        /// Why it needs attention.
        why: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A person had a turn begin again that needed attention; if it had changed, what it had asked for before is forgotten.
    TurnRestarted {
        /// The turn.
        turn: u32,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The run was stopped from outside before its branches ended.
    Stopped {
        /// Cancelled, or failed by its deadline or by a reducer that panicked.
        outcome: Outcome,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A person continued a run that had ended because branches wrote one place concurrently. It takes effect before the
    /// event that the turn ended with, whose join failed.
    Overwritten {
        /// The turn.
        turn: u32,
        /// What is to stand there.
        update: Update,
        /// Where the turn goes, if that was not decided when it ended.
        verdict: Verdict,
        /// The person or policy that decided.
        by: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A person had a node of a plan start that was interrupted.
    Resumed {
        /// The turn.
        turn: u32,
        /// What it works on, if that was changed.
        input: Option<Json>,
        /// What it sees that was changed.
        update: Update,
        /// The person, as the channel authenticated them.
        by: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The run was forked from another one at a turn: what comes before is copied from there. The turn begins here, with what
    /// was changed about it.
    Forked {
        /// The turn.
        turn: u32,
        /// The turn that it was in the other run.
        from: TurnId,
        /// What it works on, if that was changed.
        input: Option<Json>,
        /// What its branch sees that was changed.
        update: Update,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn is about to do something outside that must not be repeated by itself. This is on disk before it begins, and
    /// everything before it too.
    IntentRecorded {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// The effect that is about to be caused.
        intent: Intent,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// Something that must not be repeated by itself has failed: that is its result.
    StepFailed {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// The step's name.
        name: Arc<str>,
        /// How it failed.
        failure: Failure,
        /// The turn had read untrusted input by then.
        is_tainted: bool,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
    },
    /// A turn found an intent without a result, and only a person can decide what came of it.
    OutcomeUnknown {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// The question.
        asked: AskedOutcome,
    },
    /// What is to follow an unknown outcome was decided.
    OutcomeResolved {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// How the unknown outcome is resolved.
        resolution: Resolution,
        /// Who: a person, `policy`, or `expiry`.
        by: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn asked people a question that expires.
    AskedUntil {
        /// The turn.
        turn: u32,
        /// Which of its requests.
        ordinal: u32,
        /// What it asks.
        question: Json,
        /// Makes the question's id unique.
        nonce: u64,
        /// When the turn continues without an answer.
        expires_at: Timestamp,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A question was not answered in time: the turn continues without an answer.
    QuestionExpired {
        /// The turn.
        turn: u32,
        /// The question.
        ordinal: u32,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The run belongs to a conversation. Its first turns wait until the runs before it in the conversation have ended.
    ConversationEntered {
        /// The conversation.
        conversation: ConversationId,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The runs before it in its conversation have ended, and this is what its turns see of them.
    ConversationRead {
        /// An array of [`Message`](super::Message)s, oldest first.
        messages: Json,
        /// How many runs they are of.
        runs: u32,
        /// How many older runs there are whose messages are not among them.
        left_out: u32,
        /// Some of the messages come from untrusted input.
        is_tainted: bool,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
}

/// The turn of an event, by whatever reference the event is.
macro_rules! turn_of {
    ($event:expr) => {
        match $event {
            RunEvent::Submitted(_)
            | RunEvent::Recovered { .. }
            | RunEvent::Stopped { .. }
            | RunEvent::ConversationEntered { .. }
            | RunEvent::ConversationRead { .. } => None,
            RunEvent::StepStarted { turn, .. }
            | RunEvent::StepFinished { turn, .. }
            | RunEvent::Delegated { turn, .. }
            | RunEvent::DelegationExpired { turn, .. }
            | RunEvent::Reserved { turn, .. }
            | RunEvent::Settled { turn, .. }
            | RunEvent::Asked { turn, .. }
            | RunEvent::Answered { turn, .. }
            | RunEvent::ApprovalAsked { turn, .. }
            | RunEvent::Decided { turn, .. }
            | RunEvent::HandoffChecked { turn, .. }
            | RunEvent::AgentMade { turn, .. }
            | RunEvent::Tainted { turn, .. }
            | RunEvent::Noticed { turn, .. }
            | RunEvent::AttemptFailed { turn, .. }
            | RunEvent::TurnEnded { turn, .. }
            | RunEvent::TurnFailed { turn, .. }
            | RunEvent::NeedsAttention { turn, .. }
            | RunEvent::TurnRestarted { turn, .. }
            | RunEvent::Overwritten { turn, .. }
            | RunEvent::Resumed { turn, .. }
            | RunEvent::Forked { turn, .. }
            | RunEvent::IntentRecorded { turn, .. }
            | RunEvent::StepFailed { turn, .. }
            | RunEvent::OutcomeUnknown { turn, .. }
            | RunEvent::OutcomeResolved { turn, .. }
            | RunEvent::AskedUntil { turn, .. }
            | RunEvent::QuestionExpired { turn, .. } => Some(turn),
        }
    };
}

/// The time beside an event, by whatever reference the event is.
macro_rules! time_beside_of {
    ($event:expr) => {
        match $event {
            RunEvent::StepStarted { at, .. }
            | RunEvent::StepFinished { at, .. }
            | RunEvent::StepFailed { at, .. }
            | RunEvent::Reserved { at, .. }
            | RunEvent::Settled { at, .. } => Some(at),
            RunEvent::Submitted(_)
            | RunEvent::Delegated { .. }
            | RunEvent::DelegationExpired { .. }
            | RunEvent::Asked { .. }
            | RunEvent::Answered { .. }
            | RunEvent::ApprovalAsked { .. }
            | RunEvent::Decided { .. }
            | RunEvent::HandoffChecked { .. }
            | RunEvent::AgentMade { .. }
            | RunEvent::Tainted { .. }
            | RunEvent::Noticed { .. }
            | RunEvent::AttemptFailed { .. }
            | RunEvent::TurnEnded { .. }
            | RunEvent::TurnFailed { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::NeedsAttention { .. }
            | RunEvent::TurnRestarted { .. }
            | RunEvent::Stopped { .. }
            | RunEvent::Overwritten { .. }
            | RunEvent::Resumed { .. }
            | RunEvent::Forked { .. }
            | RunEvent::IntentRecorded { .. }
            | RunEvent::OutcomeUnknown { .. }
            | RunEvent::OutcomeResolved { .. }
            | RunEvent::AskedUntil { .. }
            | RunEvent::QuestionExpired { .. }
            | RunEvent::ConversationEntered { .. }
            | RunEvent::ConversationRead { .. } => None,
        }
    };
}

impl RunEvent {
    /// The turn that it is about, if it is about one.
    #[must_use]
    pub fn turn(&self) -> Option<u32> {
        turn_of!(self).copied()
    }

    /// When it happened; `None` if it was journaled before events of its kind had a time.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Submitted(submission) => Some(submission.at),
            Self::OutcomeUnknown { asked, .. } => Some(asked.at),
            Self::StepStarted { at, .. }
            | Self::StepFinished { at, .. }
            | Self::StepFailed { at, .. }
            | Self::Reserved { at, .. }
            | Self::Settled { at, .. } => *at,
            Self::Delegated { at, .. }
            | Self::DelegationExpired { at, .. }
            | Self::Asked { at, .. }
            | Self::Answered { at, .. }
            | Self::ApprovalAsked { at, .. }
            | Self::Decided { at, .. }
            | Self::HandoffChecked { at, .. }
            | Self::AgentMade { at, .. }
            | Self::Tainted { at, .. }
            | Self::Noticed { at, .. }
            | Self::AttemptFailed { at, .. }
            | Self::TurnEnded { at, .. }
            | Self::TurnFailed { at, .. }
            | Self::Recovered { at, .. }
            | Self::NeedsAttention { at, .. }
            | Self::TurnRestarted { at, .. }
            | Self::Stopped { at, .. }
            | Self::Overwritten { at, .. }
            | Self::Resumed { at, .. }
            | Self::Forked { at, .. }
            | Self::IntentRecorded { at, .. }
            | Self::OutcomeResolved { at, .. }
            | Self::AskedUntil { at, .. }
            | Self::QuestionExpired { at, .. }
            | Self::ConversationEntered { at, .. }
            | Self::ConversationRead { at, .. } => Some(*at),
        }
    }

    /// The time that is stored beside the event, because events of its kind had none at first; `None` for all others.
    pub(crate) fn time_beside(&self) -> Option<&Option<Timestamp>> {
        time_beside_of!(self)
    }

    /// Mutable access to [`RunEvent::time_beside`].
    pub(crate) fn time_beside_mut(&mut self) -> Option<&mut Option<Timestamp>> {
        time_beside_of!(self)
    }

    /// Mutable access to [`RunEvent::turn`].
    pub(crate) fn turn_mut(&mut self) -> Option<&mut u32> {
        turn_of!(self)
    }
}
