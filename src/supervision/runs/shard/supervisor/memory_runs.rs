//! The ended runs without a journal on disk that stay readable.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::messages::{AgentName, RunId, Timestamp};

/// Ended runs whose journals are in memory only: the newest are kept.
#[derive(Debug)]
pub(crate) struct MemoryRuns {
    ended: Mutex<VecDeque<MemoryRun>>,
    max: usize,
}

/// An ended run whose journal is in memory only.
#[derive(Debug)]
pub(super) struct MemoryRun {
    pub(super) run: RunId,
    pub(super) submitted_at: Timestamp,
    /// The time of its end and the inboxes that have messages of it, if there are any.
    pub(super) inboxes: Option<Box<(Timestamp, Vec<AgentName>)>>,
}

impl MemoryRuns {
    /// Keeps the last `max` runs.
    #[must_use]
    pub(crate) fn new(max: usize) -> Self {
        Self { ended: Mutex::default(), max }
    }

    /// Removes one that continues, and returns it.
    pub(super) fn remove(&self, run: RunId) -> Option<MemoryRun> {
        let mut ended = self.ended.lock();
        let index = ended.iter().position(|ended| ended.run == run)?;
        ended.remove(index)
    }

    /// Adds one, and returns the oldest if there are too many: its journal is deleted.
    pub(super) fn add(&self, run: MemoryRun) -> Option<MemoryRun> {
        let mut ended = self.ended.lock();
        ended.push_back(run);
        if ended.len() > self.max { ended.pop_front() } else { None }
    }
}
