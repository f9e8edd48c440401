//! The ended runs without a journal on disk that stay readable.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use parking_lot::Mutex;

use crate::messages::{AgentName, EndedRun, RunId, Timestamp};
use crate::storage::Listing;

/// Ended runs whose journals are in memory only: the newest are kept. They are listed here and not in the store.
#[derive(Debug)]
pub(crate) struct MemoryRuns {
    ended: Mutex<Ended>,
    max: usize,
}

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
    pub(super) fn remove(&self, run: RunId, submitted_at: Timestamp) -> Option<MemoryRun> {
        let place = (Reverse(submitted_at), run);
        let mut ended = self.ended.lock();
        let removed = ended.listed.remove(&place)?;
        ended.in_order_of_ends.retain(|other| *other != place);
        Some(removed)
    }

    /// Adds one, and returns the one that ended first if there are too many: its journal is deleted.
    pub(super) fn add(&self, run: RunId, added: MemoryRun) -> Option<(RunId, MemoryRun)> {
        let place = (Reverse(added.listing.submitted_at), run);
        let mut ended = self.ended.lock();
        ended.listed.insert(place, added);
        ended.in_order_of_ends.push_back(place);
        if ended.in_order_of_ends.len() <= self.max {
            return None;
        }
        let first = ended.in_order_of_ends.pop_front()?;
        Some((first.1, ended.listed.remove(&first)?))
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
        let listing = Listing { submitted_at: at(secs), agent: AgentName::new("coder").unwrap(), outcome: "finished" };
        MemoryRun { listing, inboxes: None }
    }

    #[test]
    fn pages_follow_submissions_and_the_run_that_ended_first_goes_first() {
        let runs = MemoryRuns::new(3);
        let page = |after, limit| runs.page(after, limit).into_iter().map(|ended| ended.run).collect::<Vec<_>>();
        for (number, secs) in [(1, 9), (2, 3), (3, 3)] {
            assert!(runs.add(run(number), ended(secs)).is_none());
        }
        assert_eq!(page(None, 2), [run(1), run(2)]);
        assert_eq!(page(Some((at(3), run(2))), 2), [run(3)]);
        assert_eq!(runs.add(run(4), ended(1)).map(|(run, _)| run), Some(run(1)), "it ended first");
        assert_eq!(page(None, 9), [run(2), run(3), run(4)]);
        assert!(runs.remove(run(2), at(3)).is_some() && runs.remove(run(2), at(3)).is_none());
        assert!(runs.add(run(5), ended(2)).is_none(), "one that continues makes room");
        assert_eq!(page(None, 9), [run(3), run(5), run(4)]);
    }
}
