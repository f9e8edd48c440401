//! Runs whose journals are in memory only, in a store that outlives their board: they are deleted once the board is gone.

use std::sync::Arc;

use futures::{FutureExt, TryStreamExt};
use uuid::Uuid;

use crate::messages::RunId;
use crate::storage::{Entry, Key, Rider, StorageError, StorageFuture};

use super::Journal;

/// Where the notes of such runs are, below it by the id of the board and the run.
const MEMORY: &str = "memory";

fn key_of(board: &str, run: RunId) -> Key {
    Key::new([MEMORY, board, &*run.0.as_simple().encode_lower(&mut Uuid::encode_buffer())])
}

impl Journal {
    /// The note that a run is to be deleted once its board is gone, to be written with its first record.
    pub(crate) fn memory_note(board: &str, run: RunId) -> Rider {
        Rider::put(key_of(board, run), Arc::from([].as_slice()))
    }

    /// Forgets a run that has such a note.
    pub(crate) fn forget_memory_run(&self, board: &str, run: RunId) -> StorageFuture<()> {
        let (journal, key) = (self.clone(), key_of(board, run));
        async move {
            journal.forget(run).await?;
            journal.delete(key).await
        }
        .boxed()
    }

    /// The bytes of a run's records and of its snapshot.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn bytes_of(&self, run: RunId) -> Result<usize, StorageError> {
        const PAGE: usize = 256;
        let (stream, mut from) = (Self::stream(run), 1);
        let mut bytes = self.snapshot(run).await?.map_or(0, |snapshot| snapshot.len());
        loop {
            let records = self.storage.read(&stream, from, PAGE).await?;
            let Some(last) = records.last() else { return Ok(bytes) };
            from = last.sequence + 1;
            bytes += records.iter().map(|record| record.payload.len()).sum::<usize>();
        }
    }

    /// Whether a board has runs that are to be deleted once it is gone.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn has_memory_runs(&self, board: &str) -> Result<bool, StorageError> {
        Ok(!self.storage.scan(&Key::new([MEMORY, board]).children(), None, 1).await?.is_empty())
    }

    /// Forgets the runs of a board that is gone which were in its memory only.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn discard_memory_runs(&self, board: &str) -> Result<(), StorageError> {
        let notes = self.entries(Key::new([MEMORY, board]).children());
        let discard = async |(key, entry): (Key, Entry)| {
            let run = key.segments().get(2).and_then(|run| Uuid::try_parse(run).ok());
            if let Some(run) = run {
                self.forget(RunId(run)).await?;
            }
            self.delete_read(key, Some(entry.revision)).await
        };
        notes.try_for_each(discard).await
    }
}
