//! Reading: on the caller's thread, straight from the tree, which holds every acknowledged write.

use std::ops::Bound;
use std::sync::Arc;

use sled::{IVec, Tree};

use super::payloads::Payloads;
use super::read_error::ReadError;
use super::rows::{self, Content, PayloadRow};
use crate::env::Clock;
use crate::storage::{Entry, Key, KeyPrefix, Record, Sequence, StorageError};

/// How often a read starts over because what it reads is being removed.
const ATTEMPTS: usize = 8;

/// The tree and the payload files, for one read.
pub(super) struct Reading<'a> {
    pub(super) tree: &'a Tree,
    pub(super) payloads: &'a Payloads,
}

impl Reading<'_> {
    pub(super) fn records(&self, stream: &Key, from: Sequence, limit: usize) -> Result<Vec<Record>, StorageError> {
        let mut attempt = 1;
        loop {
            match self.try_records(stream, from, limit) {
                // A purge in the middle of the read looks like damage; damage is still there the next time.
                Err(ReadError::Damaged(_)) if attempt < ATTEMPTS => attempt += 1,
                result => return result.map_err(|error| error.of(stream)),
            }
        }
    }

    fn try_records(&self, stream: &Key, from: Sequence, limit: usize) -> Result<Vec<Record>, ReadError> {
        let mut records: Vec<Record> = Vec::new();
        for row in self.tree.range(rows::record(stream, from)..=rows::record(stream, u64::MAX)).take(limit) {
            let (row, sealed) = row?;
            let sequence = rows::number_of(&row).ok_or("a row has no number")?;
            if let Some(before) = records.last()
                && before.sequence + 1 != sequence
            {
                let missing = before.sequence + 1;
                return Err(format!("record {missing} is missing").into());
            }
            let payload = self.payload(&row, &sealed).map(|(payload, _)| payload);
            let payload = payload.map_err(|error| error.about(format_args!("record {sequence}")))?;
            records.push(Record { sequence, payload });
        }
        Ok(records)
    }

    pub(super) fn streams(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Key>, StorageError> {
        let prefix = rows::streams_under(prefix.as_bytes());
        let mut names = Vec::new();
        let mut from = after.map_or_else(Vec::new, rows::after_stream).max(prefix.clone());
        while names.len() < limit
            && let Some(row) = self.tree.range(from..).next()
        {
            let (row, _) = row.map_err(unnamed)?;
            if !row.starts_with(&prefix) {
                break;
            }
            let stream = rows::stream_of(&row).ok_or("a row has no stream").map_err(unnamed)?;
            // On to the next stream without passing this one's records.
            from = rows::after_stream(&stream);
            names.push(stream);
        }
        Ok(names)
    }

    pub(super) fn get(&self, key: &Key, clock: &dyn Clock) -> Result<Option<Entry>, StorageError> {
        let row = rows::value(key);
        let mut attempt = 1;
        loop {
            let sealed = self.tree.get(&row).map_err(|error| ReadError::from(error).of(key))?;
            let Some(sealed) = sealed else { return Ok(None) };
            match self.entry(&row, &sealed) {
                Ok(entry) => return Ok(Some(entry).filter(|entry| !has_expired(entry, clock))),
                // Its payload file may have been replaced since.
                Err(ReadError::Damaged(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.of(key)),
            }
        }
    }

    pub(super) fn scan(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
        clock: &dyn Clock,
    ) -> Result<Vec<(Key, Entry)>, StorageError> {
        let prefix = rows::values_under(prefix.as_bytes());
        let start = match after.map(rows::value) {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(prefix.clone()),
        };
        let mut found = Vec::new();
        let mut rows = self.tree.range::<Vec<u8>, _>((start, Bound::Unbounded));
        while found.len() < limit
            && let Some(row) = rows.next()
        {
            let (row, sealed) = row.map_err(unnamed)?;
            if !row.starts_with(&prefix) {
                break;
            }
            let key = rows::key_of(&row).ok_or("a row has no key").map_err(unnamed)?;
            let entry = match self.entry(&row, &sealed) {
                Ok(entry) => Some(entry).filter(|entry| !has_expired(entry, clock)),
                // Its payload file may have been replaced since.
                Err(ReadError::Damaged(_)) => self.get(&key, clock)?,
                Err(error) => return Err(error.of(&key)),
            };
            found.extend(entry.map(|entry| (key, entry)));
        }
        Ok(found)
    }

    fn entry(&self, row: &[u8], sealed: &IVec) -> Result<Entry, ReadError> {
        let (value, PayloadRow { revision, expires_at, .. }) = self.payload(row, sealed)?;
        Ok(Entry { value, revision, expires_at })
    }

    fn payload<'a>(&self, row: &[u8], sealed: &'a [u8]) -> Result<(Arc<[u8]>, PayloadRow<'a>), ReadError> {
        let payload_row = PayloadRow::unseal(row, sealed)?;
        let payload = match &payload_row.content {
            Content::Inline(bytes) => Arc::from(*bytes),
            Content::File(name) => self.payloads.read(name)?,
        };
        Ok((payload, payload_row))
    }
}

/// The error of a row whose key is not known.
fn unnamed(error: impl Into<ReadError>) -> StorageError {
    error.into().of(&Key::new([]))
}

/// Asks the clock only about what expires.
fn has_expired(entry: &Entry, clock: &dyn Clock) -> bool {
    entry.expires_at.is_some() && entry.has_expired(clock.now().wall)
}
