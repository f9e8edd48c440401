//! The index of inboxes: which ended runs have messages in the inbox of an agent, the latest end first. So an inbox is read
//! without looking at other runs, however many the store has. It follows from the journals: a store that was written without it
//! gets it when the first inbox is read.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::try_join_all;

use crate::messages::{AgentName, RunId, Timestamp};
use crate::storage::{Key, StorageError, StorageFuture};

use super::Journal;

/// Notes below this key name an inbox, the time of an end counted down, and a run. A value under the key itself shows that the
/// index is complete.
const INBOXES: &str = "inboxes";

/// How many notes are read at once.
const PAGE: usize = 64;

/// A note of the index.
#[derive(Clone, Debug)]
pub(crate) struct InboxNote {
    key: Key,
    /// The time of the run's last event.
    pub(crate) ended: Timestamp,
    pub(crate) run: RunId,
}

impl Journal {
    /// Notes which inboxes have messages of a run that has ended.
    pub(crate) fn note_inboxes(&self, run: RunId, at: Timestamp, inboxes: &[AgentName]) -> StorageFuture<()> {
        let noted: Vec<_> = notes(run, at, inboxes).map(|(key, value)| self.note(key, value)).collect();
        async move { try_join_all(noted).await.map(|_| ()) }.boxed()
    }

    /// Removes the notes of [`Journal::note_inboxes`].
    pub(crate) fn forget_inboxes(&self, run: RunId, at: Timestamp, inboxes: &[AgentName]) -> StorageFuture<()> {
        let removed: Vec<_> = inboxes.iter().map(|agent| self.delete(key_of(agent.as_str(), at, run))).collect();
        async move { try_join_all(removed).await.map(|_| ()) }.boxed()
    }

    /// The runs with messages in an inbox, the latest end first: a page of them, after a note.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn inbox_notes(
        &self,
        agent: &str,
        after: Option<&InboxNote>,
    ) -> Result<Vec<InboxNote>, StorageError> {
        let prefix = Key::new([INBOXES, agent]).children();
        let page = self.storage.scan(&prefix, after.map(|note| &note.key), PAGE).await?;
        Ok(page.into_iter().filter_map(|(key, _)| note_of(key)).collect())
    }

    /// Removes a note whose run is gone.
    pub(crate) fn forget_inbox_note(&self, note: InboxNote) -> StorageFuture<()> {
        self.delete(note.key)
    }

    /// Whether the index has all runs that have ended. In a store without runs it begins complete.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn has_all_inboxes(&self) -> Result<bool, StorageError> {
        self.is_complete(INBOXES).await
    }

    /// Notes that the index has all runs that have ended.
    pub(crate) fn note_all_inboxes(&self) -> StorageFuture<()> {
        self.note_complete(INBOXES)
    }

    /// Whether an index has all runs that have ended, which a value under its own key shows. In a store without runs it begins
    /// complete.
    pub(super) async fn is_complete(&self, index: &str) -> Result<bool, StorageError> {
        if self.storage.get(&Key::new([index])).await?.is_some() {
            return Ok(true);
        }
        for kind in [super::ENDED, super::OPEN] {
            if !self.storage.scan(&Key::new([kind]).children(), None, 1).await?.is_empty() {
                return Ok(false);
            }
        }
        self.note_complete(index).await.map(|()| true)
    }

    pub(super) fn note_complete(&self, index: &str) -> StorageFuture<()> {
        self.note(Key::new([index]), Arc::from([].as_slice()))
    }
}

/// The notes that inboxes have messages of a run.
pub(super) fn notes(
    run: RunId,
    at: Timestamp,
    inboxes: &[AgentName],
) -> impl Iterator<Item = (Key, Arc<[u8]>)> + use<'_> {
    inboxes.iter().map(move |agent| (key_of(agent.as_str(), at, run), Arc::from([].as_slice())))
}

/// Names as the value of a note. No name has a line break.
pub(super) fn to_bytes(agents: &[AgentName]) -> Arc<[u8]> {
    let names: Vec<&str> = agents.iter().map(AgentName::as_str).collect();
    Arc::from(names.join("\n").into_bytes())
}

pub(super) fn of_bytes(value: &[u8]) -> Vec<AgentName> {
    let names = std::str::from_utf8(value).unwrap_or_default();
    names.lines().filter_map(|name| AgentName::new(name).ok()).collect()
}

fn key_of(agent: &str, at: Timestamp, run: RunId) -> Key {
    let counted_down = format!("{:020}", u64::MAX - at.as_millis());
    Key::new([INBOXES, agent, &*counted_down, &*run.0.as_simple().to_string()])
}

fn note_of(key: Key) -> Option<InboxNote> {
    let segments = key.segments();
    let counted_down: u64 = segments.get(2)?.parse().ok()?;
    let run = segments.get(3)?.parse().ok()?;
    Some(InboxNote { key, ended: Timestamp::from_millis(u64::MAX - counted_down), run })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::storage::Memory;

    fn names(names: &[&str]) -> Vec<AgentName> {
        names.iter().map(|name| AgentName::new(name).unwrap()).collect()
    }

    #[tokio::test]
    async fn the_runs_of_an_inbox_are_listed_from_the_latest_end_and_go_with_their_runs() {
        let journal = Journal::new(Arc::new(Memory::default()));
        assert!(journal.has_all_inboxes().await.unwrap(), "a store without runs has no other");
        let run = |number| RunId(Uuid::from_u128(number));
        let at = |secs: u64| Timestamp::from_millis(secs * 1000);
        journal.note_ended(run(1), at(1), &names(&["lead", "coder"])).await.unwrap();
        journal.note_ended(run(2), at(30), &names(&["lead"])).await.unwrap();
        journal.note_ended(run(3), at(2), &[]).await.unwrap();
        let listed = async |agent| {
            let notes = journal.inbox_notes(agent, None).await.unwrap();
            notes.into_iter().map(|note| (note.run, note.ended)).collect::<Vec<_>>()
        };
        assert_eq!(listed("lead").await, [(run(2), at(30)), (run(1), at(1))]);
        assert_eq!(listed("coder").await, [(run(1), at(1))]);
        journal.note_reopened(run(2), at(30)).await.unwrap();
        assert_eq!(listed("lead").await, [(run(1), at(1))], "it continues");
        journal.forget_ended_before(at(10)).await.unwrap();
        assert_eq!((listed("lead").await, listed("coder").await), (Vec::new(), Vec::new()));
    }

    #[tokio::test]
    async fn a_store_whose_runs_were_noted_without_inboxes_has_an_incomplete_index() {
        let journal = Journal::new(Arc::new(Memory::default()));
        journal.mark_open(RunId(Uuid::from_u128(1)), "board").await.unwrap();
        assert!(!journal.has_all_inboxes().await.unwrap());
        journal.note_all_inboxes().await.unwrap();
        assert!(journal.has_all_inboxes().await.unwrap());
    }
}
