//! The runs of one run supervisor, kept outside of it, so that it finds them when it restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::messages::RunId;

/// Every run that a run supervisor works on, reads back or will read again. Changed by the holder of the shard's lock.
#[derive(Debug)]
pub(crate) struct Roster {
    runs: Mutex<BTreeMap<RunId, Enrolled>>,
    without_permit: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Enrolled {
    /// False until a run that another process left is this board's.
    is_owned: bool,
    /// Counts against the limit of runs in flight; released when it ends.
    permit: Option<OwnedSemaphorePermit>,
    /// It is in flight without a permit: it was found at a start, or continues after its end.
    is_counted: bool,
}

impl Roster {
    /// `without_permit` counts the runs in flight that hold no permit; several rosters may share it.
    pub(crate) fn new(without_permit: Arc<AtomicUsize>) -> Self {
        Self { runs: Mutex::default(), without_permit }
    }

    /// Adds a run that begins here.
    pub(crate) fn begin(&self, run: RunId, permit: Option<OwnedSemaphorePermit>) {
        let before = self.runs.lock().insert(run, Enrolled { is_owned: true, permit, is_counted: false });
        self.uncount(before.as_slice());
    }

    /// Adds a run that is about to be read, so that the next life after a crash reads it again.
    pub(crate) fn enrol(&self, run: RunId) {
        self.runs.lock().entry(run).or_default();
    }

    /// A run is this board's, and continues. With `is_counted`, one without a permit counts as a run in flight.
    pub(crate) fn resume(&self, run: RunId, is_counted: bool) {
        let mut runs = self.runs.lock();
        let enrolled = runs.entry(run).or_default();
        enrolled.is_owned = true;
        if is_counted && enrolled.permit.is_none() && !std::mem::replace(&mut enrolled.is_counted, true) {
            self.without_permit.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Another board may own the run by now: it has to be taken before it is read again.
    pub(crate) fn doubt(&self, run: RunId) {
        if let Some(enrolled) = self.runs.lock().get_mut(&run) {
            enrolled.is_owned = false;
        }
    }

    /// Releases the run's permit.
    pub(crate) fn release_permit(&self, run: RunId) {
        if let Some(enrolled) = self.runs.lock().get_mut(&run) {
            enrolled.permit = None;
        }
    }

    /// Removes a run that this supervisor is done with.
    pub(crate) fn remove(&self, run: RunId) {
        let removed = self.runs.lock().remove(&run);
        self.uncount(removed.as_slice());
    }

    fn uncount<'a>(&self, gone: impl IntoIterator<Item = &'a Enrolled>) {
        let counted = gone.into_iter().filter(|enrolled| enrolled.is_counted).count();
        if counted > 0 {
            self.without_permit.fetch_sub(counted, Ordering::Relaxed);
        }
    }

    /// Every run in the order of ids, and whether it has to be taken over first.
    pub(crate) fn runs(&self) -> Vec<(RunId, bool)> {
        self.runs.lock().iter().map(|(run, enrolled)| (*run, !enrolled.is_owned)).collect()
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        self.uncount(self.runs.lock().values());
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_without_a_permit_is_counted_once_and_until_it_is_gone() {
        let count = Arc::new(AtomicUsize::new(0));
        let (roster, run) = (Roster::new(Arc::clone(&count)), RunId(Uuid::from_u128(1)));
        for _ in 0..2 {
            roster.resume(run, true);
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        roster.remove(run);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        roster.resume(run, true);
        roster.begin(run, None);
        assert_eq!(count.load(Ordering::Relaxed), 0, "one that begins is not counted here");
        roster.resume(run, true);
        drop(roster);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_run_in_doubt_is_claimed_again_and_keeps_its_permit() {
        let permits = Arc::new(tokio::sync::Semaphore::new(1));
        let count = Arc::new(AtomicUsize::new(0));
        let (roster, run) = (Roster::new(Arc::clone(&count)), RunId(Uuid::from_u128(1)));
        roster.begin(run, Arc::clone(&permits).try_acquire_owned().ok());
        roster.enrol(run);
        assert_eq!(roster.runs(), [(run, false)]);
        roster.doubt(run);
        roster.enrol(run);
        assert_eq!(roster.runs(), [(run, true)]);
        roster.resume(run, true);
        assert_eq!((permits.available_permits(), count.load(Ordering::Relaxed)), (0, 0));
        roster.release_permit(run);
        assert_eq!(permits.available_permits(), 1);
    }

    #[test]
    fn a_run_that_is_not_there_stays_away() {
        let (roster, run) = (Roster::new(Arc::default()), RunId(Uuid::from_u128(1)));
        roster.doubt(run);
        roster.release_permit(run);
        assert_eq!(roster.runs(), []);
        roster.enrol(run);
        assert_eq!(roster.runs(), [(run, true)]);
    }
}
