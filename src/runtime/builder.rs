//! What is said about a board before it starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::actors::approvals::Channel;
use crate::actors::context::ContextStore;
use crate::actors::{AgentSpec, ApprovalPolicy, IntoAgent, LedgerLimits, PolicyQuestion};
use crate::env::Env;
use crate::messages::state::{Predicates, Reducers};
use crate::messages::{
    AgentName, Backoff, Complexity, Consent, Durability, Json, Limits, NameError, OnUnknown, State, Task,
};
use crate::storage::{Storage, StorageError};
use crate::supervision::runs::breaker::BreakerPolicy;
use crate::supervision::tree::StartError;
use crate::workflow::Workflow;

use super::agents::AgentError;
use super::classifier::Classifier;
use super::handle::Callboard;

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
    pub(super) reducers: Reducers,
    pub(super) predicates: Predicates,
    pub(super) settings: Settings,
    pub(super) observer: Option<Observer>,
}

/// Is shown the board when it has started.
pub(super) type Observer = Box<dyn FnOnce(&Callboard) + Send>;

/// What a board is tuned with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) pool: usize,
    pub(super) runs_in_flight: usize,
    pub(super) ready_per_agent: usize,
    pub(super) supervisors: usize,
    pub(super) durability: Option<Durability>,
    pub(super) breaker: BreakerPolicy,
    pub(super) backoff: Backoff,
    pub(super) approval_ttl: Duration,
    pub(super) remind_before: Duration,
    pub(super) on_unknown: OnUnknown,
    pub(super) offline_after: Duration,
    pub(super) grace: Duration,
    pub(super) on_unfinished: Unfinished,
    pub(super) sweep_every: Duration,
    pub(super) watch_buffer: usize,
    pub(super) retention: Duration,
    pub(super) conversation_retention: Duration,
    pub(super) memory_runs: usize,
    pub(super) namespace_ttls: BTreeMap<String, Duration>,
    pub(super) classifier: Classifier,
    pub(super) ledger: LedgerLimits,
    pub(super) stuck_after: Duration,
    pub(super) reconcile_within: Duration,
    pub(super) max_recoveries: u32,
    pub(super) attempts: u32,
    pub(super) dynamic_agents: usize,
    pub(super) memory_turns: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool: 5,
            runs_in_flight: 10_000,
            ready_per_agent: 1_024,
            supervisors: 2,
            durability: None,
            breaker: BreakerPolicy::default(),
            backoff: Backoff::default(),
            approval_ttl: Duration::from_secs(7 * 24 * 3600),
            remind_before: Duration::from_secs(24 * 3600),
            on_unknown: OnUnknown::Ask,
            offline_after: Duration::from_secs(120),
            grace: Duration::from_secs(10),
            on_unfinished: Unfinished::default(),
            sweep_every: Duration::from_secs(60),
            watch_buffer: 256,
            retention: Duration::from_secs(30 * 24 * 3600),
            conversation_retention: Duration::from_secs(90 * 24 * 3600),
            memory_runs: 10_000,
            namespace_ttls: ContextStore::usual_ttls(),
            classifier: Classifier::None,
            stuck_after: Duration::from_secs(5),
            reconcile_within: Duration::from_secs(30),
            max_recoveries: 10,
            attempts: 3,
            dynamic_agents: 16,
            memory_turns: 1_000,
            ledger: LedgerLimits { inbox: 200, stale_after: Duration::from_secs(600) },
        }
    }
}

/// What a start does with runs that an earlier process left unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unfinished {
    /// They go on where they were.
    #[default]
    Resume,
    /// They are cancelled.
    Cancel,
    /// They stay as they are, for a later start to find.
    Leave,
}

/// Why a board did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A name breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two agents have one name.
    #[error("two agents are named {name}; give one of them another name, or replace it while the board runs")]
    DuplicateAgent {
        /// The name.
        name: AgentName,
    },
    /// People cannot tell the names of two agents apart.
    #[error("the name of agent {name} looks like that of agent {other}; give one of them another name")]
    LooksLike {
        /// The name.
        name: AgentName,
        /// The other name, which is of other characters.
        other: AgentName,
    },
    /// Two approval channels have one name.
    #[error("two approval channels are named {name:?}")]
    DuplicateChannel {
        /// The name.
        name: String,
    },
    /// An agent did not start.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The supervision tree did not start.
    #[error("the board did not start: {0}")]
    Tree(#[from] StartError),
    /// The unfinished runs could not be found.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Builder {
    /// Where everything durable lives; memory if nothing is said. A store that others hold too is passed as an `Arc`.
    pub fn storage(mut self, storage: impl Storage) -> Self {
        self.storage = Some(Arc::new(storage));
        self
    }

    /// Chooses the class of tasks that name no limits; without one, or an agent, every task is complex. It runs in the
    /// caller's task, so a panic in it is the caller's.
    pub fn classifier(mut self, classify: impl Fn(&Task) -> Complexity + Send + Sync + 'static) -> Self {
        self.settings.classifier = Classifier::Function(Arc::new(classify));
        self
    }

    /// Has an agent choose the class of tasks that name no limits. A typed one answers a [`Task`] with a [`Complexity`]; any
    /// other, such as the built-in [`complexity`](crate::agents::BuiltIn::Complexity), works on a run of its own within the
    /// limits of a simple task, whose output is the class. When it has none (after 30 s), the task is complex, and a warning
    /// says so.
    pub fn classifier_agent(mut self, agent: &str) -> Self {
        self.settings.classifier = Classifier::Agent(agent.into());
        self
    }

    /// The world; the real one if nothing is said.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Adds an agent: a closure over turns, or a factory of a type that implements [`crate::Agent`].
    pub fn agent<Kind>(self, name: &str, agent: impl IntoAgent<Kind>) -> Self {
        self.with(AgentSpec::new(name, agent))
    }

    /// Adds an agent with everything that can be said about it.
    pub fn with(mut self, spec: AgentSpec) -> Self {
        self.agents.push(spec);
        self
    }

    /// Adds somewhere people decide approvals.
    pub fn channel(mut self, channel: impl Channel) -> Self {
        self.channels.push(Arc::new(channel));
        self
    }

    /// What needs approval; see [`default_policy`](crate::actors::default_policy) for what holds if nothing is said.
    pub fn approval_policy(mut self, policy: impl Fn(&PolicyQuestion<'_>) -> Consent + Send + Sync + 'static) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Adds a custom reducer. It must be deterministic: replay runs it again.
    pub fn reducer(
        mut self,
        name: &str,
        reduce: impl Fn(&Json, &Json) -> Result<Json, String> + Send + Sync + 'static,
    ) -> Self {
        self.reducers.insert(name, Arc::new(reduce));
        self
    }

    /// Adds a predicate, which a workflow asks by its name: told the state, and the output or the input that it is about. It
    /// must be deterministic: replay runs it again.
    pub fn predicate(mut self, name: &str, holds: impl Fn(&State, &Json) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.insert(name, Arc::new(holds));
        self
    }

    /// How many turns of all agents run at once (5).
    pub fn pool(mut self, permits: usize) -> Self {
        self.settings.pool = permits.max(1);
        self
    }

    /// How many runs may be in flight (10,000). Callers wait for room, or use `try_submit`.
    pub fn runs_in_flight(mut self, runs: usize) -> Self {
        self.settings.runs_in_flight = runs.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How many ready turns may wait for one agent before new work for it is refused (1,024).
    pub fn ready_per_agent(mut self, turns: usize) -> Self {
        self.settings.ready_per_agent = turns.max(1);
        self
    }

    /// How many run supervisors there are (2).
    pub fn run_supervisors(mut self, count: usize) -> Self {
        self.settings.supervisors = count.max(1);
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

    /// How long an approval waits before silence denies it (7 days). A task may say otherwise
    /// ([`Task::approval_ttl`]), and a policy before that ([`Consent::AskWithin`]).
    pub fn approval_ttl(mut self, ttl: Duration) -> Self {
        self.settings.approval_ttl = ttl;
        self
    }

    /// How long before an approval expires people are reminded of it, once, through their channels (24 h). For one whose whole
    /// time is less than twice that, they are reminded when half of it is over. Nobody is reminded if it is zero.
    pub fn remind_before(mut self, lead: Duration) -> Self {
        self.settings.remind_before = lead;
        self
    }

    /// What follows when an effect that must not be repeated may have happened and neither its tool nor its agent says what to
    /// do (default: [`OnUnknown::Ask`], a person decides; SEMANTICS 14).
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.settings.on_unknown = on_unknown;
        self
    }

    /// How long turns wait for an agent that was stopped to come back, before they fail as offline (120 s).
    pub fn offline_after(mut self, wait: Duration) -> Self {
        self.settings.offline_after = wait;
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

    /// How long runs are kept after their end (30 days).
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// How long a conversation is kept after its last run (90 days).
    pub fn conversation_retention(mut self, retention: Duration) -> Self {
        self.settings.conversation_retention = retention;
        self
    }

    /// How many ended runs are kept whose journals live in memory only (10,000).
    pub fn memory_runs(mut self, runs: usize) -> Self {
        self.settings.memory_runs = runs;
        self
    }

    /// How often expired context entries and old runs are deleted (1 min).
    pub fn sweep_every(mut self, interval: Duration) -> Self {
        self.settings.sweep_every = interval;
        self
    }

    /// How many of its last turns a run keeps whose journal lives in memory only (1,000).
    pub fn memory_turns(mut self, turns: u32) -> Self {
        self.settings.memory_turns = turns;
        self
    }

    /// How many agents the agents of one run may make (16). A run that has made as many is refused more.
    pub fn dynamic_agents(mut self, agents: usize) -> Self {
        self.settings.dynamic_agents = agents;
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

    /// How long a turn may ignore that it was stopped before its slot and permit are given to others (5 s).
    pub fn stuck_after(mut self, wait: Duration) -> Self {
        self.settings.stuck_after = wait;
        self
    }

    /// How long a tool may take to find out what came of an effect whose result was lost (30 s); after that it is unknown.
    pub fn reconcile_within(mut self, wait: Duration) -> Self {
        self.settings.reconcile_within = wait;
        self
    }

    /// How many messages of each agent's inbox are kept in memory and shown (200), the newest; the journals have all.
    pub fn inbox_size(mut self, messages: usize) -> Self {
        self.settings.ledger.inbox = messages;
        self
    }

    /// How long a delegation may be silent before its status is shown as stale (10 min).
    pub fn stale_after(mut self, silence: Duration) -> Self {
        self.settings.ledger.stale_after = silence;
        self
    }

    /// How many events or announcements a slow watcher may lag behind (256).
    pub fn watch_buffer(mut self, events: usize) -> Self {
        self.settings.watch_buffer = events;
        self
    }

    /// How long entries of a namespace live when nobody says otherwise; `None` for ever.
    pub fn namespace_ttl(mut self, namespace: &str, ttl: Option<Duration>) -> Self {
        match ttl {
            Some(ttl) => drop(self.settings.namespace_ttls.insert(namespace.to_owned(), ttl)),
            None => drop(self.settings.namespace_ttls.remove(namespace)),
        }
        self
    }

    /// Shows the board to the test kit once its tree runs, before its agents start.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn observed_by(mut self, observer: impl FnOnce(&Callboard) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }
}
