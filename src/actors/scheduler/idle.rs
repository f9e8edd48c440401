//! Puts dormant agents to sleep that had no work for a while.
//!
//! Each one that is awake is looked at once in that time. If it had work since the last look, it stays awake until the next one at
//! least: so turns note no times, and an agent sleeps between one and two of these times after its last work.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Scheduler;
use super::agent_queue::AgentQueue;
use super::availability::Availability;
use super::phase::{Happening, Phase};
use super::rest::Rest;
use super::state::State;

impl Rest {
    /// Whether its restart window counts a restart.
    fn counts_restart(&self, now: Duration) -> bool {
        let within = self.source.window.within;
        self.restarted_at.is_some_and(|at| at.saturating_add(within) >= now)
    }
}

/// What a look at an agent has found.
enum Look {
    /// It is looked at again later.
    Stays,
    /// It is not looked at any more: it has no actor, or is not dormant.
    Leaves,
    /// It falls asleep.
    Sleeps,
}

impl AgentQueue {
    fn look(&mut self, now: Duration) -> Look {
        let is_busy = self.is_busy();
        let is_running = self.availability.value().is_some();
        let Some(rest) = &mut self.rest else { return Look::Leaves };
        if rest.phase != Phase::Awake {
            return Look::Leaves;
        }
        let was_used = std::mem::replace(&mut rest.was_used, is_busy);
        if is_busy || was_used || !is_running || rest.counts_restart(now) { Look::Stays } else { Look::Sleeps }
    }
}

impl Scheduler {
    /// Looks at an agent that is awake when it may have been without work for long enough.
    pub(super) fn watch_idle(self: &Arc<Self>, state: &mut State, index: usize) {
        let Some(rest) = &mut state.agents[index].rest else { return };
        if std::mem::replace(&mut rest.is_watched, true) {
            return;
        }
        let at = self.env.now().monotonic.saturating_add(self.sleep_after);
        state.idle.push(index, at);
        if !std::mem::replace(&mut state.idle.is_watched, true) {
            self.runtime.spawn(Self::watch_all_idle(Arc::downgrade(self), self.sleep_after));
        }
    }

    /// Looks at agents when it is time; ends when none is awake. Holds no reference to the scheduler while it sleeps.
    async fn watch_all_idle(scheduler: Weak<Self>, first: Duration) {
        let mut wait = first;
        loop {
            tokio::time::sleep(wait).await;
            let Some(scheduler) = scheduler.upgrade() else { return };
            match scheduler.look_at_idle() {
                Some(next) => wait = next,
                None => return,
            }
        }
    }

    /// Puts to sleep what had no work for long enough. The wait until the next look; `None` if there is nothing to look at.
    fn look_at_idle(self: &Arc<Self>) -> Option<Duration> {
        let now = self.env.now().monotonic;
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        while let Some(index) = state.idle.pop_due(now) {
            let look = state.agents[index].look(now);
            match look {
                Look::Stays => state.idle.push(index, now.saturating_add(self.sleep_after)),
                Look::Leaves | Look::Sleeps => {
                    if let Some(rest) = &mut state.agents[index].rest {
                        rest.is_watched = false;
                    }
                }
            }
            if let Look::Sleeps = look {
                let State { agents, deadlines, .. } = &mut *state;
                let agent = &mut agents[index];
                deadlines.cancel(index, &mut agent.deadline);
                agent.actor = None;
                dropped.push(std::mem::replace(&mut agent.availability, Availability::Dormant));
                self.happens(&mut state, index, Happening::Idle);
            }
        }
        state.agents.put_strays_away();
        let next = state.idle.first();
        state.idle.is_watched = next.is_some();
        drop(state);
        // Dropped after the lock is released, because its `Drop` is users' code.
        drop(dropped);
        next.map(|next| next.saturating_sub(now))
    }
}
