//! Stops turns, and waits until the scheduler is idle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foldhash::HashMap;

use crate::actors::turn::StopReason;
use crate::messages::{AgentName, RunId, TurnId};

use super::agent_queue::AgentQueue;
use super::availability::Availability;
use super::running::RunningTurn;
use super::{Scheduler, worker};

/// The time without a held permit after which the scheduler counts as settled.
const SETTLING: Duration = Duration::from_millis(50);

impl Scheduler {
    /// Stops a turn. A turn that has not begun is removed from its queue.
    pub(in crate::actors) fn stop_turn(self: &Arc<Self>, turn: TurnId, agent: &AgentName, why: StopReason) {
        let mut state = self.state.lock();
        let Some(index) = state.index_of(agent.host()) else { return };
        let Some(agent) = state.agents.in_use_mut(index) else { return };
        let Some(known) = agent.turns.get(&turn) else { return };
        let Some(running) = &known.running else {
            agent.turns.remove(&turn);
            agent.ready.retain(|ready| ready.id != turn);
            drop(state);
            self.capacity_changed.notify_waiters();
            return;
        };
        let running = Arc::clone(running);
        drop(state);
        running.turn.stop.set(why);
        // Weak references, because a turn that obeys its stop releases everything at once.
        let (scheduler, running, stuck_after) = (Arc::downgrade(self), Arc::downgrade(&running), self.stuck_after);
        self.runtime.spawn(async move {
            tokio::time::sleep(stuck_after).await;
            if let (Some(scheduler), Some(running)) = (scheduler.upgrade(), running.upgrade()) {
                scheduler.evict(index, &running, why);
            }
        });
    }

    /// Gives the permit and slot of a turn that ignores its stop to others. Its later result is dropped.
    fn evict(self: &Arc<Self>, index: usize, running: &Arc<RunningTurn>, why: StopReason) {
        let mut state = self.state.lock();
        let agent = &mut state.agents[index];
        // Another turn may have taken the place of one whose beginning was lost; what that one holds is given to others all the same.
        if !agent.remove(running) && !running.holds_any() {
            return;
        }
        agent.history.stuck += 1;
        let (name, timeout) = (agent.name.clone(), running.timeout(agent.config.timeout));
        let turn = &running.turn;
        tracing::error!(turn = %turn.ready.id, agent = %name, "turn ignores that it was stopped; its permit is given to others");
        running.evict();
        state.push_waiting(index);
        self.start_waiting(state);
        self.capacity_changed.notify_waiters();
        if why == StopReason::TimedOut {
            worker::enqueue(turn, worker::timed_out(turn, timeout)).drain();
        }
    }

    /// Lets no turn begin any more. Turns that have begun continue, also after a wait.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        // Dropping the senders notifies the callers.
        state.agents.iter_mut().for_each(|agent| agent.typed_requests.clear());
    }

    /// Returns when all turns that have begun have ended, or wait for something that takes longer.
    pub(crate) async fn settled(&self) {
        let mut has_begun = self.has_begun_turns();
        loop {
            has_begun |= !self.is_quiet();
            self.quiet().await;
            if !has_begun {
                return;
            }
            // An answer may be on its way to a turn that waits, and an outcome to the journal.
            tokio::time::sleep(SETTLING).await;
            has_begun = false;
        }
    }

    /// The turns that have begun, by run, and whether they are at work.
    pub(crate) fn begun(&self) -> HashMap<RunId, Vec<(u32, bool)>> {
        let state = self.state.lock();
        let mut begun: HashMap<RunId, Vec<(u32, bool)>> = HashMap::default();
        for (turn, running) in state.agents.iter().flat_map(AgentQueue::running) {
            begun.entry(turn.run).or_default().push((turn.number, running.holds_permit()));
        }
        begun
    }

    fn has_begun_turns(&self) -> bool {
        self.state.lock().agents.iter().any(|agent| agent.running().next().is_some())
    }

    fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        state.pool.free() >= state.pool.size()
    }

    /// Returns when no turn holds a permit.
    async fn quiet(&self) {
        loop {
            let mut released = std::pin::pin!(self.capacity_changed.notified());
            // Enabled before the check, so that a release between the check and the wait is noticed.
            released.as_mut().enable();
            if self.is_quiet() {
                return;
            }
            released.await;
        }
    }

    /// Stops every turn, and drops the agents' values: what they hold ends with the board, not with its last handle.
    pub(crate) fn stop_all(self: &Arc<Self>) {
        self.close();
        self.stop_turns(|_| true);
        let end = |agent: &mut AgentQueue| match agent.availability {
            Availability::Running(_) => Some(std::mem::replace(&mut agent.availability, Availability::Ended)),
            Availability::Starting
            | Availability::Dormant
            | Availability::Failed(_)
            | Availability::Stopped { .. }
            | Availability::Ended => None,
        };
        let ended: Vec<_> = self.state.lock().agents.iter_mut().filter_map(end).collect();
        self.has_ended.store(true, Ordering::Release);
        drop(ended);
    }

    /// Stops the turns that `is_unwanted` names.
    pub(in crate::actors) fn stop_turns(self: &Arc<Self>, is_unwanted: impl Fn(&TurnId) -> bool) {
        let mut turns: Vec<(TurnId, AgentName)> = {
            let state = self.state.lock();
            let of_agent = |agent: &AgentQueue| {
                let unwanted = agent.turns.keys().filter(|turn| is_unwanted(turn));
                unwanted.map(|turn| (*turn, agent.name.clone())).collect::<Vec<_>>()
            };
            state.agents.iter().flat_map(of_agent).collect()
        };
        turns.sort_unstable();
        for (turn, agent) in turns {
            self.stop_turn(turn, &agent, StopReason::Cancelled);
        }
    }
}
