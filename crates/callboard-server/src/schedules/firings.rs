//! Whether a task of this process starts the runs of schedules.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many tasks of this process start runs of schedules.
#[derive(Clone, Default)]
pub(crate) struct Firings(Arc<AtomicUsize>);

impl Firings {
    pub(crate) fn is_running(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(super) fn begin(&self) -> Running {
        self.0.fetch_add(1, Ordering::Relaxed);
        Running(self.clone())
    }
}

/// Ends with the task.
pub(super) struct Running(Firings);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
