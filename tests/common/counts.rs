//! Counts that agents and tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    /// Counts one, and returns how many there were before.
    pub(crate) fn count(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// How many were inside at once, at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peak(Arc<(AtomicUsize, AtomicUsize)>);

impl Peak {
    pub(crate) fn enter(&self) -> Inside {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        Inside(self.clone())
    }

    pub(crate) fn highest(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }
}

/// Leaves when dropped.
pub(crate) struct Inside(Peak);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
