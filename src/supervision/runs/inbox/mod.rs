//! The inbox of a run supervisor: what arrives is collected, and worked off by whoever hands something in, or by the
//! actor. The inbox lives outside the actor, so what was handed in survives the actor's restart.

mod work;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::messages::visible::visible_lines;
use crate::messages::{
    Action, AgentName, Answer, ApprovalId, Command, ConversationId, Decision, Failure as TurnFailure, Intent, Json,
    OnUnknown, Order, Question, QuestionId, Refusal, RequestId, Resolution, RunEvent, RunId, RunResult, Submission,
    TooLong, TurnId, Update, Usage,
};
use crate::storage::{Fence, Sequence, StorageError};
use crate::supervision::Mailbox;
use crate::workflow::Defects;

use super::dispatch::TurnOutcome;
use super::interrupts::{Interrupt, Resume, ResumeError};
use super::reopen::{Conflicted, OverwriteError};
use super::snapshot::Loaded;
use super::supervisor::Wake;

use work::Failure;
pub use work::HandedIn;
pub(super) use work::Open;

/// Where everything for one run supervisor is handed in.
#[derive(Default)]
pub struct Inbox {
    waiting: Mutex<VecDeque<Input>>,
    /// Whoever has the lock does the work. `None` while the actor is down.
    open: Mutex<Option<Open>>,
    /// What has gone wrong at the desk; the actor has yet to fail with it.
    failure: Mutex<Option<Failure>>,
    /// The actor in its present life, or in its last one.
    actor: Mailbox<Wake>,
}

impl Inbox {
    /// Takes everything that has arrived. What arrives from now on is collected in `buffer`.
    pub(crate) fn take(&self, buffer: VecDeque<Input>) -> Batch<'_> {
        let inputs = std::mem::replace(&mut *self.waiting.lock(), buffer);
        Batch { inputs, inbox: self }
    }

    /// Hands in what comes before everything that waits. Wakes nobody: whoever does this goes on to work.
    pub(super) fn put_first(&self, inputs: impl Iterator<Item = Input>) {
        let mut waiting = self.waiting.lock();
        let later = std::mem::take(&mut *waiting);
        waiting.extend(inputs.chain(later));
    }

    /// How many inputs wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

/// What was taken from an inbox. What is left when it is dropped goes back: a panic loses only the input that caused it.
pub(crate) struct Batch<'a> {
    inputs: VecDeque<Input>,
    inbox: &'a Inbox,
}

impl Batch<'_> {
    /// The emptied buffer, for the next time; a large one is given back to the system.
    pub(super) fn into_buffer(mut self) -> VecDeque<Input> {
        const KEPT: usize = 256;
        let is_kept = self.inputs.is_empty() && self.inputs.capacity() <= KEPT;
        if is_kept { std::mem::take(&mut self.inputs) } else { VecDeque::new() }
    }
}

impl Iterator for Batch<'_> {
    type Item = Input;

    fn next(&mut self) -> Option<Input> {
        self.inputs.pop_front()
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.inputs.is_empty() {
            self.inbox.put_first(std::mem::take(&mut self.inputs).into_iter());
        }
    }
}

/// A run that was found at a start. Whoever waits for the start to be over is told when the last of these is gone.
pub type Found = watch::Sender<()>;

/// What a run supervisor reacts to.
#[derive(Debug)]
pub enum Input {
    /// A new run.
    Submit {
        /// The task, accepted and with its first agent resolved.
        submission: Arc<Submission>,
        /// The conversation that the run enters.
        conversation: Option<ConversationId>,
        /// The run's place among the runs in flight.
        place: Option<OwnedSemaphorePermit>,
        /// Told when the submission is acknowledged.
        ack: oneshot::Sender<Result<RunId, SubmitError>>,
        /// Told the result; dropped if the run was there already, or is let go of before it ends.
        result: oneshot::Sender<Arc<RunResult>>,
    },
    /// A run found in storage that is not finished.
    Adopt {
        /// The run.
        run: RunId,
        /// Whether another process left it.
        new_process: bool,
        /// Kept until the run was read.
        found: Option<Found>,
    },
    /// A turn of a run that was read back is begun, unless something that came before says how it has ended.
    Begin {
        /// The turn.
        turn: TurnId,
    },
    /// An attempt ended.
    Outcome {
        /// The turn.
        turn: TurnId,
        /// Which attempt.
        attempt: u32,
        /// The turn had read what strangers wrote.
        is_marked: bool,
        /// How.
        outcome: TurnOutcome,
    },
    /// A turn asks for something.
    Request {
        /// The turn and the request's place in it.
        id: RequestId,
        /// Which attempt.
        attempt: u32,
        /// The turn had read what strangers wrote. It is said each time, because what was said once may be lost with a commit.
        is_marked: bool,
        /// What.
        request: TurnRequest,
        /// Told the answer; not needed for what is only recorded.
        reply: Option<oneshot::Sender<TurnReply>>,
    },
    /// A person answers a question.
    Answer {
        /// The question.
        question: QuestionId,
        /// The answer.
        answer: Json,
        /// Who.
        by: Arc<str>,
        /// Told when it is journaled.
        ack: oneshot::Sender<Result<(), AnswerError>>,
    },
    /// A person has an interrupted node start.
    Resume {
        /// Its turn.
        turn: TurnId,
        /// With what was changed.
        resume: Resume,
        /// Who.
        by: Arc<str>,
        /// Told when it is journaled.
        ack: oneshot::Sender<Result<(), ResumeError>>,
    },
    /// An approval was decided.
    Decide {
        /// The request that it belongs to.
        request: RequestId,
        /// The approval.
        approval: ApprovalId,
        /// The decision.
        decision: Decision,
    },
    /// Somebody stops a run.
    Cancel {
        /// The run.
        run: RunId,
        /// Why.
        reason: String,
        /// Told whether there was something to stop, once it has stopped.
        ack: oneshot::Sender<bool>,
    },
    /// The run cannot go on: the store refuses what it would have to journal.
    Fail {
        /// The run.
        run: RunId,
        /// Why.
        error: String,
    },
    /// A person has the turns begin again that need attention.
    RestartTurns {
        /// The run.
        run: RunId,
        /// Told how many there were.
        ack: oneshot::Sender<usize>,
    },
    /// A person writes over the conflict that ended a run.
    Overwrite {
        /// The run.
        run: RunId,
        /// What is to stand there.
        update: Update,
        /// Who.
        by: Arc<str>,
        /// Told when it is journaled.
        ack: oneshot::Sender<Result<(), OverwriteError>>,
    },
    /// The run of an overwrite was read back.
    Reopened {
        /// The run.
        run: RunId,
        /// The life of the actor that asked for it.
        life: u64,
        /// What was read, and what is to be written over it.
        reopened: Box<Reopened>,
    },
    /// Somebody waits for a run's result.
    Result {
        /// The run.
        run: RunId,
        /// Told the result; dropped if the run is not in memory.
        reply: oneshot::Sender<Arc<RunResult>>,
    },
    /// Somebody wants to see the open questions of a run.
    Questions {
        /// The run.
        run: RunId,
        /// Told them.
        reply: oneshot::Sender<Vec<Question>>,
    },
    /// Somebody wants to see the nodes of a run that wait for a person.
    Interrupts {
        /// The run.
        run: RunId,
        /// Told them.
        reply: oneshot::Sender<Vec<Interrupt>>,
    },
    /// An append has ended.
    Committed {
        /// The run.
        run: RunId,
        /// Which life of the supervisor began it.
        life: u64,
        /// The new sequence, or why there is none.
        result: Result<Sequence, StorageError>,
    },
    /// A run was read back.
    Loaded {
        /// The run.
        run: RunId,
        /// The life of the actor that asked for it.
        life: u64,
        /// Whether another process left it.
        new_process: bool,
        /// Let go of with this input.
        found: Option<Found>,
        /// What was read, under which claim.
        loaded: Result<Box<(Loaded, Fence)>, LoadError>,
    },
    /// A run that waits in its conversation looks again whether its turn has come.
    LookAtConversation {
        /// The run.
        run: RunId,
    },
    /// A run's turn in its conversation has come.
    ConversationRead {
        /// The run.
        run: RunId,
        /// What it reads.
        read: Box<RunEvent>,
    },
    /// A timer that is due.
    Tick,
    /// A run's time is up, or that of one of its delegations.
    Expired {
        /// The run.
        run: RunId,
        /// The delegation: its turn and ordinal.
        delegation: Option<(u32, u32)>,
    },
}

/// A run that is to go on after a conflict.
#[derive(Debug)]
pub struct Reopened {
    /// What was read, up to which record, under which fence.
    pub read: Result<(Conflicted, Sequence, Fence), OverwriteError>,
    /// What is to stand in the place of what was written.
    pub update: Update,
    /// Who says so.
    pub by: Arc<str>,
    /// Told when it is journaled.
    pub ack: oneshot::Sender<Result<(), OverwriteError>>,
}

/// What a turn may ask its run for.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnRequest {
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
    FailStep(Arc<str>, TurnFailure),
    /// To know what is to follow an intent without a result.
    Resolve {
        /// What was begun.
        intent: Intent,
        /// How often it was begun or asked about before.
        round: u32,
        /// What the tool or the agent says; the board's rule if neither does.
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
        /// How long they have; as long as they like if it does not say.
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
        /// What they are for goes on over attempts: those that an attempt before has set aside are taken over.
        goes_on: bool,
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
    /// To have what comes after the turn know that it has read what strangers wrote.
    Mark(Arc<str>),
    /// To tell observers something.
    Notice(Arc<str>),
}

impl TurnRequest {
    /// Whether it holds JSON that nests deeper than can be stored.
    #[must_use]
    pub fn is_too_deep(&self) -> bool {
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
            | Self::Mark(_)
            | Self::Notice(_) => false,
        }
    }
}

/// What a turn is told.
#[derive(Debug)]
pub enum TurnReply {
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
        /// By then the run had read what strangers wrote.
        is_marked: bool,
    },
    /// Why control may not go, if it may not.
    Checked(Option<Refusal>),
    /// The agent, or why there is none.
    Made(Result<AgentName, Refusal>),
    /// The answer to a question.
    Answered(Json),
    /// Nobody answered in time.
    QuestionExpired,
    /// What is to follow an unknown outcome.
    Resolved(Resolution),
    /// The decision, with the arguments that were approved.
    Decided(Decision, Action),
    /// An earlier attempt asked for something else in this place.
    Changed(String),
    /// The attempt is no longer wanted.
    Gone,
}

/// Why a task was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The guard refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be journaled, or what the store said about that was lost.
    #[error("{}", not_accepted(.0))]
    Storage(#[from] StorageError),
    /// The task says nothing about who should do it, and there are several agents.
    #[error("the task names no target; say `.to(…)` one of: {agents}")]
    NoTarget {
        /// Who there is.
        agents: String,
    },
    /// There is nobody who could do it.
    #[error("no agent is registered; add one with `Builder::agent`, or with `Callboard::spawn` while the board runs")]
    NoAgents,
    /// Its plan cannot be run, or its input lacks what the plan needs.
    #[error(transparent)]
    Plan(Defects),
    /// The run that is there under the task's id began with another plan.
    #[error(
        "run {run} began with another definition: {}; give the task another id, or have the run migrated",
        visible_lines(&difference.join("; "))
    )]
    PlanChanged {
        /// The run.
        run: RunId,
        /// What is different, node by node.
        difference: Vec<String>,
    },
    /// The conversation belongs to another agent or workflow.
    #[error(
        "conversation {conversation} belongs to {owner}, and the task is for {asked}: submit it to {owner}, or choose another \
         conversation"
    )]
    OtherConversation {
        /// The conversation.
        conversation: ConversationId,
        /// Whose it is.
        owner: Arc<str>,
        /// Whom the task is for.
        asked: Arc<str>,
    },
    /// The input is nested deeper than it could be read back from the journal.
    #[error("the input is nested too deeply; at most {max} levels are allowed")]
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// The supervisor that took it was restarted, and again when it was handed in once more; or the board has ended.
    /// Submitting it again is safe for a task with an id of its own.
    #[error("the task was not journaled; submit it again")]
    Interrupted,
}

fn not_accepted(error: &StorageError) -> String {
    if error.may_pass() {
        format!(
            "it is not known whether the task was accepted: {error}; a task with an id of its own is submitted again safely"
        )
    } else {
        format!("the task was not accepted: {error}")
    }
}

/// Why a run could not be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The store failed, or the journal is damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A custom reducer panicked.
    #[error("the journal cannot be replayed: {0}")]
    Panicked(String),
}

/// Why an answer was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// No such run is being worked on, or it has no such question.
    #[error("no question {0} is open")]
    Unknown(RequestId),
    /// The question has its answer.
    #[error("question {0} was answered already")]
    Answered(RequestId),
    /// Nobody answered the question in time.
    #[error("question {0} has expired; its turn continues without an answer")]
    Expired(RequestId),
    /// The run's supervisor was restarted, or the board ended, before it said whether the answer is journaled; the run's
    /// open questions tell.
    #[error("nothing is known about the answer to {0}; look at the open questions")]
    Interrupted(RequestId),
    /// The question is whether something was done, and the answer does not say.
    #[error("question {0} is answered with \"run it again\", \"give up\" or {{\"done\": RESULT}}")]
    NotAnOutcome(RequestId),
    /// The answer is nested too deeply to be stored.
    #[error("the answer is nested deeper than {} levels", crate::messages::MAX_JSON_DEPTH)]
    TooDeep,
    /// Who answers is named at too great a length.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The answer could not be journaled.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
