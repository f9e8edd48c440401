//! Turns of a stopped agent: they stay in its queue without permit and slot, and begin when the agent is started again. After a
//! timeout they are refused (SEMANTICS 11).

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::messages::{AgentName, Failure, FailureKind, Refusal};

use super::Scheduler;
use super::agent_queue::AgentQueue;
use super::dispatch::report;
use super::state::State;

impl AgentQueue {
    /// The remaining time for which the oldest ready turn waits for the agent; `None` if no turn waits.
    fn patience(&self, now: impl FnOnce() -> Duration, offline_after: Duration) -> Option<Duration> {
        let (first, offline_since) = (self.ready.front()?, self.availability.stopped_since()?);
        Some(first.ready_at().max(offline_since).saturating_add(offline_after).saturating_sub(now()))
    }
}

impl Scheduler {
    /// Starts the task that refuses turns of a stopped agent after a timeout.
    pub(super) fn watch_offline(self: &Arc<Self>, state: &mut State, index: usize) {
        let agent = &mut state.agents[index];
        if let Some(wait) = agent.patience(|| self.env.now().monotonic, self.offline_after)
            && !std::mem::replace(&mut agent.offline_is_watched, true)
        {
            self.runtime.spawn(Self::wait_for_agent(Arc::downgrade(self), index, wait));
        }
    }

    /// Refuses turns that have waited too long; ends when none waits. Holds no reference to the scheduler while it sleeps.
    async fn wait_for_agent(scheduler: Weak<Self>, index: usize, first: Duration) {
        let mut wait = first;
        loop {
            tokio::time::sleep(wait).await;
            let Some(scheduler) = scheduler.upgrade() else { return };
            let now = scheduler.env.now().monotonic;
            let (mut overdue, mut next) = (Vec::new(), None);
            {
                let mut state = scheduler.state.lock();
                let agent = &mut state.agents[index];
                while let Some(left) = agent.patience(|| now, scheduler.offline_after) {
                    if !left.is_zero() {
                        next = Some(left);
                        break;
                    }
                    let Some(ready) = agent.ready.pop_front() else { break };
                    agent.turns.remove(&ready.id);
                    overdue.push(ready);
                }
                agent.offline_is_watched = next.is_some();
            }
            for ready in overdue {
                let failure = offline(&ready.agent, scheduler.offline_after);
                report(ready, failure);
            }
            match next {
                Some(left) => wait = left,
                None => return,
            }
        }
    }
}

fn offline(agent: &AgentName, offline_after: Duration) -> Failure {
    let why = format!("it was stopped and is offline: nobody has hosted it for {offline_after:?}");
    let refusal = Refusal::Unavailable { agent: agent.clone(), why };
    Failure { kind: FailureKind::Refused, text: refusal.to_string(), refusal: Some(Box::new(refusal)) }
}
