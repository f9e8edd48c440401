//! The messages of a run shard: those for one run, and those for the shard itself.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use foldhash::HashMap;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::messages::{
    AgentName, ApprovalId, ConversationId, Decision, Json, Pending, Resume, RunEvent, RunId, RunResult, Submission,
    TurnId, Update,
};
use crate::storage::{Rider, Sequence, StorageError};
use crate::supervision::runs::rules::budget::Share;
use crate::supervision::runs::rules::errors::{AnswerError, LoadError, OverwriteError, SubmitError};
use crate::supervision::runs::rules::reopen::Conflicted;
use crate::supervision::runs::rules::requests::{Attempt, RequestKey, TurnOutcome, TurnReply, TurnRequest};
use crate::supervision::runs::rules::snapshot::Loaded;
use crate::supervision::runs::shard::beginning::Beginning;

/// Held for each run that recovery has found, and dropped when the run was read and what it waits for is known; recovery is over when the
/// last is dropped.
pub(crate) type RecoveryBarrier = watch::Sender<()>;

/// What is written with a record, made of what the record is about; nothing if it is too large to go along.
pub(crate) struct WithRecord<T>(pub(crate) Arc<MakeRider<T>>);

type MakeRider<T> = dyn Fn(&T) -> Option<Rider> + Send + Sync;

impl<T> Clone for WithRecord<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for WithRecord<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WithRecord")
    }
}

/// What is written with the last record of a run, unless the run leaves memory before.
#[derive(Clone, Debug)]
pub(crate) struct AtEnd {
    pub(crate) write: WithRecord<RunResult>,
    /// Set before the result is given to those who wait for it, if it was written.
    pub(crate) is_written: Arc<AtomicBool>,
}

/// A message for one run: a decision of the rules, or a question about the run's state. It waits while a commit of the run is
/// in flight, or while the run is read back. Turns are given by their numbers in the run.
#[derive(Debug)]
pub(crate) enum RunMessage {
    /// An attempt ended.
    Outcome {
        /// The turn.
        turn: u32,
        /// The attempt; a late outcome of an earlier one is dropped.
        attempt: Attempt,
        /// The turn had read untrusted input.
        is_tainted: bool,
        /// The command, or the failure.
        outcome: TurnOutcome,
        /// Set if the turn began ahead of its commit.
        beginning: Option<Arc<Beginning>>,
    },
    /// A turn asks for something.
    Request {
        /// The request and its turn.
        key: RequestKey,
        /// The attempt that sends it.
        attempt: Attempt,
        /// The turn had read untrusted input. Each request carries it, because one of them may be lost with a commit.
        is_tainted: bool,
        /// The request.
        request: TurnRequest,
        /// Receives the answer; `None` for requests that are only recorded.
        reply: Option<oneshot::Sender<TurnReply>>,
        /// Written with the record of a share that is reserved.
        with_share: Option<WithRecord<Share>>,
        /// Set if the turn began ahead of its commit.
        beginning: Option<Arc<Beginning>>,
    },
    /// A person answers a question.
    Answer {
        /// The request that asked.
        asked: RequestKey,
        /// The last part of the question's id.
        nonce: u64,
        /// The answer.
        answer: Json,
        /// The person, as the caller names them.
        by: Arc<str>,
        /// Completes when the answer is journaled.
        ack: oneshot::Sender<Result<(), AnswerError>>,
    },
    /// A person resumes an interrupted node.
    Resume {
        /// Its turn.
        turn: u32,
        /// The changes of the person.
        resume: Resume,
        /// The person, as the caller names them.
        by: Arc<str>,
        /// Completes when the resumption is journaled.
        ack: oneshot::Sender<Result<(), AnswerError>>,
    },
    /// An approval was decided.
    Decide {
        /// The request that asked.
        asked: RequestKey,
        /// The approval.
        approval: ApprovalId,
        /// The decision.
        decision: Decision,
    },
    /// Cancels the run.
    Cancel {
        /// Goes into the run's outcome.
        reason: String,
        /// Receives whether the run was open, once its end is journaled.
        ack: oneshot::Sender<bool>,
    },
    /// Who delegated the task from outside changes what it refers to.
    Refer {
        /// The new reference.
        reference: Option<Arc<str>>,
        /// Receives whether the run was open, once the change is journaled.
        ack: oneshot::Sender<bool>,
    },
    /// The run cannot continue: the store refuses what it would have to journal.
    Fail {
        /// Goes into the run's outcome.
        error: String,
    },
    /// A person restarts a turn that needs attention.
    RestartTurn {
        /// The turn.
        turn: u32,
        /// Completes when the restart is journaled.
        ack: oneshot::Sender<Result<(), AnswerError>>,
    },
    /// A person writes over the conflict that ended the run.
    Overwrite {
        /// The writes that replace the concurrent ones.
        update: Update,
        /// The person, as the caller names them.
        by: Arc<str>,
        /// Completes when the overwrite is journaled.
        ack: oneshot::Sender<Result<(), OverwriteError>>,
    },
    /// A caller waits for the run's result.
    Result {
        /// Receives the result; dropped if the run is not in memory.
        reply: oneshot::Sender<Arc<RunResult>>,
    },
    /// A caller reads what the run waits for people with.
    Pending {
        /// Receives it, without what has expired.
        reply: oneshot::Sender<Vec<Pending>>,
    },
    /// The runs before it in its conversation have ended.
    ConversationRead {
        /// The event with the messages that it reads.
        read: Box<RunEvent>,
    },
    /// The deadline of the run, or of one of its delegations or questions, has passed.
    Expired {
        /// The delegation or question; `None` for the run's own deadline.
        request: Option<RequestKey>,
    },
}

impl RunMessage {
    /// Whether it is of a turn that did not begin, because the commit ahead of which it began was lost.
    pub(crate) fn is_of_lost_turn(&self) -> bool {
        match self {
            Self::Outcome { beginning: Some(beginning), .. } | Self::Request { beginning: Some(beginning), .. } => {
                beginning.is_lost()
            }
            _ => false,
        }
    }
}

/// A message for a shard. What is not for one run is processed at once, also while a commit is in flight.
#[derive(Debug)]
pub(crate) enum ShardMessage {
    /// For one of its runs.
    Run {
        /// The run.
        run: RunId,
        /// The message.
        message: RunMessage,
    },
    /// A caller reads what all runs in memory wait for people with. Runs that are being read back are left out.
    Pending {
        /// Receives it in no order, without what has expired.
        reply: oneshot::Sender<Vec<Pending>>,
    },
    /// A new run.
    Submit {
        /// The task, accepted and with its first agent resolved.
        submission: Arc<Submission>,
        /// The conversation that the run enters.
        conversation: Option<ConversationId>,
        /// Counts against the limit of runs in flight; released when the run ends. `None` for a run beyond the limit.
        permit: Option<OwnedSemaphorePermit>,
        /// Receives the run's id once the submission is journaled.
        ack: oneshot::Sender<Result<RunId, SubmitError>>,
        /// Receives the result; dropped if the run existed already, or leaves memory before it ends.
        result: oneshot::Sender<Arc<RunResult>>,
        /// Written with the run's last record.
        at_end: Option<Box<AtEnd>>,
    },
    /// A run found in storage that is not finished.
    Adopt {
        /// The run.
        run: RunId,
        /// Whether another process left it.
        new_process: bool,
        /// Dropped when the run was read.
        recovery: Option<RecoveryBarrier>,
    },
    /// A run that no board works on is to end: it is taken over for that, also where the agents of its turns are not here.
    End {
        /// The run.
        run: RunId,
        /// Goes into the run's outcome.
        reason: String,
        /// Receives whether the run was open and free, once its end is journaled.
        ack: oneshot::Sender<bool>,
    },
    /// A run was read back.
    Loaded {
        /// The run.
        run: RunId,
        /// The life of the actor that asked for it; one of an earlier life is dropped.
        life: u64,
        /// Whether another process left it.
        new_process: bool,
        /// Dropped with this message.
        recovery: Option<RecoveryBarrier>,
        /// The run that was read.
        loaded: Result<ReadBack, LoadError>,
    },
    /// The run of an overwrite was read back.
    Reopened {
        /// The run.
        run: RunId,
        /// The life of the actor that asked for it; one of an earlier life is dropped.
        life: u64,
        /// The run that was read, and the overwrite.
        reopened: Box<Reopened>,
    },
    /// An append has ended.
    Committed {
        /// The run.
        run: RunId,
        /// The life of the actor that began it; one of an earlier life is dropped.
        life: u64,
        /// The new sequence, or why there is none.
        result: Result<Sequence, StorageError>,
    },
    /// Dispatches a turn of a run that was read back, unless an earlier message is its outcome.
    Redispatch {
        /// The turn.
        turn: TurnId,
    },
    /// Checks again whether a run that waits in its conversation may start.
    LookAtConversation {
        /// The run.
        run: RunId,
    },
    /// Runs between turns go to other boards.
    HandOver {
        /// Chooses the boards.
        handing_over: Arc<HandingOver>,
        /// Receives the runs that this board does not work on any more, with the ids of the boards that they go to.
        reply: oneshot::Sender<Vec<(RunId, Arc<str>)>>,
    },
    /// A timer is due.
    Tick,
}

/// What a board needs to know to give runs to others.
pub(crate) struct HandingOver {
    /// The turns that have begun here, and whether they are at work; no other begins.
    pub(crate) begun: HashMap<RunId, Vec<(u32, bool)>>,
    /// The board that a run goes to that needs these agents; `None` if there is none.
    pub(crate) choose: Box<Choose>,
}

type Choose = dyn Fn(&BTreeSet<AgentName>) -> Option<Arc<str>> + Send + Sync;

impl fmt::Debug for HandingOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandingOver").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// A run that was read back.
#[derive(Debug)]
pub(crate) struct ReadBack {
    /// What was read.
    pub(crate) read: Box<Loaded>,
    /// The boards that ended one after the other while they worked on it.
    pub(crate) lost: Vec<Arc<str>>,
    /// Turns that would need attention, were it not for the runs of workflows that they have begun: those are executed, and not they.
    pub(crate) in_workflows: BTreeSet<u32>,
}

impl ReadBack {
    pub(crate) fn of(read: Loaded) -> Self {
        Self { read: Box::new(read), lost: Vec::new(), in_workflows: BTreeSet::new() }
    }
}

/// A run that is to continue after a conflict.
#[derive(Debug)]
pub(crate) struct Reopened {
    /// What was read, and up to which record.
    pub read: Result<(Conflicted, Sequence), OverwriteError>,
    /// What replaces the concurrent writes.
    pub update: Update,
    /// The person, as the caller names them.
    pub by: Arc<str>,
    /// Completes when the overwrite is journaled.
    pub ack: oneshot::Sender<Result<(), OverwriteError>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_for_a_run_costs_the_queue_no_more_than_the_runs_id() {
        assert_eq!(size_of::<ShardMessage>(), size_of::<RunMessage>() + size_of::<RunId>());
    }
}
