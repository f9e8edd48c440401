//! Deletes expired entries: reads the due rows of the expiry index, and the entries that they name.

use std::sync::atomic::Ordering;

use crate::messages::{Durability, Timestamp};
use crate::storage::{Delete, Entry, Key, KeyPrefix, Put, Storage, StorageError};

use super::entries::{self, StoredEntry};
use super::expiry_index::{self, Expired};
use super::{ContextError, ContextStore};

const PAGE: usize = 256;

/// The pages of a scan that skips unreadable values.
struct Pages<'a> {
    storage: &'a dyn Storage,
    prefix: KeyPrefix,
    after: Option<Key>,
    limit: usize,
    is_over: bool,
}

impl<'a> Pages<'a> {
    fn of(storage: &'a dyn Storage, prefix: KeyPrefix) -> Self {
        Self { storage, prefix, after: None, limit: PAGE, is_over: false }
    }

    /// The next page; empty after the last.
    async fn next(&mut self) -> Result<Vec<(Key, Entry)>, StorageError> {
        while !self.is_over {
            match self.storage.scan(&self.prefix, self.after.as_ref(), self.limit).await {
                Ok(page) => {
                    self.is_over = page.len() < self.limit;
                    if let Some((last, _)) = page.last() {
                        self.after = Some(last.clone());
                    }
                    return Ok(page);
                }
                // The values before and after an unreadable one are still read: one by one up to it, then past it.
                Err(StorageError::Corrupt { .. }) if self.limit > 1 => self.limit = 1,
                Err(StorageError::Corrupt { key, detail }) if self.after.as_ref().is_none_or(|after| *after < key) => {
                    tracing::warn!(%key, detail, "a context entry cannot be read, and is not deleted when it expires");
                    (self.after, self.limit) = (Some(key), PAGE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Vec::new())
    }
}

impl ContextStore {
    /// Deletes what has expired; an entry that was written again meanwhile stays, and so does one that cannot be read.
    /// Returns how many were deleted. It reads what has expired, by the expiry index, and no other entry; in a store without the
    /// index it builds it first.
    ///
    /// # Errors
    /// A failing store.
    pub async fn expire(&self) -> Result<usize, ContextError> {
        let Expired { deleted, next } = self.expire_rows().await?;
        self.expiry_timer.is_due_at(next);
        Ok(deleted)
    }

    /// Builds the expiry index of entries that have been written without it, as by older versions. Reads all entries.
    ///
    /// # Errors
    /// A failing store.
    pub async fn index(&self) -> Result<(), ContextError> {
        let mut pages = Pages::of(&*self.storage, entries::everywhere());
        loop {
            let page = pages.next().await?;
            for (name, entry) in &page {
                let expires_at = StoredEntry::decode(name, &entry.value).ok().and_then(|entry| entry.expires_at);
                if let Some(expires_at) = expires_at {
                    self.put_row(expires_at, name).await?;
                }
            }
            if page.is_empty() {
                break;
            }
        }
        self.put_note(expiry_index::marker()).await?;
        self.is_indexed.store(true, Ordering::Release);
        Ok(())
    }

    async fn expire_rows(&self) -> Result<Expired, ContextError> {
        if !self.is_indexed.load(Ordering::Acquire) {
            match self.storage.get(&expiry_index::marker()).await? {
                Some(_) => self.is_indexed.store(true, Ordering::Release),
                None => self.index().await?,
            }
        }
        let mut pages = Pages::of(&*self.storage, expiry_index::rows());
        let mut expired = Expired::default();
        let mut moved: Option<Timestamp> = None;
        loop {
            let page = pages.next().await?;
            let now = self.now();
            for (row, stored) in &page {
                let Some((at, name)) = expiry_index::of_row(row) else { continue };
                if at > now {
                    expired.next = Some(moved.map_or(at, |moved| moved.min(at)));
                    return Ok(expired);
                }
                match self.delete_expired(&name).await {
                    Ok(ExpiryOutcome::Deleted) => expired.deleted += 1,
                    Ok(ExpiryOutcome::Lasts) => {}
                    Ok(ExpiryOutcome::ExpiresAt(later)) => {
                        self.put_row(later, &name).await?;
                        moved = Some(moved.map_or(later, |moved| moved.min(later)));
                    }
                    Err(ContextError::Storage(StorageError::Corrupt { key, detail })) => {
                        tracing::warn!(%key, detail, "a context entry has expired, and cannot be read");
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                // A row that was written meanwhile has another revision, and stays.
                match self
                    .storage
                    .delete_if_revision(Delete::new(row.clone(), stored.revision, Durability::Memory))
                    .await
                {
                    Ok(()) | Err(StorageError::WrongRevision { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if page.is_empty() {
                expired.next = moved;
                return Ok(expired);
            }
        }
    }

    /// Deletes an entry if it has expired and is not written meanwhile.
    async fn delete_expired(&self, name: &Key) -> Result<ExpiryOutcome, ContextError> {
        loop {
            let Some((revision, entry)) = self.read(name).await? else { return Ok(ExpiryOutcome::Lasts) };
            let Some(expires_at) = entry.expires_at else { return Ok(ExpiryOutcome::Lasts) };
            if entry.is_live(self.now()) {
                return Ok(ExpiryOutcome::ExpiresAt(expires_at));
            }
            match self.storage.delete_if_revision(Delete::new(name.clone(), revision, self.durability)).await {
                Ok(()) => return Ok(ExpiryOutcome::Deleted),
                Err(StorageError::WrongRevision { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes a row for an entry that may expire at this time.
    pub(super) async fn put_row(&self, at: Timestamp, name: &Key) -> Result<(), StorageError> {
        self.put_note(expiry_index::row(at, name)).await
    }

    /// Writes an index row without waiting for the disk: a later write that is acknowledged on disk includes earlier ones.
    async fn put_note(&self, key: Key) -> Result<(), StorageError> {
        let (value, durability) = ([].as_slice().into(), Durability::Memory);
        let put = Put { durability, ..Put::new(key, value) };
        self.storage.put_if_revision(put).await.map(drop)
    }
}

/// The result for an entry whose row is due.
enum ExpiryOutcome {
    Deleted,
    /// It does not exist any more, or no longer expires.
    Lasts,
    ExpiresAt(Timestamp),
}
