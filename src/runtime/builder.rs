//! The builder of a board.

use std::sync::Arc;
use std::time::Duration;

use crate::actors::approvals::Channel;
use crate::actors::{AgentSpec, ApprovalPolicy, BoardShare, DayLimits, IntoAgent, PolicyQuestion};
use crate::env::Env;
use crate::messages::state::StateRules;
use crate::messages::{
    AgentName, Backoff, Complexity, Consent, Durability, Groups, Json, Limits, NameError, OnUnknown, PerRun, State,
    Task,
};
use crate::storage::{Storage, StorageError};
use crate::supervision::runs::breaker::BreakerPolicy;
use crate::supervision::tree::StartError;
use crate::workflow::Workflow;

use super::agents::AgentError;
use super::handle::Callboard;
use super::settings::{Capacity, Classifier, Retention, RunLimits, Settings, Timings, Unfinished};

/// Describes a board; [`Builder::start`] starts it.
#[derive(Default)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    pub(super) storage: Option<Arc<dyn Storage>>,
    pub(super) env: Option<Env>,
    pub(super) agents: Vec<AgentSpec>,
    /// Workflows that are agents; they need the board.
    pub(super) workflows: Vec<(String, Workflow, Limits)>,
    pub(super) channels: Vec<Arc<dyn Channel>>,
    pub(super) policy: Option<ApprovalPolicy>,
    pub(super) groups: Groups,
    pub(super) rules: StateRules,
    pub(super) settings: Settings,
    pub(super) observer: Option<Observer>,
    pub(super) share: Option<BoardShare>,
}

/// Called with the board when it has started.
pub(super) type Observer = Box<dyn FnOnce(&Callboard) + Send>;

/// Why [`Builder::start`] returned no board.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name of an agent, of an approval channel or of the project breaks a rule for names, or so does a role, capability, project
    /// or namespace of an agent.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two agents that were added to the builder have one name.
    #[error("two agents are named {name}; give one of them another name, or replace it while the board runs")]
    DuplicateAgent {
        /// The name that both agents have.
        name: AgentName,
    },
    /// People cannot tell the names of two agents apart.
    #[error("the name of agent {name} looks like that of agent {other}; give one of them another name")]
    LooksLike {
        /// The name of one of the two agents.
        name: AgentName,
        /// The other name, which is of other characters.
        other: AgentName,
    },
    /// Two approval channels have one name, or a channel is named `gateway`, which the board uses itself.
    #[error(
        "the name of the approval channel {name:?} is taken: by another channel, or by the board itself (`gateway`)"
    )]
    DuplicateChannel {
        /// The name of the channel that was added last.
        name: String,
    },
    /// An agent, or a workflow that was added as an agent, could not be spawned.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The store belongs to another project ([`Builder::project`]). Nothing was written to it.
    #[error(
        "the store belongs to the project {of_store:?}, and this board is of the project {project:?}: give the board a store of its own, or \
         name the project {of_store:?} if it is the same one"
    )]
    OtherProject {
        /// The project of the board.
        project: Arc<str>,
        /// The project that the store belongs to.
        of_store: Arc<str>,
    },
    /// The supervision tree of the board's own actors (storage, router, channels, run supervisors) did not start.
    #[error("the board did not start: {0}")]
    Tree(#[from] StartError),
    /// The store did not begin a session of the board, or could not list the unfinished runs, which it does not with
    /// [`Unfinished::Leave`].
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Callboard {
    /// Returns a [`Builder`] for a new board, which by default has no agents and keeps everything in memory.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Sets the store of everything durable; by default memory. A store that others hold too is passed as an `Arc`.
    pub fn storage(mut self, storage: impl Storage) -> Self {
        self.storage = Some(Arc::new(storage));
        self
    }

    /// Names the board among those on its store; by default it has a name that no other board has. A start fails while a board of the
    /// same name works on the store ([`StorageError::NameTaken`]).
    pub fn name(mut self, name: &str) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Says where people and programs reach the board: for [`Callboard::boards`], which does not look into it.
    pub fn address(mut self, address: &str) -> Self {
        self.settings.address = Some(address.into());
        self
    }

    /// Has the board keep this share of limits up to date, which all boards on the store share: before it takes its first turn, and then
    /// with each look at the others.
    pub fn board_share(mut self, share: &BoardShare) -> Self {
        self.share = Some(share.clone());
        self
    }

    /// Names the project that the board is of, in at most 64 characters. The first name that a board gives is kept in the store, which then
    /// refuses boards of other projects ([`BuildError::OtherProject`]); one without a project works on any store.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use callboard::prelude::*;
    /// use callboard::env::Env;
    /// use callboard::runtime::BuildError;
    /// use callboard::storage::Memory;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let store = Arc::new(Memory::new(Env::system().clock()));
    /// let of = |project: &str| Callboard::builder().storage(Arc::clone(&store)).project(project).start();
    /// let shop = of("shop").await?;
    /// assert!(matches!(of("garden").await, Err(BuildError::OtherProject { of_store, .. }) if &*of_store == "shop"));
    /// # shop.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    pub fn project(mut self, name: &str) -> Self {
        self.settings.project = Some(name.into());
        self
    }

    /// Chooses the class of tasks that name no limits; without one, or an agent, every task is complex. It runs in the
    /// caller's task, so a panic in it is the caller's.
    pub fn classifier(mut self, classify: impl Fn(&Task) -> Complexity + Send + Sync + 'static) -> Self {
        self.settings.classifier = Classifier::Function(Arc::new(classify));
        self
    }

    /// Has an agent choose the class of tasks that name no limits. A typed one answers a [`Task`] with a [`Complexity`]; any
    /// other, such as the built-in [`complexity`] of `callboard-agents`, works on a run of its own within the limits of a simple
    /// task, whose output is the class. When it has none (after 30 s), the task is complex, and a warning is logged.
    ///
    /// [`complexity`]: https://docs.rs/callboard-agents/latest/callboard_agents/enum.BuiltIn.html
    pub fn classifier_agent(mut self, agent: &str) -> Self {
        self.settings.classifier = Classifier::Agent(agent.into());
        self
    }

    /// Sets the environment: clock, random numbers and ids. By default the system's.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Adds an agent: a closure over turns, or a factory of a type that implements [`crate::Agent`].
    pub fn agent<Kind>(self, name: &str, agent: impl IntoAgent<Kind>) -> Self {
        self.with(AgentSpec::new(name, agent))
    }

    /// Adds the agent that an [`AgentSpec`] describes: its name, its factory and its options.
    pub fn with(mut self, spec: AgentSpec) -> Self {
        self.agents.push(spec);
        self
    }

    /// Adds a channel through which people see approvals and decide them. Each channel is shown every approval; the
    /// first decision through any of them counts.
    pub fn channel(mut self, channel: impl Channel) -> Self {
        self.channels.push(Arc::new(channel));
        self
    }

    /// Sets what needs approval; the default is [`PolicyQuestion::default_consent`](crate::actors::PolicyQuestion::default_consent).
    pub fn approval_policy(mut self, policy: impl Fn(&PolicyQuestion<'_>) -> Consent + Send + Sync + 'static) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Sets who is in the groups that an approval policy names ([`Consent::AskOf`]), and whose the names of requesters are.
    ///
    /// ```
    /// # use callboard::prelude::*;
    /// use callboard::messages::{Deciders, Groups};
    /// let two = Deciders { at_least: 2, excludes_requester: true, ..Deciders::of("ops") };
    /// let builder = Callboard::builder()
    ///     .groups(Groups::default().group("ops", ["ann", "bob", "cat"]).requesters(|token| (token == "laptop").then(|| "ann".into())))
    ///     .approval_policy(move |_| Consent::AskOf { deciders: two.clone().into(), within: None });
    /// ```
    pub fn groups(mut self, groups: Groups) -> Self {
        self.groups = groups;
        self
    }

    /// Adds a custom reducer. It must be deterministic: replay runs it again.
    pub fn reducer(
        mut self,
        name: &str,
        reduce: impl Fn(&Json, &Json) -> Result<Json, String> + Send + Sync + 'static,
    ) -> Self {
        self.rules = self.rules.reducer(name, reduce);
        self
    }

    /// Adds a predicate, which a workflow calls by its name with the state, and the output or the input that it is about. It
    /// must be deterministic: replay runs it again.
    pub fn predicate(mut self, name: &str, holds: impl Fn(&State, &Json) -> bool + Send + Sync + 'static) -> Self {
        self.rules = self.rules.predicate(name, holds);
        self
    }

    /// How many turns of all agents run at once (5).
    pub fn pool(mut self, permits: usize) -> Self {
        self.settings.capacity.pool = permits.max(1);
        self
    }

    /// How much the board takes on: runs in flight, ready turns, run supervisors, dynamic agents, buffers.
    ///
    /// ```
    /// # use callboard::prelude::*;
    /// let builder = Callboard::builder().capacity(|capacity| capacity.runs_in_flight(100).ready_per_agent(16));
    /// ```
    pub fn capacity(mut self, change: impl FnOnce(Capacity) -> Capacity) -> Self {
        self.settings.capacity = change(self.settings.capacity);
        self
    }

    /// What may be used in a day: by all boards of the store together, and by each requester outside of it. An agent's limit is
    /// [`AgentSpec::per_day`]. A call counts on the day on which it begins (SEMANTICS 2).
    ///
    /// ```
    /// # use callboard::prelude::*;
    /// use callboard::messages::{Cost, PerDay};
    /// let limit = PerDay { tokens: Some(2_000_000), cost: Some("20.00".parse::<Cost>()?) };
    /// let builder = Callboard::builder().day_limits(|days| days.board(limit));
    /// # Ok::<(), String>(())
    /// ```
    pub fn day_limits(mut self, change: impl FnOnce(DayLimits) -> DayLimits) -> Self {
        self.settings.day_limits = change(self.settings.day_limits);
        self
    }

    /// What each run may use at most, whatever its task says: by who asks for it from outside of the board
    /// ([`Task::from_agent`](crate::messages::Task::from_agent)). It holds for forks and retries too. A run that is there keeps its limits.
    ///
    /// ```
    /// # use callboard::prelude::*;
    /// use callboard::messages::PerRun;
    /// let limit = PerRun { tokens: Some(200_000), agents: Some(4), ..PerRun::default() };
    /// let builder = Callboard::builder().run_limits(move |_| limit);
    /// ```
    pub fn run_limits(mut self, limit_of: impl Fn(Option<&AgentName>) -> PerRun + Send + Sync + 'static) -> Self {
        self.settings.run_limits = RunLimits(Some(Arc::new(limit_of)));
        self
    }

    /// How long the board keeps what has ended: runs, conversations, what lives in memory only.
    pub fn retention(mut self, change: impl FnOnce(Retention) -> Retention) -> Self {
        self.settings.retention = change(self.settings.retention);
        self
    }

    /// How long the board waits: reminders of approvals, agents that were stopped, turns that ignore their stop, effects whose
    /// outcome is unknown, silent delegations.
    pub fn timings(mut self, change: impl FnOnce(Timings) -> Timings) -> Self {
        self.settings.timings = change(self.settings.timings);
        self
    }

    /// When writes are acknowledged [`Sync` on disk stores, `Memory` in memory].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = Some(durability);
        self
    }

    /// When the circuit breakers of the agents open and for how long (3 failures, 30 s doubling to 10 min).
    pub fn breaker(mut self, policy: BreakerPolicy) -> Self {
        self.settings.breaker = policy;
        self
    }

    /// The wait before a failed turn is tried again (100 ms doubling to 30 s).
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// How long an approval waits before silence denies it (7 days). A task may set another
    /// ([`Task::approval_ttl`]), and a policy before that ([`Consent::AskWithin`]).
    pub fn approval_ttl(mut self, ttl: Duration) -> Self {
        self.settings.approval_ttl = ttl;
        self
    }

    /// What follows when an effect that must not be repeated may have happened and neither its tool nor its agent sets what to
    /// do (default: [`OnUnknown::Ask`], a person decides; SEMANTICS 14).
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.settings.on_unknown = on_unknown;
        self
    }

    /// How long a shutdown lets turns finish (10 s).
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// What to do with runs that an earlier process left unfinished (resume them).
    pub fn on_unfinished(mut self, unfinished: Unfinished) -> Self {
        self.settings.on_unfinished = unfinished;
        self
    }

    /// How often a turn is tried before it ends in dead letters (3), in runs whose task has no limits of its own; a task sets
    /// `Limits::attempts`, and a node of a workflow its own figure. At least once.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let fails = |_: Turn| async { Err::<Command, _>(TurnError::transient("the service is down")) };
    /// let board = Callboard::builder().agent("caller", fails).attempts(1).start().await?;
    /// board.submit(Task::new("call")).await?.result().await?;
    /// assert_eq!(board.dead_letters().list().await?[0].attempts, 1);
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.settings.attempts = attempts.max(1);
        self
    }

    /// At how many starts in a row a turn may be found under way before its run needs a person's attention (10).
    pub fn max_recoveries(mut self, recoveries: u32) -> Self {
        self.settings.max_recoveries = recoveries;
        self
    }

    /// Sets how long entries of a namespace live by default; `None` for ever.
    pub fn namespace_ttl(mut self, namespace: &str, ttl: Option<Duration>) -> Self {
        match ttl {
            Some(ttl) => drop(self.settings.namespace_ttls.insert(namespace.to_owned(), ttl)),
            None => drop(self.settings.namespace_ttls.remove(namespace)),
        }
        self
    }

    /// Passes the board to the test kit once its tree runs, before its agents start.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn observed_by(mut self, observer: impl FnOnce(&Callboard) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }
}
