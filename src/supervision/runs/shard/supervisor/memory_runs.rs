//! The ended runs without a journal on disk that stay readable.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::messages::RunId;

/// Ended runs whose journals are in memory only: the newest are kept.
#[derive(Debug)]
pub(crate) struct MemoryRuns {
    ended: Mutex<VecDeque<RunId>>,
    max: usize,
}

impl MemoryRuns {
    /// Keeps the last `max` runs.
    #[must_use]
    pub(crate) fn new(max: usize) -> Self {
        Self { ended: Mutex::default(), max }
    }

    /// Removes one that continues.
    pub(super) fn remove(&self, run: RunId) {
        self.ended.lock().retain(|ended| *ended != run);
    }

    /// Adds one, and returns the oldest if there are too many: its journal is deleted.
    pub(super) fn add(&self, run: RunId) -> Option<RunId> {
        let mut ended = self.ended.lock();
        ended.push_back(run);
        if ended.len() > self.max { ended.pop_front() } else { None }
    }
}
