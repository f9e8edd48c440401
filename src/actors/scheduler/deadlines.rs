//! When which agent's time limits are looked at next.

use std::collections::BTreeSet;
use std::time::Duration;

/// An agent is in the list once at most, at the time that its [`deadline`](super::agent_queue::AgentQueue::deadline) has too.
#[derive(Default)]
pub(super) struct Deadlines {
    due: BTreeSet<(Duration, usize)>,
    /// A task sleeps until the first of them.
    pub(super) is_watched: bool,
}

impl Deadlines {
    pub(super) fn first(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Has an agent looked at by then, if it is not looked at before; `true` if that is now the first deadline of all.
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

    /// Takes the first agent whose deadline has come.
    pub(super) fn pop_due(&mut self, now: Duration) -> Option<usize> {
        let first = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.remove(&first);
        Some(first.1)
    }

    /// Has an agent that was popped looked at again.
    pub(super) fn push(&mut self, index: usize, deadline: Duration) {
        self.due.insert((deadline, index));
    }
}
