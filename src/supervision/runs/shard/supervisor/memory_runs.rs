//! The ended runs without a journal on disk that stay readable.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::messages::{AgentName, EndedRun, RunId, Timestamp};
use crate::storage::Listing;

/// Ended runs whose journals are in memory only: the newest are kept. They are listed here and not in the store.
#[derive(Debug)]
pub(crate) struct MemoryRuns {
    ended: Mutex<Ended>,
    /// How many are kept.
    max: usize,
    bytes: Arc<MemoryBytes>,
}

/// The bytes that the ended runs in memory of all supervisors take.
#[derive(Debug)]
pub(crate) struct MemoryBytes {
    taken: AtomicUsize,
    max: usize,
}

/// What is kept of a run beside its records and its snapshot, in bytes: its entries in the tables of this list and of the store.
const KEPT_BESIDE: usize = 512;

/// The place of a run in lists: the latest submission is the first.
type Place = (Reverse<Timestamp>, RunId);

#[derive(Debug, Default)]
struct Ended {
    listed: BTreeMap<Place, MemoryRun>,
    /// The last one to end is the last.
    in_order_of_ends: VecDeque<Place>,
}

/// An ended run whose journal is in memory only.
#[derive(Debug)]
pub(super) struct MemoryRun {
    pub(super) listing: Listing,
    /// The bytes of its records and of its snapshot.
    pub(super) size: usize,
    /// The time of its end and the inboxes that have messages of it, if there are any.
    pub(super) inboxes: Option<Box<(Timestamp, Vec<AgentName>)>>,
}

impl MemoryRun {
    fn bytes(&self) -> usize {
        self.size.saturating_add(KEPT_BESIDE)
    }
}

impl MemoryBytes {
    /// Room for this many.
    #[must_use]
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), max })
    }

    fn add(&self, run: &MemoryRun) {
        self.taken.fetch_add(run.bytes(), Ordering::Relaxed);
    }

    fn remove(&self, run: &MemoryRun) {
        self.taken.fetch_sub(run.bytes(), Ordering::Relaxed);
    }

    fn are_too_many(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > self.max
    }
}

impl MemoryRuns {
    /// Keeps the last `max` runs, and fewer once the runs of all who share `bytes` take more than these. The last one stays.
    #[must_use]
    pub(crate) fn new(max: usize, bytes: Arc<MemoryBytes>) -> Self {
        Self { ended: Mutex::default(), max, bytes }
    }

    /// Removes one that continues, and returns it.
    pub(super) fn remove(&self, run: RunId, submitted_at: Timestamp) -> Option<MemoryRun> {
        let place = (Reverse(submitted_at), run);
        let mut ended = self.ended.lock();
        let removed = ended.listed.remove(&place)?;
        self.bytes.remove(&removed);
        ended.in_order_of_ends.retain(|other| *other != place);
        Some(removed)
    }

    /// Adds one, and returns those that ended first if there are too many: their journals are deleted.
    pub(super) fn add(&self, run: RunId, added: MemoryRun) -> Vec<(RunId, MemoryRun)> {
        let place = (Reverse(added.listing.submitted_at), run);
        let mut ended = self.ended.lock();
        self.bytes.add(&added);
        if let Some(replaced) = ended.listed.insert(place, added) {
            self.bytes.remove(&replaced);
        }
        ended.in_order_of_ends.push_back(place);
        let mut removed = Vec::new();
        while ended.in_order_of_ends.len() > self.max || (ended.in_order_of_ends.len() > 1 && self.bytes.are_too_many())
        {
            let Some(first) = ended.in_order_of_ends.pop_front() else { break };
            if let Some(run) = ended.listed.remove(&first) {
                self.bytes.remove(&run);
                removed.push((first.1, run));
            }
        }
        removed
    }

    /// A page of them, the latest submission first, after the run with this time and id.
    pub(crate) fn page(&self, after: Option<(Timestamp, RunId)>, limit: usize) -> Vec<EndedRun> {
        let after = after.map_or(Bound::Unbounded, |(time, run)| Bound::Excluded((Reverse(time), run)));
        let ended = self.ended.lock();
        let page = ended.listed.range((after, Bound::Unbounded)).take(limit);
        page.map(|((_, run), ended)| ended.listing.of(*run)).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    fn run(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    fn ended(secs: u64) -> MemoryRun {
        sized(secs, 0)
    }

    fn sized(secs: u64, size: usize) -> MemoryRun {
        let listing = Listing { submitted_at: at(secs), agent: AgentName::new("coder").unwrap(), outcome: "finished" };
        MemoryRun { listing, size, inboxes: None }
    }

    fn added(runs: &MemoryRuns, number: u128, run_ended: MemoryRun) -> Vec<RunId> {
        runs.add(run(number), run_ended).into_iter().map(|(run, _)| run).collect()
    }

    fn listed(runs: &MemoryRuns) -> Vec<RunId> {
        runs.page(None, 99).into_iter().map(|ended| ended.run).collect()
    }

    #[test]
    fn pages_follow_submissions_and_the_run_that_ended_first_goes_first() {
        let runs = MemoryRuns::new(3, MemoryBytes::new(1 << 20));
        let page = |after, limit| runs.page(after, limit).into_iter().map(|ended| ended.run).collect::<Vec<_>>();
        for (number, secs) in [(1, 9), (2, 3), (3, 3)] {
            assert_eq!(added(&runs, number, ended(secs)), []);
        }
        assert_eq!(page(None, 2), [run(1), run(2)]);
        assert_eq!(page(Some((at(3), run(2))), 2), [run(3)]);
        assert_eq!(added(&runs, 4, ended(1)), [run(1)], "it ended first");
        assert_eq!(listed(&runs), [run(2), run(3), run(4)]);
        assert!(runs.remove(run(2), at(3)).is_some() && runs.remove(run(2), at(3)).is_none());
        assert_eq!(added(&runs, 5, ended(2)), [], "one that continues makes room");
        assert_eq!(listed(&runs), [run(3), run(5), run(4)]);
    }

    #[test]
    fn runs_that_take_too_many_bytes_make_those_go_that_ended_first() {
        let kib = |size: usize| (size << 10) - KEPT_BESIDE;
        let bytes = MemoryBytes::new(10 << 10);
        let (runs, others) = (MemoryRuns::new(99, Arc::clone(&bytes)), MemoryRuns::new(99, Arc::clone(&bytes)));
        for number in 1..=4 {
            assert_eq!(added(&runs, number, sized(1, kib(2))), []);
        }
        assert_eq!(added(&runs, 5, sized(1, kib(5))), [run(1), run(2)], "as many as have to go");
        assert!(runs.remove(run(3), at(1)).is_some());
        assert_eq!(added(&others, 6, sized(1, kib(3))), [], "one that continues takes none");
        assert_eq!(added(&others, 7, sized(1, kib(1))), [run(6)], "supervisors share them");
        assert_eq!(added(&runs, 8, sized(1, kib(50))), [run(4), run(5)], "the last one stays, whatever its size");
        assert_eq!((listed(&runs), listed(&others)), (vec![run(8)], vec![run(7)]));
        assert_eq!(bytes.taken.load(Ordering::Relaxed), 51 << 10);
    }

    #[test]
    fn without_room_for_runs_none_stays() {
        let runs = MemoryRuns::new(0, MemoryBytes::new(1 << 20));
        assert_eq!(added(&runs, 1, ended(1)), [run(1)]);
        assert_eq!(listed(&runs), []);
    }
}
