//! The runs of one run supervisor, kept outside it: what its next life has to find.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::messages::RunId;
use crate::storage::Fence;

/// Every run that a run supervisor works on, reads back or comes back to. Whoever works for the supervisor changes it.
#[derive(Debug)]
pub struct Roster {
    runs: Mutex<BTreeMap<RunId, Enrolled>>,
    without_place: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Enrolled {
    /// `None` until a run that another process left is claimed.
    fence: Option<Fence>,
    /// Its place among the runs in flight, given back when it ends.
    place: Option<OwnedSemaphorePermit>,
    /// Counted, because it has no place: it was found at a start, or goes on after its end.
    counted: Option<Counted>,
}

impl Roster {
    /// Counts the runs that have no place among those in flight there; several rosters may share it.
    pub fn new(without_place: Arc<AtomicUsize>) -> Self {
        Self { runs: Mutex::default(), without_place }
    }

    /// A run begins here.
    pub fn begin(&self, run: RunId, place: Option<OwnedSemaphorePermit>) {
        self.runs.lock().insert(run, Enrolled { fence: Some(Fence::FIRST), place, counted: None });
    }

    /// A run is about to be read: whoever comes after a crash reads it again. Its fence, if it was claimed here.
    pub fn enrol(&self, run: RunId) -> Option<Fence> {
        self.runs.lock().entry(run).or_default().fence
    }

    /// A run was claimed with this fence, and goes on. `is_counted`: if it has no place, it counts as a run in flight.
    pub fn go_on(&self, run: RunId, fence: Fence, is_counted: bool) {
        let mut runs = self.runs.lock();
        let enrolled = runs.entry(run).or_default();
        enrolled.fence = Some(fence);
        if is_counted && enrolled.place.is_none() {
            enrolled.counted.get_or_insert_with(|| Counted::by(&self.without_place));
        }
    }

    /// It may be another process's by now: it has to be claimed before it is read.
    pub fn doubt(&self, run: RunId) {
        if let Some(enrolled) = self.runs.lock().get_mut(&run) {
            enrolled.fence = None;
        }
    }

    /// Gives its place among those in flight back.
    pub fn give_back_place(&self, run: RunId) {
        if let Some(enrolled) = self.runs.lock().get_mut(&run) {
            enrolled.place = None;
        }
    }

    /// Nothing more is done for it here.
    pub fn remove(&self, run: RunId) {
        self.runs.lock().remove(&run);
    }

    /// Every run in the order of ids, and whether it has to be claimed first.
    pub fn runs(&self) -> Vec<(RunId, bool)> {
        self.runs.lock().iter().map(|(run, enrolled)| (*run, enrolled.fence.is_none())).collect()
    }
}

/// Counts as long as it is there.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn by(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_without_a_place_is_counted_once_and_until_it_is_gone() {
        let count = Arc::new(AtomicUsize::new(0));
        let (roster, run) = (Roster::new(Arc::clone(&count)), RunId(Uuid::from_u128(1)));
        for _ in 0..2 {
            roster.go_on(run, Fence::FIRST, true);
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        roster.remove(run);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_run_in_doubt_is_claimed_again_and_keeps_its_place() {
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        let count = Arc::new(AtomicUsize::new(0));
        let (roster, run) = (Roster::new(Arc::clone(&count)), RunId(Uuid::from_u128(1)));
        roster.begin(run, Arc::clone(&places).try_acquire_owned().ok());
        assert_eq!((roster.runs(), roster.enrol(run)), (vec![(run, false)], Some(Fence::FIRST)));
        roster.doubt(run);
        assert_eq!((roster.runs(), roster.enrol(run)), (vec![(run, true)], None));
        roster.go_on(run, Fence::FIRST, true);
        assert_eq!((places.available_permits(), count.load(Ordering::Relaxed)), (0, 0));
        roster.give_back_place(run);
        assert_eq!(places.available_permits(), 1);
    }

    #[test]
    fn a_run_that_is_not_there_stays_away() {
        let (roster, run) = (Roster::new(Arc::default()), RunId(Uuid::from_u128(1)));
        roster.doubt(run);
        roster.give_back_place(run);
        assert_eq!(roster.runs(), []);
        assert_eq!((roster.enrol(run), roster.runs()), (None, vec![(run, true)]));
    }
}
