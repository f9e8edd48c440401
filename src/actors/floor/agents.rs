//! Agents as the floor knows them: they come, are replaced, and go.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use ractor::ActorRef;

use crate::actors::agent::{AgentValue, made};
use crate::actors::agent_actor::AgentMsg;
use crate::actors::meters;
use crate::actors::turn::TurnShared;
use crate::messages::{AgentName, Authority, Json, OnUnknown, Refusal, TurnId};
use crate::supervision::panic_text;
use crate::supervision::runs::dispatch::ReadyTurn;

use super::{Absence, Floor, Place, turn_away};

/// Where an agent is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentStatus {
    /// Its value is being made; its turns wait.
    Starting,
    /// It takes turns.
    Running,
    /// It was rebuilt too often; it refuses until somebody restarts it.
    Failed(String),
    /// It was stopped; turns under way finish, and others wait a while for its return.
    Stopped,
}

/// How much an agent has to do; the least comes first, and an agent that is away last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgentLoad {
    /// It was stopped: what it is given waits for its return.
    pub(crate) is_offline: bool,
    /// Ready turns and running turns.
    pub(crate) turns: usize,
}

/// How an agent is run.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub(crate) slots: usize,
    pub(crate) is_reentrant: bool,
    pub(crate) is_blocking: bool,
    pub(crate) timeout: Duration,
    pub(crate) namespaces: Option<Arc<[Arc<str>]>>,
    pub(crate) authority: Authority,
    pub(crate) on_unknown: Option<OnUnknown>,
    pub(crate) question_ttl: Option<Duration>,
    /// Agents that it makes may be kept.
    pub(crate) keeps_agents: bool,
}

/// What the floor knows of an agent, for snapshots.
#[derive(Clone, Debug)]
pub(crate) struct AgentGlance {
    pub(crate) name: AgentName,
    pub(crate) generation: u64,
    pub(crate) status: AgentStatus,
    pub(crate) ready: usize,
    pub(crate) busy: usize,
    pub(crate) waiting: usize,
    pub(crate) stuck: u64,
    pub(crate) restarts: u64,
    pub(crate) last_error: Option<String>,
}

impl Floor {
    /// Gives an agent its place, or new conditions.
    pub(crate) fn place(&self, name: &AgentName, conditions: Conditions) {
        let mut facts = self.facts.lock();
        if conditions.is_reentrant {
            facts.non_reentrant.remove(name);
        } else {
            facts.non_reentrant.insert(name.clone());
        }
        drop(facts);
        let Conditions {
            slots,
            is_reentrant,
            is_blocking,
            timeout,
            namespaces,
            authority,
            on_unknown,
            question_ttl,
            keeps_agents,
        } = conditions;
        let mut state = self.state.lock();
        match state.place_of(name) {
            Some(place) => {
                (place.slots, place.is_reentrant, place.is_blocking) = (slots, is_reentrant, is_blocking);
                (place.timeout, place.namespaces, place.authority) = (timeout, namespaces, authority);
                (place.on_unknown, place.question_ttl, place.keeps_agents) = (on_unknown, question_ttl, keeps_agents);
            }
            None => {
                let index = state.places.len();
                state.names.insert(name.clone(), index);
                state.places.push(Place {
                    name: name.clone(),
                    value: None,
                    generation: 0,
                    status: AgentStatus::Starting,
                    absence: Absence::default(),
                    slots,
                    busy: 0,
                    is_reentrant,
                    is_blocking,
                    timeout,
                    namespaces,
                    on_unknown,
                    question_ttl,
                    keeps_agents,
                    authority,
                    actor: None,
                    timer: None,
                    is_runnable: false,
                    returning: VecDeque::new(),
                    ready: VecDeque::new(),
                    asks: VecDeque::new(),
                    line: None,
                    turns: HashMap::default(),
                    stuck: 0,
                    restarts: 0,
                    last_error: None,
                    latency: meters::latency_of(name),
                });
            }
        }
    }

    /// Gives an agent a fresh value: later turns use it, turns under way keep theirs. Returns its generation.
    pub(in crate::actors) fn occupy(
        self: &Arc<Self>,
        name: &AgentName,
        value: Arc<dyn AgentValue>,
        actor: ActorRef<AgentMsg>,
    ) -> u64 {
        let mut state = self.state.lock();
        let Some(index) = state.names.get(name.host()).copied() else { return 0 };
        let place = &mut state.places[index];
        (place.value, place.actor) = (Some(value), Some(actor));
        place.generation += 1;
        place.status = AgentStatus::Running;
        let generation = place.generation;
        state.mark_runnable(index);
        self.fill(state);
        generation
    }

    /// The agent takes no more work. Turns that have not begun wait a while for one that was stopped, whatever becomes of it;
    /// those of one that has failed fail, so that their runs go on without it.
    pub(crate) fn vacate(self: &Arc<Self>, name: &AgentName, status: AgentStatus) {
        let mut state = self.state.lock();
        let Some(index) = state.names.get(name.host()).copied() else { return };
        let place = &mut state.places[index];
        if place.status == AgentStatus::Stopped && status != AgentStatus::Stopped {
            return;
        }
        place.value = None;
        let was_away = std::mem::replace(&mut place.status, status) == AgentStatus::Stopped;
        if place.status == AgentStatus::Stopped {
            if !was_away {
                place.absence.since = self.env.now().monotonic;
            }
            place.asks.clear();
            self.watch_absence(&mut state, index);
            self.ended.notify_waiters();
            return;
        }
        let turned_away: Vec<ReadyTurn> = place.ready.drain(..).collect();
        for ready in &turned_away {
            place.turns.remove(&ready.id);
        }
        // Dropped senders tell the askers.
        place.asks.clear();
        let status = place.status.clone();
        drop(state);
        self.ended.notify_waiters();
        for ready in turned_away {
            turn_away(ready, &status);
        }
    }

    /// How long a turn may run in this place.
    pub(in crate::actors) fn timeout_of(&self, place: usize, turn: &TurnShared) -> Duration {
        turn.ready.timeout.unwrap_or_else(|| self.state.lock().places[place].timeout)
    }

    /// The agent's value is unusable after a panic: no turn begins until there is a new one. Its actor is told, and `true`
    /// is returned, unless it was replaced meanwhile.
    pub(in crate::actors) fn discard(&self, place: usize, generation: u64, turn: Option<TurnId>, text: &str) -> bool {
        let mut state = self.state.lock();
        let place = &mut state.places[place];
        if place.generation != generation || place.value.take().is_none() {
            return false;
        }
        place.status = AgentStatus::Starting;
        let actor = place.actor.clone();
        drop(state);
        if let Some(actor) = actor {
            // One that is gone, or goes before it reads this, is followed by one that makes a value at its start.
            let _ = actor.cast(AgentMsg::Panicked { turn, text: text.to_owned() });
        }
        true
    }

    /// The actor that made the agent's value last.
    pub(in crate::actors) fn actor(&self, place: usize) -> Option<ActorRef<AgentMsg>> {
        self.state.lock().places[place].actor.clone()
    }

    /// What an agent may cause, also one that was stopped; nothing if there never was one of that name.
    pub(crate) fn authority(&self, name: &str) -> Authority {
        let state = self.state.lock();
        let place = state.names.get(name).and_then(|index| state.places.get(*index));
        place.map_or(Authority::of([]), |place| place.authority)
    }

    /// Whether an agent can make the last of these.
    pub(crate) fn check_made(&self, host: &str, drafts: &[Json]) -> Result<(), String> {
        let state = self.state.lock();
        let place = state.names.get(host).and_then(|index| state.places.get(*index));
        let value = place.and_then(|place| place.value.clone()).ok_or_else(|| format!("{host} is not there"))?;
        drop(state);
        // It is the users' code.
        catch_unwind(AssertUnwindSafe(|| made(&value, drafts)))
            .unwrap_or_else(|panic| Err(format!("{host} panicked: {}", panic_text(&*panic))))
            .map(drop)
    }

    /// How much an agent has to do. `Err` says why it takes nothing.
    pub(crate) fn load(&self, name: &AgentName) -> Result<AgentLoad, Refusal> {
        let mut state = self.state.lock();
        let unavailable = |why: String| Refusal::Unavailable { agent: name.clone(), why };
        let Some(place) = state.place_of(name) else { return Err(unavailable("it has no place".into())) };
        match &place.status {
            AgentStatus::Starting | AgentStatus::Running | AgentStatus::Stopped => {
                let is_offline = place.status == AgentStatus::Stopped;
                Ok(AgentLoad { is_offline, turns: place.ready.len() + place.busy })
            }
            AgentStatus::Failed(error) => Err(unavailable(format!("it failed too often: {error}"))),
        }
    }

    /// What every agent is doing, for snapshots.
    pub(crate) fn glance(&self) -> Vec<AgentGlance> {
        let state = self.state.lock();
        let glance = |place: &Place| AgentGlance {
            name: place.name.clone(),
            generation: place.generation,
            status: place.status.clone(),
            ready: place.ready.len(),
            busy: place.busy,
            waiting: place.turns.len().saturating_sub(place.ready.len() + place.busy),
            stuck: place.stuck,
            restarts: place.restarts,
            last_error: place.last_error.clone(),
        };
        state.places.iter().map(glance).collect()
    }

    /// Notes that the agent's value had to be made again.
    pub(in crate::actors) fn note_restart(&self, name: &AgentName, error: &str) {
        if let Some(place) = self.state.lock().place_of(name) {
            place.restarts += 1;
            place.last_error = Some(error.to_owned());
        }
    }
}
