//! Reading: on the caller's thread, from the rows that were written last and from the tree, which hold every acknowledged write.

use std::ops::Bound;
use std::sync::Arc;

use super::overlay::Stored;
use super::payloads::Payloads;
use super::read_error::ReadError;
use super::rows::{self, Content, PayloadRow};
use crate::env::Clock;
use crate::storage::{Entry, EntryRef, Key, KeyPrefix, Record, Sequence, StorageError};

/// How often a read starts over because what it reads is being removed.
const ATTEMPTS: usize = 8;

/// The rows and the payload files, for one read.
pub(super) struct Reading<'a> {
    pub(super) stored: Stored<'a>,
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
        if limit == 0 {
            return Ok(records);
        }
        // A row before the first record wanted, which may have that one as well.
        let mut unreadable = None;
        self.stored.scan_at_once(rows::records(stream, from, Sequence::MAX), |row, sealed| {
            let first = rows::number_of(row).ok_or("a row has no number")?;
            if let Some(error) = unreadable.take_if(|_| first > from) {
                return Err(error);
            }
            unreadable = None;
            let about = |error: ReadError| error.about(format_args!("record {first}"));
            let payload_row = match payload_row(row, sealed) {
                Ok(payload_row) => payload_row,
                Err(error) if first < from => {
                    unreadable = Some(about(error));
                    return Ok(true);
                }
                Err(error) => return Err(about(error)),
            };
            let mut add = |sequence: Sequence, payload: Arc<[u8]>| {
                if let Some(before) = records.last()
                    && before.sequence + 1 != sequence
                {
                    return Err(ReadError::from(format!("record {} is missing", before.sequence + 1)));
                }
                records.push(Record { sequence, payload });
                Ok(records.len() < limit)
            };
            if let Content::Records(several) = payload_row.content {
                let wanted = (first..).zip(several.payloads()).skip_while(|(sequence, _)| *sequence < from);
                for (sequence, payload) in wanted {
                    if !add(sequence, payload.into())? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            if first < from {
                return Ok(true);
            }
            add(first, self.payload(&payload_row).map_err(about)?)
        })?;
        unreadable.map_or(Ok(records), Err)
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
        while names.len() < limit {
            let mut next = None;
            let read = self.stored.scan((Bound::Included(from), Bound::Unbounded), 1, |row, _| {
                if row.starts_with(&prefix) {
                    next = Some(rows::stream_of(row).ok_or("a row has no stream")?);
                }
                Ok(false)
            });
            read.map_err(unnamed)?;
            let Some(stream) = next else { break };
            // On to the next stream without passing this one's records.
            from = rows::after_stream(&stream);
            names.push(stream);
        }
        Ok(names)
    }

    pub(super) fn get(&self, key: &Key, clock: &dyn Clock) -> Result<Option<Entry>, StorageError> {
        let mut found = None;
        self.get_here(key, clock, |entry| found = Some(entry.into()))?;
        Ok(found)
    }

    /// Passes the value on, if there is one.
    pub(super) fn get_here(
        &self,
        key: &Key,
        clock: &dyn Clock,
        read: impl FnMut(EntryRef<'_>),
    ) -> Result<(), StorageError> {
        rows::with_value(key, |row| self.get_row(row, clock, read)).map_err(|error| error.of(key))
    }

    fn get_row(&self, row: &[u8], clock: &dyn Clock, mut read: impl FnMut(EntryRef<'_>)) -> Result<(), ReadError> {
        let mut attempt = 1;
        loop {
            let Some(sealed) = self.stored.get(row)? else { return Ok(()) };
            match self.pass_on(row, &sealed, clock, &mut read) {
                Ok(()) => return Ok(()),
                // Its payload file may have been replaced since.
                Err(ReadError::Damaged(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
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
        let mut found = Vec::new();
        self.scan_here(prefix, after, limit, clock, |key, entry| found.push((Key::unchecked(key), entry.into())))?;
        Ok(found)
    }

    /// Passes on the values with the encoded bytes of their keys; returns how many there were.
    pub(super) fn scan_here(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
        clock: &dyn Clock,
        mut read: impl FnMut(&[u8], EntryRef<'_>),
    ) -> Result<usize, StorageError> {
        let prefix = rows::values_under(prefix.as_bytes());
        let start = match after.map(rows::value) {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(prefix.clone()),
        };
        let (mut found, mut failed) = (0, None);
        if limit == 0 {
            return Ok(found);
        }
        let scanned = self.stored.scan((start, Bound::Unbounded), limit, |row, sealed| {
            if !row.starts_with(&prefix) {
                return Ok(false);
            }
            let key = rows::key_bytes_of(row).ok_or("a row has no key")?;
            let mut pass = |entry: EntryRef<'_>| {
                found += 1;
                read(key, entry);
            };
            let passed = match self.pass_on(row, sealed, clock, &mut pass) {
                // Its payload file may have been replaced since.
                Err(ReadError::Damaged(_)) => self.get_row(row, clock, &mut pass),
                passed => passed,
            };
            // The checksum of a row is that of its key as well. Without it, the key may be none.
            if let Err(error) = passed {
                let Some(key) = Key::from_bytes(key) else { return Err(error.about("a row has no key")) };
                failed = Some(error.of(&key));
            }
            Ok(failed.is_none() && found < limit)
        });
        scanned.map_err(unnamed)?;
        failed.map_or(Ok(found), Err)
    }

    /// Passes on the value of a row that was read, unless it has expired.
    fn pass_on(
        &self,
        row: &[u8],
        sealed: &[u8],
        clock: &dyn Clock,
        mut read: impl FnMut(EntryRef<'_>),
    ) -> Result<(), ReadError> {
        let PayloadRow { revision, expires_at, content } = payload_row(row, sealed)?;
        let mut pass = |value: &[u8]| {
            let entry = EntryRef { value, revision, expires_at };
            // The clock is asked only about what expires.
            if expires_at.is_none() || !entry.has_expired(clock.now().wall) {
                read(entry);
            }
        };
        match content {
            Content::Inline(bytes) => pass(bytes),
            Content::File(name) => pass(&self.payloads.read(&name)?),
            Content::Records(_) => return Err("a value is no records".into()),
        }
        Ok(())
    }

    fn payload(&self, row: &PayloadRow<'_>) -> Result<Arc<[u8]>, ReadError> {
        match &row.content {
            Content::Inline(bytes) => Ok(Arc::from(*bytes)),
            Content::File(name) => self.payloads.read(name),
            Content::Records(_) => Err("a value is no records".into()),
        }
    }
}

fn payload_row<'a>(row: &[u8], sealed: &'a [u8]) -> Result<PayloadRow<'a>, ReadError> {
    Ok(PayloadRow::unseal(row, sealed)?)
}

/// The error of a row whose key is not known.
fn unnamed(error: impl Into<ReadError>) -> StorageError {
    error.into().of(&Key::new([]))
}
