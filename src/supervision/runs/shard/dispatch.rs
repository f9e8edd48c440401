//! The interface between run supervisors and agents: ready turns go out, outcomes and requests return.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::messages::state::RunFigures;
use crate::messages::{
    AgentName, ApprovalId, Authority, Chain, Durability, EarlierAnswer, Envelope, Json, PlacedTurn, RequestId,
    RunEvent, RunId, RunMetrics, State, Submission, Timestamp, TurnId,
};
use crate::storage::StorageError;
use crate::supervision::runs::rules::budget::Share;
use crate::supervision::runs::rules::directory::AgentDirectory;
use crate::supervision::runs::rules::rare::{Parts, Rare};
use crate::supervision::runs::rules::requests::{Attempt, RequestKey, TurnOutcome, TurnReply, TurnRequest};
use crate::supervision::runs::rules::run::{self, Answered, Records, Run};

use super::beginning::Beginning;
use super::queue::{EnqueueGuard, RunMessage, ShardMessage, ShardQueue, WithRecord};

/// Carries out what run supervisors decide. The router implements it.
pub(crate) trait Dispatch: AgentDirectory {
    /// Queues a ready turn with its agent. Starting the same attempt of a turn again changes nothing.
    fn start(&self, turn: Box<ReadyTurn>);

    /// As [`start`](Self::start), for turns of one agent, in this order.
    #[allow(clippy::vec_box, reason = "a turn stays where it was made")]
    fn start_row(&self, turns: Vec<Box<ReadyTurn>>);

    /// Whether a worker has finished the turn: its outcome is in the queue, or was lost with a crash.
    fn has_reported(&self, turn: TurnId, agent: &AgentName) -> bool;

    /// Stops the worker that has the turn.
    fn abort(&self, turn: TurnId, agent: &AgentName);

    /// Stops the workers of the run's turns that are not among these: a run that was read back has ended the others.
    fn abort_all_but(&self, run: RunId, open: &[TurnId]);

    /// Asks people for a decision. Asking again for the same envelope changes nothing.
    fn request_approval(&self, envelope: &Envelope);

    /// Withdraws the question: the decision is no longer needed.
    fn withdraw_approval(&self, approval: ApprovalId);

    /// A node of the run waits for a person.
    fn interrupted(&self, run: &Run);

    /// The first of these events was journaled: the `sequence`-th of its run, from 1. The others follow, and `run` has all of
    /// them, and may have later ones.
    fn journaled(&self, run: &Run, sequence: u64, events: &[RunEvent], inboxes: &mut Inboxes);

    /// Adds the inboxes that have messages of these events, which will be the run's last, and of its end.
    fn last_inboxes(&self, run: &Run, events: &[RunEvent], inboxes: &mut Inboxes);

    /// A delegation was answered.
    fn answered(&self, run: &Run, answered: &Answered, inboxes: &mut Inboxes);

    /// A run has ended; all of its events were passed to [`journaled`](Self::journaled).
    fn ended(&self, run: &Run, inboxes: &mut Inboxes);

    /// Cancels the run that a turn is at another board. `false` if the board ends first.
    fn cancel_elsewhere(&self, run: RunId) -> BoxFuture<'static, bool>;

    /// The inboxes that have messages of a run, from its journal.
    fn inboxes_of(&self, run: RunId) -> BoxFuture<'static, Result<Vec<AgentName>, StorageError>>;
}

/// The inboxes that have messages of a run; `None` if it was read back, so that the earlier ones are not known.
#[derive(Debug)]
pub(crate) struct Inboxes(pub(crate) Option<Vec<AgentName>>);

impl Inboxes {
    /// Adds the owner of an inbox.
    pub(crate) fn add(&mut self, owner: &AgentName) {
        if let Self(Some(inboxes)) = self
            && !inboxes.contains(owner)
        {
            inboxes.push(owner.clone());
        }
    }
}

/// A turn that a worker may take, with everything that the worker needs.
#[derive(Clone, Debug)]
pub(crate) struct ReadyTurn {
    /// The turn's id.
    pub id: TurnId,
    /// Which try this is.
    pub attempt: Attempt,
    /// The agent that takes it.
    pub agent: AgentName,
    /// Whether it is taken for the run of another board, which applies its command.
    pub is_for_another_board: bool,
    /// The value that it works on.
    pub input: Json,
    /// The state as the turns before this one left it.
    pub view: State,
    /// What the run had used when the turn was admitted, if the turn sees that as [`Schema::METRICS`](crate::messages::Schema::METRICS).
    pub figures: Option<RunFigures>,
    /// Whether the turn sees who had control before it in its state.
    pub shows_previous_agent: bool,
    /// The delegations that led here.
    pub chain: Chain,
    /// The agent that had control before.
    pub previous_agent: Option<AgentName>,
    /// What the turn may cause.
    pub authority: Authority,
    /// The run had read untrusted input when the turn was admitted.
    pub is_tainted: bool,
    /// The run had read untrusted input when this attempt began: an earlier attempt of the turn may have kept some outside of the run.
    pub is_run_tainted: bool,
    /// What the run took so far.
    pub metrics: RunMetrics,
    /// What the run was submitted with.
    pub submission: Arc<Submission>,
    /// The requests of earlier attempts with their answers, by ordinal.
    pub records: Rare<Records>,
    /// How durable the run's writes are.
    pub durability: Durability,
    /// Its run was read back, so that the turn may have begun before, also at another board.
    pub is_recovered: bool,
    /// The clock's monotonic reading when it became ready, in nanoseconds.
    pub ready_at: u64,
    /// Where its outcome and requests go.
    pub sink: TurnSink,
    pub extras: Rare<ReadyExtras>,
}

/// What most turns have not.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadyExtras {
    /// The node of the run's workflow that it works on; see [`Run::node_of`](crate::supervision::runs::Run::node_of).
    pub node: Option<Arc<str>>,
    /// The timeout of each attempt, if its plan sets one; the agent's own otherwise.
    pub timeout: Option<Duration>,
    /// The answers to its parent's earlier delegations, if it is a delegated turn.
    pub answers: Option<Arc<[EarlierAnswer]>>,
    /// The outside resource that its delegation, or the task of its run, is about.
    pub reference: Option<Arc<str>>,
    /// When it expires, if it or its run has a deadline.
    pub deadline: Option<Timestamp>,
    /// The definitions of a dynamic agent and of those that created it, from the one that the host's agent created.
    pub made: Option<Arc<[Json]>>,
    /// The messages of the run's conversation that it sees, if it belongs to one and has read them: an array.
    pub conversation: Option<Json>,
}

impl Parts for ReadyExtras {
    fn empty() -> &'static Self {
        static EMPTY: ReadyExtras = ReadyExtras {
            node: None,
            timeout: None,
            answers: None,
            reference: None,
            deadline: None,
            made: None,
            conversation: None,
        };
        &EMPTY
    }

    fn is_empty(&self) -> bool {
        let Self { node, timeout, answers, reference, deadline, made, conversation } = self;
        node.is_none()
            && timeout.is_none()
            && answers.is_none()
            && reference.is_none()
            && deadline.is_none()
            && made.is_none()
            && conversation.is_none()
    }
}

impl ReadyTurn {
    /// The clock's monotonic reading when it became ready.
    pub(crate) fn ready_at(&self) -> Duration {
        Duration::from_nanos(self.ready_at)
    }

    /// Whether an attempt of it has asked for something, such as a step.
    pub(crate) fn has_requests(&self) -> bool {
        run::has_requests(&self.records)
    }

    /// Whether a run at another board takes it, or may.
    pub(crate) fn is_taken_elsewhere(&self) -> bool {
        run::is_taken_elsewhere(&self.records)
    }

    /// The turn of another board's run that it is, or whose late answers it has.
    pub(crate) fn placed(&self) -> Option<&PlacedTurn> {
        self.submission.task.placed.as_deref().filter(|_| self.is_for_another_board)
    }

    /// With what its agent sees of the run that waits for it, besides the state.
    pub(crate) fn seen_from_there(mut self: Box<Self>) -> Box<Self> {
        if let Some(placed) = self.placed().cloned() {
            self.figures = placed.figures;
            if placed.node.is_some() || self.extras.node.is_some() {
                self.extras.node = placed.node;
            }
            if placed.conversation.is_some() || self.extras.conversation.is_some() {
                self.extras.conversation = placed.conversation;
            }
        }
        self
    }
}

/// The sink through which a worker sends a turn's outcome and requests to the run's supervisor. A cheap clone. Each call returns
/// a guard: dropped, it wakes the supervisor, and [`EnqueueGuard::drain`] processes the message on this thread.
#[derive(Clone, Debug)]
pub(crate) struct TurnSink {
    queue: Arc<ShardQueue>,
    /// Set if the turn began ahead of its commit.
    beginning: Option<Arc<Beginning>>,
}

impl TurnSink {
    /// The sink of a turn of a shard.
    #[must_use]
    pub(crate) fn new(queue: Arc<ShardQueue>, beginning: Option<Arc<Beginning>>) -> Self {
        Self { queue, beginning }
    }

    /// Whether the turn did not begin: what it sends is refused.
    pub(crate) fn is_lost(&self) -> bool {
        self.beginning.as_ref().is_some_and(|beginning| beginning.is_lost())
    }

    /// Whether the turn began ahead of its commit, which may be acknowledged by now.
    pub(crate) fn is_ahead(&self) -> bool {
        self.beginning.is_some()
    }

    /// Waits until the commit with which the turn began is acknowledged; `false` if it is lost.
    pub(crate) async fn is_committed(&self) -> bool {
        match &self.beginning {
            Some(beginning) => beginning.is_journaled().await,
            None => true,
        }
    }

    /// Processes what is enqueued, on this thread.
    pub(crate) fn drain(&self) {
        self.queue.drain();
    }

    /// Sends how an attempt ended; `is_tainted` if the turn had read untrusted input.
    pub(crate) fn outcome(
        &self,
        turn: TurnId,
        attempt: Attempt,
        is_tainted: bool,
        outcome: TurnOutcome,
    ) -> EnqueueGuard<'_> {
        let beginning = self.beginning.clone();
        let message = RunMessage::Outcome { turn: turn.number, attempt, is_tainted, outcome, beginning };
        self.queue.enqueue(ShardMessage::Run { run: turn.run, message })
    }

    /// Sends a request of an attempt; `reply` receives the answer, if there is to be one. `with_share` is written with the record of a
    /// share that it reserves.
    pub(crate) fn request(
        &self,
        RequestId { turn, ordinal }: RequestId,
        attempt: Attempt,
        is_tainted: bool,
        request: TurnRequest,
        reply: Option<oneshot::Sender<TurnReply>>,
        with_share: Option<WithRecord<Share>>,
    ) -> EnqueueGuard<'_> {
        let key = RequestKey { turn: turn.number, ordinal };
        let beginning = self.beginning.clone();
        let message = RunMessage::Request { key, attempt, is_tainted, request, reply, with_share, beginning };
        self.queue.enqueue(ShardMessage::Run { run: turn.run, message })
    }
}
