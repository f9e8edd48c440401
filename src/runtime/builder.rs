use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::actors::approvals::{Channel, ChannelActor, Decider, GatewayActor, Screen};
use crate::actors::context::{ContextStore, Sweeper};
use crate::actors::meters::{GaugeSources, Gauges};
use crate::actors::{
    AgentSpec, ApprovalPolicy, Floor, FloorLimits, IntoAgent, Keeper, KeeperArguments, KeeperMsg, PolicyQuestion,
    Router, RouterActor, Shards, default_policy,
};
use crate::env::Env;
use crate::messages::names::check_name;
use crate::messages::state::{Reducers, Schema, StateRules};
use crate::messages::{AgentName, Backoff, Complexity, Consent, Durability, Json, NameError, Task};
use crate::storage::{Journal, Memory, Storage, StorageError};
use crate::supervision::runs::breaker::BreakerPolicy;
use crate::supervision::runs::claims::Claims;
use crate::supervision::runs::dispatch::Dispatch;
use crate::supervision::runs::facts::SharedFacts;
use crate::supervision::runs::inbox::Input;
use crate::supervision::runs::supervisor::{MemoryRuns, Office, RunSupervisor};
use crate::supervision::tree::{
    self, AutoShutdown, ChildSpec, EndReason, Intensity, Restart, StartError, Supervisor, SupervisorSpec,
};

use super::classifier::Classifier;
use super::handle::{AgentError, Board, Callboard};

/// Describes a board; [`Builder::start`] starts it.
#[derive(Default)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    storage: Option<Arc<dyn Storage>>,
    env: Option<Env>,
    agents: Vec<AgentSpec>,
    channels: Vec<Arc<dyn Channel>>,
    policy: Option<ApprovalPolicy>,
    reducers: Reducers,
    settings: Settings,
    observer: Option<Observer>,
}

/// Is shown the board when it has started.
type Observer = Box<dyn FnOnce(&Callboard) + Send>;

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
    pub(super) offline_after: Duration,
    pub(super) grace: Duration,
    pub(super) on_unfinished: Unfinished,
    pub(super) sweep_every: Duration,
    pub(super) watch_buffer: usize,
    pub(super) retention: Duration,
    pub(super) memory_runs: usize,
    pub(super) namespace_ttls: BTreeMap<String, Duration>,
    pub(super) classifier: Classifier,
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
            approval_ttl: Duration::from_secs(24 * 3600),
            offline_after: Duration::from_secs(120),
            grace: Duration::from_secs(10),
            on_unfinished: Unfinished::default(),
            sweep_every: Duration::from_secs(60),
            watch_buffer: 256,
            retention: Duration::from_secs(30 * 24 * 3600),
            memory_runs: 10_000,
            namespace_ttls: ContextStore::usual_ttls(),
            classifier: Classifier::None,
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

    /// Has a typed agent, which answers a [`Task`] with a [`Complexity`], choose the class of tasks that name no limits. When
    /// it cannot answer, the task is complex, and a warning says so.
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

    /// What needs approval; see [`default_policy`] for what holds if nothing is said.
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

    /// How long an approval waits before silence denies it (24 h).
    pub fn approval_ttl(mut self, ttl: Duration) -> Self {
        self.settings.approval_ttl = ttl;
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

    /// How many events a slow watcher may lag behind (256).
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

    /// Starts the board: storage, agents, and the runs that an earlier process left unfinished (see
    /// [`Builder::on_unfinished`]).
    ///
    /// # Errors
    /// See [`BuildError`]. What had started by then is stopped again.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<Callboard, BuildError> {
        let Self { storage, env, agents, channels, policy, reducers, settings, observer } = self;
        check(&agents, &channels)?;
        let env = env.unwrap_or_else(Env::system);
        let storage = storage.unwrap_or_else(|| Arc::new(Memory::new(env.clock())));
        let durability = settings.durability.unwrap_or_else(|| storage.default_durability());
        let journal = Journal::new(Arc::clone(&storage));
        let shards = Arc::new(Shards::new(settings.supervisors));
        let facts = Arc::new(SharedFacts::new(settings.breaker));
        let context = ContextStore::new(Arc::clone(&storage), env.clone(), durability, settings.namespace_ttls.clone());
        let limits = FloorLimits {
            permits: settings.pool,
            ready_bound: settings.ready_per_agent,
            offline_after: settings.offline_after,
        };
        let floor = Floor::new(env.clone(), Arc::clone(&facts), context.clone(), limits);
        let decider = Decider::new(env.clone(), Arc::clone(&storage), durability, Arc::clone(&shards));
        let router = Arc::new(Router::new(
            env.clone(),
            Arc::clone(&floor),
            decider.clone(),
            policy.unwrap_or_else(|| Arc::new(default_policy)),
        ));
        let rules = StateRules { schema: Arc::new(Schema::swarm()), reducers: Arc::new(reducers) };
        let quarantine = Arc::new(Mutex::new(BTreeMap::new()));
        let places = Arc::new(Semaphore::new(settings.runs_in_flight));
        let has_stopped = Arc::new(AtomicBool::new(false));
        let claims = Claims::new(Arc::clone(&storage), &env.id().to_string());
        let (keeper_spec, keeper) = ChildSpec::actor("storage", {
            let arguments = KeeperArguments {
                has_stopped: Arc::clone(&has_stopped),
                env: env.clone(),
                journal: journal.clone(),
                floor: Arc::clone(&floor),
                retention: settings.retention,
                every: settings.sweep_every,
                claims: claims.clone(),
            };
            move || (Keeper, arguments.clone())
        });
        let office = |inbox| {
            let (places, keeper, has_stopped) = (Arc::clone(&places), keeper.clone(), Arc::clone(&has_stopped));
            Arc::new(Office {
                env: env.clone(),
                journal: journal.clone(),
                dispatch: Arc::clone(&router) as Arc<dyn Dispatch>,
                facts: Arc::clone(&facts),
                rules: rules.clone(),
                backoff: settings.backoff,
                approval_ttl: settings.approval_ttl,
                max_recoveries: 10,
                durability,
                claims: claims.clone(),
                inbox,
                roster: Mutex::default(),
                quarantine: Arc::clone(&quarantine),
                memory_runs: MemoryRuns::new(settings.memory_runs / settings.supervisors),
                on_storage_error: Box::new(move |error| {
                    tracing::error!(%error, "the store has stopped, and the board stops with it");
                    places.close();
                    has_stopped.store(true, Ordering::Release);
                    // A keeper that is down finds it when it is back.
                    let _ = keeper.cast(KeeperMsg::StorageStopped);
                }),
            })
        };
        let offices: Vec<Arc<Office>> = shards.all().iter().map(|inbox| office(Arc::clone(inbox))).collect();

        let (context_spec, _) = ChildSpec::actor("context-store", {
            let (context, every) = (context.clone(), settings.sweep_every);
            move || (Sweeper, (context.clone(), every))
        });
        let approvals = approvals_spec(channels, &decider);
        let (router_spec, _) = ChildSpec::actor("delegation-router", {
            let router = Arc::clone(&router);
            move || (RouterActor, Arc::clone(&router))
        });
        let (gauges_spec, _) = ChildSpec::actor("gauges", {
            let (floor, facts) = (Arc::clone(&floor), Arc::clone(&facts));
            let sources = GaugeSources { floor, facts, every: Duration::from_secs(10) };
            move || (Gauges, sources.clone())
        });
        // Without backoff, because agents come with windows of any size.
        let (agents_spec, agents_tree) =
            ChildSpec::supervisor(SupervisorSpec::one_for_one("agents").backoff(tree::Backoff::none()));
        let mut runs = SupervisorSpec::one_for_one("runs");
        for (number, office) in offices.iter().enumerate() {
            let inbox = Arc::clone(&office.inbox);
            let (spec, _) = ChildSpec::actor(format!("runs-{number}"), {
                let office = Arc::clone(office);
                move || (RunSupervisor, Arc::clone(&office))
            });
            runs = runs.child(spec.mailbox_depth(move || inbox.len()));
        }
        let root = SupervisorSpec::one_for_one("callboard")
            .auto_shutdown(AutoShutdown::AnySignificant)
            .child(keeper_spec.restart(Restart::Transient).significant())
            .child(context_spec)
            .child(approvals)
            .child(router_spec)
            .child(agents_spec)
            // Runs go on without it.
            .child(gauges_spec.own_intensity(Intensity::default()))
            .child(ChildSpec::supervisor(runs).0);
        let tree = Supervisor::start(root, env.clone()).await?;
        tokio::spawn({
            let (tree, places, floor) = (tree.clone(), Arc::clone(&places), Arc::downgrade(&floor));
            async move {
                let reason = tree.join().await;
                places.close();
                // A board that was stopped has stopped its turns, and may be gone.
                if reason != EndReason::Stopped
                    && let Some(floor) = floor.upgrade()
                {
                    tracing::error!(%reason, "the board has ended");
                    floor.stop_all();
                }
            }
        });
        let (found, recovered) = watch::channel(());
        let board = Arc::new(Board {
            recovered,
            places,
            env,
            journal,
            claims,
            shards,
            facts,
            floor,
            router,
            context,
            decider,
            rules,
            quarantine,
            tree,
            agents: agents_tree,
            settings,
            durability,
            submissions: tokio::sync::RwLock::default(),
        });
        let callboard = Callboard { board };
        let (tree, watched) = (callboard.board.tree.clone(), Arc::clone(&callboard.board.router));
        tokio::spawn(async move {
            tree.join().await;
            watched.hub.close();
        });
        if let Some(observe) = observer {
            observe(&callboard);
        }
        for spec in agents {
            if let Err(error) = callboard.spawn(spec).await {
                callboard.board.tree.stop().await;
                return Err(error.into());
            }
        }
        let unfinished = match callboard.board.settings.on_unfinished {
            Unfinished::Leave => Vec::new(),
            Unfinished::Resume | Unfinished::Cancel => match callboard.board.journal.open_runs().await {
                Ok(runs) => runs,
                Err(error) => {
                    callboard.board.tree.stop().await;
                    return Err(error.into());
                }
            },
        };
        for run in unfinished {
            let inbox = callboard.board.shards.of(run);
            inbox.push(Input::Adopt { run, new_process: true, found: Some(found.clone()) });
            if callboard.board.settings.on_unfinished == Unfinished::Cancel {
                // It waits until the run is read, and is decided before anything of the run begins.
                let (ack, _) = oneshot::channel();
                inbox.push(Input::Cancel { run, reason: "an earlier process left it unfinished".to_owned(), ack });
            }
        }
        Ok(callboard)
    }
}

/// The gateway and its channels.
fn approvals_spec(channels: Vec<Arc<dyn Channel>>, decider: &Decider) -> ChildSpec {
    let screens: Arc<[_]> = channels.into_iter().map(|channel| Arc::new(Screen::new(channel))).collect();
    let mut supervisor = SupervisorSpec::one_for_one("approval-gateway");
    for screen in &*screens {
        let (spec, _) = ChildSpec::actor(screen.name(), {
            let (screen, decider) = (Arc::clone(screen), decider.clone());
            move || (ChannelActor, (Arc::clone(&screen), decider.clone()))
        });
        supervisor = supervisor.child(spec.own_intensity(Intensity::new(5, Duration::from_secs(60))));
    }
    let (gateway, _) = ChildSpec::actor("gateway", {
        let decider = decider.clone();
        move || (GatewayActor, (decider.clone(), Arc::clone(&screens)))
    });
    ChildSpec::supervisor(supervisor.child(gateway)).0
}

fn check(agents: &[AgentSpec], channels: &[Arc<dyn Channel>]) -> Result<(), BuildError> {
    let mut names = std::collections::BTreeSet::new();
    for spec in agents {
        let name = spec.checked_name()?;
        if !names.insert(name.clone()) {
            return Err(BuildError::DuplicateAgent { name });
        }
    }
    let mut names = std::collections::BTreeSet::from(["gateway"]);
    for channel in channels {
        check_name("channel", channel.name(), 64)?;
        if !names.insert(channel.name()) {
            return Err(BuildError::DuplicateChannel { name: channel.name().to_owned() });
        }
    }
    Ok(())
}
