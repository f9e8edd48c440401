//! The events of a run's journal.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    AgentName, ApprovalId, AskedOutcome, Authority, Command, ConversationId, Cost, Decision, Envelope, Failure, Intent,
    Json, Order, Outcome, Refusal, Resolution, Submission, Timestamp, TurnId, Update, Usage, Verdict, Vote,
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
        /// The number of the turn that runs the step.
        turn: u32,
        /// The ordinal of the step's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The name that was given to [`Turn::step`](crate::actors::Turn::step).
        name: Arc<str>,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
    },
    /// A step or an effect has its result; repeated attempts receive the result instead of doing the work again.
    StepFinished {
        /// The number of the turn that ran the step.
        turn: u32,
        /// The ordinal of the step's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The name of the step, or [`Intent::name`] of the effect. A repeated attempt has to ask for the same name.
        name: Arc<str>,
        /// What the work returned, or what [`OutsideEffect::reconcile`](crate::actors::OutsideEffect::reconcile) found
        /// out.
        value: Json,
        /// The turn had read untrusted input by then.
        is_tainted: bool,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
        /// The step was a use of the tool of this name ([`Turn::use_tool`](crate::actors::Turn::use_tool)).
        #[serde(skip)]
        is_tool: bool,
    },
    /// A turn gave a task to another agent, or was refused to.
    Delegated {
        /// The number of the turn that asked.
        turn: u32,
        /// The ordinal of the delegation's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The delegation as the turn asked for it; [`Order::to`] is the name that the agent wrote.
        order: Order,
        /// Admitted, with the one agent that takes the task, or refused. A delegation is never parked.
        verdict: Verdict,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The answer to a delegation did not come in time: its branch is cancelled.
    DelegationExpired {
        /// The number of the turn that asked for the delegation.
        turn: u32,
        /// The ordinal of the delegation's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// Tokens were set aside for a call, or refused.
    Reserved {
        /// The number of the turn that makes the call.
        turn: u32,
        /// The number of the reservation, counted over the whole run from 0; [`RunEvent::Settled`] names it.
        ordinal: u32,
        /// The number of tokens that the turn asked for.
        tokens: u64,
        /// Admitted, without agents, or refused with [`Refusal::TokenBudget`], [`Refusal::CostBudget`] or
        /// [`Refusal::AgentBudget`].
        verdict: Verdict,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
        /// The most that the call may cost; `None` if the price of its model is not known.
        #[serde(skip)]
        cost: Option<Cost>,
        /// If a limit of a day counts the call: the day, from 1970-01-01, and the board of whose part of that limit it is.
        #[serde(skip)]
        charged: Option<(u32, Arc<str>)>,
        /// They are set aside for a run at another board that takes the turn. From then on the turn is taken by that run alone.
        #[serde(skip)]
        is_share: bool,
    },
    /// A call reported what it used, or is known not to have been sent (`None`).
    Settled {
        /// The number of the turn that reserved the tokens; the turn may have ended by then.
        turn: u32,
        /// The number of the reservation, as in [`RunEvent::Reserved`].
        ordinal: u32,
        /// The tokens that the provider reported: they count instead of the reserved ones. `None` gives the reserved
        /// tokens back.
        usage: Option<Usage>,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
        /// The name of the model that has answered; `None` if it is not known.
        #[serde(skip)]
        model: Option<Arc<str>>,
        /// The usage is that of a run that the turn began, which has it among its own too.
        #[serde(skip)]
        is_of_run: bool,
    },
    /// A turn asked people a question that does not expire, and waits for [`RunEvent::Answered`].
    Asked {
        /// The number of the turn that asked.
        turn: u32,
        /// The ordinal of the question's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The question, as it was given to [`TurnPeople::ask`](crate::actors::TurnPeople::ask).
        question: Json,
        /// A random number in the question's id, without which an answer is not accepted
        /// ([`QuestionId::nonce`](super::QuestionId::nonce)).
        nonce: u64,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A person answered a question; its turn receives the answer and continues.
    Answered {
        /// The number of the turn that asked.
        turn: u32,
        /// The ordinal of the question's [`RequestId`](super::RequestId), as in [`RunEvent::Asked`] or
        /// [`RunEvent::AskedUntil`].
        ordinal: u32,
        /// The answer that the turn receives. JSON null is an answer, too.
        answer: Json,
        /// The person who answered, as the channel authenticated them.
        by: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn asked for consent to an action. A second event with the same ordinal replaces the first: people have
    /// changed the arguments.
    ApprovalAsked {
        /// The number of the turn that asked.
        turn: u32,
        /// The ordinal of the request's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The exact question: who asks, for which action, by which policy, until when. Its hash is the [`ApprovalId`].
        envelope: Box<Envelope>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A decision arrived; the approval is consumed by what this record admits.
    Decided {
        /// The number of the turn that asked, or that ended with the parked handoff.
        turn: u32,
        /// The ordinal of the request for consent, as in [`RunEvent::ApprovalAsked`]; `u32::MAX` for a parked handoff.
        ordinal: u32,
        /// The hash of the envelope that was decided ([`Envelope::id`]).
        approval: ApprovalId,
        /// The decision: of a person, of the approval policy, or by expiry.
        decision: Decision,
        /// The guard's verdict now, for a handoff that was parked.
        verdict: Verdict,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn asked whether control may go from it.
    HandoffChecked {
        /// The number of the turn that asked ([`Turn::check_handoff`](crate::actors::Turn::check_handoff)).
        turn: u32,
        /// The ordinal of the check's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The targets of the command, as the agent wrote them; empty if the command names none.
        to: Vec<Arc<str>>,
        /// Why control may not go there. `None` if it may, or if a person would be asked at the end of the turn.
        refusal: Option<Refusal>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn made an agent for the rest of the run, or changed one that its agent had made; or was refused to.
    AgentMade {
        /// The number of the turn that makes or changes the agent.
        turn: u32,
        /// The ordinal of the request's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The name by which other agents of the run call it, without its makers.
        name: Arc<str>,
        /// The description from which its maker builds the agent for each of its turns
        /// ([`Agent::make`](crate::actors::Agent::make)).
        draft: Json,
        /// Whether the turn asked to change an agent that exists, and not to make a new one.
        is_change: bool,
        /// The most that the agent may cause: what the asking turn may cause itself.
        authority: Authority,
        /// The agent's full name, such as `lead~helper`, or why it was not made or changed ([`Refusal::AgentNotMade`]).
        made: Result<AgentName, Refusal>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn has read untrusted input: turns that come after it are tainted. It is reported at most once in an attempt.
    Tainted {
        /// The number of the turn that has read the input.
        turn: u32,
        /// The source that was given to [`Turn::taint`](crate::actors::Turn::taint), such as the name of a tool; a
        /// general text if that was lost before it was journaled.
        source: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn reported something to its observers.
    Noticed {
        /// The number of the turn that the report is from, or about.
        turn: u32,
        /// The text for people: from [`Turn::notice`](crate::actors::Turn::notice), or from the runtime about a channel
        /// whose name is likely misspelled.
        text: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// An attempt failed and the turn will be tried again.
    AttemptFailed {
        /// The number of the turn that is tried again.
        turn: u32,
        /// The number of the failed attempt, from 1.
        attempt: u32,
        /// The error of the attempt, of a kind that is tried again ([`FailureKind`](super::FailureKind)).
        failure: Failure,
        /// When the next attempt may start, by the wall clock: after the backoff.
        retry_at: Timestamp,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn ended with a valid command. It takes effect at once, or, if its handoff is parked, when that is decided.
    TurnEnded {
        /// The number of the turn that ended.
        turn: u32,
        /// The agent that took the turn.
        agent: AgentName,
        /// The number of the attempt that returned the command, from 1.
        attempt: u32,
        /// The command that the agent returned. If its handoff is denied, the update is not applied.
        command: Arc<Command>,
        /// The guard's verdict on the handoff; [`Verdict::Nothing`] if none had to be decided, as for a node of a plan.
        verdict: Verdict,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn failed for good: it is a dead letter, and its branch ends failed, refused or denied.
    TurnFailed {
        /// The number of the turn that failed.
        turn: u32,
        /// The agent that took the turn.
        agent: AgentName,
        /// The turn's input.
        input: Json,
        /// The number of the last attempt, from 1.
        attempt: u32,
        /// The error of the last attempt. It decides how the branch ends ([`Failure::outcome`]).
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
        /// The number of the turn that waits for a person.
        turn: u32,
        /// It asked for other things than an earlier attempt: what that one had asked for does not fit.
        has_changed: bool,
        /// Why it needs attention: the text of its failure, or at how many starts in a row it was found under way.
        why: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A person had a turn begin again that needed attention; if it had changed, what it had asked for before is forgotten.
    TurnRestarted {
        /// The number of the turn, which begins again with its next attempt.
        turn: u32,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The run was stopped from outside before its branches ended.
    Stopped {
        /// `Cancelled`; `Refused` after the deadline of the run; or `Failed`, as by a reducer that panicked, a conversation that cannot
        /// be read, or a commit that is too large.
        outcome: Outcome,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A person continued a run that had ended because branches wrote one place concurrently. It takes effect before the
    /// event that the turn ended with, whose join failed.
    Overwritten {
        /// The number of the turn with whose end the join failed.
        turn: u32,
        /// What the person wrote to the channels. Each write replaces what the channel holds, past its reducer.
        update: Update,
        /// Where the turn goes, if that was not decided when it ended.
        verdict: Verdict,
        /// The person who decided, as the caller of [`RunHandle::resume_with`](crate::RunHandle::resume_with) named them.
        by: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A person had a node of a plan start that was interrupted.
    Resumed {
        /// The number of the node's turn.
        turn: u32,
        /// The input that replaces the turn's own; `None` leaves that unchanged.
        input: Option<Json>,
        /// Writes that are applied to the state before the turn starts; empty if nothing was changed.
        update: Update,
        /// The person, as the channel authenticated them.
        by: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The run was forked from another one at a turn: what comes before is copied from there. The turn begins here, with what
    /// was changed about it.
    Forked {
        /// The number of the turn in this run; it may differ from the number in the other run.
        turn: u32,
        /// The id of the turn in the run that was forked.
        from: TurnId,
        /// The input that replaces the turn's own; `None` leaves that unchanged.
        input: Option<Json>,
        /// Writes that are applied to the state of the turn's branch before the turn starts; empty if nothing was
        /// changed.
        update: Update,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn is about to do something outside that must not be repeated by itself. This is on disk before it begins, and
    /// everything before it too.
    IntentRecorded {
        /// The number of the turn that is about to cause the effect.
        turn: u32,
        /// The ordinal of the effect's [`RequestId`](super::RequestId). A second intent with the same ordinal causes
        /// the effect again.
        ordinal: u32,
        /// The effect: its name, its target, and the hash of its arguments.
        intent: Intent,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
        /// The effect is a use of the tool of this name ([`OutsideEffect::of_tool`](crate::actors::OutsideEffect::of_tool)).
        #[serde(skip)]
        is_tool: bool,
    },
    /// Something that must not be repeated by itself has failed: that is its result.
    StepFailed {
        /// The number of the turn that caused the effect.
        turn: u32,
        /// The ordinal of the effect's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The name of the effect ([`Intent::name`]).
        name: Arc<str>,
        /// The error of the work. Repeated attempts receive it instead of doing the work again.
        failure: Failure,
        /// The turn had read untrusted input by then.
        is_tainted: bool,
        /// When; `None` if it was journaled before events of this kind had a time.
        #[serde(skip)]
        at: Option<Timestamp>,
    },
    /// A turn found an intent without a result, and only a person can decide what came of it.
    OutcomeUnknown {
        /// The number of the turn, which waits until [`RunEvent::OutcomeResolved`].
        turn: u32,
        /// The ordinal of the effect's [`RequestId`](super::RequestId), as in [`RunEvent::IntentRecorded`].
        ordinal: u32,
        /// When people were asked, when the question expires, and what was wrong with an answer before.
        asked: AskedOutcome,
    },
    /// What is to follow an unknown outcome was decided.
    OutcomeResolved {
        /// The number of the turn that reached the effect again.
        turn: u32,
        /// The ordinal of the effect's [`RequestId`](super::RequestId), as in [`RunEvent::IntentRecorded`].
        ordinal: u32,
        /// What follows: the effect has a result, is caused again, is given up, or is reported to the caller as
        /// unknown.
        resolution: Resolution,
        /// Who: a person, `policy`, or `expiry`.
        by: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn asked people a question that expires.
    AskedUntil {
        /// The number of the turn that asked.
        turn: u32,
        /// The ordinal of the question's [`RequestId`](super::RequestId).
        ordinal: u32,
        /// The question, as it was given to [`TurnPeople::ask`](crate::actors::TurnPeople::ask) or
        /// [`TurnPeople::ask_within`](crate::actors::TurnPeople::ask_within).
        question: Json,
        /// A random number in the question's id, without which an answer is not accepted
        /// ([`QuestionId::nonce`](super::QuestionId::nonce)).
        nonce: u64,
        /// When the turn continues without an answer.
        expires_at: Timestamp,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A question was not answered in time: the turn continues without an answer.
    QuestionExpired {
        /// The number of the turn that asked.
        turn: u32,
        /// The ordinal of the question's [`RequestId`](super::RequestId), as in [`RunEvent::AskedUntil`].
        ordinal: u32,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The run belongs to a conversation. Its first turns wait until the runs before it in the conversation have ended.
    ConversationEntered {
        /// The conversation that the task named when it was submitted ([`Task::conversation`](super::Task)).
        conversation: ConversationId,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// The runs before it in its conversation have ended, and this is what its turns see of them.
    ConversationRead {
        /// An array of [`Message`](super::Message)s, oldest first.
        messages: Json,
        /// How many runs the messages are of: the newest before this one. 0 if the conversation has no earlier run.
        runs: u32,
        /// How many older runs there are whose messages are not among them.
        left_out: u32,
        /// Some of the messages come from untrusted input.
        is_tainted: bool,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// Who delegated the task from outside has changed what it refers to.
    ReferenceChanged {
        /// What turns that begin after this read ([`Turn::reference`](crate::actors::Turn::reference)).
        reference: Option<Arc<str>>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
    /// A turn said in a line what it has done. The last one of a turn counts.
    Summarized {
        /// The number of the turn.
        turn: u32,
        /// One line of at most 200 characters, from [`Turn::summary`](crate::actors::Turn::summary).
        text: Arc<str>,
        /// When the shard decided it, by the wall clock.
        at: Timestamp,
    },
}

/// A field of an event that is stored beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Beside {
    /// [`RunEvent::Reserved`]: what the call may cost.
    Cost(Cost),
    /// [`RunEvent::Settled`]: the model.
    Model(Arc<str>),
    /// [`RunEvent::Settled`]: the usage is that of a run.
    OfRun,
    /// [`RunEvent::Reserved`]: what the call may cost, and the day and board that it is charged to.
    Charged { cost: Option<Cost>, day: u32, board: Arc<str> },
    /// [`RunEvent::Decided`]: all who had approved.
    Votes(Vec<Vote>),
    /// [`RunEvent::StepFinished`] and [`RunEvent::IntentRecorded`]: it is a use of a tool.
    OfTool,
    /// [`RunEvent::Reserved`]: it is the share of a run that takes the turn, and what that may cost.
    Share { cost: Option<Cost> },
}

/// The turn of an event, by whatever reference the event is.
macro_rules! turn_of {
    ($event:expr) => {
        match $event {
            RunEvent::Submitted(_)
            | RunEvent::Recovered { .. }
            | RunEvent::Stopped { .. }
            | RunEvent::ConversationEntered { .. }
            | RunEvent::ConversationRead { .. }
            | RunEvent::ReferenceChanged { .. } => None,
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
            | RunEvent::Summarized { turn, .. }
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
            | RunEvent::Summarized { .. }
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
            | RunEvent::ConversationRead { .. }
            | RunEvent::ReferenceChanged { .. } => None,
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
            | Self::Summarized { at, .. }
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
            | Self::ConversationRead { at, .. }
            | Self::ReferenceChanged { at, .. } => Some(*at),
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

    /// The rest of the event that is stored beside it, because events of its kind had it not at first.
    pub(crate) fn beside(&self) -> Option<Beside> {
        match self {
            Self::Reserved { cost, charged: Some((day, board)), .. } => {
                Some(Beside::Charged { cost: *cost, day: *day, board: Arc::clone(board) })
            }
            Self::Reserved { cost, is_share: true, .. } => Some(Beside::Share { cost: *cost }),
            Self::Reserved { cost, .. } => cost.map(Beside::Cost),
            Self::Settled { is_of_run: true, .. } => Some(Beside::OfRun),
            Self::Settled { model, .. } => model.clone().map(Beside::Model),
            Self::Decided { decision, .. } => {
                (!decision.votes.is_empty()).then(|| Beside::Votes(decision.votes.clone()))
            }
            Self::StepFinished { is_tool: true, .. } | Self::IntentRecorded { is_tool: true, .. } => {
                Some(Beside::OfTool)
            }
            _ => None,
        }
    }

    /// Puts back what was stored beside the event.
    pub(crate) fn put_beside(&mut self, beside: Beside) {
        match beside {
            Beside::Cost(stored) => {
                if let Self::Reserved { cost, .. } = self {
                    *cost = Some(stored);
                }
            }
            Beside::Model(stored) => {
                if let Self::Settled { model, .. } = self {
                    *model = Some(stored);
                }
            }
            Beside::OfRun => {
                if let Self::Settled { is_of_run, .. } = self {
                    *is_of_run = true;
                }
            }
            Beside::Charged { cost: stored, day, board } => {
                if let Self::Reserved { cost, charged, .. } = self {
                    (*cost, *charged) = (stored, Some((day, board)));
                }
            }
            Beside::Share { cost: stored } => {
                if let Self::Reserved { cost, is_share, .. } = self {
                    (*cost, *is_share) = (stored, true);
                }
            }
            Beside::Votes(votes) => {
                if let Self::Decided { decision, .. } = self {
                    decision.votes = votes;
                }
            }
            Beside::OfTool => {
                if let Self::StepFinished { is_tool, .. } | Self::IntentRecorded { is_tool, .. } = self {
                    *is_tool = true;
                }
            }
        }
    }

    /// Mutable access to [`RunEvent::turn`].
    pub(crate) fn turn_mut(&mut self) -> Option<&mut u32> {
        turn_of!(self)
    }
}
