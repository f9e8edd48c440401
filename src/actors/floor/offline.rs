//! Turns of an agent that was stopped: they keep their place in its queue, hold nothing, and begin when it is back. After
//! a while they are turned away (SEMANTICS 11).

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::messages::{AgentName, Failure, FailureKind, Refusal};

use super::{AgentStatus, Floor, Place, State, report};

/// Since when an agent is away, and whether somebody looks after its turns.
#[derive(Debug, Default)]
pub(super) struct Absence {
    pub(super) since: Duration,
    is_watched: bool,
}

impl Place {
    /// How much longer the turn that has waited longest waits for the agent; `None` if no turn waits for it.
    fn patience(&self, now: impl FnOnce() -> Duration, offline_after: Duration) -> Option<Duration> {
        let first = self.ready.front().filter(|_| self.status == AgentStatus::Stopped)?;
        Some(first.ready_at.max(self.absence.since).saturating_add(offline_after).saturating_sub(now()))
    }
}

impl Floor {
    /// Sees to it that turns of an agent that is away do not wait for ever.
    pub(super) fn watch_absence(self: &Arc<Self>, state: &mut State, index: usize) {
        let place = &mut state.places[index];
        if let Some(wait) = place.patience(|| self.env.now().monotonic, self.offline_after)
            && !std::mem::replace(&mut place.absence.is_watched, true)
        {
            self.runtime.spawn(Self::wait_for_agent(Arc::downgrade(self), index, wait));
        }
    }

    /// Turns away who has waited long enough; ends when nobody waits. Holds nothing while it sleeps.
    async fn wait_for_agent(floor: Weak<Self>, index: usize, first: Duration) {
        let mut wait = first;
        loop {
            tokio::time::sleep(wait).await;
            let Some(floor) = floor.upgrade() else { return };
            let now = floor.env.now().monotonic;
            let (mut overdue, mut next) = (Vec::new(), None);
            {
                let mut state = floor.state.lock();
                let place = &mut state.places[index];
                while let Some(left) = place.patience(|| now, floor.offline_after) {
                    if !left.is_zero() {
                        next = Some(left);
                        break;
                    }
                    let Some(ready) = place.ready.pop_front() else { break };
                    place.turns.remove(&ready.id);
                    overdue.push(ready);
                }
                place.absence.is_watched = next.is_some();
            }
            for ready in overdue {
                let failure = offline(&ready.agent, floor.offline_after);
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
