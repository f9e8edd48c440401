//! The list of ended runs: one note for each, in the order of their submissions, the newest first. So a page of runs costs the same
//! however many the store has. It follows from the journals: a store that was written without it gets it when a page is first
//! read. Runs that are open have no note; [`Journal::open_runs`] has them. Neither have those whose journals are in memory only.

use std::sync::Arc;

use futures::future::try_join_all;

use crate::messages::{AgentName, EndedRun, RunId, Timestamp};
use crate::storage::{Key, StorageError, StorageFuture};

use super::skipped::NOT_LISTED;
use super::{Journal, PAGE};

/// Notes below this key name the time of a submission counted down, and a run. A value under the key itself shows that the list
/// is complete.
pub(super) const LISTED: &str = "listed";

/// The place of an ended run in the list, and what the list shows of it.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) submitted_at: Timestamp,
    pub(crate) agent: AgentName,
    /// The name of its outcome.
    pub(crate) outcome: &'static str,
}

impl Listing {
    /// The run as lists have it.
    pub(crate) fn of(&self, run: RunId) -> EndedRun {
        let Self { submitted_at, agent, outcome } = self;
        EndedRun { run, submitted_at: *submitted_at, agent: agent.clone(), outcome: Arc::from(*outcome) }
    }

    /// The note of the run.
    pub(super) fn note(&self, run: RunId) -> (Key, Arc<[u8]>) {
        let Self { submitted_at, agent, outcome } = self;
        (key_of(*submitted_at, run), Arc::from(format!("{outcome}\n{agent}").into_bytes()))
    }
}

impl Journal {
    /// Lists a run that has ended.
    pub(crate) fn list(&self, run: RunId, listing: &Listing) -> StorageFuture<()> {
        let (key, value) = listing.note(run);
        self.note(key, value)
    }

    /// Takes a run from the list.
    pub(crate) fn unlist(&self, run: RunId, submitted_at: Timestamp) -> StorageFuture<()> {
        self.delete(key_of(submitted_at, run))
    }

    /// The ended runs, the latest submission first: a page of them, after a run. A row that cannot be read is left out, and reported once.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn listed(
        &self,
        after: Option<(Timestamp, RunId)>,
        limit: usize,
    ) -> Result<Vec<EndedRun>, StorageError> {
        let mut after = match after {
            Some((submitted_at, run)) => key_of(submitted_at, run),
            // The note that the list is complete is no run.
            None => Key::new([LISTED]),
        };
        let mut ended = Vec::new();
        loop {
            let wanted = limit - ended.len();
            let page = self.storage.scan(&Key::new([LISTED]).children(), Some(&after), wanted).await?;
            let is_last = page.len() < wanted;
            for (key, entry) in page {
                match ended_run(&key, &entry.value) {
                    Some(run) => ended.push(run),
                    None => self.skipped.report(&key, NOT_LISTED),
                }
                after = key;
            }
            // A page that is shorter than asked for is the last one for whoever reads it.
            if is_last || ended.len() == limit {
                return Ok(ended);
            }
        }
    }

    /// Removes the notes of runs that were submitted before a time and are gone. A row that cannot be read stays.
    pub(super) async fn forget_listed_before(&self, time: Timestamp) -> Result<(), StorageError> {
        let prefix = Key::new([LISTED]).children();
        let last_before = Timestamp::from_millis(time.as_millis().saturating_sub(1));
        let mut after = Key::new([LISTED, &counted_down(last_before)]);
        loop {
            let page = self.storage.scan(&prefix, Some(&after), PAGE).await?;
            let runs: Vec<Option<RunId>> = page.iter().map(|(key, _)| place_of(key).map(|(_, run)| run)).collect();
            let streams: Vec<_> = runs.iter().flatten().map(|run| (Self::stream(*run), 1)).collect();
            let mut records = self.storage.read_many(&streams, 1).await?.into_iter();
            // A record that cannot be read is there.
            let mut is_gone = || records.next().is_some_and(|read| read.is_ok_and(|records| records.is_empty()));
            let gone = page.iter().zip(runs).filter(|(_, run)| run.is_some() && is_gone());
            let gone = gone.map(|((key, entry), _)| self.delete_read(key.clone(), Some(entry.revision)));
            try_join_all(gone).await?;
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = key.clone(),
                _ => return Ok(()),
            }
        }
    }

    /// Whether the list has all runs that have ended. In a store without runs it begins complete.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn has_all_listed(&self) -> Result<bool, StorageError> {
        self.is_complete(LISTED).await
    }

    /// Notes that the list has all runs that have ended.
    pub(crate) fn note_all_listed(&self) -> StorageFuture<()> {
        self.note_complete(LISTED)
    }
}

pub(super) fn counted_down(at: Timestamp) -> String {
    format!("{:020}", u64::MAX - at.as_millis())
}

fn key_of(submitted_at: Timestamp, run: RunId) -> Key {
    Key::new([LISTED, &*counted_down(submitted_at), &*run.0.as_simple().to_string()])
}

/// The place that a row has in the list: its key is the one under which the note of the run is found.
fn place_of(key: &Key) -> Option<(Timestamp, RunId)> {
    let segments = key.segments();
    let counted_down: u64 = segments.get(1)?.parse().ok()?;
    let (submitted_at, run) = (Timestamp::from_millis(u64::MAX - counted_down), segments.get(2)?.parse().ok()?);
    (*key == key_of(submitted_at, run)).then_some((submitted_at, run))
}

pub(super) fn ended_run(key: &Key, value: &[u8]) -> Option<EndedRun> {
    let (submitted_at, run) = place_of(key)?;
    let (outcome, agent) = std::str::from_utf8(value).ok()?.split_once('\n')?;
    Some(EndedRun { run, submitted_at, agent: AgentName::new(agent).ok()?, outcome: outcome.into() })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::messages::Durability;
    use crate::storage::{Memory, Put};

    fn run(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    async fn list(journal: &Journal, number: u128, secs: u64) {
        let listing = Listing { submitted_at: at(secs), agent: AgentName::new("coder").unwrap(), outcome: "finished" };
        journal.list(run(number), &listing).await.unwrap();
    }

    async fn listed(journal: &Journal, after: Option<(Timestamp, RunId)>, limit: usize) -> Vec<RunId> {
        journal.listed(after, limit).await.unwrap().into_iter().map(|ended| ended.run).collect()
    }

    #[tokio::test]
    async fn ended_runs_are_listed_in_pages_from_the_latest_submission() {
        let journal = Journal::new(Arc::new(Memory::default()));
        assert!(journal.has_all_listed().await.unwrap(), "a store without runs has no other");
        for (number, secs) in [(1, 1), (2, 30), (4, 2), (3, 2)] {
            list(&journal, number, secs).await;
        }
        assert_eq!(listed(&journal, None, 3).await, [run(2), run(3), run(4)]);
        assert_eq!(listed(&journal, Some((at(2), run(3))), 3).await, [run(4), run(1)]);
        journal.unlist(run(3), at(2)).await.unwrap();
        assert_eq!(listed(&journal, Some((at(2), run(3))), 3).await, [run(4), run(1)], "its place stays one");
        let first = journal.listed(None, 1).await.unwrap();
        let agent = AgentName::new("coder").unwrap();
        assert_eq!(first, [EndedRun { run: run(2), submitted_at: at(30), agent, outcome: "finished".into() }]);
    }

    #[tokio::test]
    async fn the_notes_of_runs_that_are_gone_go_at_the_next_sweep_and_one_that_cannot_be_read_is_none() {
        let storage: Arc<dyn crate::storage::Storage> = Arc::new(Memory::default());
        let journal = Journal::new(Arc::clone(&storage));
        for number in 1..=3 {
            list(&journal, number, number as u64).await;
        }
        journal.append(&Journal::stream(run(1)), 0, &[], Durability::Memory).await.unwrap();
        let (key, value) = (Key::new([LISTED, "soon"]), Arc::from(b"x".as_slice()));
        let put = Put { durability: Durability::Memory, ..Put::new(key, value) };
        storage.put_if_revision(put).await.unwrap();
        assert_eq!(listed(&journal, None, 9).await, [run(3), run(2), run(1)]);
        journal.forget_ended_before(at(3)).await.unwrap();
        assert_eq!(listed(&journal, None, 9).await, [run(3), run(1)], "the third was submitted later");
    }
}
