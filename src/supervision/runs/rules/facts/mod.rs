//! The state that run supervisors share for admissions: breakers and the wait-for graph.

use std::collections::BTreeSet;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::Mutex;

use crate::env::Now;
use crate::messages::{AgentName, RequestId, RunId, TurnId};

use super::breaker::{Breaker, BreakerPolicy, BreakerState, BreakerStatus, BreakerTicket, Signal};
use super::wait_for::{WaitGraph, Waiting};

/// The shared facts behind their lock. It is held for one admission, so that check and reservation are one step, and
/// never across an await.
#[derive(Debug, Default)]
pub(crate) struct SharedFacts(Mutex<AdmissionFacts>);

impl SharedFacts {
    /// Facts with this breaker policy.
    #[must_use]
    pub(crate) fn new(policy: BreakerPolicy) -> Self {
        Self(Mutex::new(AdmissionFacts { policy, ..AdmissionFacts::default() }))
    }

    /// Locks them for one admission.
    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, AdmissionFacts> {
        self.0.lock()
    }
}

/// The state that one admission reads and changes.
#[derive(Debug, Default)]
pub(crate) struct AdmissionFacts {
    /// One policy for all agents.
    pub policy: BreakerPolicy,
    /// One breaker for each agent that ever failed or was admitted; those that it makes share its.
    pub breakers: HashMap<AgentName, Breaker>,
    /// The breaker tickets of open turns.
    pub tickets: HashMap<TurnId, (AgentName, BreakerTicket)>,
    /// Who waits for whom.
    pub waits: WaitGraph,
    /// Agents that keep their slot while a turn of theirs waits.
    pub non_reentrant: BTreeSet<AgentName>,
}

impl AdmissionFacts {
    /// Checks whether the agent's breaker admits a turn.
    ///
    /// # Errors
    /// The time to wait.
    pub(crate) fn check_breaker(&self, agent: &AgentName, now: Duration) -> Result<(), Duration> {
        self.breakers.get(agent.host()).map_or(Ok(()), |breaker| breaker.check(&self.policy, now))
    }

    /// The state of an agent's breaker; closed if the agent has had no turn.
    #[must_use]
    pub(crate) fn breaker_state(&self, agent: &str) -> BreakerState {
        self.breakers.get(agent).map_or(BreakerState::Closed, Breaker::state)
    }

    /// The status of an agent's breaker.
    #[must_use]
    pub(crate) fn breaker_status(&self, agent: &str, now: Now) -> BreakerStatus {
        self.breakers.get(agent).map_or_else(|| Breaker::default().status(now), |breaker| breaker.status(now))
    }

    /// Counts an admitted turn at its agent's breaker, and adds the turn's waiter to the wait-for graph.
    pub(crate) fn admit(&mut self, turn: TurnId, agent: &AgentName, waiter: Option<(RequestId, &AgentName)>) {
        let host = agent.host_name();
        let ticket = match self.breakers.get_mut(&host) {
            Some(breaker) => breaker.admit(),
            None => self.breakers.entry(host.clone()).or_default().admit(),
        };
        self.tickets.insert(turn, (host, ticket));
        self.note_wait(turn, agent, waiter);
    }

    /// Checks whether a turn that was admitted before may be tried again. If its agent's breaker is half-open, the turn becomes
    /// the probe; if it already is the probe, it continues.
    ///
    /// # Errors
    /// The time to wait.
    pub(crate) fn readmit(&mut self, turn: TurnId, agent: &AgentName, now: Duration) -> Result<(), Duration> {
        let Some(breaker) = self.breakers.get_mut(agent.host()) else { return Ok(()) };
        let (_, ticket) = self.tickets.entry(turn).or_insert_with(|| (agent.host_name(), BreakerTicket::default()));
        if breaker.is_closed() || breaker.is_probed_by(*ticket) {
            return Ok(());
        }
        breaker.check(&self.policy, now)?;
        *ticket = breaker.admit();
        Ok(())
    }

    /// A turn waits for a person: if it is its agent's probe, another turn may become the probe.
    pub(crate) fn suspend(&mut self, turn: TurnId) {
        if let Some((agent, ticket)) = self.tickets.get_mut(&turn)
            && let Some(breaker) = self.breakers.get_mut(agent)
        {
            *ticket = breaker.give_back(*ticket);
        }
    }

    /// Adds to the graph the waiter of an open turn, and that the turn waits for the slot of a non-reentrant agent.
    pub(crate) fn note_wait(&mut self, turn: TurnId, agent: &AgentName, waiter: Option<(RequestId, &AgentName)>) {
        let Some((request, waiting_agent)) = waiter else { return };
        let node = Waiting::Turn(turn, agent.clone());
        if self.non_reentrant.contains(agent) {
            self.waits.add(node.clone(), Waiting::Slot(agent.clone()), None);
        }
        self.waits.add(Waiting::Turn(request.turn, waiting_agent.clone()), node, Some(request));
    }

    /// Counts the end of a turn at its agent's breaker, and removes the waits for it.
    pub(crate) fn close(
        &mut self,
        turn: TurnId,
        agent: &AgentName,
        waiter: Option<(TurnId, &AgentName)>,
        signal: Signal,
        now: Duration,
    ) {
        let ticket = self.tickets.remove(&turn).map(|(_, ticket)| ticket).unwrap_or_default();
        // A turn that an earlier process admitted counts here too.
        if let Some(breaker) = self.breakers.get_mut(agent.host()) {
            breaker.record(&self.policy, ticket, signal, now);
        } else if signal == Signal::Failure {
            self.breakers.entry(agent.host_name()).or_default().record(&self.policy, ticket, signal, now);
        }
        if self.waits.is_empty() {
            return;
        }
        let node = Waiting::Turn(turn, agent.clone());
        if let Some((waiting, waiting_agent)) = waiter {
            self.waits.remove(&Waiting::Turn(waiting, waiting_agent.clone()), &node);
        }
        self.waits.forget(&node);
    }

    /// Removes everything that belongs to a run; its open turns add themselves again when they are started again.
    pub(crate) fn forget_run(&mut self, run: RunId) {
        let (policy, breakers) = (&self.policy, &mut self.breakers);
        self.tickets.retain(|turn, (agent, ticket)| {
            if let Some(breaker) = breakers.get_mut(agent).filter(|_| turn.run == run) {
                breaker.record(policy, *ticket, Signal::Neutral, Duration::ZERO);
            }
            turn.run != run
        });
        self.waits.forget_all(|waiting| matches!(waiting, Waiting::Turn(turn, _) if turn.run == run));
    }
}

#[cfg(test)]
mod reference;
