//! The state that run supervisors share for admissions: breakers and the wait-for graph.

use std::collections::BTreeSet;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::Mutex;

use crate::env::{Mutant, Now};
use crate::messages::{AgentName, Refusal, RequestId, RunId, TurnId};

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
    /// One breaker for each agent that ever failed; those that it makes share its. Any other agent has a new one.
    pub breakers: HashMap<AgentName, Breaker>,
    /// The breaker tickets of open turns that have another ticket than a new breaker gives.
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
        if !self.breakers.is_empty()
            && let Some(ticket) = self.breakers.get_mut(agent.host()).map(Breaker::admit)
            && ticket != BreakerTicket::default()
        {
            self.tickets.insert(turn, (agent.host_name(), ticket));
        }
        self.note_wait(turn, agent, waiter);
    }

    /// Checks whether a turn that was admitted before may be tried again. If its agent's breaker is half-open, the turn becomes
    /// the probe; if it already is the probe, it continues.
    ///
    /// # Errors
    /// The time to wait.
    pub(crate) fn readmit(&mut self, turn: TurnId, agent: &AgentName, now: Duration) -> Result<(), Duration> {
        let Some(breaker) = self.breakers.get_mut(agent.host()) else { return Ok(()) };
        let ticket = self.tickets.get(&turn).map(|(_, ticket)| *ticket).unwrap_or_default();
        if breaker.is_closed() || breaker.is_probed_by(ticket) {
            return Ok(());
        }
        breaker.check(&self.policy, now)?;
        self.tickets.insert(turn, (agent.host_name(), breaker.admit()));
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

    /// A turn of `agent` waits for the answer to a delegation that it had given away, on which `workers` work: replaces what was noted of
    /// this wait before.
    ///
    /// # Errors
    /// [`Refusal::WaitCycle`]: nothing is noted of it then.
    pub(crate) fn note_late_wait<'a>(
        &mut self,
        request: RequestId,
        agent: &AgentName,
        workers: impl IntoIterator<Item = (TurnId, &'a AgentName)>,
    ) -> Result<(), Refusal> {
        self.end_late_wait(request, agent);
        // Each circle leads through a slot.
        if self.non_reentrant.is_empty() || Mutant::WaitInCircles.is_injected() {
            return Ok(());
        }
        let waiter = Waiting::Turn(request.turn, agent.clone());
        for (turn, worker) in workers {
            self.note_wait(turn, worker, Some((request, agent)));
            if let Some(path) = self.waits.path(&Waiting::Turn(turn, worker.clone()), &waiter) {
                self.end_late_wait(request, agent);
                let cycle = [waiter.by(Some(request))].into_iter().chain(path).collect();
                return Err(Refusal::WaitCycle { cycle });
            }
        }
        Ok(())
    }

    /// The wait of [`AdmissionFacts::note_late_wait`] is over.
    pub(crate) fn end_late_wait(&mut self, request: RequestId, agent: &AgentName) {
        if !self.waits.is_empty() {
            self.waits.remove_request(&Waiting::Turn(request.turn, agent.clone()), request);
        }
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
        let ticket = match self.tickets.is_empty() {
            true => BreakerTicket::default(),
            false => self.tickets.remove(&turn).map(|(_, ticket)| ticket).unwrap_or_default(),
        };
        // A turn that an earlier process admitted counts here too.
        if signal == Signal::Failure {
            self.breakers.entry(agent.host_name()).or_default().record(&self.policy, ticket, signal, now);
        } else if !self.breakers.is_empty()
            && let Some(breaker) = self.breakers.get_mut(agent.host())
        {
            breaker.record(&self.policy, ticket, signal, now);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::messages::Wait;

    use super::*;

    const AGENTS: u32 = 4;

    fn agent(number: u32) -> AgentName {
        AgentName::new(&format!("agent-{number}")).unwrap()
    }

    fn turn(number: u32) -> TurnId {
        TurnId { run: RunId(uuid::Uuid::nil()), number }
    }

    /// Each agent keeps its slot; turn 1 of agent 1 has that of agent 1, and so on.
    fn facts() -> AdmissionFacts {
        let mut facts = AdmissionFacts::default();
        for number in 0..AGENTS {
            facts.non_reentrant.insert(agent(number));
            facts.waits.add(Waiting::Slot(agent(number)), Waiting::Turn(turn(number), agent(number)), None);
        }
        facts
    }

    #[test]
    fn a_late_wait_that_closes_a_circle_is_refused_and_names_every_agent_and_request() {
        let (mut facts, request) = (facts(), RequestId { turn: turn(0), ordinal: 3 });
        let other = RequestId { turn: turn(1), ordinal: 5 };
        facts.admit(turn(7), &agent(0), Some((other, &agent(1))));
        let [worker, helper] = [(turn(8), agent(1)), (turn(9), agent(2))];
        let wait = |facts: &mut AdmissionFacts, workers: &[&(TurnId, AgentName)]| {
            facts.note_late_wait(request, &agent(0), workers.iter().map(|(turn, agent)| (*turn, agent)))
        };
        assert_eq!(wait(&mut facts, &[&helper]), Ok(()));
        let waits = |facts: &AdmissionFacts| {
            facts.waits.path(&Waiting::Turn(turn(0), agent(0)), &Waiting::Slot(agent(2))).is_some()
        };
        assert!(waits(&facts));
        let Err(Refusal::WaitCycle { cycle }) = wait(&mut facts, &[&helper, &worker]) else {
            panic!("no circle found")
        };
        let by = |number, of: u32, request| Wait::Turn { turn: turn(number), agent: agent(of), request };
        let expected = [
            by(0, 0, Some(request)),
            by(8, 1, None),
            Wait::Slot(agent(1)),
            by(1, 1, Some(other)),
            by(7, 0, None),
            Wait::Slot(agent(0)),
            by(0, 0, None),
        ];
        assert_eq!(cycle, expected);
        assert!(!waits(&facts), "what is refused is not noted");
        assert_eq!(wait(&mut facts, &[&helper]), Ok(()));
        facts.end_late_wait(request, &agent(0));
        assert!(!waits(&facts));
    }

    proptest! {
        /// Turn n waits for turns that queue for slots of other turns. The model follows each wait until it comes back or ends.
        #[test]
        fn late_waits_are_refused_exactly_where_they_would_close_a_circle(
            waits in prop::collection::vec((0..AGENTS, prop::collection::vec(0..AGENTS, 0..3), any::<bool>()), 0..12),
        ) {
            let mut facts = facts();
            // For whose slots those wait that a turn waits for.
            let mut model: Vec<Vec<u32>> = vec![Vec::new(); AGENTS as usize];
            for (from, to, is_over) in waits {
                let request = RequestId { turn: turn(from), ordinal: 0 };
                let workers: Vec<_> = to.iter().map(|to| (turn(100 + 10 * from + to), agent(*to))).collect();
                model[from as usize].clear();
                let (mut reached, mut next) = (BTreeSet::new(), to.clone());
                while let Some(holder) = next.pop() {
                    if reached.insert(holder) {
                        next.extend(&model[holder as usize]);
                    }
                }
                let noted = facts.note_late_wait(request, &agent(from), workers.iter().map(|(turn, agent)| (*turn, agent)));
                prop_assert_eq!(noted.is_err(), reached.contains(&from), "{:?}", noted);
                if noted.is_ok() {
                    model[from as usize] = to;
                }
                if is_over {
                    facts.end_late_wait(request, &agent(from));
                    model[from as usize].clear();
                }
            }
        }
    }
}
