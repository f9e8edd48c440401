//! A write in the making: every request is decided here, against what is stored.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use sled::IVec;

use super::changes::Unwritten;
use super::loading::remembered;
use super::read_error::ReadError;
use super::row_batch::RowBatch;
use super::rows::{self, Content, PayloadRow, Progress};
use super::writes::Change;
use crate::messages::Timestamp;
use crate::storage::recent::Recent;
use crate::storage::sessions::Sessions;
use crate::storage::stream_head::StreamHead;
use crate::storage::{
    self as storage, Append, Delete, Entry, Expected, Key, Put, Revision, Rider, Sequence, SessionId, StorageError,
};

/// Streams and values whose state the writer remembers.
const HEADS: usize = 65_536;
const VALUES: usize = 16_384;

/// Why a request does not go ahead.
pub(super) enum StageError {
    /// The caller gets the error, and the store continues.
    Refused(StorageError),
    /// The store has to stop.
    Broken(String),
}

impl From<StorageError> for StageError {
    fn from(error: StorageError) -> Self {
        Self::Refused(error)
    }
}

/// What a key held.
enum Displaced {
    Nothing,
    /// A row whose value has expired.
    Expired,
    Live,
}

/// A row with purged records, and the row of those that it has beside them.
type PurgedRow = (Vec<u8>, Option<(Vec<u8>, IVec)>);

/// What is known of what is stored, and the write in the making.
pub(super) struct Staging {
    pub(super) rows: RowBatch,
    progress: Progress,
    heads: Recent<Key, StreamHead>,
    /// Revisions of values that are a row and nothing else: no expiry, no payload file. Replacing one needs no look at it.
    plain: Recent<Key, Revision>,
    changes: Vec<storage::Change>,
    /// Whether records were purged since the young layer has become the old one.
    has_purged: bool,
    pub(super) sessions: Sessions,
}

impl Staging {
    pub(super) fn new(rows: RowBatch, progress: Progress) -> Self {
        let (heads, plain) = (Recent::new(HEADS), Recent::new(VALUES));
        Self { rows, progress, heads, plain, changes: Vec::new(), has_purged: false, sessions: Sessions::default() }
    }

    /// Decides about a change and stages it.
    pub(super) fn stage(&mut self, change: Change, now: Timestamp) -> Result<u64, StageError> {
        self.rows.forget_absent();
        match change {
            Change::Append(append) => self.append(append, now),
            Change::Purge { stream, up_to } => self.purge(&stream, up_to),
            Change::Put(put) => self.put(put, now),
            Change::Delete(delete) => self.delete(delete, now),
            Change::BeginSession(new, now) => {
                let id = SessionId(self.next_number());
                Ok(self.sessions.begin(id, new, now)?.0)
            }
            Change::ResumeSession(id, new, now) => Ok(self.sessions.resume(id, new, now).map(|()| 0)?),
            Change::RenewSession(id, about, now) => Ok(self.sessions.renew(id, about, now).map(|()| 0)?),
            Change::EndSession { id, only_if_expired, now } => {
                Ok(self.sessions.end(id, only_if_expired, now).map(|()| 0)?)
            }
            Change::ForgetSession(id) => {
                self.sessions.forget(id);
                Ok(0)
            }
        }
    }

    fn append(&mut self, append: Append, now: Timestamp) -> Result<u64, StageError> {
        let Append { stream, expected, payload, durability: _, session, riders } = append;
        self.sessions.check(session)?;
        // What could refuse a rider comes before the append is admitted.
        for Rider::Put { key, .. } | Rider::Delete { key } in &riders {
            self.value_row(key, &rows::value(key))?;
        }
        let sequence = self.head(&stream)?.append(&stream, expected)?;
        let row = rows::record(&stream, sequence);
        self.rows.hold(row, 0, None, &payload).map_err(StageError::Broken)?;
        for rider in riders {
            self.ride(rider, now).map_err(|error| match error {
                StageError::Refused(error) => StageError::Broken(error.to_string()),
                broken @ StageError::Broken(_) => broken,
            })?;
        }
        Ok(sequence)
    }

    /// Stages what rides on an append.
    fn ride(&mut self, rider: Rider, now: Timestamp) -> Result<(), StageError> {
        match rider {
            Rider::Put { key, value, ttl_secs } => {
                let row = rows::value(&key);
                self.displace(&key, &row, Expected::Any, now)?;
                self.replace(key, row, value, expiry_of(ttl_secs, now))?;
            }
            Rider::Delete { key } => {
                let row = rows::value(&key);
                match self.displace(&key, &row, Expected::Any, now)? {
                    Displaced::Nothing => {}
                    Displaced::Expired => self.rows.write(row, None),
                    Displaced::Live => self.remove(key, row),
                }
            }
        }
        Ok(())
    }

    fn purge(&mut self, stream: &Key, up_to: Sequence) -> Result<u64, StageError> {
        let mut head = *self.head(stream)?;
        let removed = head.purge(up_to);
        if removed.is_empty() {
            return Ok(0);
        }
        let is_all = head == StreamHead::default();
        for (row, rest) in self.rows_to_purge(stream, removed.clone(), is_all)? {
            self.rows.remove(row).map_err(StageError::Broken)?;
            if let Some((row, sealed)) = rest {
                self.rows.write(row, Some(sealed));
            }
        }
        self.has_purged = true;
        *self.head(stream)? = head;
        Ok(0)
    }

    /// The rows of a stream's first records up to one, each with the row of the records after that which it has as well.
    fn rows_to_purge(
        &self,
        stream: &Key,
        purged: RangeInclusive<Sequence>,
        is_all: bool,
    ) -> Result<Vec<PurgedRow>, StorageError> {
        let (first, last) = purged.into_inner();
        let mut found = Vec::new();
        let read = self.rows.stored().scan_at_once(rows::records(stream, first, last), |row, sealed| {
            let begins = rows::number_of(row).unwrap_or(first);
            let rest = match PayloadRow::unseal(row, sealed) {
                Ok(PayloadRow { content: Content::Records(records), .. }) => {
                    (last + 1).checked_sub(begins).and_then(|count| records.after(count))
                }
                Ok(_) => None,
                // It may have records that are to stay.
                Err(error) if !is_all => return Err(error.into()),
                Err(_) => None,
            };
            let rest = rest.map(|records| {
                let row = rows::record(stream, last + 1);
                let content = Content::Records(records);
                let sealed = PayloadRow { revision: 0, expires_at: None, content }.seal(&row);
                (row, sealed)
            });
            found.push((row.to_vec(), rest));
            Ok(true)
        });
        read.map_err(|error| error.of(stream))?;
        Ok(found)
    }

    fn put(&mut self, put: Put, now: Timestamp) -> Result<u64, StageError> {
        let Put { key, value, expected, ttl_secs, durability: _, session } = put;
        self.sessions.check(session)?;
        let row = rows::value(&key);
        self.displace(&key, &row, expected, now)?;
        self.replace(key, row, value, expiry_of(ttl_secs, now))
    }

    /// Stages a value in place of what was displaced.
    fn replace(
        &mut self,
        key: Key,
        row: Vec<u8>,
        value: Arc<[u8]>,
        expires_at: Option<Timestamp>,
    ) -> Result<u64, StageError> {
        let revision = self.next_number();
        if let Some(moment) = expires_at {
            self.rows.expire(moment, &row);
        }
        let is_inline = self.rows.hold(row, revision, expires_at, &value).map_err(StageError::Broken)?;
        if is_inline && expires_at.is_none() {
            self.plain.insert(key.clone(), revision);
        } else {
            self.plain.remove(&key);
        }
        self.changes.push(storage::Change::Put(key, Entry { value, revision, expires_at }));
        Ok(revision)
    }

    fn delete(&mut self, delete: Delete, now: Timestamp) -> Result<u64, StageError> {
        let Delete { key, revision, durability: _, session } = delete;
        self.sessions.check(session)?;
        let row = rows::value(&key);
        self.displace(&key, &row, Expected::Revision(revision), now)?;
        self.remove(key, row);
        Ok(0)
    }

    /// Stages the removal of what was displaced.
    fn remove(&mut self, key: Key, row: Vec<u8>) {
        self.rows.write(row, None);
        self.plain.remove(&key);
        self.changes.push(storage::Change::Deleted(key));
    }

    /// The row of a value; `None` also for one that is remembered to be a row and nothing else.
    fn value_row(&mut self, key: &Key, row: &[u8]) -> Result<Option<IVec>, StorageError> {
        if self.plain.get(key).is_some() {
            return Ok(None);
        }
        let sealed = self.rows.row(row).map_err(|error| error.of(key))?;
        let unsealed = sealed.as_deref().map(|sealed| PayloadRow::unseal(row, sealed)).transpose();
        unsealed.map_err(|detail| ReadError::Damaged(detail).of(key))?;
        Ok(sealed)
    }

    /// Checks what a key holds, and forgets what was noted because of it. The caller replaces or removes the row.
    fn displace(
        &mut self,
        key: &Key,
        row: &[u8],
        expected: Expected,
        now: Timestamp,
    ) -> Result<Displaced, StorageError> {
        if let Some(revision) = self.plain.get(key) {
            return expected.check(key, Some(*revision)).map(|()| Displaced::Live);
        }
        let sealed = self.value_row(key, row)?;
        let payload_row = sealed.as_deref().and_then(|sealed| PayloadRow::unseal(row, sealed).ok());
        let live = payload_row.as_ref().filter(|value| value.expires_at.is_none_or(|moment| now < moment));
        expected.check(key, live.map(|value| value.revision))?;
        if let Some(payload_row) = &payload_row {
            self.rows.forget_notes(row, payload_row);
        }
        Ok(match (&payload_row, live) {
            (None, _) => Displaced::Nothing,
            (Some(_), None) => Displaced::Expired,
            (Some(_), Some(_)) => Displaced::Live,
        })
    }

    fn next_number(&mut self) -> u64 {
        self.progress.last_number += 1;
        self.progress.last_number
    }

    // Heads.

    fn head(&mut self, stream: &Key) -> Result<&mut StreamHead, StorageError> {
        let Self { rows, heads, .. } = self;
        remembered(heads, stream, || rows.head(stream))
    }

    // The end of a write.

    /// Makes the write, where readers see it. Whether anything has changed, and the changes to publish.
    pub(super) fn apply(&mut self) -> (bool, Vec<storage::Change>) {
        (self.rows.apply(), std::mem::take(&mut self.changes))
    }

    /// The writes since the last sync, and the progress with the next one. With `ages`, the young layer becomes the old one.
    pub(super) fn begin_sync(&mut self, ages: bool) -> (Unwritten, Progress) {
        self.heads.turn();
        self.plain.turn();
        self.progress.sync += 1;
        if ages {
            self.age();
        }
        (self.rows.take_unwritten(), self.progress)
    }

    /// Has the young layer become the old one; returns how far the log has got.
    pub(super) fn age(&mut self) -> Progress {
        self.rows.age();
        self.has_purged = false;
        self.progress
    }

    /// Whether records were purged since the young layer has become the old one.
    pub(super) fn has_purged(&self) -> bool {
        self.has_purged
    }
}

fn expiry_of(ttl_secs: Option<u64>, now: Timestamp) -> Option<Timestamp> {
    ttl_secs.map(|secs| now + Duration::from_secs(secs))
}
