//! The list of agents by the time of the next check of their time limits.

use std::collections::BTreeSet;
use std::time::Duration;

/// An agent is in the list at most once, at the time of its [`deadline`](super::agent_queue::AgentQueue::deadline).
#[derive(Default)]
pub(super) struct Deadlines {
    due: BTreeSet<(Duration, usize)>,
    /// A task sleeps until the first deadline.
    pub(super) is_watched: bool,
}

impl Deadlines {
    pub(super) fn first(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Schedules a check of an agent, unless there is an earlier one; `true` if it is now the first of all.
    pub(super) fn bring_forward(&mut self, index: usize, of_agent: &mut Option<Duration>, deadline: Duration) -> bool {
        if of_agent.is_some_and(|before| before <= deadline) {
            return false;
        }
        if let Some(later) = of_agent.replace(deadline) {
            self.due.remove(&(later, index));
        }
        self.due.insert((deadline, index));
        self.due.first() == Some(&(deadline, index))
    }

    /// Removes and returns the first agent whose deadline has passed.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<usize> {
        let first = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.remove(&first);
        Some(first.1)
    }

    /// Takes an agent from the list.
    pub(super) fn cancel(&mut self, index: usize, of_agent: &mut Option<Duration>) {
        if let Some(deadline) = of_agent.take() {
            self.due.remove(&(deadline, index));
        }
    }

    /// Schedules the next check of an agent that was popped.
    pub(super) fn push(&mut self, index: usize, deadline: Duration) {
        self.due.insert((deadline, index));
    }
}
