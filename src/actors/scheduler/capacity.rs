//! The load of agents, and whether they accept more work.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use crate::env::Mutant;
use crate::messages::{AgentName, Refusal, TurnId};

use super::agent_queue::AgentQueue;
use super::availability::Availability;
use super::rest::Asleep;
use super::status::AgentLoad;
use super::{AgentSnapshot, Scheduler};

impl Scheduler {
    /// Refuses work that is not committed yet for an agent whose queue is full.
    pub(crate) fn check_capacity(&self, name: &AgentName) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        match state.agent(name) {
            Some(agent) if agent.ready.len() >= self.ready_bound && !Mutant::QueueWithoutBound.is_injected() => {
                Err(Refusal::Overloaded { what: format!("agent {name}"), retry_after: Duration::from_secs(1) })
            }
            _ => Ok(()),
        }
    }

    /// Waits until an agent's queue is not full, or the agent takes no work. Callers that wait for the same agent are served one
    /// after the other: the next one checks when the returned guard is dropped.
    pub(crate) async fn wait_for_capacity(&self, name: &AgentName) -> Option<OwnedMutexGuard<()>> {
        let callers = self.state.lock().agent(name).map(|agent| Arc::clone(agent.callers.get_or_insert_default()))?;
        let first_of_callers = callers.lock_owned().await;
        loop {
            let mut released = std::pin::pin!(self.capacity_changed.notified());
            released.as_mut().enable();
            let takes_work = self.load(name).is_ok_and(|load| !load.is_offline);
            if !takes_work || self.check_capacity(name).is_ok() {
                return Some(first_of_callers);
            }
            released.await;
        }
    }

    /// The load of an agent. `Err` is the reason why it takes no work.
    pub(crate) fn load(&self, name: &AgentName) -> Result<AgentLoad, Refusal> {
        let state = self.state.lock();
        let unavailable = |why: String| Refusal::Unavailable { agent: name.clone(), why };
        let Some(index) = state.index_of(name.host()) else { return Err(unavailable("it is not registered".into())) };
        let Some(agent) = state.agents.in_use(index) else { return Ok(AgentLoad { is_offline: false, turns: 0 }) };
        if let Availability::Failed(error) = &agent.availability {
            return Err(unavailable(format!("it failed too often: {error}")));
        }
        let is_offline = agent.availability.stopped_since().is_some();
        Ok(AgentLoad { is_offline, turns: agent.ready.len() + agent.slots.held() })
    }

    /// The agents that were rebuilt too often, each with the error.
    pub(crate) fn failed(&self) -> Vec<(AgentName, String)> {
        self.state.lock().agents.iter().filter_map(|agent| agent.failure()).collect()
    }

    /// The turns of an agent that have begun and have not ended, sorted.
    pub(crate) fn turns_of(&self, name: &AgentName) -> Vec<TurnId> {
        let mut state = self.state.lock();
        let mut turns: Vec<TurnId> = state
            .agent(name)
            .into_iter()
            .flat_map(|agent| agent.running().map(|(id, _)| *id).collect::<Vec<_>>())
            .collect();
        turns.sort_unstable();
        turns
    }

    /// All agents at this moment, but those that sleep.
    pub(crate) fn snapshot(&self) -> Vec<AgentSnapshot> {
        self.state.lock().agents.iter().map(AgentQueue::snapshot).collect()
    }

    /// Whether an agent is dormant and sleeps.
    pub(crate) fn is_asleep(&self, name: &str) -> bool {
        let state = self.state.lock();
        let Some(index) = state.index_of(name) else { return false };
        state.agents.in_use(index).is_none_or(|agent| matches!(agent.availability, Availability::Dormant))
    }

    /// The agents that sleep at this moment.
    pub(crate) fn asleep(&self) -> Vec<AgentSnapshot> {
        self.state.lock().agents.asleep().map(Asleep::snapshot).collect()
    }
}
