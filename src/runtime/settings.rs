//! The settings of a board, in groups: limits, retention times and timeouts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::actors::context::ContextStore;
use crate::actors::{DayLimits, LedgerLimits};
use crate::messages::{AgentName, Backoff, Complexity, Durability, Limits, OnUnknown, PerRun, Task};
use crate::supervision::runs::breaker::BreakerPolicy;

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) name: Option<Arc<str>>,
    pub(super) address: Option<Arc<str>>,
    pub(super) project: Option<Arc<str>>,
    pub(super) durability: Option<Durability>,
    pub(super) classifier: Classifier,
    pub(super) breaker: BreakerPolicy,
    pub(super) backoff: Backoff,
    pub(super) approval_ttl: Duration,
    pub(super) on_unknown: OnUnknown,
    pub(super) on_unfinished: Unfinished,
    pub(super) grace: Duration,
    pub(super) attempts: u32,
    pub(super) max_recoveries: u32,
    pub(super) namespace_ttls: BTreeMap<String, Duration>,
    pub(super) capacity: Capacity,
    pub(super) retention: Retention,
    pub(super) timings: Timings,
    pub(super) day_limits: DayLimits,
    pub(super) run_limits: RunLimits,
}

/// The limit of a requester.
type LimitOf = Arc<dyn Fn(Option<&AgentName>) -> PerRun + Send + Sync>;

/// What runs may use at most, by who asks for them.
#[derive(Clone, Default)]
pub(super) struct RunLimits(pub(super) Option<LimitOf>);

impl RunLimits {
    /// Lowers the limits that a task has to those of its requester.
    pub(super) fn bound_task(&self, Task { limits, from_agent, .. }: &mut Task) {
        if let (Some(limit_of), Some(limits)) = (&self.0, limits) {
            *limits = limit_of(from_agent.as_ref()).bound(limits);
        }
    }

    /// What a run may use that this requester asks for with these limits.
    pub(super) fn bound(&self, from: Option<&AgentName>, limits: &Limits) -> Limits {
        self.0.as_ref().map_or_else(|| limits.clone(), |limit_of| limit_of(from).bound(limits))
    }
}

impl fmt::Debug for RunLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLimits").finish_non_exhaustive()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            address: None,
            project: None,
            durability: None,
            classifier: Classifier::None,
            breaker: BreakerPolicy::default(),
            backoff: Backoff::default(),
            approval_ttl: Duration::from_secs(7 * 24 * 3600),
            on_unknown: OnUnknown::Ask,
            on_unfinished: Unfinished::default(),
            grace: Duration::from_secs(10),
            attempts: 3,
            max_recoveries: 10,
            namespace_ttls: ContextStore::usual_ttls(),
            capacity: Capacity::default(),
            retention: Retention::default(),
            timings: Timings::default(),
            day_limits: DayLimits::default(),
            run_limits: RunLimits::default(),
        }
    }
}

impl Settings {
    pub(super) fn ledger(&self) -> LedgerLimits {
        LedgerLimits { inbox: self.capacity.inbox, stale_after: self.timings.stale_after }
    }
}

/// How much a board takes on: [`Builder::capacity`](super::Builder::capacity).
#[derive(Clone, Debug)]
#[must_use = "it is returned to the builder"]
pub struct Capacity {
    pub(super) pool: usize,
    pub(super) runs_in_flight: usize,
    pub(super) ready_per_agent: usize,
    /// As many as there are cores if unset.
    pub(super) supervisors: Option<usize>,
    pub(super) dynamic_agents: usize,
    pub(super) inbox: usize,
    pub(super) watch_buffer: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            pool: 5,
            runs_in_flight: 10_000,
            ready_per_agent: 1_024,
            supervisors: None,
            dynamic_agents: 16,
            inbox: 200,
            watch_buffer: 256,
        }
    }
}

impl Capacity {
    /// How many runs may be in flight (10,000). Callers wait until one ends, or use `try_submit`. At least one.
    pub fn runs_in_flight(mut self, runs: usize) -> Self {
        self.runs_in_flight = runs.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How many ready turns may wait for one agent before new work for it is refused (1,024). At least one.
    pub fn ready_per_agent(mut self, turns: usize) -> Self {
        self.ready_per_agent = turns.max(1);
        self
    }

    /// How many run supervisors there are (one for each core; in a repeatable world two). At least one.
    pub fn run_supervisors(mut self, count: usize) -> Self {
        self.supervisors = Some(count.max(1));
        self
    }

    /// How many agents the agents of one run may create (16). More are refused.
    pub fn dynamic_agents(mut self, agents: usize) -> Self {
        self.dynamic_agents = agents;
        self
    }

    /// How many messages of each agent's inbox are kept in memory and shown (200), the newest; the journals have all.
    pub fn inbox(mut self, messages: usize) -> Self {
        self.inbox = messages;
        self
    }

    /// How many events or announcements a slow watcher may lag behind (256).
    pub fn watch_buffer(mut self, events: usize) -> Self {
        self.watch_buffer = events;
        self
    }
}

/// How long a board keeps what has ended: [`Builder::retention`](super::Builder::retention).
#[derive(Clone, Debug)]
#[must_use = "it is returned to the builder"]
pub struct Retention {
    pub(super) runs: Duration,
    pub(super) conversations: Duration,
    pub(super) memory_runs: usize,
    pub(super) memory_turns: u32,
    pub(super) every: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            runs: Duration::from_secs(30 * 24 * 3600),
            conversations: Duration::from_secs(90 * 24 * 3600),
            memory_runs: 10_000,
            memory_turns: 1_000,
            every: Duration::from_secs(60),
        }
    }
}

impl Retention {
    /// How long a run is kept after its end (30 days).
    pub fn runs(mut self, time: Duration) -> Self {
        self.runs = time;
        self
    }

    /// How long a conversation is kept after its last run (90 days).
    pub fn conversations(mut self, time: Duration) -> Self {
        self.conversations = time;
        self
    }

    /// How many ended runs are kept whose journals live in memory only (10,000).
    pub fn memory_runs(mut self, runs: usize) -> Self {
        self.memory_runs = runs;
        self
    }

    /// How many of its last turns a run keeps whose journal lives in memory only (1,000).
    pub fn memory_turns(mut self, turns: u32) -> Self {
        self.memory_turns = turns;
        self
    }

    /// How often expired context entries, old runs and old conversations are deleted (1 min). Of several boards on one store, one at a
    /// time deletes old runs and conversations.
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self
    }
}

/// How long a board waits for what may never come: [`Builder::timings`](super::Builder::timings).
#[derive(Clone, Debug)]
#[must_use = "it is returned to the builder"]
pub struct Timings {
    pub(super) remind_before: Duration,
    pub(super) offline_after: Duration,
    pub(super) stuck_after: Duration,
    pub(super) sleep_after: Duration,
    pub(super) reconcile_within: Duration,
    pub(super) stale_after: Duration,
    pub(super) lease: Duration,
    pub(super) scan_every: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            remind_before: Duration::from_secs(24 * 3600),
            offline_after: Duration::from_secs(120),
            stuck_after: Duration::from_secs(5),
            sleep_after: Duration::from_secs(300),
            reconcile_within: Duration::from_secs(30),
            stale_after: Duration::from_secs(600),
            lease: Duration::from_secs(15),
            scan_every: Duration::from_secs(2),
        }
    }
}

impl Timings {
    /// How long before an approval expires its channels are reminded of it, once (24 h). An approval whose whole time is less
    /// than twice that is reminded of when half of the time is over. Zero: there are no reminders.
    pub fn remind_before(mut self, lead: Duration) -> Self {
        self.remind_before = lead;
        self
    }

    /// How long turns wait for an agent that was stopped to be spawned again, before they fail as offline (120 s).
    pub fn offline_after(mut self, wait: Duration) -> Self {
        self.offline_after = wait;
        self
    }

    /// How long a turn may ignore that it was stopped before its slot and permit are given to others (5 s).
    pub fn stuck_after(mut self, wait: Duration) -> Self {
        self.stuck_after = wait;
        self
    }

    /// How long a [dormant](crate::AgentSpec::dormant) agent stays awake without work (5 min, at least 1 ms). It is put to sleep between this time and
    /// twice this time after its last work, and not while its restart window counts a restart.
    pub fn sleep_after(mut self, idle: Duration) -> Self {
        self.sleep_after = idle.max(Duration::from_millis(1));
        self
    }

    /// How long a tool may take to find out what an effect whose result was lost resulted in (30 s); after that it is unknown.
    pub fn reconcile_within(mut self, wait: Duration) -> Self {
        self.reconcile_within = wait;
        self
    }

    /// How long a delegation may be silent before its status is shown as stale (10 min).
    pub fn stale_after(mut self, silence: Duration) -> Self {
        self.stale_after = silence;
        self
    }

    /// The lease of the board on its store (15 s, at least 300 ms), which it renews each third of it. Boards on the same store take the runs over
    /// of one whose lease has run out.
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = length.max(Duration::from_millis(300));
        self
    }

    /// How often the board looks for boards on its store whose leases have run out (2 s, at least 10 ms).
    pub fn scan_every(mut self, interval: Duration) -> Self {
        self.scan_every = interval.max(Duration::from_millis(10));
        self
    }
}

/// What a start does with runs that an earlier process left unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unfinished {
    /// The start continues the runs from their journals. [`Callboard::recovered`](super::Callboard::recovered) waits
    /// until all of them have been read.
    #[default]
    Resume,
    /// The start cancels the runs before any of their turns begins again.
    Cancel,
    /// They stay as they are, for a later start to find.
    Leave,
}

/// The classifier of tasks without limits.
#[derive(Clone, Default)]
pub(super) enum Classifier {
    /// Every task is complex.
    #[default]
    None,
    /// A function of the task.
    Function(Arc<dyn Fn(&Task) -> Complexity + Send + Sync>),
    /// An agent: a typed agent answers a [`Task`] with a [`Complexity`], any other has a run for each task.
    Agent(Arc<str>),
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Function(_) => f.write_str("Function"),
            Self::Agent(agent) => f.debug_tuple("Agent").field(agent).finish(),
        }
    }
}
