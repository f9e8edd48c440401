//! The message queue of a run supervisor. The thread that enqueues a message drains the queue, unless another one holds
//! the shard's lock; the actor drains what they leave. The queue lives outside the actor, so messages survive its restart.

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

/// The queue of one run supervisor, and the lock of its shard. Shared by everything that sends to it.
#[derive(Default)]
pub struct ShardQueue {
    /// Enqueued and not yet taken by the lock holder, in order of arrival.
    waiting: Mutex<VecDeque<ShardMessage>>,
    /// The shard: whoever holds the lock drains the queue. Set when a life of the actor begins; `None` while the actor is down.
    open: Mutex<Option<Open>>,
    /// Why the last drain stopped: set by the lock holder with `open` set to `None`, taken by the actor, which fails with it.
    failure: Mutex<Option<Failure>>,
    /// The actor in its current life, or its last one while it is down; receives [`Wake`].
    actor: Mailbox<Wake>,
}

impl ShardQueue {
    /// Takes all waiting messages. Later ones are collected in `buffer`, which is empty.
    pub(crate) fn take(&self, buffer: VecDeque<ShardMessage>) -> Batch<'_> {
        let inputs = std::mem::replace(&mut *self.waiting.lock(), buffer);
        Batch { inputs, queue: self }
    }

    /// Puts messages before all that wait. Wakes nobody: the caller drains the queue next.
    pub(in crate::supervision::runs) fn put_first(&self, inputs: impl Iterator<Item = ShardMessage>) {
        let mut waiting = self.waiting.lock();
        let later = std::mem::take(&mut *waiting);
        waiting.extend(inputs.chain(later));
    }

    /// The number of waiting messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

impl fmt::Debug for ShardQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardQueue").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

/// Messages taken from a queue. Dropped, it puts the rest back in front: a panic loses only the message that caused it.
pub(crate) struct Batch<'a> {
    inputs: VecDeque<ShardMessage>,
    queue: &'a ShardQueue,
}

impl Batch<'_> {
    /// The emptied buffer, for reuse; one of more than `KEPT` messages is freed.
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

/// Held for each run that recovery has found, and dropped when the run was read; recovery is over when the last is dropped.
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
        /// Counts against the limit of runs in flight; released when the run ends. `None` for a run without a limit.
        permit: Option<OwnedSemaphorePermit>,
        /// Receives the run's id once the submission is journaled.
        ack: oneshot::Sender<Result<RunId, SubmitError>>,
        /// Receives the result; dropped if the run existed already, or leaves memory before it ends.
        result: oneshot::Sender<Arc<RunResult>>,
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
    /// Dispatches a turn of a run that was read back, unless an earlier message is its outcome.
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
        /// The command, or the failure.
        outcome: TurnOutcome,
    },
    /// A turn asks for something.
    Request {
        /// The turn and the request's place in it.
        id: RequestId,
        /// Which attempt.
        attempt: u32,
        /// The turn had read untrusted input. Each request carries it, because one of them may be lost with a commit.
        is_marked: bool,
        /// The request.
        request: TurnRequest,
        /// Receives the answer; `None` for requests that are only recorded.
        reply: Option<oneshot::Sender<TurnReply>>,
    },
    /// A person answers a question.
    Answer {
        /// The question.
        question: QuestionId,
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
        turn: TurnId,
        /// What the person changed.
        resume: Resume,
        /// The person, as the caller names them.
        by: Arc<str>,
        /// Completes when the resumption is journaled.
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
    /// Cancels the run.
    Cancel {
        /// The run.
        run: RunId,
        /// Goes into the run's outcome.
        reason: String,
        /// Receives whether the run was open, once its end is journaled.
        ack: oneshot::Sender<bool>,
    },
    /// The run cannot continue: the store refuses what it would have to journal.
    Fail {
        /// The run.
        run: RunId,
        /// Goes into the run's outcome.
        error: String,
    },
    /// A person restarts the turns that need attention.
    RestartTurns {
        /// The run.
        run: RunId,
        /// Receives their number.
        ack: oneshot::Sender<usize>,
    },
    /// A person writes over the conflict that ended a run.
    Overwrite {
        /// The run.
        run: RunId,
        /// What replaces the concurrent writes.
        update: Update,
        /// The person, as the caller names them.
        by: Arc<str>,
        /// Completes when the overwrite is journaled.
        ack: oneshot::Sender<Result<(), OverwriteError>>,
    },
    /// The run of an overwrite was read back.
    Reopened {
        /// The run.
        run: RunId,
        /// The life of the actor that asked for it; one of an earlier life is dropped.
        life: u64,
        /// What was read, and what replaces the writes.
        reopened: Box<Reopened>,
    },
    /// A caller waits for the run's result.
    Result {
        /// The run.
        run: RunId,
        /// Receives the result; dropped if the run is not in memory.
        reply: oneshot::Sender<Arc<RunResult>>,
    },
    /// A caller reads the open questions of the run.
    Questions {
        /// The run.
        run: RunId,
        /// Receives them in the order of their turns.
        reply: oneshot::Sender<Vec<Question>>,
    },
    /// A caller reads the nodes of the run that wait for a person.
    Interrupts {
        /// The run.
        run: RunId,
        /// Receives them in the order of their turns.
        reply: oneshot::Sender<Vec<Interrupt>>,
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
        /// What was read, under which claim.
        loaded: Result<Box<(Loaded, Fence)>, LoadError>,
    },
    /// Checks again whether a run that waits in its conversation may start.
    LookAtConversation {
        /// The run.
        run: RunId,
    },
    /// The runs before it in its conversation have ended.
    ConversationRead {
        /// The run.
        run: RunId,
        /// What it reads.
        read: Box<RunEvent>,
    },
    /// A timer is due.
    Tick,
    /// The deadline of a run, or of one of its delegations or questions, has passed.
    Expired {
        /// The run.
        run: RunId,
        /// The turn and ordinal of the delegation or question; `None` for the run's own deadline.
        delegation: Option<(u32, u32)>,
    },
}

/// A run that is to continue after a conflict.
#[derive(Debug)]
pub struct Reopened {
    /// What was read, up to which record, under which fence.
    pub read: Result<(Conflicted, Sequence, Fence), OverwriteError>,
    /// What replaces the concurrent writes.
    pub update: Update,
    /// The person, as the caller names them.
    pub by: Arc<str>,
    /// Completes when the overwrite is journaled.
    pub ack: oneshot::Sender<Result<(), OverwriteError>>,
}
