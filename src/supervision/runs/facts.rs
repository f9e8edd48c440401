//! What several run supervisors share for one admission: breakers and the wait-for graph.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;

use crate::messages::{AgentName, TurnId};

use super::breaker::{Breaker, BreakerPolicy, Signal, Ticket};
use super::wait_for::WaitGraph;

/// The shared facts behind their lock. It is held for one admission, so that check and reservation are one step, and
/// never across an await.
#[derive(Debug, Default)]
pub struct SharedFacts(Mutex<AdmissionFacts>);

impl SharedFacts {
    /// Facts with this breaker policy.
    #[must_use]
    pub fn new(policy: BreakerPolicy) -> Self {
        Self(Mutex::new(AdmissionFacts { policy, ..AdmissionFacts::default() }))
    }

    /// Locks them for one admission.
    pub fn lock(&self) -> parking_lot::MutexGuard<'_, AdmissionFacts> {
        self.0.lock()
    }
}

/// What one admission looks at and changes.
#[derive(Debug, Default)]
pub struct AdmissionFacts {
    /// One policy for all agents.
    pub policy: BreakerPolicy,
    /// One breaker for each agent that ever failed or was admitted.
    pub breakers: HashMap<AgentName, Breaker>,
    /// The places at breakers that open turns have taken.
    pub tickets: HashMap<TurnId, Ticket>,
    /// Who waits for whom.
    pub waits: WaitGraph,
    /// Agents that keep their slot while a turn of theirs waits.
    pub non_reentrant: BTreeSet<AgentName>,
}

impl AdmissionFacts {
    /// Whether the agent's breaker lets a turn through; if not, when it may.
    ///
    /// # Errors
    /// The time to wait.
    pub fn check_breaker(&self, agent: &AgentName, now: Duration) -> Result<(), Duration> {
        self.breakers.get(agent).map_or(Ok(()), |breaker| breaker.check(&self.policy, now))
    }

    /// Takes the place of an admitted turn at the agent's breaker.
    pub fn admit(&mut self, agent: &AgentName) -> Ticket {
        match self.breakers.get_mut(agent) {
            Some(breaker) => breaker.admit(),
            None => self.breakers.entry(agent.clone()).or_default().admit(),
        }
    }

    /// Counts the end of a turn at its agent's breaker.
    pub fn close(&mut self, turn: TurnId, agent: &AgentName, signal: Signal, now: Duration) {
        let ticket = self.tickets.remove(&turn).unwrap_or_default();
        self.record(agent, ticket, signal, now);
    }

    /// Counts the end of an admitted turn.
    pub fn record(&mut self, agent: &AgentName, ticket: Ticket, signal: Signal, now: Duration) {
        let policy = self.policy;
        if let Some(breaker) = self.breakers.get_mut(agent) {
            breaker.record(&policy, ticket, signal, now);
        }
    }
}
