//! The timers of one run supervisor: a heap, and one sleeping task for the earliest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::messages::{RunId, Timestamp};
use crate::supervision::runs::rules::requests::RequestKey;

use super::queue::{ShardMessage, ShardQueue};

/// What happens when a timer is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::supervision::runs) enum Timer {
    /// A turn that waits until this time may be tried again. The time identifies the wait; the wall clock may still be behind
    /// it when the timer fires.
    Retry(RunId, u32, Timestamp),
    /// A turn of a plan has waited for its agent's breaker.
    Start(RunId, u32),
    /// A run that waits in its conversation looks again; counts the looks before this one.
    Conversation(RunId, u32),
    /// A run's deadline.
    Deadline(RunId),
    /// The deadline of a delegation or question.
    RequestDeadline(RunId, RequestKey),
    /// Read a run again: the store did not answer.
    Adopt { run: RunId, new_process: bool },
}

/// The smallest number of timers at which those of ended runs are removed.
const CROWD: usize = 1024;

pub(in crate::supervision::runs) struct Timers {
    heap: BinaryHeap<Reverse<(Duration, Timer)>>,
    /// The number of timers at which those of ended runs are removed next: twice the number that remained at the last removal.
    crowd: usize,
    /// The sleeping task and the monotonic reading for which it was spawned; `None` once that timer was due.
    armed: Option<(Duration, AbortHandle)>,
    queue: Arc<ShardQueue>,
}

impl Timers {
    pub(in crate::supervision::runs) fn new(queue: Arc<ShardQueue>) -> Self {
        Self { heap: BinaryHeap::new(), crowd: CROWD, armed: None, queue }
    }

    /// `at` is a reading of the monotonic clock.
    pub(in crate::supervision::runs) fn add(&mut self, at: Duration, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// Removes the timers of runs that have left memory, once they may be half of all: a deadline may be far in the future.
    pub(in crate::supervision::runs) fn tidy(&mut self, is_worked_on: impl Fn(RunId) -> bool) {
        if self.heap.len() < self.crowd {
            return;
        }
        self.heap.retain(|Reverse((_, timer))| match *timer {
            Timer::Retry(run, ..)
            | Timer::Start(run, _)
            | Timer::Conversation(run, _)
            | Timer::Deadline(run)
            | Timer::RequestDeadline(run, ..) => is_worked_on(run),
            Timer::Adopt { .. } => true,
        });
        self.crowd = CROWD.max(self.heap.len() * 2);
        self.heap.shrink_to(self.crowd);
    }

    /// Takes the timers that are due by `now`, the earliest first.
    pub(in crate::supervision::runs) fn due(&mut self, now: Duration) -> Vec<Timer> {
        let mut due = Vec::new();
        while let Some(Reverse((_, timer))) = self.heap.peek().filter(|Reverse((at, _))| *at <= now) {
            due.push(*timer);
            self.heap.pop();
        }
        self.armed = None;
        due
    }

    /// Spawns the sleep for the earliest timer, unless it is under way.
    pub(in crate::supervision::runs) fn arm(&mut self, now: Duration) {
        let Some(Reverse((at, _))) = self.heap.peek() else { return };
        let at = *at;
        if self.armed.as_ref().is_some_and(|(armed, _)| *armed <= at) {
            return;
        }
        self.stop();
        let queue = Arc::clone(&self.queue);
        let wait = at.saturating_sub(now);
        let sleeping = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            queue.enqueue(ShardMessage::Tick).drain();
        });
        self.armed = Some((at, sleeping.abort_handle()));
    }

    fn stop(&mut self) {
        if let Some((_, sleeping)) = self.armed.take() {
            sleeping.abort();
        }
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn timers_of_runs_that_have_ended_do_not_pile_up_and_others_stay() {
        let mut timers = Timers::new(Arc::default());
        let run = |number| RunId(Uuid::from_u128(number));
        timers.add(Duration::from_secs(1), Timer::Adopt { run: run(u128::MAX), new_process: true });
        for number in 0..100_000_u128 {
            timers.add(Duration::from_secs(3600), Timer::Deadline(run(number)));
            timers.tidy(|run| (number.saturating_sub(10)..=number).contains(&run.0.as_u128()));
            assert!(timers.heap.len() <= CROWD);
        }
        assert_eq!(timers.due(Duration::from_secs(1)).len(), 1, "it may be free");
        let due = timers.due(Duration::from_secs(3600));
        assert!((0..=10).all(|ago| due.contains(&Timer::Deadline(run(99_999 - ago)))));
    }
}
