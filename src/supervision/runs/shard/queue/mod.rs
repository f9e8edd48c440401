//! The inbox of a run supervisor: what arrives is collected, and worked off by whoever hands something in, or by the
//! actor. The inbox lives outside the actor, so what was handed in survives the actor's restart.

mod work;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use work::Failure;

use crate::messages::{
    ApprovalId, ConversationId, Decision, Json, Question, QuestionId, RequestId, RunEvent, RunId, RunResult,
    Submission, TurnId, Update,
};
use crate::storage::{Fence, Sequence, StorageError};
use crate::supervision::Mailbox;
use crate::supervision::runs::rules::errors::{AnswerError, LoadError, SubmitError};
use crate::supervision::runs::rules::interrupts::{Interrupt, Resume, ResumeError};
use crate::supervision::runs::rules::reopen::{Conflicted, OverwriteError};
use crate::supervision::runs::rules::requests::{TurnOutcome, TurnReply, TurnRequest};
use crate::supervision::runs::rules::snapshot::Loaded;

use super::supervisor::Wake;

pub use work::EnqueueGuard;
pub(in crate::supervision::runs) use work::Open;

/// Where everything for one run supervisor is handed in.
#[derive(Default)]
pub struct ShardQueue {
    waiting: Mutex<VecDeque<ShardMessage>>,
    /// Whoever has the lock does the work. `None` while the actor is down.
    open: Mutex<Option<Open>>,
    /// What has gone wrong at the desk; the actor has yet to fail with it.
    failure: Mutex<Option<Failure>>,
    /// The actor in its present life, or in its last one.
    actor: Mailbox<Wake>,
}

impl ShardQueue {
    /// Takes everything that has arrived. What arrives from now on is collected in `buffer`.
    pub(crate) fn take(&self, buffer: VecDeque<ShardMessage>) -> Batch<'_> {
        let inputs = std::mem::replace(&mut *self.waiting.lock(), buffer);
        Batch { inputs, queue: self }
    }

    /// Puts these before everything that waits. Wakes nobody: the caller works the queue off next.
    pub(in crate::supervision::runs) fn put_first(&self, inputs: impl Iterator<Item = ShardMessage>) {
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

impl fmt::Debug for ShardQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

/// What was taken from an inbox. What is left when it is dropped goes back: a panic loses only the input that caused it.
pub(crate) struct Batch<'a> {
    inputs: VecDeque<ShardMessage>,
    queue: &'a ShardQueue,
}

impl Batch<'_> {
    /// The emptied buffer, for the next time; a large one is given back to the system.
    pub(in crate::supervision::runs) fn into_buffer(mut self) -> VecDeque<ShardMessage> {
        const KEPT: usize = 256;
        let is_kept = self.inputs.is_empty() && self.inputs.capacity() <= KEPT;
        if is_kept { std::mem::take(&mut self.inputs) } else { VecDeque::new() }
    }
}

impl Iterator for Batch<'_> {
    type Item = ShardMessage;

    fn next(&mut self) -> Option<ShardMessage> {
        self.inputs.pop_front()
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.inputs.is_empty() {
            self.queue.put_first(std::mem::take(&mut self.inputs).into_iter());
        }
    }
}

/// Held for each run that recovery has found, until the run was read; the start is over when the last of them is dropped.
pub type RecoveryBarrier = watch::Sender<()>;

/// What a run supervisor reacts to.
#[derive(Debug)]
pub enum ShardMessage {
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
        recovery: Option<RecoveryBarrier>,
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
        /// The turn had read untrusted input.
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
        /// The turn had read untrusted input. Each request has this, because one of them may be lost with a commit.
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
        recovery: Option<RecoveryBarrier>,
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
