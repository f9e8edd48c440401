//! The time limits of turns. One task checks all agents, each at the time at which one of its turns may exceed its limit.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::actors::turn::{StopReason, TurnShared};
use crate::messages::{AgentName, TurnId};

use super::Scheduler;
use super::agent_queue::AgentQueue;
use super::state::State;

impl AgentQueue {
    /// Its turns that have exceeded their time.
    fn overdue(&self, now: Duration) -> impl Iterator<Item = (TurnId, AgentName)> {
        let overdue = self.running().filter(move |(_, running)| running.left(now, self.config.timeout).is_zero());
        overdue.map(|(turn, _)| (*turn, self.name.clone()))
    }

    /// The next time at which one of its turns may exceed its limit.
    fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let usual = self.config.timeout;
        let at_work = self.running().filter(|(_, running)| running.holds_permit());
        let left = at_work.map(|(_, running)| running.left(now, usual)).filter(|left| !left.is_zero()).min();
        (!self.turns.is_empty()).then(|| now.saturating_add(left.unwrap_or(usual)))
    }
}

impl State {
    /// The turns that have exceeded their time.
    fn overdue(&mut self, now: Duration) -> Vec<(TurnId, AgentName)> {
        let mut overdue = Vec::new();
        while let Some(index) = self.deadlines.pop_due(now) {
            let agent = &mut self.agents[index];
            overdue.extend(agent.overdue(now));
            agent.deadline = agent.next_deadline(now);
            if let Some(next) = agent.deadline {
                self.deadlines.push(index, next);
            }
        }
        overdue.sort_unstable();
        overdue
    }
}

impl Scheduler {
    /// Schedules a check of an agent's turns for this time.
    pub(super) fn look_by(self: &Arc<Self>, state: &mut State, index: usize, deadline: Duration) {
        let State { agents, deadlines, .. } = state;
        if !deadlines.bring_forward(index, &mut agents[index].deadline, deadline) {
            return;
        }
        if std::mem::replace(&mut deadlines.is_watched, true) {
            self.earlier_deadline.notify_one();
        } else {
            self.runtime.spawn(Self::watch_deadlines(Arc::downgrade(self), Arc::clone(&self.earlier_deadline)));
        }
    }

    /// Stops turns that have exceeded their time; ends when no turn runs. Holds no reference to the scheduler while it sleeps, so
    /// that a board that was shut down closes its store.
    async fn watch_deadlines(scheduler: Weak<Self>, earlier_deadline: Arc<Notify>) {
        loop {
            let wait = {
                let Some(scheduler) = scheduler.upgrade() else { return };
                let now = scheduler.env.now().monotonic;
                let (overdue, next) = {
                    let mut state = scheduler.state.lock();
                    let overdue = state.overdue(now);
                    let next = state.deadlines.first();
                    state.deadlines.is_watched = next.is_some();
                    (overdue, next)
                };
                for (turn, agent) in overdue {
                    scheduler.stop_turn(turn, &agent, StopReason::TimedOut);
                }
                let Some(next) = next else { return };
                next.saturating_sub(now)
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep(wait) => {}
                () = earlier_deadline.notified() => {}
            }
        }
    }

    /// How long a turn of this agent may run.
    pub(super) fn timeout_of(&self, index: usize, turn: &TurnShared) -> Duration {
        let usual = || self.state.lock().agents.config(index).map_or(Duration::MAX, |config| config.timeout);
        turn.ready.extras.timeout.unwrap_or_else(usual)
    }
}
