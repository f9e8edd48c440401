use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream};
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, broadcast, oneshot, watch};

use crate::actors::approvals::Decider;
use crate::actors::context::ContextStore;
use crate::actors::events::{StreamMode, Watched};
use crate::actors::meters::count_refused;
use crate::actors::{
    AgentActor, AgentArguments, AgentMsg, AgentSpec, AgentStatus, Floor, InboxMessage, Router, Shards, Standing,
};
use crate::env::Env;
use crate::messages::names::{did_you_mean, nearest};
use crate::messages::state::StateRules;
use crate::messages::visible::{cut, quoted, visible_lines};
use crate::messages::{
    AgentName, Announcement, Complexity, Durability, Envelope, Json, Limits, NameError, Presence, QuestionId, Refusal,
    RequestId, RunId, Submission, Task, TraceId,
};
use crate::storage::{Journal, StorageError};
use crate::supervision::panic_text;
use crate::supervision::runs::breaker::BreakerState;
use crate::supervision::runs::claims::Claims;
use crate::supervision::runs::dispatch::Dispatch;
use crate::supervision::runs::facts::SharedFacts;
use crate::supervision::runs::inbox::{AnswerError, Input, SubmitError};
use crate::supervision::tree::{
    ChildSpec, ControlError, Down, EndReason, Intensity, NodeState, Supervisor, SupervisorRef, TreeEvent, TreeNode,
};

use super::builder::{Builder, Settings};
use super::classifier::Classifier;
use super::run_handle::RunHandle;

/// A running board. A cheap clone; all clones are the same board. Dropping it does not stop it: [`Callboard::shutdown`]
/// does.
#[derive(Clone)]
pub struct Callboard {
    pub(super) board: Arc<Board>,
}

pub(super) struct Board {
    pub(super) env: Env,
    pub(super) journal: Journal,
    pub(super) claims: Claims,
    /// Closed when the runs that were found at the start have been read.
    pub(super) recovered: watch::Receiver<()>,
    pub(super) shards: Arc<Shards>,
    pub(super) facts: Arc<SharedFacts>,
    pub(super) floor: Arc<Floor>,
    pub(super) router: Arc<Router>,
    pub(super) context: ContextStore,
    pub(super) decider: Decider,
    pub(super) rules: StateRules,
    pub(super) quarantine: Arc<Mutex<BTreeMap<RunId, String>>>,
    pub(super) tree: Supervisor,
    pub(super) agents: SupervisorRef,
    pub(super) settings: Settings,
    pub(super) durability: Durability,
    pub(super) places: Arc<Semaphore>,
    /// Agents are spawned, replaced and stopped one at a time.
    pub(super) submissions: tokio::sync::RwLock<()>,
}

/// Why an agent was not spawned, replaced, restarted or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The name breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is in use.
    #[error("agent {name} is there already; replace it, or choose another name")]
    NameInUse {
        /// The name.
        name: AgentName,
    },
    /// There is no such agent.
    #[error("there is no agent {}{}", quoted(name), did_you_mean(nearest.as_deref()))]
    Unknown {
        /// The name.
        name: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// Its factory failed.
    #[error("agent {name} could not be made: {}", visible_lines(error))]
    Factory {
        /// The name.
        name: String,
        /// What the factory said.
        error: String,
    },
    /// Its supervisor could not do it.
    #[error("agent {name}: {error}")]
    Supervisor {
        /// The name.
        name: String,
        /// Why.
        error: ControlError,
    },
}

/// Why a typed request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no such agent.
    #[error("there is no agent {}{}", quoted(name), did_you_mean(nearest.as_deref()))]
    Unknown {
        /// The name.
        name: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// The agent takes no work now.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The agent answers other types, or none.
    #[error("agent {agent} answers {answers}, not {asked}")]
    WrongTypes {
        /// The agent.
        agent: String,
        /// What was asked.
        asked: String,
        /// What it answers.
        answers: String,
    },
    /// The agent failed.
    #[error("agent {agent} failed: {}", visible_lines(error))]
    Failed {
        /// The agent.
        agent: String,
        /// The error, or the text of the panic.
        error: String,
    },
    /// No answer in time.
    #[error("agent {} did not answer within {timeout:?}", cut(agent))]
    TimedOut {
        /// The agent.
        agent: String,
        /// The time.
        timeout: Duration,
    },
}

/// What a board is doing, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Runs that this process took in and that have not ended; those found at the start are not among them.
    pub runs: usize,
    /// Turns that may be taken and are not yet.
    pub ready_turns: usize,
    /// Turns and typed requests that hold a slot.
    pub turns_at_work: usize,
    /// Turns that wait for the runtime, without slot and permit.
    pub waiting_turns: usize,
    /// Permits of the pool that nobody holds.
    pub free_permits: usize,
    /// Permits of the pool.
    pub pool: usize,
    /// Approvals that nobody has decided.
    pub open_approvals: usize,
    /// Edges of the wait-for graph.
    pub waits: usize,
}

impl Load {
    /// Nothing is under way and nothing is held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let Self { runs, ready_turns, turns_at_work, waiting_turns, free_permits, pool, open_approvals, waits } = *self;
        runs + ready_turns + turns_at_work + waiting_turns + open_approvals + waits == 0 && free_permits == pool
    }
}

impl Callboard {
    /// Describes a new board.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Submits a task and returns when it is journaled as durably as it asked. Waits for room when too many runs are in
    /// flight, or too many turns are ready for its agent.
    ///
    /// # Errors
    /// See [`SubmitError`]. Submitting again is safe for a task with an id of its own.
    pub async fn submit(&self, task: Task) -> Result<RunHandle, SubmitError> {
        let place = Arc::clone(&self.board.places).acquire_owned().await.map_err(|_| Refusal::ShuttingDown);
        counted(async { self.accept(task, place?, true).await }).await
    }

    /// As [`Callboard::submit`], but says [`Refusal::Overloaded`] at once when there is no room.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub async fn try_submit(&self, task: Task) -> Result<RunHandle, SubmitError> {
        let place = Arc::clone(&self.board.places).try_acquire_owned().map_err(|_| {
            if self.board.is_closed() {
                Refusal::ShuttingDown
            } else {
                Refusal::Overloaded { what: "the board".into(), retry_after: Duration::from_secs(1) }
            }
        });
        counted(async { self.accept(task, place?, false).await }).await
    }

    /// The limits of a task that names none.
    async fn classify(&self, task: &Task) -> Limits {
        let class = match &self.board.settings.classifier {
            Classifier::None => Complexity::default(),
            Classifier::Function(classify) => classify(task),
            Classifier::Agent(agent) => self.ask(agent, task.clone()).await.unwrap_or_else(|error| {
                tracing::warn!(agent = &**agent, %error, "the task was not classified; it is taken as complex");
                Complexity::default()
            }),
        };
        class.into()
    }

    async fn wait_for_room(&self, agent: &AgentName) -> Result<Option<OwnedMutexGuard<()>>, Refusal> {
        let line = tokio::select! {
            biased;
            line = self.board.floor.room(agent) => line,
            _ = self.ended() => None,
        };
        if self.board.is_closed() { Err(Refusal::ShuttingDown) } else { Ok(line) }
    }

    async fn accept(
        &self,
        mut task: Task,
        place: OwnedSemaphorePermit,
        waits_for_room: bool,
    ) -> Result<RunHandle, SubmitError> {
        let board = &self.board;
        if board.is_closed() {
            return Err(Refusal::ShuttingDown.into());
        }
        if task.input.as_ref().is_some_and(Json::is_too_deep) {
            return Err(SubmitError::TooDeep { max: crate::messages::MAX_JSON_DEPTH });
        }
        let agent = match &task.to {
            Some(target) => board.router.resolve(target)?,
            None => board.only_agent()?,
        };
        // The next in line looks when this task is among the ready turns, or was refused.
        let _first_in_line = match board.router.check_room(&agent) {
            Ok(()) => None,
            Err(_) if waits_for_room => self.wait_for_room(&agent).await?,
            Err(overloaded) => return Err(overloaded.into()),
        };
        if board.floor.load(&agent)?.is_offline {
            return Err(Refusal::Unavailable { agent, why: "it was stopped".to_owned() }.into());
        }
        if task.limits.is_none() {
            task.limits = Some(self.classify(&task).await);
        }
        let run = task.id.unwrap_or_else(|| RunId(board.env.id()));
        let (trace, at) = (TraceId(run.0), board.env.now().wall);
        let submission = Arc::new(Submission { run, trace, task, agent, chain: crate::messages::Chain::default(), at });
        let mut place = Some(place);
        // One that is lost with its supervisor was not journaled, or is answered with its run: it is handed in once more.
        for _ in 0..2 {
            let (told, result) = oneshot::channel();
            let place = place.take().or_else(|| Arc::clone(&board.places).try_acquire_owned().ok());
            let submission = Arc::clone(&submission);
            let accepted = self.tell(run, |ack| Input::Submit { submission, place, ack, result: told }).await;
            if let Some(accepted) = accepted {
                return Ok(RunHandle::submitted(accepted?, self.clone(), result));
            }
        }
        Err(SubmitError::Interrupted)
    }

    /// The handle of a run that was submitted before, also by an earlier process.
    #[must_use]
    pub fn run(&self, run: RunId) -> RunHandle {
        RunHandle::new(run, self.clone())
    }

    /// All runs that the store knows, oldest first.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn runs(&self) -> Result<Vec<RunHandle>, StorageError> {
        Ok(self.board.journal.runs().await?.into_iter().map(|run| self.run(run)).collect())
    }

    /// The runs that are not finished.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn unfinished_runs(&self) -> Result<Vec<RunHandle>, StorageError> {
        Ok(self.board.journal.open_runs().await?.into_iter().map(|run| self.run(run)).collect())
    }

    /// Waits until the unfinished runs that were found at the start have been read, and go on, are quarantined, or were
    /// found to belong to another board. A board takes work before that.
    pub async fn recovered(&self) {
        // Nothing is ever sent.
        let _ = self.board.recovered.clone().changed().await;
    }

    /// Runs whose journals cannot be read, with the reason. They are left as they are; other runs go on. Complete after
    /// [`Callboard::recovered`].
    #[must_use]
    pub fn quarantined(&self) -> BTreeMap<RunId, String> {
        self.board.quarantine.lock().clone()
    }

    /// Asks a typed agent outside any run, and waits (30 s) at most.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let doubler = AgentSpec::typed("doubler", |number: u64| async move { Ok(number * 2) });
    /// let board = Callboard::builder().with(doubler).start().await?;
    /// assert_eq!(board.ask::<u64, u64>("doubler", 21).await?, 42);
    /// board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask<Request, Reply>(&self, agent: &str, request: Request) -> Result<Reply, AskError>
    where
        Request: Send + 'static,
        Reply: Send + 'static,
    {
        let timeout = Duration::from_secs(30);
        match tokio::time::timeout(timeout, self.ask_now(agent, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::TimedOut { agent: agent.to_owned(), timeout }),
        }
    }

    async fn ask_now<Request, Reply>(&self, agent: &str, request: Request) -> Result<Reply, AskError>
    where
        Request: Send + 'static,
        Reply: Send + 'static,
    {
        let board = &self.board;
        let unknown = || AskError::Unknown { name: agent.to_owned(), nearest: board.nearest(agent) };
        let name = AgentName::new(agent).map_err(|_| unknown())?;
        let Some(place) = board.floor.ask_place(&name).await? else {
            if board.is_closed() {
                return Err(Refusal::ShuttingDown.into());
            }
            return Err(match board.floor.load(&name) {
                Err(refusal) if board.router.listed(agent).is_some() => refusal.into(),
                _ => unknown(),
            });
        };
        let wrong_types = |answers: String| AskError::WrongTypes {
            agent: agent.to_owned(),
            asked: format!("{} with {}", type_name::<Request>(), type_name::<Reply>()),
            answers,
        };
        let typed = || match place.types() {
            Some((request, reply)) => format!("{request} with {reply}"),
            None => "turns of runs only; submit a task".to_owned(),
        };
        let Ok(answer) = place.answer(Box::new(request)) else { return Err(wrong_types(typed())) };
        let types = typed();
        let failed = |error: String| AskError::Failed { agent: agent.to_owned(), error };
        // The task holds the slot: a caller that goes away does not leave the agent in the middle of its work.
        let answered = tokio::spawn(async move {
            let answer = AssertUnwindSafe(answer).catch_unwind().await;
            if let Err(panic) = &answer {
                place.panicked(panic_text(&**panic));
            }
            answer
        });
        match answered.await {
            Ok(Ok(Ok(reply))) => {
                let reply: Box<dyn Any + Send> = reply;
                reply.downcast::<Reply>().map(|reply| *reply).map_err(|_| wrong_types(types))
            }
            Ok(Ok(Err(error))) => Err(failed(error.to_string())),
            Ok(Err(panic)) => Err(failed(format!("panic: {}", panic_text(&*panic)))),
            Err(_) => Err(failed("the runtime is going down".into())),
        }
    }

    /// Adds an agent while the board runs.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn spawn(&self, spec: AgentSpec) -> Result<(), AgentError> {
        let _one_at_a_time = self.board.submissions.write().await;
        let name = spec.checked_name()?;
        let board = &self.board;
        if board.router.listed(name.as_str()).is_some() {
            return Err(AgentError::NameInUse { name });
        }
        let arguments = AgentArguments {
            name: name.clone(),
            factory: spec.factory().clone(),
            window: spec.window(),
            floor: Arc::clone(&board.floor),
            herald: board.router.herald(&name, spec.description()),
        };
        let (child, actor) = ChildSpec::actor(name.as_str(), move || (AgentActor, arguments.clone()));
        board.floor.place(&name, spec.conditions(), actor.clone());
        let (window, floor, failed) = (spec.window(), Arc::clone(&board.floor), name.clone());
        let child = child
            .own_intensity(Intensity::new(window.max, window.within))
            .on_failed(move |error| floor.vacate(&failed, AgentStatus::Failed(error.to_owned())));
        match board.agents.start_child(child).await {
            Ok(()) => {
                board.router.list(&name, &spec, actor);
                // It has announced itself: whoever asks for it next finds it.
                board.router.enter_posts();
                Ok(())
            }
            Err(error) => {
                board.floor.vacate(&name, AgentStatus::Stopped);
                let name = name.as_str().to_owned();
                Err(match error {
                    ControlError::StartFailed { error, .. } => AgentError::Factory { name, error },
                    error => AgentError::Supervisor { name, error },
                })
            }
        }
    }

    /// Replaces an agent: turns under way finish on the old value, later ones use the new one. If the new one cannot be
    /// made, the old one stays.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn replace(&self, spec: AgentSpec) -> Result<(), AgentError> {
        let _one_at_a_time = self.board.submissions.write().await;
        let name = spec.checked_name()?;
        let listed = self.listed(name.as_str())?;
        self.control(name.as_str(), |reply| {
            AgentMsg::Replace(spec.factory().clone(), spec.window(), spec.description(), reply)
        })
        .await?;
        self.board.floor.place(&name, spec.conditions(), listed.actor.clone());
        self.board.router.list(&name, &spec, listed.actor);
        self.board.router.enter_posts();
        Ok(())
    }

    /// Makes an agent's value again by hand, and forgets how often it was made before: a failed agent takes work again.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn restart(&self, name: &str) -> Result<(), AgentError> {
        if self.listed(name)?.actor.down() == Some(Down::Failed) {
            let restarted = self.board.agents.restart_child(name).await;
            return restarted.map_err(|error| AgentError::Supervisor { name: name.to_owned(), error });
        }
        self.control(name, AgentMsg::Restart).await
    }

    /// Stops an agent: turns under way finish, and its name is free. What was given to it, or is given to it by turns from
    /// now on, waits (120 s) for an agent of that name to come back, and fails then; new tasks for it are refused.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn stop(&self, name: &str) -> Result<(), AgentError> {
        let _one_at_a_time = self.board.submissions.write().await;
        self.listed(name)?;
        let agent = AgentName::new(name)?;
        self.board.router.unlist(&agent);
        self.board.floor.vacate(&agent, AgentStatus::Stopped);
        let removed = self.board.agents.remove_child(name).await;
        removed.map_err(|error| AgentError::Supervisor { name: name.to_owned(), error })
    }

    fn listed(&self, name: &str) -> Result<crate::actors::Listed, AgentError> {
        let unknown = || AgentError::Unknown { name: name.to_owned(), nearest: self.board.nearest(name) };
        self.board.router.listed(name).ok_or_else(unknown)
    }

    async fn control(
        &self,
        name: &str,
        message: impl FnOnce(ractor::RpcReplyPort<Result<(), String>>) -> AgentMsg,
    ) -> Result<(), AgentError> {
        let failed = |error: String| AgentError::Factory { name: name.to_owned(), error };
        let actor = self.listed(name)?.actor;
        match actor.call(message, Duration::from_secs(10)).await {
            Ok(done) => done.map_err(failed),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// The names of the agents, sorted.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentName> {
        self.board.router.names()
    }

    /// What the agents that are here have announced of themselves, sorted by name (SEMANTICS 11).
    #[must_use]
    pub fn roster(&self) -> Vec<Announcement> {
        self.board.router.present()
    }

    /// Agents that announce themselves or withdraw, from now on.
    #[must_use]
    pub fn presence(&self) -> broadcast::Receiver<Presence> {
        self.board.router.watch_presence()
    }

    /// The shared context, with all namespaces.
    #[must_use]
    pub fn context(&self) -> &ContextStore {
        &self.board.context
    }

    /// The open approvals, and the way to decide them. For people's front ends, not for agents.
    #[must_use]
    pub fn approvals(&self) -> &Decider {
        &self.board.decider
    }

    /// The open approval that expires first, as soon as there is one; `None` once the board has ended. To be asked again
    /// when that one is decided. For people's front ends, not for agents.
    ///
    /// ```
    /// use callboard::messages::Action;
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("clerk", |turn: Turn| async move {
    ///         let approved = turn.approve(Action::new("write_file", "a.txt", "hello")).await?;
    ///         Ok(Command::output(approved.arguments))
    ///     })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("write")).await?;
    /// if let Some(open) = board.next_approval().await {
    ///     assert_eq!(open.action.to_string(), "write_file a.txt");
    ///     board.approvals().approve(open.id(), "ann").await?;
    /// }
    /// assert_eq!(run.result().await?.output, "hello");
    /// board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    pub async fn next_approval(&self) -> Option<Envelope> {
        tokio::select! {
            biased;
            _ = self.ended() => None,
            open = self.board.decider.next_open() => Some(open),
        }
    }

    /// Answers a question that a turn has asked.
    ///
    /// # Errors
    /// The question is not open, was answered, or the answer could not be journaled.
    pub async fn answer(&self, question: QuestionId, answer: impl Into<Json>, by: &str) -> Result<(), AnswerError> {
        let (request, answer, by): (_, Json, _) = (question.request, answer.into(), by.into());
        if answer.is_too_deep() {
            return Err(AnswerError::TooDeep);
        }
        let told = self.tell(request.turn.run, |ack| Input::Answer { question, answer, by, ack }).await;
        told.unwrap_or(Err(AnswerError::Interrupted(request)))
    }

    /// Hands something to a run's supervisor and waits for what it says. `None` when the supervisor was restarted before it
    /// said anything, or the board has ended.
    pub(super) async fn tell<T>(&self, run: RunId, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Option<T> {
        let (reply, told) = oneshot::channel();
        self.board.shards.of(run).hand_in(input(reply)).work();
        tokio::select! {
            biased;
            told = told => told.ok(),
            _ = self.ended() => None,
        }
    }

    /// The last (200) messages of an agent's inbox: tasks given to it, and news of tasks that it gave away.
    #[must_use]
    pub fn inbox(&self, agent: &str) -> Vec<InboxMessage> {
        self.board.router.inbox(agent)
    }

    /// Where a delegation stands, as long as an inbox remembers it.
    #[must_use]
    pub fn status(&self, request: RequestId) -> Option<Standing> {
        self.board.router.standing(request)
    }

    /// The state of an agent's circuit breaker.
    #[must_use]
    pub fn breaker(&self, agent: &str) -> BreakerState {
        self.board.facts.lock().breaker_state(agent)
    }

    /// Events of all runs from now on, in any of the modes; ends with the board. A slow watcher is told how many it missed.
    pub fn watch(&self, modes: &[StreamMode]) -> impl Stream<Item = Watched> + Send + Unpin + use<> {
        self.board.router.hub.watch(None, modes, self.board.settings.watch_buffer)
    }

    /// A picture of the supervision tree. Agents show the life of their values: generation, restarts, ready turns.
    ///
    /// # Errors
    /// When the tree has ended.
    pub async fn tree(&self) -> Result<TreeNode, ControlError> {
        let mut tree = self.board.tree.snapshot().await?;
        let glances: BTreeMap<AgentName, crate::actors::AgentGlance> =
            self.board.floor.glance().into_iter().map(|glance| (glance.name.clone(), glance)).collect();
        for node in
            tree.children.iter_mut().filter(|node| node.name == "agents").flat_map(|agents| &mut agents.children)
        {
            let Some(glance) = glances.get(node.name.as_str()) else { continue };
            node.generation = glance.generation;
            node.restarts = glance.restarts;
            node.mailbox_depth = Some(glance.ready);
            if let AgentStatus::Failed(error) = &glance.status {
                (node.state, node.last_error) = (NodeState::Failed, Some(error.clone()));
            } else if node.last_error.is_none() {
                node.last_error.clone_from(&glance.last_error);
            }
            let stuck = if glance.stuck > 0 { format!(", {} stuck", glance.stuck) } else { String::new() };
            if glance.busy + glance.waiting > 0 || glance.stuck > 0 {
                node.detail = Some(format!("{} at work, {} waiting{stuck}", glance.busy, glance.waiting));
            }
        }
        Ok(tree)
    }

    /// What is under way and what is held at this moment. [`Load::is_idle`] when nothing is left.
    #[must_use]
    pub fn load(&self) -> Load {
        let board = &self.board;
        let glance = board.floor.glance();
        Load {
            runs: board.settings.runs_in_flight.saturating_sub(board.places.available_permits()),
            ready_turns: glance.iter().map(|agent| agent.ready).sum(),
            turns_at_work: glance.iter().map(|agent| agent.busy).sum(),
            waiting_turns: glance.iter().map(|agent| agent.waiting).sum(),
            free_permits: board.floor.permits(),
            pool: board.settings.pool,
            open_approvals: board.decider.open().len(),
            waits: board.facts.lock().waits.len(),
        }
    }

    /// What happens in the supervision tree from now on.
    #[must_use]
    pub fn tree_events(&self) -> broadcast::Receiver<TreeEvent> {
        self.board.tree.subscribe()
    }

    /// Waits until the board has ended, and says why.
    pub async fn ended(&self) -> EndReason {
        self.board.tree.join().await
    }

    /// Takes nothing new, lets the turns that have begun finish for (10 s), stops the rest, and stops the tree in reverse
    /// order (SEMANTICS 8). Turns that were stopped or had not begun stay leased and go on at the next start. A turn that
    /// waits for a person is not waited for. Shutting down again is fine.
    pub async fn shutdown(&self) -> EndReason {
        let board = &self.board;
        board.places.close();
        board.floor.close();
        let _ = tokio::time::timeout(board.settings.grace, board.floor.settled()).await;
        board.floor.stop_all();
        board.tree.stop().await
    }
}

/// Submits, and counts a refusal among the metrics.
async fn counted<T>(submission: impl Future<Output = Result<T, SubmitError>>) -> Result<T, SubmitError> {
    let submitted = submission.await;
    if let Err(SubmitError::Refused(refusal)) = &submitted {
        count_refused(refusal);
    }
    submitted
}

impl Board {
    pub(super) fn is_closed(&self) -> bool {
        self.places.is_closed()
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let names = self.router.names();
        nearest(name, names.iter().map(AgentName::as_str))
    }

    fn only_agent(&self) -> Result<AgentName, SubmitError> {
        const SHOWN: usize = 20;
        match self.router.names().as_slice() {
            [] => Err(SubmitError::NoAgents),
            [only] => Ok(only.clone()),
            names => {
                let shown: Vec<&str> = names.iter().take(SHOWN).map(AgentName::as_str).collect();
                let more = match names.len().saturating_sub(SHOWN) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                Err(SubmitError::NoTarget { agents: shown.join(", ") + &more })
            }
        }
    }
}

impl fmt::Debug for Callboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callboard").field("agents", &self.agents()).finish_non_exhaustive()
    }
}
