//! How runs are forgotten: one by one, and those that ended long ago. A run's note that it has ended goes last, so that what is left of
//! one that was forgotten in part goes the next time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join_all, try_join_all};

use crate::messages::{Durability, RunId, Timestamp};
use crate::storage::{Delete, Entry, Expected, Key, Put, Revision, Sequence, StorageError, StorageFuture};

use super::{CONTEXT, ENDED, Journal, OPEN, PAGE, SNAPSHOT, ended_of, inboxes};

/// How many runs that ended long ago are forgotten at once: a store that writes several values in one transaction, or in one sync, does
/// so with theirs.
const AT_ONCE: usize = 32;

/// How many entries of the context of a run are read at once.
const CONTEXT_PAGE: usize = 64;

/// What became of runs that ended long ago.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    /// How many are gone.
    pub(crate) runs: usize,
    /// Those that could not be forgotten, and why.
    pub(crate) failed: Vec<(RunId, StorageError)>,
}

/// A note that a run has ended, as it was read.
struct EndedNote<'a> {
    at: Timestamp,
    run: RunId,
    key: &'a Key,
    entry: &'a Entry,
}

impl Journal {
    /// Forgets a run that has ended, or that no board works on, with everything about it.
    pub fn forget(&self, run: RunId) -> StorageFuture<()> {
        let journal = self.clone();
        async move {
            let [snapshot, open] = [SNAPSHOT, OPEN].map(|kind| Self::key_of(kind, run));
            let mut values = journal.storage.get_many(&[snapshot.clone(), open.clone()]).await?.into_iter();
            let mut revision = || values.next().transpose().map(|read| read.flatten().map(|entry| entry.revision));
            let (of_snapshot, of_open) = (revision()?, revision()?);
            journal.delete_read(snapshot, of_snapshot).await?;
            journal.forget_letters(run).await?;
            journal.forget_context(run).await?;
            journal.delete_read(open, of_open).await?;
            journal.storage.purge(&Self::stream(run), Sequence::MAX).await
        }
        .boxed()
    }

    /// Forgets what agents of a run left in its namespace of the shared context.
    async fn forget_context(&self, run: RunId) -> Result<(), StorageError> {
        let entries = Key::new([CONTEXT, &run.namespace()]).children();
        let mut after = None;
        loop {
            let page = self.storage.scan(&entries, after.as_ref(), CONTEXT_PAGE).await?;
            try_join_all(page.iter().map(|(key, entry)| self.delete_read(key.clone(), Some(entry.revision)))).await?;
            match page.last() {
                Some((key, _)) if page.len() == CONTEXT_PAGE => after = Some(key.clone()),
                _ => return Ok(()),
            }
        }
    }

    /// Forgets the runs that ended before a time, and their places in the list. One that cannot be forgotten holds up no other;
    /// its note stays, so that it is tried again the next time.
    ///
    /// # Errors
    /// What the store reports when the notes cannot be read, or when it has stopped.
    pub(crate) async fn forget_ended_before(&self, time: Timestamp) -> Result<Forgotten, StorageError> {
        let forgotten = self.forget_ended(time).await?;
        self.forget_listed_before(time).await?;
        Ok(forgotten)
    }

    async fn forget_ended(&self, time: Timestamp) -> Result<Forgotten, StorageError> {
        let prefix = Key::new([ENDED]).children();
        let (mut forgotten, mut after) = (Forgotten::default(), None);
        loop {
            let page = self.storage.scan(&prefix, after.as_ref(), PAGE).await?;
            let noted = page.iter().filter_map(|(key, entry)| {
                let (at, run) = ended_of(key)?;
                Some(EndedNote { at, run, key, entry })
            });
            let old: Vec<EndedNote<'_>> = noted.take_while(|note| note.at < time).collect();
            for some in old.chunks(AT_ONCE) {
                let gone = join_all(some.iter().map(|note| self.forget_noted(note))).await;
                for (note, gone) in some.iter().zip(gone) {
                    match gone {
                        Ok(()) => forgotten.runs += 1,
                        Err(error @ StorageError::Stopped { .. }) => return Err(error),
                        Err(error) => forgotten.failed.push((note.run, error)),
                    }
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE && ended_of(key).is_none_or(|(at, _)| at < time) => {
                    after = Some(key.clone());
                }
                _ => return Ok(forgotten),
            }
        }
    }

    async fn forget_noted(&self, EndedNote { at, run, key, entry }: &EndedNote<'_>) -> Result<(), StorageError> {
        self.forget_inboxes(*run, *at, &inboxes::of_bytes(&entry.value)).await?;
        self.forget(*run).await?;
        self.delete_read(Key::clone(key), Some(entry.revision)).await
    }

    /// Whether this board is to delete what is old: of several boards on one store, the first that asks within half of an interval.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn is_to_forget(&self, every: Duration) -> Result<bool, StorageError> {
        if !self.storage.is_shared() {
            return Ok(true);
        }
        let (expected, durability) = (Expected::Absent, Durability::Memory);
        let ttl_secs = Some((every / 2).as_secs());
        let put = Put { expected, ttl_secs, durability, ..Put::new(Key::new(["duty", "forgetting"]), Arc::default()) };
        match self.storage.put_if_revision(put).await {
            Ok(_) => Ok(true),
            Err(StorageError::WrongRevision { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes a value, if there is one.
    pub(crate) fn delete(&self, key: Key) -> StorageFuture<()> {
        let journal = self.clone();
        async move {
            let revision = journal.storage.get(&key).await?.map(|entry| entry.revision);
            journal.delete_read(key, revision).await
        }
        .boxed()
    }

    /// Deletes a value that had this revision when it was read. One that is gone meanwhile is fine: boards on one store may forget the
    /// same run.
    pub(super) async fn delete_read(&self, key: Key, revision: Option<Revision>) -> Result<(), StorageError> {
        let Some(revision) = revision else { return Ok(()) };
        match self.storage.delete_if_revision(Delete::new(key, revision, Durability::Memory)).await {
            Err(StorageError::WrongRevision { actual: None, .. }) => Ok(()),
            deleted => deleted,
        }
    }
}
