//! One agent in the scheduler: its value, its slots, and its waiting turns and requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::actors::agent::{AgentConfig, AgentMsg, AgentValue};
use crate::actors::instruments::Histogram;
use crate::actors::metrics::latency_of;
use crate::actors::turn::StopReason;
use crate::messages::{AgentName, TurnId};
use crate::supervision::runs::dispatch::ReadyTurn;
use crate::supervision::runs::rules::requests::Attempt;

use super::availability::Availability;
use super::grant::{Continuing, Demand, Grant};
use super::known_turns::KnownTurns;
use super::permits::{AgentSlot, AgentSlots};
use super::rest::{History, Rest};
use super::running::RunningTurn;
use super::status::{AgentSnapshot, AgentStatus};

/// One agent's entry. It stays when the agent is stopped, because its turns wait until the agent is started again.
pub(super) struct AgentQueue {
    pub(super) name: AgentName,
    pub(super) config: Arc<AgentConfig>,
    /// Whether it takes turns, and its value.
    pub(super) availability: Availability,
    /// The number of its values so far.
    pub(super) generation: u64,
    /// The start of its actor that counts: what others set or report is ignored. 0 of an agent that was stopped.
    pub(super) life: u64,
    /// What a dormant agent has beside.
    pub(super) rest: Option<Box<Rest>>,
    /// A task refuses its ready turns when they have waited too long for a stopped agent.
    pub(super) offline_is_watched: bool,
    pub(super) slots: AgentSlots,
    /// The actor that builds and rebuilds the value. Its supervisor may not know yet that it runs.
    pub(super) actor: Option<ActorRef<AgentMsg>>,
    /// The time of the next check of its turns' time limits; set while the agent is in the list of deadlines.
    pub(super) deadline: Option<Duration>,
    /// It is in the wait queue.
    pub(super) is_queued: bool,
    /// Turns that have waited for the runtime and want to continue, first come first.
    pub(super) reacquiring: VecDeque<Reacquiring>,
    /// Turns that have not begun, first come first.
    pub(super) ready: VecDeque<Box<ReadyTurn>>,
    /// Typed requests that wait for a slot.
    pub(super) typed_requests: VecDeque<oneshot::Sender<TypedGrant>>,
    /// Callers outside of the board wait for room among the ready turns by holding this lock in turn. `None` until one waits.
    pub(super) callers: Option<Arc<tokio::sync::Mutex<()>>>,
    /// The turns that are ready, or have begun and not ended.
    pub(super) turns: KnownTurns<KnownTurn>,
    pub(super) history: History,
    /// The time from a turn's admission to its beginning.
    pub(super) latency: Histogram,
}

/// A value, its generation, and a slot to use it in.
pub(super) type TypedGrant = (Arc<dyn AgentValue>, u64, AgentSlot);

/// A turn that is ready or has begun.
pub(super) struct KnownTurn {
    pub(super) attempt: Attempt,
    /// `None` until it begins.
    pub(super) running: Option<Arc<RunningTurn>>,
}

impl KnownTurn {
    /// It began ahead of a commit that was lost: what it sends is refused.
    pub(super) fn is_lost(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.turn.ready.sink.is_lost())
    }

    /// Its outcome was enqueued with its run, and its worker has not released its permit and slot yet.
    pub(super) fn has_reported(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.turn.has_reported.load(Ordering::Acquire))
    }
}

/// A turn that waits for a permit to continue.
pub(super) struct Reacquiring {
    pub(super) turn: Arc<RunningTurn>,
    pub(super) granted: oneshot::Sender<()>,
}

impl AgentQueue {
    pub(super) fn new(name: AgentName, config: Arc<AgentConfig>) -> Self {
        Self {
            latency: latency_of(&name),
            name,
            availability: Availability::Starting,
            generation: 0,
            life: 0,
            rest: None,
            offline_is_watched: false,
            slots: AgentSlots::new(config.slots),
            config,
            actor: None,
            deadline: None,
            is_queued: false,
            reacquiring: VecDeque::new(),
            ready: VecDeque::new(),
            typed_requests: VecDeque::new(),
            callers: None,
            turns: KnownTurns::default(),
            history: History::default(),
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !(self.ready.is_empty() && self.reacquiring.is_empty() && self.typed_requests.is_empty())
    }

    /// Adds a ready turn; one that was delivered before, or after a later attempt of it, is dropped.
    pub(super) fn add(&mut self, ready: Box<ReadyTurn>) {
        match self.turns.get(&ready.id) {
            Some(known) if known.attempt > ready.attempt => return,
            Some(known) if known.attempt == ready.attempt && !known.has_reported() && !known.is_lost() => return,
            Some(_) | None => {}
        }
        let before = self.turns.insert(ready.id, KnownTurn { attempt: ready.attempt, running: None });
        if let Some(KnownTurn { running: Some(running), .. }) = before {
            // The earlier delivery of this attempt has reported already or is of a lost commit, or the attempt is obsolete: its result is not
            // needed.
            running.turn.stop.set(StopReason::Cancelled);
        }
        self.ready.push_back(ready);
    }

    /// The grant for the agent when it is first in the wait queue.
    pub(super) fn next_grant(&self, has_permit: bool, is_closed: bool) -> Grant {
        let lacks = |turn: &RunningTurn| if turn.keeps_slot { Continuing::WithSlot } else { Continuing::WithoutSlot };
        let demand = Demand {
            continuing: self.reacquiring.front().map(|reacquiring| lacks(&reacquiring.turn)),
            has_typed_request: !self.typed_requests.is_empty(),
            has_ready_turn: !self.ready.is_empty(),
            takes_new_work: !is_closed && self.availability.value().is_some(),
            has_slot: self.slots.has_free(),
            has_permit,
        };
        demand.next_grant()
    }

    /// Whether this worker's turn is the agent's current attempt of it.
    pub(super) fn has(&self, turn: &Arc<RunningTurn>) -> bool {
        let known = self.turns.get(&turn.turn.ready.id).and_then(|known| known.running.as_ref());
        known.is_some_and(|running| Arc::ptr_eq(running, turn))
    }

    /// Removes a running turn; `false` if another attempt has taken its place.
    pub(super) fn remove(&mut self, turn: &Arc<RunningTurn>) -> bool {
        let id = turn.turn.ready.id;
        match self.turns.remove(&id) {
            Some(known) if known.running.as_ref().is_some_and(|running| Arc::ptr_eq(running, turn)) => true,
            Some(other) => {
                self.turns.insert(id, other);
                false
            }
            None => false,
        }
    }

    pub(super) fn running(&self) -> impl Iterator<Item = (&TurnId, &Arc<RunningTurn>)> {
        self.turns.iter().filter_map(|(id, known)| Some((id, known.running.as_ref()?)))
    }

    /// Why the agent takes no turns until it is restarted by hand; `None` if it has not failed.
    pub(super) fn failure(&self) -> Option<(AgentName, String)> {
        match self.availability.status() {
            AgentStatus::Failed(error) => Some((self.name.clone(), error)),
            AgentStatus::Starting | AgentStatus::Running | AgentStatus::Stopped | AgentStatus::Dormant => None,
        }
    }

    pub(super) fn snapshot(&self) -> AgentSnapshot {
        let busy = self.slots.held();
        AgentSnapshot {
            name: self.name.clone(),
            generation: self.generation,
            status: self.availability.status(),
            ready: self.ready.len(),
            busy,
            waiting: self.turns.len().saturating_sub(self.ready.len() + busy),
            stuck: self.history.stuck,
            restarts: self.history.restarts,
            last_error: self.history.last_error.clone(),
        }
    }
}
