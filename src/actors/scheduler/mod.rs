//! The scheduler: ready turns wait here until their agent has a slot and the pool a permit, and are then run by workers.
//!
//! Workers pull turns. When a turn becomes ready and may start, a worker takes it: one that is idle, or a new one. A worker that
//! ends a turn continues with the next one that may start, and is idle when there is none. A turn that waits for the runtime
//! yields its permit and slot, and acquires them again before it continues. So a full queue never blocks a run supervisor, and a
//! chain of any depth finishes with a pool of one.
//!
//! - `permits`: the values that a turn holds; dropped, they release themselves.
//! - `running`, `agent_queue` with `availability` and `known_turns`, `state`: the data, from one turn to all agents. All of it is behind one lock, `Scheduler::state`.
//! - `dispatch`: what runs next, by the rule in `grant`. `worker`: runs turns one after the other. `in_place`: a caller that does so itself.
//! - `entries`, `rest`: where agents are, and what dormant ones are while they sleep. `dormancy` with `phase`, `idle`: how these wake and
//!   fall asleep.
//! - `agents`, `offline`, `time_limits`, `deadlines`, `stopping`, `capacity`, `typed_requests`: what else happens to agents and turns.
//! - `status`: what is reported of them.
//!
//! The scheduler lies outside the actors: a restart of an agent's actor loses no turn.
//!
//! Locks, outermost first: a shard (`ShardQueue`), `Scheduler::state`, `RunningTurn::acquired`, `SharedFacts`. `state` is not held across
//! an await, while a queue is drained, or while users' code runs, which includes `Drop` of an agent's value.

mod agent_queue;
mod agents;
mod availability;
mod capacity;
mod deadlines;
mod dispatch;
mod dormancy;
mod entries;
mod grant;
mod idle;
mod in_place;
mod known_turns;
mod offline;
mod permits;
mod phase;
mod rest;
mod running;
mod state;
mod status;
mod stopping;
mod time_limits;
mod typed_requests;
mod worker;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::env::Env;
use crate::messages::{Command, RunId};
use crate::supervision::Lease;
use crate::supervision::runs::facts::SharedFacts;

use super::context::ContextStore;
use super::day_limiter::DayLimiter;
use super::events::Hub;
use super::kept_agents::KeptAgents;
use super::turn::{Turn, TurnError, TurnServices};

pub(crate) use dormancy::{DormantActors, NotStarted};
pub(crate) use in_place::{InPlace, want, wants_next};
#[cfg(test)]
pub(crate) use running::SIZE_OF_RUNNING_TURN;
use state::State;
pub(crate) use status::{AgentSnapshot, AgentStatus};

/// All agents' queues, and the permits that they share.
pub(crate) struct Scheduler {
    state: Mutex<State>,
    /// All turns were stopped, because the board ends: its agents are withdrawn together when their actors have ended.
    has_ended: AtomicBool,
    pub(in crate::actors) env: Env,
    facts: Arc<SharedFacts>,
    /// The runtime on which workers and timers are spawned, whichever thread makes a turn ready.
    runtime: Handle,
    ready_bound: usize,
    offline_after: Duration,
    stuck_after: Duration,
    sleep_after: Duration,
    /// The services for turns.
    services: Arc<TurnServices>,
    /// Notified, after `state` is unlocked, when a permit, or room among an agent's ready turns, has become free, or an agent
    /// takes no more work. `quiet` and `wait_for_capacity` wait for it.
    capacity_changed: Notify,
    /// The turns that other boards take, once the board is made.
    elsewhere: OnceLock<Arc<dyn TurnsElsewhere>>,
    /// The actors of dormant agents, once the board is made.
    dormant_actors: OnceLock<Arc<dyn DormantActors>>,
    /// Notified when a deadline is added that is earlier than the one for which the watching task sleeps.
    earlier_deadline: Arc<Notify>,
}

/// The limits of what runs and waits at once, and timeouts.
#[derive(Clone, Debug)]
pub(crate) struct SchedulerConfig {
    /// Permits of the pool: how many turns of all agents run at once.
    pub(crate) permits: usize,
    /// New work for an agent with this many ready turns is refused.
    pub(crate) ready_bound: usize,
    /// The time for which turns wait for a stopped agent.
    pub(crate) offline_after: Duration,
    /// The time after which the permit and slot of a turn that ignores its stop are given to others.
    pub(crate) stuck_after: Duration,
    /// The time without work after which dormant agents sleep.
    pub(crate) sleep_after: Duration,
    /// The timeout of finding out the outcome of an effect.
    pub(crate) reconcile_within: Duration,
    /// What may be used in a day.
    pub(crate) day_limiter: Arc<DayLimiter>,
    /// The board's lease: without it no turn begins.
    pub(crate) lease: Arc<Lease>,
}

/// Turns that other boards take.
pub(crate) trait TurnsElsewhere: Send + Sync {
    /// Has a turn taken at another board, or waits for the one that was asked for there.
    fn take(&self, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>>;

    /// Cancels the run that such a turn is, which may not have begun yet. `false` if the board ends first.
    fn cancel(&self, run: RunId) -> BoxFuture<'static, bool>;
}

impl Scheduler {
    /// Sets who has turns taken elsewhere.
    pub(crate) fn place_with(&self, elsewhere: Arc<dyn TurnsElsewhere>) {
        let _ = self.elsewhere.set(elsewhere);
    }

    /// Cancels the run that a turn is at another board. `false` if the board ends first.
    pub(crate) fn cancel_elsewhere(&self, run: RunId) -> BoxFuture<'static, bool> {
        self.elsewhere.get().map_or_else(|| ready(false).boxed(), |elsewhere| elsewhere.cancel(run))
    }

    /// Panics outside a tokio runtime.
    pub(crate) fn new(env: Env, facts: Arc<SharedFacts>, context: ContextStore, config: SchedulerConfig) -> Arc<Self> {
        let SchedulerConfig { permits, ready_bound, offline_after, stuck_after, sleep_after, .. } = config;
        let SchedulerConfig { reconcile_within, day_limiter, lease, .. } = config;
        let kept_agents = Arc::new(KeptAgents::new(Arc::clone(context.storage())));
        Arc::new(Self {
            state: Mutex::new(State::new(permits)),
            has_ended: AtomicBool::new(false),
            env,
            facts,
            runtime: Handle::current(),
            ready_bound,
            offline_after,
            stuck_after,
            sleep_after,
            services: Arc::new(TurnServices {
                context: Arc::new(context),
                hub: Arc::default(),
                kept_agents,
                reconcile_within,
                day_limiter,
                lease,
            }),
            capacity_changed: Notify::new(),
            elsewhere: OnceLock::new(),
            dormant_actors: OnceLock::new(),
            earlier_deadline: Arc::default(),
        })
    }

    /// The observers of runs and of agents in their turns.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.services.hub
    }

    /// Dynamic agents that were kept after their run.
    pub(crate) fn kept_agents(&self) -> &Arc<KeptAgents> {
        &self.services.kept_agents
    }

    /// Permits of the pool that no turn holds.
    pub(crate) fn free_permits(&self) -> usize {
        self.state.lock().pool.free()
    }
}
