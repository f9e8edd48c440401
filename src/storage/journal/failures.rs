//! Failures about which nobody has decided: one note for each, the latest first, so that a list of them costs the same however many
//! runs the store has. They follow from the journals, as the list of ended runs does.

use crate::messages::{OpenFailure, Timestamp, TurnId};
use crate::storage::codec::{self, Stored};
use crate::storage::{Key, Rider, StorageError, StorageFuture};

use super::listed::counted_down;
use super::{Journal, PAGE};

/// Notes below this key name the time of a failure counted down, a run and a turn. A value under the key itself shows that the list
/// is complete.
const FAILURES: &str = "failures";

impl Stored for OpenFailure {
    const SCHEMA: u16 = 23;
    const VERSION: u16 = 1;
    const NAME: &'static str = "open-failure";
}

impl Journal {
    /// The note of [`Journal::note_failure`], to be written with the record that has the failure.
    pub(crate) fn failure_note(failure: &OpenFailure) -> Rider {
        Rider::put(key_of(failure.at, failure.turn), codec::encode_shared(failure))
    }

    /// Lists a failure.
    pub(crate) fn note_failure(&self, failure: &OpenFailure) -> StorageFuture<()> {
        self.note(key_of(failure.at, failure.turn), codec::encode_shared(failure))
    }

    /// Takes a failure from the list: somebody has decided about it.
    pub(crate) fn settle_failure(&self, at: Timestamp, turn: TurnId) -> StorageFuture<()> {
        self.delete(key_of(at, turn))
    }

    /// The failures, the latest first: a page of them, after one. Those of runs that are gone are left out, and removed.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn failures(
        &self,
        after: Option<(Timestamp, TurnId)>,
        limit: usize,
    ) -> Result<Vec<OpenFailure>, StorageError> {
        let mut after = match after {
            Some((at, turn)) => key_of(at, turn),
            // The note that the list is complete is no failure.
            None => Key::new([FAILURES]),
        };
        let mut failures = Vec::new();
        while failures.len() < limit {
            let wanted = (limit - failures.len()).min(PAGE);
            let page = self.storage.scan(&Key::new([FAILURES]).children(), Some(&after), wanted).await?;
            let is_last = page.len() < wanted;
            for (key, entry) in page {
                after = key;
                // A note is no record: one that cannot be read is as one that was lost.
                let Ok(failure) = codec::decode::<OpenFailure>(&entry.value) else { continue };
                if self.has(failure.turn.run).await? {
                    failures.push(failure);
                } else {
                    self.delete(after.clone()).await?;
                }
            }
            if is_last {
                break;
            }
        }
        Ok(failures)
    }

    /// Whether the list has all failures. In a store without runs it begins complete.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn has_all_failures(&self) -> Result<bool, StorageError> {
        self.is_complete(FAILURES).await
    }

    /// Notes that the list has all failures.
    pub(crate) fn note_all_failures(&self) -> StorageFuture<()> {
        self.note_complete(FAILURES)
    }
}

fn key_of(at: Timestamp, TurnId { run, number }: TurnId) -> Key {
    Key::new([FAILURES, &*counted_down(at), &*run.0.as_simple().to_string(), &*format!("{number:010}")])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::messages::{AgentName, Durability, Failure, FailureKind, RunId};
    use crate::storage::Memory;

    fn failure(run: u128, number: u32, secs: u64) -> OpenFailure {
        OpenFailure {
            turn: TurnId { run: RunId(Uuid::from_u128(run)), number },
            agent: AgentName::new("coder").unwrap(),
            attempts: 3,
            failure: Failure::new(FailureKind::Terminal, "the service is down"),
            at: Timestamp::from_millis(secs * 1000),
            is_conflict: false,
        }
    }

    #[test]
    fn the_bytes_of_a_note_are_golden() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        crate::testing::golden::check(folder, &failure(7, 2, 9));
    }

    #[tokio::test]
    async fn failures_are_listed_in_pages_from_the_latest_until_they_are_settled_or_their_run_is_gone() {
        let journal = Journal::new(Arc::new(Memory::default()));
        assert!(journal.has_all_failures().await.unwrap(), "a store without runs has no other");
        let all = [failure(1, 1, 5), failure(2, 10, 9), failure(2, 9, 9), failure(3, 1, 7)];
        for failure in &all {
            journal.note_failure(failure).await.unwrap();
        }
        for run in [1, 2] {
            let stream = Journal::stream(RunId(Uuid::from_u128(run)));
            journal.append(&stream, 0, &[], Durability::Memory).await.unwrap();
        }
        let listed = async |after: Option<&OpenFailure>, limit| {
            journal.failures(after.map(|last| (last.at, last.turn)), limit).await.unwrap()
        };
        assert_eq!(listed(None, 2).await, [all[2].clone(), all[1].clone()]);
        assert_eq!(listed(Some(&all[1]), 2).await, [all[0].clone()], "the third has no run");
        journal.settle_failure(all[2].at, all[2].turn).await.unwrap();
        assert_eq!(listed(None, 9).await, [all[1].clone(), all[0].clone()]);
        assert_eq!(listed(Some(&all[2]), 1).await, [all[1].clone()], "its place stays one");
    }
}
