//! The timers of one run supervisor: a heap, and one sleeping task for the earliest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::messages::RunId;

use super::inbox::{Inbox, Input};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A turn may be tried again.
    Retry(RunId, u32),
    /// A run's time is up.
    Deadline(RunId),
    /// The answer to a delegation should be there.
    Delegation(RunId, u32, u32),
    /// A run that another process held may be free, or a store that did not answer may do so now.
    Adopt { run: RunId, new_process: bool },
}

pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Duration, Timer)>>,
    armed: Option<(Duration, AbortHandle)>,
    inbox: Arc<Inbox>,
}

impl Timers {
    pub(super) fn new(inbox: Arc<Inbox>) -> Self {
        Self { heap: BinaryHeap::new(), armed: None, inbox }
    }

    /// `at` is a reading of the monotonic clock.
    pub(super) fn add(&mut self, at: Duration, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    pub(super) fn due(&mut self, now: Duration) -> Vec<Timer> {
        let mut due = Vec::new();
        while let Some(Reverse((_, timer))) = self.heap.peek().filter(|Reverse((at, _))| *at <= now) {
            due.push(*timer);
            self.heap.pop();
        }
        self.armed = None;
        due
    }

    /// Sleeps for the earliest timer, unless that is what it does already.
    pub(super) fn arm(&mut self, now: Duration) {
        let Some(Reverse((at, _))) = self.heap.peek() else { return };
        let at = *at;
        if self.armed.as_ref().is_some_and(|(armed, _)| *armed <= at) {
            return;
        }
        self.stop();
        let inbox = Arc::clone(&self.inbox);
        let wait = at.saturating_sub(now);
        let sleeping = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            inbox.hand_in(Input::Tick).work();
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
