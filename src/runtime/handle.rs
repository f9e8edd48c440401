//! The handle of a running board: tasks are submitted to it, and people answer through it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_text::nearest;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::actors::approvals::{ChannelView, Decider};
use crate::actors::boards::Boards;
use crate::actors::context::ContextStore;
use crate::actors::metrics::count_refused;
use crate::actors::{Router, Scheduler, ShardQueues, want, wants_next};
use crate::env::{Env, Mutant};
use crate::messages::state::StateRules;
use crate::messages::{
    AgentName, BoardAgent, BoardEntry, BoardInfo, Chain, Complexity, ConversationId, Durability, Json, Limits,
    OverLimit, Refusal, RunId, Submission, Task, Timestamp, TraceId, Unacknowledged,
};
use crate::storage::board_store::BoardStore;
use crate::storage::{Journal, Storage, StorageError};
use crate::supervision::answer_of;
use crate::supervision::runs::conversing::ConversationQueue;
use crate::supervision::runs::facts::SharedFacts;
use crate::supervision::runs::ownership::Ownership;
use crate::supervision::runs::queue::{AtEnd, RunMessage, ShardMessage, ShardQueue};
use crate::supervision::runs::roster::Roster;
use crate::supervision::runs::rules::directory::AgentDirectory as _;
use crate::supervision::runs::rules::errors::SubmitError;
use crate::supervision::runs::snapshot::load;
use crate::supervision::runs::supervisor::MemoryRuns;
use crate::supervision::tree::{EndReason, Supervisor, SupervisorRef};

use super::announcing::Announcing;
use super::differences::Differences;
use super::run_handle::RunHandle;
use super::settings::{Classifier, Settings};

/// A running board. A cheap clone; all clones are the same board. Dropping it does not stop it: [`Callboard::shutdown`]
/// does.
#[derive(Clone)]
pub struct Callboard {
    pub(super) board: Arc<Board>,
}

pub(super) struct Board {
    pub(super) env: Env,
    pub(super) store: Arc<BoardStore>,
    pub(super) journal: Journal,
    pub(super) ownership: Ownership,
    pub(super) conversations: ConversationQueue,
    /// The error with which the store stopped: the board ends with it.
    pub(super) store_failure: Arc<OnceLock<StorageError>>,
    /// The cause, for people.
    pub(super) store_loss: Arc<OnceLock<Arc<str>>>,
    /// Closed when the runs that were found at the start have been read.
    pub(super) recovered: watch::Receiver<()>,
    pub(super) shards: Arc<ShardQueues>,
    /// The runs of each shard.
    pub(super) rosters: Vec<Arc<Roster>>,
    /// The ended runs of each shard whose journals are in memory only.
    pub(super) memory_runs: Vec<Arc<MemoryRuns>>,
    /// Set when the list of ended runs is complete.
    pub(super) listing: tokio::sync::OnceCell<()>,
    /// Whether the store lists all failures.
    pub(super) failures: tokio::sync::OnceCell<()>,
    pub(super) facts: Arc<SharedFacts>,
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) router: Arc<Router>,
    pub(super) boards: Arc<Boards>,
    /// The agents of other boards that stand here, as these boards describe them.
    pub(super) agents_elsewhere: tokio::sync::Mutex<BTreeMap<AgentName, BoardAgent>>,
    /// Changes of its agents that others do not know yet.
    pub(super) announcing: Mutex<Announcing>,
    /// Which agents it declares differently than others do.
    pub(super) differences: Mutex<Differences>,
    /// What the board says about itself to the others, without its agents.
    pub(super) about: Arc<dyn Fn() -> BoardInfo + Send + Sync>,
    /// The same with its agents, as bytes.
    pub(super) written: Arc<dyn Fn() -> Arc<[u8]> + Send + Sync>,
    pub(super) context: ContextStore,
    pub(super) decider: Decider,
    pub(super) channels: Arc<[Arc<ChannelView>]>,
    pub(super) rules: StateRules,
    pub(super) quarantine: Arc<Mutex<BTreeMap<RunId, String>>>,
    pub(super) tree: Supervisor,
    pub(super) agents: SupervisorRef,
    pub(super) settings: Settings,
    pub(super) durability: Durability,
    pub(super) run_permits: Arc<Semaphore>,
    /// The number of runs in progress without a permit.
    pub(super) without_permit: Arc<AtomicUsize>,
    /// Agents are spawned, replaced and stopped one at a time.
    pub(super) submissions: tokio::sync::RwLock<()>,
}

/// What a run submitted by a turn inherits from it. Boxed: callers that wait hold room for one, and few have one.
#[derive(Clone)]
pub(super) struct Lineage {
    /// The delegations that led to it.
    pub(super) chain: Chain,
    /// The trace of the turn that submits it.
    pub(super) trace: TraceId,
    /// What is written with its last record, for the board that waits for it.
    pub(super) at_end: Option<Box<AtEnd>>,
}

impl Callboard {
    /// Submits a task and returns when it is journaled as durably as it asked. Waits for a permit when too many runs are in
    /// flight, or too many turns are ready for its agent. A task for an agent that another board on the store hosts is accepted by that
    /// board (SEMANTICS 16).
    ///
    /// # Errors
    /// See [`SubmitError`]. Submitting again is safe for a task with an id of its own.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would hold the task twice, and many may wait here")]
    pub fn submit(&self, mut task: Task) -> impl Future<Output = Result<RunHandle, SubmitError>> + Send {
        async move {
            let submitted = match Arc::clone(&self.board.run_permits).acquire_owned().await {
                Ok(permit) => self.accept(&mut task, Some(permit), true, None).await,
                Err(_) => Err(Refusal::ShuttingDown.into()),
            };
            match self.or_where_it_is(submitted, task) {
                Ok(submitted) => submitted,
                Err(elsewhere) => elsewhere.await,
            }
            .inspect_err(count_if_refused)
        }
    }

    /// What became of a submission; if this board does not have the agent, what becomes of it at the board that has it. Callers that
    /// wait hold no room for that.
    fn or_where_it_is(
        &self,
        submitted: Result<RunHandle, SubmitError>,
        task: Task,
    ) -> Result<Result<RunHandle, SubmitError>, BoxFuture<'static, Result<RunHandle, SubmitError>>> {
        match submitted {
            Err(error) if is_not_here(&error) => {
                let board = self.clone();
                Err(Box::pin(async move { board.submit_where_it_is(task, true, None, error).await }))
            }
            submitted => Ok(submitted),
        }
    }

    /// As [`Callboard::submit`], but returns [`Refusal::Overloaded`] at once when there is no permit.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub async fn try_submit(&self, task: Task) -> Result<RunHandle, SubmitError> {
        self.try_submit_from(task, None).await
    }

    /// As [`Callboard::try_submit`], for a task that a turn submits.
    pub(super) async fn try_submit_from(
        &self,
        mut task: Task,
        lineage: Option<Box<Lineage>>,
    ) -> Result<RunHandle, SubmitError> {
        match self.try_accept(&mut task, lineage.clone()).await {
            Err(error) if is_not_here(&error) => {
                let elsewhere = Box::pin(self.submit_where_it_is(task, false, lineage, error)).await;
                elsewhere.inspect_err(count_if_refused)
            }
            submitted => submitted.inspect_err(count_if_refused),
        }
    }

    /// Accepts a task, unless too many runs are in flight.
    pub(super) async fn try_accept(
        &self,
        task: &mut Task,
        lineage: Option<Box<Lineage>>,
    ) -> Result<RunHandle, SubmitError> {
        match Arc::clone(&self.board.run_permits).try_acquire_owned() {
            Ok(permit) => self.accept(task, Some(permit), false, lineage).await,
            Err(_) if self.board.is_closed() => Err(Refusal::ShuttingDown.into()),
            Err(_) => Err(Refusal::Overloaded { what: "the board".into(), retry_after: Duration::from_secs(1) }.into()),
        }
    }

    /// The limits of a task that names none.
    async fn classify(&self, task: &Task) -> Limits {
        let class = match &self.board.settings.classifier {
            Classifier::None => Complexity::default(),
            Classifier::Function(classify) => classify(task),
            Classifier::Agent(agent) => self.class_by(agent, task).await.unwrap_or_else(|error| {
                tracing::warn!(agent = &**agent, %error, "the task was not classified; it is taken as complex");
                Complexity::default()
            }),
        };
        Limits { attempts: self.board.settings.attempts, ..Limits::of(class) }
    }

    async fn wait_for_room(&self, agent: &AgentName) -> Result<Option<OwnedMutexGuard<()>>, Refusal> {
        let first_of_callers = tokio::select! {
            biased;
            first = self.board.scheduler.wait_for_capacity(agent) => first,
            _ = self.ended() => None,
        };
        if self.board.is_closed() { Err(Refusal::ShuttingDown) } else { Ok(first_of_callers) }
    }

    /// Accepts a task; without a permit the run is beyond the board's limit of runs in flight.
    pub(super) async fn accept(
        &self,
        task: &mut Task,
        mut permit: Option<OwnedSemaphorePermit>,
        waits_for_room: bool,
        lineage: Option<Box<Lineage>>,
    ) -> Result<RunHandle, SubmitError> {
        let board = &self.board;
        if board.is_closed() {
            return Err(Refusal::ShuttingDown.into());
        }
        if task.input.as_ref().is_some_and(Json::is_too_deep) {
            return Err(OverLimit::depth("the input").into());
        }
        let (cast, agent) = board.target_of(task)?;
        if let (Some(id), Some(plan)) = (task.id, &task.plan) {
            Box::pin(board.check_same_plan(id, plan)).await?;
        }
        board.check_is_here(&agent)?;
        if let Some(conversation) = &task.conversation {
            Box::pin(board.check_owner(conversation, task, &agent)).await?;
        }
        // The next caller checks when this task is among the ready turns, or was refused.
        let first_of_callers = match board.router.check_room(&agent) {
            Ok(()) => None,
            Err(_) if waits_for_room => Box::pin(self.wait_for_room(&agent)).await?,
            Err(overloaded) => return Err(overloaded.into()),
        };
        if first_of_callers.is_some() {
            // The agent may have been stopped while the task waited.
            board.check_is_here(&agent)?;
        }
        if task.limits.is_none() {
            task.limits = Some(self.classify(task).await);
        }
        board.settings.run_limits.bound_task(task);
        let at = board.env.now().wall;
        let run = task.id.filter(|_| !Mutant::SubmitTwice.is_injected()).unwrap_or_else(|| board.new_run(at));
        want(run);
        let Lineage { chain, trace, at_end } = match lineage {
            Some(lineage) => *lineage,
            None => Lineage { chain: Chain::default(), trace: TraceId(run.0), at_end: None },
        };
        let submission = {
            let mut task = Task { conversation: None, ..task.clone() };
            // It shares the name's memory, which the run has anyway.
            if task.to.as_deref() == Some(agent.as_str()) {
                task.to = Some((&agent).into());
            }
            Arc::new(Submission { run, trace, task, agent, cast, chain, at })
        };
        // A submission that is lost with its supervisor was not journaled, or is answered with its run, so it is sent once more.
        for _ in 0..2 {
            let (sender, result) = oneshot::channel();
            let permit = permit.take().or_else(|| Arc::clone(&board.run_permits).try_acquire_owned().ok());
            let (submitted, entered) = (Arc::clone(&submission), task.conversation.clone());
            let submit = |ack| ShardMessage::Submit {
                submission: submitted,
                conversation: entered,
                permit,
                ack,
                result: sender,
                at_end: at_end.clone(),
            };
            if let Some(accepted) = self.ask_shard(run, submit).await {
                let run = accepted?;
                if let Some(conversation) = &task.conversation {
                    Box::pin(board.take_place(conversation, &submission)).await;
                }
                return Ok(RunHandle::submitted(run, self.clone(), result));
            }
        }
        Err(Unacknowledged::Submission.into())
    }

    /// The id of this board, a UUID. The store has it for each of the board's open runs, so that other processes find the board
    /// that works on a run ([`Journal::board_of`](crate::storage::Journal::board_of)).
    #[must_use]
    pub fn id(&self) -> &str {
        self.board.ownership.board()
    }

    /// The boards on the store that live, this one included, and those that are gone and have left runs that nobody has taken over yet.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let coder = |_: Turn| async { Ok(Command::output("done")) };
    /// let board = Callboard::builder().name("a").agent("coder", coder).start().await?;
    /// let boards = board.boards().await?;
    /// assert_eq!((&*boards[0].name, &*boards[0].info.id), ("a", board.id()));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// What the store reports.
    pub async fn boards(&self) -> Result<Vec<BoardEntry>, StorageError> {
        self.board.journal.boards_with_left().await
    }

    /// The handle of a run that was submitted before, also by an earlier process.
    #[must_use]
    pub fn run(&self, run: RunId) -> RunHandle {
        RunHandle::new(run, self.clone())
    }

    /// On which day of the limits of a day a time is, counted from 1970-01-01 ([`DayLimits::days`](crate::actors::DayLimits::days)).
    #[must_use]
    pub fn day_of(&self, at: Timestamp) -> u32 {
        self.board.settings.day_limits.day_of(at)
    }

    /// Waits until the unfinished runs that were found at the start have been read, and are resumed, are quarantined, or were
    /// found to belong to another board; what those that are resumed wait for is among [`PeopleHandle::pending`](super::PeopleHandle::pending) by then. A board takes
    /// work before that.
    pub async fn recovered(&self) {
        // The sender is only dropped, never used.
        let _ = self.board.recovered.clone().changed().await;
    }

    /// Resumes one unfinished run that the board's start left as it was found (see
    /// [`Unfinished::Leave`](super::Unfinished::Leave)), and waits until the run has been read. One that this board
    /// works on already is not changed; one that has ended, or that does not exist, stays as it is.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use callboard::env::Env;
    /// use callboard::prelude::*;
    /// use callboard::runtime::Unfinished;
    /// use callboard::storage::Memory;
    /// use callboard::messages::Durability;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let store = Arc::new(Memory::new(Env::system().clock()));
    /// let board = |agent: &'static str| {
    ///     Callboard::builder()
    ///         .storage(store.clone())
    ///         .on_unfinished(Unfinished::Leave)
    ///         .agent("host", move |turn: Turn| async move {
    ///             if agent == "slow" { turn.people().ask("Who is there?").await? } else { "Ann".into() };
    ///             Ok(Command::output(agent))
    ///         })
    /// };
    /// let first = board("slow").start().await?;
    /// let run = first.submit(Task::new("receive").durability(Durability::Sync)).await?;
    /// run.next_pending().await?;
    /// first.shutdown().await;
    ///
    /// let second = board("quick").start().await?;
    /// assert_eq!(second.take_up(run.id()).await.result().await?.output, "quick");
    /// # second.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    pub async fn take_up(&self, run: RunId) -> RunHandle {
        // A run with turns at other boards is left to these the first time.
        for _ in 0..2 {
            let (barrier, mut read) = watch::channel(());
            self.board.shards.of(run).push(ShardMessage::Adopt { run, new_process: true, recovery: Some(barrier) });
            tokio::select! {
                biased;
                // The sender is only dropped, never used.
                _ = read.changed() => {}
                _ = self.ended() => {}
            }
            if !self.board.ownership.was_left(run) {
                break;
            }
        }
        self.run(run)
    }

    /// Runs whose journals cannot be read, with the reason. They are left as they are; other runs continue. Complete after
    /// [`Callboard::recovered`].
    #[must_use]
    pub fn quarantined(&self) -> BTreeMap<RunId, String> {
        self.board.quarantine.lock().clone()
    }

    /// Returns the store of the shared context, which reaches all namespaces. Agents reach their own memory and the
    /// namespaces that they were granted.
    #[must_use]
    pub fn context(&self) -> &ContextStore {
        &self.board.context
    }

    /// The rules by which the board folds the events of runs, with the builder's own reducers and predicates: for a
    /// [`Follower`](crate::supervision::runs::Follower) of the events that [`Callboard::watch`] returns.
    #[must_use]
    pub fn state_rules(&self) -> &StateRules {
        &self.board.rules
    }

    /// The store of the board, for values of other packages. Their keys begin with a segment that no room of this package uses.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        self.board.journal.storage()
    }

    /// Sends a message about a run to its supervisor and waits for the answer. `None` when the supervisor was restarted before
    /// it answered, or the board has ended.
    pub(super) async fn ask_run<T>(
        &self,
        run: RunId,
        message: impl FnOnce(oneshot::Sender<T>) -> RunMessage,
    ) -> Option<T> {
        self.ask_shard(run, |reply| ShardMessage::Run { run, message: message(reply) }).await
    }

    /// As [`Callboard::ask_run`], with any message for the shard of the run.
    pub(super) fn ask_shard<T>(
        &self,
        run: RunId,
        message: impl FnOnce(oneshot::Sender<T>) -> ShardMessage,
    ) -> impl Future<Output = Option<T>> {
        self.ask_queue(self.board.shards.of(run), message)
    }

    /// As [`Callboard::ask_run`], with any message for one of the shards. It is sent at once: those who wait do not hold it.
    pub(super) fn ask_queue<T>(
        &self,
        queue: &ShardQueue,
        message: impl FnOnce(oneshot::Sender<T>) -> ShardMessage,
    ) -> impl Future<Output = Option<T>> {
        let (reply, answer) = oneshot::channel();
        queue.enqueue(message(reply)).drain();
        async move {
            tokio::select! {
                biased;
                answer = answer => answer.ok(),
                _ = async { Box::pin(self.ended()).await } => None,
            }
        }
    }

    /// Waits until the board has ended, and returns the reason.
    pub async fn ended(&self) -> EndReason {
        self.board.tree.join().await
    }

    /// Why the board has lost its store, for people: its lease on it has ended, another board has its name, or the store has stopped. It is known
    /// once such a board has ended; `None` before, and of a board that ended otherwise.
    #[must_use]
    pub fn store_loss(&self) -> Option<Arc<str>> {
        self.board.store_loss.get().cloned()
    }

    /// Takes nothing new, lets the turns that have begun finish for (10 s), stops the rest, and stops the tree in reverse
    /// order (SEMANTICS 8). Turns that were stopped or had not begun stay leased and continue at the next start. A turn that
    /// waits for a person is not waited for. Shutting down again is fine.
    ///
    /// Where other boards on the store live that have the agents, runs of which no turn is at work go to them at once: of these boards, to
    /// one of the newest build.
    ///
    /// A store that keeps others out, as one on disk does, is let go of: when this returns, it can be opened again, also while
    /// handles of the board and of its runs live. They then return [`StorageError::Closed`], unless another holder has the
    /// store. A result that a handle waited for before is still there.
    pub async fn shutdown(&self) -> EndReason {
        let board = &self.board;
        board.run_permits.close();
        board.ownership.begin_leaving();
        board.scheduler.close();
        self.drain().await;
        board.scheduler.stop_all();
        let reason = board.tree.stop().await;
        board.router.withdraw_all();
        board.store.release_store().await;
        reason
    }
}

/// Whether another board may have what the task is for.
pub(super) fn is_not_here(error: &SubmitError) -> bool {
    matches!(error, SubmitError::Refused(Refusal::UnknownAgent { .. }) | SubmitError::NoAgents)
}

/// Counts a submission that was refused among the metrics.
fn count_if_refused(error: &SubmitError) {
    if let SubmitError::Refused(refusal) = error {
        count_refused(refusal);
    }
}

impl Board {
    /// The id of a run. Where the submitter takes the turns of the run itself, the run belongs to the shard of its thread, so that what
    /// belongs to the run stays on one core.
    fn new_run(&self, now: Timestamp) -> RunId {
        let run = self.env.id_at(now);
        match self.env.thread() {
            Some(thread) if wants_next() => self.shards.near(run, thread),
            Some(_) | None => run,
        }
    }

    /// Whether it takes nothing more: it ends, or it has lost its store and is about to end.
    pub(super) fn is_closed(&self) -> bool {
        self.run_permits.is_closed() || self.store_failure.get().is_some()
    }

    /// The agents for the names in a task's plan.
    pub(super) fn cast(&self, task: &Task) -> Result<Vec<AgentName>, SubmitError> {
        let Some(plan) = &task.plan else { return Ok(Vec::new()) };
        crate::workflow::check_task(plan, &self.rules, task.input.as_ref()).map_err(SubmitError::Plan)?;
        Ok(plan.cast().into_iter().map(|name| self.router.resolve(name)).collect::<Result<_, _>>()?)
    }

    /// The agents for the names in a task's plan, and the one that takes its first turn.
    pub(super) fn target_of(&self, task: &Task) -> Result<(Vec<AgentName>, AgentName), SubmitError> {
        let cast = self.cast(task)?;
        let agent = match (&task.to, cast.first()) {
            (_, Some(first)) => first.clone(),
            (Some(target), None) => self.router.resolve(target)?,
            (None, None) => self.only_agent()?,
        };
        Ok((cast, agent.apart()))
    }

    /// Checks that the conversation belongs to this agent or workflow.
    async fn check_owner(
        &self,
        conversation: &ConversationId,
        task: &Task,
        agent: &AgentName,
    ) -> Result<(), SubmitError> {
        let asked = task.owner(agent);
        match self.conversations.owner(conversation).await? {
            Some(owner) if owner != asked => {
                Err(SubmitError::OtherConversation { conversation: conversation.clone(), owner, asked })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Takes a ticket, so that two tasks submitted one after the other are in this order. A run without a ticket, because the
    /// store did not answer, takes one when it checks whether it may start.
    async fn take_place(&self, conversation: &ConversationId, submission: &Submission) {
        let taken = async {
            // An id that was submitted before may be that of a run that has ended or has no conversation.
            if submission.task.id.is_some() {
                let there = load(&self.journal, submission.run, &self.rules).await?.run;
                if there.is_none_or(|run| run.result().is_some() || run.conversation() != Some(conversation)) {
                    return Ok(());
                }
            }
            let who = (submission.run, submission.owner(), submission.at);
            let durability = submission.task.durability.unwrap_or(self.durability);
            self.conversations.enter(conversation, who, durability).await.map(|_| ())
        };
        if let Err(error) = answer_of(taken).await {
            tracing::warn!(run = %submission.run, %conversation, %error, "the run has no place in its conversation yet");
        }
    }

    /// Checks that this board has the agent, and that it is not stopped: new tasks do not wait for a stopped agent.
    pub(super) fn check_is_here(&self, agent: &AgentName) -> Result<(), Refusal> {
        if self.router.is_elsewhere(agent) {
            return Err(Refusal::UnknownAgent { target: agent.to_string(), nearest: None });
        }
        if self.scheduler.load(agent)?.is_offline {
            return Err(Refusal::Unavailable { agent: agent.clone(), why: "it was stopped".to_owned() });
        }
        Ok(())
    }

    pub(super) fn nearest(&self, name: &str) -> Option<String> {
        let names = self.router.names();
        nearest(name, names.iter().map(AgentName::as_str))
    }

    fn only_agent(&self) -> Result<AgentName, SubmitError> {
        let mut names = self.router.names();
        if names.is_empty() {
            names = self.router.names_elsewhere();
        }
        match names.as_slice() {
            [] => Err(SubmitError::NoAgents),
            [only] => Ok(only.clone()),
            names => Err(SubmitError::NoTarget { agents: names.into() }),
        }
    }
}

impl fmt::Debug for Callboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callboard").field("agents", &self.agents().names()).finish_non_exhaustive()
    }
}
