//! Adds, replaces, stops and fails agents.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ractor::ActorRef;

use crate::actors::agent::{AgentConfig, AgentMsg, AgentValue, dynamic_value};
use crate::messages::{AgentName, Authority, Json, TurnId};
use crate::supervision::panic_text;
use crate::supervision::runs::dispatch::ReadyTurn;

use super::Scheduler;
use super::agent_queue::AgentQueue;
use super::availability::Availability;
use super::dispatch::turn_away;

impl Scheduler {
    /// Adds an agent's queue, or changes its configuration.
    pub(crate) fn register(&self, name: &AgentName, config: &Arc<AgentConfig>) {
        self.note_reentrancy(std::slice::from_ref(name), config.is_reentrant);
        let mut state = self.state.lock();
        match state.agent(name) {
            Some(agent) => {
                agent.slots.limit = config.slots;
                agent.config = Arc::clone(config);
            }
            None => state.add(AgentQueue::new(name.clone(), Arc::clone(config))),
        }
    }

    pub(super) fn note_reentrancy(&self, names: &[AgentName], are_reentrant: bool) {
        let mut facts = self.facts.lock();
        for name in names {
            if are_reentrant {
                facts.non_reentrant.remove(name);
            } else {
                facts.non_reentrant.insert(name.clone());
            }
        }
    }

    /// The actor of a registered agent is about to be started: what earlier ones do is ignored from now on. Returns the number of the
    /// start.
    pub(crate) fn begin_life(&self, name: &AgentName) -> u64 {
        let mut state = self.state.lock();
        let life = state.next_life();
        if let Some(agent) = state.agent(name) {
            agent.life = life;
        }
        life
    }

    /// Gives an agent a new value: later turns use it, turns that have begun keep theirs. Returns its generation; `None` if the agent is
    /// unknown, or was stopped or got another actor since this one was started.
    pub(in crate::actors) fn set_value(
        self: &Arc<Self>,
        name: &AgentName,
        value: Arc<dyn AgentValue>,
        (actor, life): (ActorRef<AgentMsg>, u64),
    ) -> Option<u64> {
        let mut state = self.state.lock();
        let index = state.index_of(name.host())?;
        let agent = state.agents.in_use_mut(index).filter(|agent| agent.life == life)?;
        let had_actor = agent.actor.replace(actor).is_some();
        if let Some(rest) = agent.rest.as_mut().filter(|_| had_actor) {
            rest.note_restart(self.env.now().monotonic);
        }
        // Dropped after the lock is released, because its `Drop` is users' code.
        let replaced = std::mem::replace(&mut agent.availability, Availability::Running(value));
        agent.generation += 1;
        let generation = agent.generation;
        state.push_waiting(index);
        self.start_waiting(state);
        // Ready turns may have begun.
        self.capacity_changed.notify_waiters();
        drop(replaced);
        Some(generation)
    }

    /// The agent was stopped and takes no more work. Turns that have not begun wait a while until it is started again.
    pub(crate) fn stop_agent(self: &Arc<Self>, name: &AgentName) {
        let mut state = self.state.lock();
        let Some(index) = state.index_of(name.host()) else { return };
        let agent = &mut state.agents[index];
        let since = agent.availability.stopped_since().unwrap_or_else(|| self.env.now().monotonic);
        let replaced = std::mem::replace(&mut agent.availability, Availability::Stopped { since });
        agent.life = 0;
        agent.rest = None;
        // Dropping the senders notifies the callers.
        agent.typed_requests.clear();
        self.watch_offline(&mut state, index);
        drop(state);
        self.capacity_changed.notify_waiters();
        // Dropped after the lock is released, because its `Drop` is users' code.
        drop(replaced);
    }

    /// The agent has failed too often and takes no more work: turns that have not begun fail, so that their runs continue without
    /// it. One that was stopped stays stopped.
    pub(crate) fn fail_agent(&self, name: &AgentName, error: &str) {
        let mut state = self.state.lock();
        let Some(agent) = state.agent(name).filter(|agent| agent.availability.stopped_since().is_none()) else {
            return;
        };
        let replaced = std::mem::replace(&mut agent.availability, Availability::Failed(error.to_owned()));
        let turned_away: Vec<Box<ReadyTurn>> = agent.ready.drain(..).collect();
        for ready in &turned_away {
            agent.turns.remove(&ready.id);
        }
        // Dropping the senders notifies the callers.
        agent.typed_requests.clear();
        drop(state);
        self.capacity_changed.notify_waiters();
        drop(replaced);
        for ready in turned_away {
            turn_away(ready, error);
        }
    }

    /// The agent's value is unusable after a panic: no turn begins until there is a new one. Its actor receives a message,
    /// and `true` is returned, unless the value was replaced meanwhile.
    pub(super) fn discard_value(&self, agent: usize, generation: u64, turn: Option<TurnId>, text: &str) -> bool {
        let mut state = self.state.lock();
        let agent = &mut state.agents[agent];
        if agent.generation != generation {
            return false;
        }
        if agent.availability.value().is_none() {
            return false;
        }
        let discarded = std::mem::replace(&mut agent.availability, Availability::Starting);
        let actor = agent.actor.clone();
        drop(state);
        drop(discarded);
        if let Some(actor) = actor {
            // If this actor is down, or ends before it reads the message, its successor builds a value when it starts.
            let _ = actor.cast(AgentMsg::Panicked { turn, text: text.to_owned() });
        }
        true
    }

    /// Counts a rebuild of the agent's value.
    pub(in crate::actors) fn note_restart(&self, name: &AgentName, error: &str) {
        let now = self.env.now().monotonic;
        if let Some(agent) = self.state.lock().agent(name) {
            agent.history.restarts += 1;
            agent.history.last_error = Some(error.to_owned());
            if let Some(rest) = &mut agent.rest {
                rest.note_restart(now);
            }
        }
    }

    /// The actor that built the agent's last value.
    pub(super) fn actor(&self, agent: usize) -> Option<ActorRef<AgentMsg>> {
        self.state.lock().agents.in_use(agent)?.actor.clone()
    }

    /// The authority of an agent, also of a stopped one; empty if the agent is unknown.
    pub(in crate::actors) fn authority(&self, name: &str) -> Authority {
        let state = self.state.lock();
        let config = state.index_of(name).and_then(|index| state.agents.config(index));
        config.map_or(Authority::of([]), |config| config.authority)
    }

    /// Whether an agent, or the one that created it, acts outside only through its run.
    pub(in crate::actors) fn acts_through_steps(&self, name: &AgentName) -> bool {
        let state = self.state.lock();
        let config = state.index_of(name.host()).and_then(|index| state.agents.config(index));
        config.is_some_and(|config| config.acts_through_steps)
    }

    /// Checks that the last of these dynamic agents can be built, each by the one before it.
    pub(in crate::actors) fn check_dynamic(&self, host: &str, drafts: &[Json]) -> Result<(), String> {
        let state = self.state.lock();
        let agent = state.index_of(host).and_then(|index| state.agents.in_use(index));
        let value = agent
            .and_then(|agent| agent.availability.value().cloned())
            .ok_or_else(|| format!("{host} is not there"))?;
        drop(state);
        // Users' code may panic.
        catch_unwind(AssertUnwindSafe(|| dynamic_value(&value, drafts)))
            .unwrap_or_else(|panic| Err(format!("{host} panicked: {}", panic_text(&*panic))))
            .map(drop)
    }
}
