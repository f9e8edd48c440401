use std::sync::{Arc, LazyLock};
use std::time::Duration;

use callboard_text::visible_lines;
use serde::{Deserialize, Serialize};

use super::{
    Action, AgentName, Answer, ApprovalId, AskedOutcome, Authority, Command, ConversationId, Decision, Envelope,
    Intent, Json, Outcome, Refusal, Resolution, RunId, Submission, Timestamp, Update, Usage,
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
        outcome: super::Outcome,
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
        from: super::TurnId,
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

/// The guard's verdict on a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// Nothing had to be decided.
    #[default]
    Nothing,
    /// It may go ahead, with these agents in the order of the targets.
    Admitted(Vec<AgentName>),
    /// It may not.
    Refused(Refusal),
    /// A human decides; nothing is reserved meanwhile.
    Parked(Box<Envelope>),
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}{}", kind.prefix(), visible_lines(text))]
pub struct Failure {
    /// What kind of failure; it decides whether the turn is tried again.
    pub kind: FailureKind,
    /// What happened.
    pub text: String,
    /// The refusal of the guard or of a person, when that is why the turn could not continue.
    pub refusal: Option<Box<Refusal>>,
}

impl Failure {
    /// A failure that no refusal stands behind.
    #[must_use]
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), refusal: None }
    }

    /// The failure of a turn that cannot continue after a refusal.
    #[must_use]
    pub fn refused(refusal: Refusal) -> Self {
        let kind = if refusal.is_denial() { FailureKind::Denied } else { FailureKind::Refused };
        Self { kind, text: refusal.to_string(), refusal: Some(Box::new(refusal)) }
    }

    /// How a branch ends whose turn failed like this for good.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match (self.kind, &self.refusal) {
            (FailureKind::Refused | FailureKind::Denied, Some(refusal)) => Outcome::refused((**refusal).clone()),
            (FailureKind::Denied, None) => Outcome::Denied { reason: self.text.clone() },
            (
                FailureKind::Transient
                | FailureKind::Terminal
                | FailureKind::Panic
                | FailureKind::Timeout
                | FailureKind::InvalidCommand
                | FailureKind::ChangedTurn
                | FailureKind::Unregistered
                | FailureKind::OutcomeUnknown
                | FailureKind::Refused,
                _,
            ) => Outcome::Failed { error: self.to_string() },
        }
    }
}

/// Kinds of failure (SEMANTICS 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// An error that may pass: tried again with backoff.
    Transient,
    /// An error that will not pass: the turn ends.
    Terminal,
    /// The turn panicked: its agent is rebuilt, and the turn tried again.
    Panic,
    /// The turn took longer than its agent allows: tried again.
    Timeout,
    /// The turn returned a command that the run cannot apply: tried again.
    InvalidCommand,
    /// A repeated turn asked for other things than before: a person has to look.
    ChangedTurn,
    /// The guard refused something that the turn could not do without: the turn ends.
    Refused,
    /// People, or a policy, did not consent to something that the turn could not do without: its branch ends denied.
    Denied,
    /// The turn's agent is not registered: a person has to look.
    Unregistered,
    /// It is unknown whether something that must not be repeated has happened: the turn ends.
    OutcomeUnknown,
}

impl FailureKind {
    /// The prefix of a failure's text; none where the text stands alone.
    fn prefix(self) -> String {
        match self {
            Self::Transient => String::new(),
            Self::Terminal
            | Self::Panic
            | Self::Timeout
            | Self::InvalidCommand
            | Self::ChangedTurn
            | Self::Refused
            | Self::Denied
            | Self::Unregistered
            | Self::OutcomeUnknown => format!("{self}: "),
        }
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Transient => "error",
            Self::Terminal => "terminal error",
            Self::Panic => "crash",
            Self::Timeout => "timeout",
            Self::InvalidCommand => "invalid command",
            Self::ChangedTurn => "changed turn",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Unregistered => "unregistered",
            Self::OutcomeUnknown => "outcome unknown",
        })
    }
}

/// An event as a subscriber sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The run.
    pub run: RunId,
    /// The event's number in its run, from 1.
    pub sequence: u64,
    /// What happened.
    pub event: Arc<RunEvent>,
}

/// A pending question as a front end shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Names it: needed to answer.
    pub id: QuestionId,
    /// Who asks.
    pub agent: AgentName,
    /// The question, as the agent asked it.
    pub question: Json,
    /// Since when.
    pub asked_at: Timestamp,
    /// When the turn stops waiting for an answer; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
}

/// Names a question of a turn; the nonce keeps an answer from reaching another question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuestionId {
    /// Turn and ordinal.
    pub request: super::RequestId,
    /// Drawn when it was asked.
    pub nonce: u64,
}

/// A turn that failed for good, to be retried or dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The turn.
    pub turn: super::TurnId,
    /// Whose turn it was.
    pub agent: AgentName,
    /// What it worked on.
    pub input: Json,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it failed.
    pub failure: Failure,
    /// When it happened, by the wall clock.
    pub at: Timestamp,
    /// The run that took over, if it was retried.
    pub retried_as: Option<RunId>,
}

/// The result of an earlier delegation of the same turn, for those that it asks after that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierAnswer {
    /// Whom it was given to, as the asking turn wrote it.
    pub to: Arc<str>,
    /// What was asked.
    pub body: Arc<str>,
    /// What came of it.
    pub answer: super::Answer,
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
    pub answer: super::Answer,
    /// What the asking turn worked on.
    pub original_input: Json,
}

/// What a step of a delegation reports to the asking turn.
pub type DelegationReply = Result<Answer, Refusal>;

/// The action that a parked handoff asks consent for.
pub(crate) fn handoff_action(to: &AgentName, input: &Json) -> Action {
    static HANDOFF: LazyLock<Arc<str>> = LazyLock::new(|| "handoff".into());
    Action { action: Arc::clone(&HANDOFF), target: to.into(), arguments: input.clone() }
}
