//! The agents of a board: added, replaced, restarted and stopped; their directory, and their inboxes.

use std::sync::Arc;
use std::time::Duration;

use callboard_text::{did_you_mean, quoted, visible_lines};
use tokio::sync::broadcast;

use crate::actors::{AgentMsg, AgentSpec, DelegationStatus, HostedAgent, InboxMessage};
use crate::messages::{AgentName, Authority, KeptAgent, NameError, Presence, RequestId, TurnId};
use crate::storage::StorageError;
use crate::supervision::runs::breaker::BreakerStatus;
use crate::supervision::runs::rules::directory::AgentDirectory as _;
use crate::supervision::tree::{ControlError, Down};

use super::handle::{Board, Callboard};

/// Why an agent was not spawned, replaced, restarted or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The name of the agent breaks a rule for names, or so does a role, capability, project or namespace of its
    /// [`AgentSpec`].
    #[error(transparent)]
    Name(#[from] NameError),
    /// [`AgentsHandle::spawn`] found an agent of this name on the board.
    #[error("agent {name} is there already; replace it, or choose another name")]
    NameInUse {
        /// The name that both agents would have.
        name: AgentName,
    },
    /// People cannot tell the name from that of another agent.
    #[error("the name of agent {name} looks like that of agent {other}; choose another name")]
    LooksLike {
        /// The name of the agent that was to be spawned.
        name: AgentName,
        /// The other name, which is of other characters.
        other: AgentName,
    },
    /// The board has no agent of this name: none was spawned, or it was stopped.
    #[error("there is no agent {}{}", quoted(name), did_you_mean(nearest.as_deref()))]
    Unknown {
        /// The name as the caller wrote it.
        name: String,
        /// The most similar name of an agent on the board; `None` if none is similar enough.
        nearest: Option<String>,
    },
    /// The agent's factory failed, its actor did not answer within 10 s, or the kept dynamic agents that it had made
    /// could not be read.
    #[error("agent {name} could not be made: {}", visible_lines(error))]
    Factory {
        /// The name of the agent.
        name: String,
        /// The cause: the text of the factory's error or panic, or why the actor or the store did not answer.
        error: String,
    },
    /// The supervisor of the agents could not start, restart or remove the agent's actor.
    #[error("agent {name}: {error}")]
    Supervisor {
        /// The name of the agent.
        name: String,
        /// The answer of the supervisor, or why it gave none.
        error: ControlError,
    },
}

/// The agents of a board: [`Callboard::agents`]. A cheap clone.
#[derive(Clone)]
pub struct AgentsHandle {
    pub(super) board: Arc<Board>,
}

impl Callboard {
    /// The agents of this board: to spawn, replace, restart and stop them, and to see who is there.
    #[must_use]
    pub fn agents(&self) -> AgentsHandle {
        AgentsHandle { board: Arc::clone(&self.board) }
    }

    /// The status of a delegation, also of one that was made in an earlier process; `None` if its run has no such
    /// delegation, or its target is away and has not acknowledged it.
    ///
    /// # Errors
    /// The run's journal cannot be read.
    pub async fn status(&self, request: RequestId) -> Result<Option<DelegationStatus>, StorageError> {
        self.board.router.status(request).await
    }
}

impl AgentsHandle {
    /// Adds an agent while the board runs.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn spawn(&self, spec: AgentSpec) -> Result<(), AgentError> {
        let name = spec.checked_name()?;
        // The agent of another board gives way: its turns are taken here from now on. It is not added again meanwhile.
        let mut elsewhere = self.board.agents_elsewhere.lock().await;
        if self.board.router.is_elsewhere(&name) {
            self.remove(&name).await?;
            elsewhere.remove(&name);
        }
        let is_first = self.board.router.hosted_here() == 0;
        self.add(spec).await?;
        drop(elsewhere);
        self.make_known(1, is_first).await;
        Ok(())
    }

    /// Makes known to other boards that so many agents were added.
    pub(super) async fn make_known(&self, added: usize, is_first: bool) {
        self.callboard().announce(added).await;
        if is_first {
            // It has a part of the limits that boards share from now on, and not from the next look on, which repeats one that fails.
            let _ = self.callboard().look_at_boards().await;
        }
    }

    fn callboard(&self) -> Callboard {
        Callboard { board: Arc::clone(&self.board) }
    }

    /// Adds an agent, also one of another board.
    pub(super) async fn add(&self, spec: AgentSpec) -> Result<(), AgentError> {
        let _one_at_a_time = self.board.submissions.write().await;
        let name = spec.checked_name()?;
        let board = &self.board;
        if board.router.listed(name.as_str()).is_some() {
            return Err(AgentError::NameInUse { name });
        }
        if let Some(other) = board.router.look_alike(name.as_str()) {
            return Err(AgentError::LooksLike { name, other });
        }
        board.scheduler.kept_agents().add(self.read_kept(&name, &spec).await?);
        let source = Arc::new(spec.source());
        if spec.is_dormant() {
            board.add_dormant(std::slice::from_ref(&name), &source);
            return Ok(());
        }
        board.scheduler.register(&name, &source.config);
        let life = board.scheduler.begin_life(&name);
        let (child, actor) = board.agent_child(&name, &source, life, false);
        match board.agents.start_child(child).await {
            Ok(()) => {
                board.router.list(&name, &spec, &source, Some(actor));
                // The agent has announced itself; draining makes the announcement visible to the next lookup.
                board.router.drain_outbox();
                Ok(())
            }
            Err(error) => {
                board.scheduler.stop_agent(&name);
                let name = name.as_str().to_owned();
                Err(match error {
                    ControlError::StartFailed { error, .. } => AgentError::Factory { name, error },
                    error => AgentError::Supervisor { name, error },
                })
            }
        }
    }

    /// Replaces an agent: turns under way finish on the old value, later ones use the new one. If the new one cannot be
    /// made, or the dynamic agents that it keeps cannot be read, the old one stays.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn replace(&self, spec: AgentSpec) -> Result<(), AgentError> {
        self.listed(spec.checked_name()?.as_str())?;
        self.replace_any(spec).await?;
        self.callboard().announce(1).await;
        Ok(())
    }

    /// Replaces an agent, also one of another board.
    pub(super) async fn replace_any(&self, spec: AgentSpec) -> Result<(), AgentError> {
        let _one_at_a_time = self.board.submissions.write().await;
        let name = spec.checked_name()?;
        self.any(name.as_str())?;
        let kept = self.read_kept(&name, &spec).await?;
        let (board, source) = (&self.board, Arc::new(spec.source()));
        if spec.is_dormant() && board.scheduler.redeclare(&name, &source) {
            let names = std::slice::from_ref(&name);
            board.router.list_dormant(names, &source);
            board.router.announce_dormant(names, &source);
        } else {
            // One that sleeps, or was given up, has no actor that could build the value.
            board.scheduler.forgive(&name);
            board.scheduler.wake(&name).await;
            self.control(name.as_str(), |reply| AgentMsg::Replace(Arc::clone(&source), reply)).await?;
            board.scheduler.register(&name, &source.config);
            board.scheduler.set_dormant(&name, spec.is_dormant().then_some(&source));
            let listed = self.any(name.as_str())?;
            board.router.list(&name, &spec, &source, listed.actor);
        }
        board.scheduler.kept_agents().add(kept);
        board.router.drain_outbox();
        Ok(())
    }

    /// Dynamic agents that were kept after their runs, of the agents that are here, by name.
    #[must_use]
    pub fn kept(&self) -> Vec<KeptAgent> {
        self.board.scheduler.kept_agents().all()
    }

    /// Removes a dynamic agent that was kept; `false` if there is none of this name. Its turns under way finish.
    ///
    /// # Errors
    /// A failing store.
    pub async fn remove_kept(&self, name: &str) -> Result<bool, StorageError> {
        self.board.scheduler.kept_agents().remove(name).await
    }

    /// Reads the kept agents of an agent that can create some.
    pub(super) async fn read_kept(&self, name: &AgentName, spec: &AgentSpec) -> Result<Vec<KeptAgent>, AgentError> {
        if !spec.may_keep_agents() {
            return Ok(Vec::new());
        }
        self.board.scheduler.kept_agents().read(name).await.map_err(|error| {
            let error = format!("the agents that it has made and that were kept cannot be read: {error}");
            AgentError::Factory { name: name.as_str().to_owned(), error }
        })
    }

    /// Makes an agent's value again by hand, and forgets how often it was made before: a failed agent takes work again. A
    /// [dormant](AgentSpec::dormant) agent that sleeps has no value, and gets one with its next turn.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn restart(&self, name: &str) -> Result<(), AgentError> {
        self.listed(name)?;
        if self.board.scheduler.forgive(&AgentName::new(name)?) {
            return Ok(());
        }
        if self.listed(name)?.actor.is_some_and(|actor| actor.down() == Some(Down::Failed)) {
            let restarted = self.board.agents.restart_child(name).await;
            return restarted.map_err(|error| AgentError::Supervisor { name: name.to_owned(), error });
        }
        self.control(name, AgentMsg::Restart).await
    }

    /// Stops an agent: turns under way finish, and its name is free. What was given to it, or is given to it by turns from
    /// now on, waits (120 s) for an agent of that name to be started again, and fails then; new tasks for it are refused.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn stop(&self, name: &str) -> Result<(), AgentError> {
        self.listed(name)?;
        self.remove(&AgentName::new(name)?).await?;
        self.callboard().announce(1).await;
        Ok(())
    }

    /// Removes an agent, also one of another board.
    pub(super) async fn remove(&self, agent: &AgentName) -> Result<(), AgentError> {
        let _one_at_a_time = self.board.submissions.write().await;
        let name = agent.as_str();
        self.any(name)?;
        self.board.router.unlist(agent);
        self.board.scheduler.stop_agent(agent);
        let removed = self.board.agents.remove_child(name).await;
        self.board.router.withdraw(agent);
        match removed {
            // A dormant agent that sleeps.
            Ok(()) | Err(ControlError::UnknownChild { .. }) => Ok(()),
            Err(error) => Err(AgentError::Supervisor { name: name.to_owned(), error }),
        }
    }

    /// An agent that this board hosts.
    fn listed(&self, name: &str) -> Result<HostedAgent, AgentError> {
        self.any(name).and_then(|agent| if agent.is_elsewhere { Err(self.unknown(name)) } else { Ok(agent) })
    }

    fn any(&self, name: &str) -> Result<HostedAgent, AgentError> {
        self.board.router.listed(name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> AgentError {
        AgentError::Unknown { name: name.to_owned(), nearest: self.board.nearest(name) }
    }

    async fn control(
        &self,
        name: &str,
        message: impl FnOnce(ractor::RpcReplyPort<Result<(), String>>) -> AgentMsg,
    ) -> Result<(), AgentError> {
        let failed = |error: String| AgentError::Factory { name: name.to_owned(), error };
        let Some(actor) = self.any(name)?.actor else { return Err(failed("it has no actor".to_owned())) };
        match actor.call(message, Duration::from_secs(10)).await {
            Ok(done) => done.map_err(failed),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Returns the names of the board's agents, sorted, without dynamic agents.
    #[must_use]
    pub fn names(&self) -> Vec<AgentName> {
        self.board.router.names()
    }

    /// Returns what an agent's turns may cause at most, by themselves or through others ([`AgentSpec::authority`]); `None` if the
    /// board has no such agent.
    ///
    /// ```
    /// use callboard::messages::{Authority, Effect};
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let reads = Authority::of([Effect::Reads]);
    /// let reader = AgentSpec::new("reader", |_: Turn| async { Ok(Command::new()) }).authority(reads);
    /// let board = Callboard::builder().with(reader).start().await?;
    /// assert_eq!(board.agents().authority("reader"), Some(reads));
    /// assert_eq!(board.agents().authority("nobody"), None);
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn authority(&self, name: &str) -> Option<Authority> {
        let router = &self.board.router;
        self.listed(name).ok().map(|_| router.authority(name))
    }

    /// What the agents that are here have announced of themselves, sorted by name (SEMANTICS 11).
    #[must_use]
    pub fn roster(&self) -> Vec<Presence> {
        self.board.router.present()
    }

    /// The names of the boards on the store that live and host the agent of this name, as of the last look at the others: this one's first.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let coder = |_: Turn| async { Ok(Command::output("done")) };
    /// let board = Callboard::builder().name("east").agent("coder", coder).start().await?;
    /// assert_eq!(board.agents().boards("coder"), ["east".into()]);
    /// assert!(board.agents().is_here("coder"));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn boards(&self, name: &str) -> Vec<Arc<str>> {
        let board = &self.board;
        let own_name = || board.settings.name.clone().unwrap_or_else(|| Arc::clone(board.ownership.board()));
        let here = self.is_here(name).then(own_name);
        let others = board.boards.others();
        let elsewhere = others.iter().filter(|other| other.info.agent(name).is_some());
        here.into_iter().chain(elsewhere.map(|other| Arc::clone(&other.name))).collect()
    }

    /// Whether this board hosts the agent of this name.
    #[must_use]
    pub fn is_here(&self, name: &str) -> bool {
        self.listed(name).is_ok()
    }

    /// The agents that have failed too often, each with its last error: they take no turns until they are
    /// [restarted](AgentsHandle::restart).
    ///
    /// ```
    /// use std::time::Duration;
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let fragile = AgentSpec::new("fragile", |_: Turn| async { panic!("out of luck") });
    /// let board = Callboard::builder().with(fragile.restarts(0, Duration::from_secs(60))).start().await?;
    /// board.submit(Task::new("x")).await?.result().await?;
    /// assert_eq!(board.agents().failed()[0].0.as_str(), "fragile");
    /// board.agents().restart("fragile").await?;
    /// assert!(board.agents().failed().is_empty());
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn failed(&self) -> Vec<(AgentName, String)> {
        self.board.scheduler.failed()
    }

    /// Returns the turns of an agent that have begun and have not ended, also those that wait for something, sorted by run and number.
    /// Nothing for an agent that the board does not have.
    ///
    /// ```
    /// use callboard::prelude::*;
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let asks = |turn: Turn| async move { Ok(Command::output(turn.people().ask("Which port?").await?)) };
    /// let board = Callboard::builder().agent("asks", asks).start().await?;
    /// let run = board.submit(Task::new("x")).await?;
    /// run.next_pending().await?;
    /// assert_eq!(board.agents().turns("asks")[0].run, run.id());
    /// assert!(board.agents().turns("nobody").is_empty());
    /// # run.cancel("done").await?;
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn turns(&self, agent: &str) -> Vec<TurnId> {
        AgentName::new(agent).map(|agent| self.board.scheduler.turns_of(&agent)).unwrap_or_default()
    }

    /// Agents that announce themselves or withdraw, from now on.
    #[must_use]
    pub fn presence(&self) -> broadcast::Receiver<Presence> {
        self.board.router.watch_presence()
    }

    /// The newest (200; see [`Capacity::inbox`](super::Capacity::inbox)) messages of an agent's inbox, oldest
    /// first: tasks given to it, and news of tasks that it gave away (SEMANTICS 11). They survive a restart, because they
    /// follow from the journals of runs. The first call for an inbox reads those of open runs and, by an index, of the runs that
    /// ended last and have messages in it, as far back as it needs; later calls read none twice. So it costs the same, however
    /// many delegations the store has. Where several boards work on the store, the inbox is the same on all of them, with the
    /// messages of the runs of all, and each call reads these runs.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use callboard::actors::InboxMessage;
    /// use callboard::env::Env;
    /// use callboard::prelude::*;
    /// use callboard::storage::Memory;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let store = Arc::new(Memory::new(Env::system().clock()));
    /// let board = || {
    ///     Callboard::builder()
    ///         .storage(store.clone())
    ///         .agent("lead", |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "fix it").await?)) })
    ///         .agent("coder", |_: Turn| async { Ok(Command::output("fixed")) })
    /// };
    /// let first = board().start().await?;
    /// first.submit(Task::new("fix").to("lead")).await?.result().await?;
    /// first.shutdown().await;
    ///
    /// let second = board().start().await?;
    /// let inbox = second.agents().inbox("coder").await?;
    /// let [InboxMessage::Request { body, .. }] = inbox.as_slice() else { panic!("not one request") };
    /// assert_eq!(&**body, "fix it");
    /// # second.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// What the store reports. A run that cannot be read is left out, and a warning names it.
    pub async fn inbox(&self, agent: &str) -> Result<Vec<InboxMessage>, StorageError> {
        let Board { boards, journal, router, .. } = &*self.board;
        if boards.has_met_others() || journal.storage().is_shared() {
            let others = boards.others();
            let is_elsewhere = |agent: &str| others.iter().any(|other| other.info.agent(agent).is_some());
            return router.inbox_of_all_boards(agent, is_elsewhere).await;
        }
        router.inbox(agent).await
    }

    /// What is known of an agent's circuit breaker: its state, the failures in a row, the last of them, and when it opened
    /// (SEMANTICS 3). Breakers are those of this process: after a restart they start closed.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::supervision::runs::BreakerState;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder().agent("idle", |_: Turn| async { Ok(Command::new()) }).start().await?;
    /// let status = board.agents().breaker("idle");
    /// assert_eq!((status.state, status.failures, status.last_failure), (BreakerState::Closed, 0, None));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn breaker(&self, agent: &str) -> BreakerStatus {
        self.board.facts.lock().breaker_status(agent, self.board.env.now())
    }
}
