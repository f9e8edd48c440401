//! One batch in the making: every request is decided here, against what is stored and what the batch already holds.

use std::time::Duration;

use sled::IVec;

use super::loading::{load_head, load_queue, remembered};
use super::read_error::ReadError;
use super::row_batch::RowBatch;
use super::rows::{self, HeadRow, ItemRow, PayloadRow, Progress};
use super::writes::Change;
use crate::messages::Timestamp;
use crate::storage::codec;
use crate::storage::queue_order::{Item, QueueOrder};
use crate::storage::recent::Recent;
use crate::storage::stream_head::StreamHead;
use crate::storage::{
    self as storage, Append, Delivery, DeliveryId, Entry, Expected, Fence, Key, Put, Revision, Sequence, StorageError,
};

/// Streams, queues and values whose state the writer remembers.
const HEADS: usize = 65_536;
const QUEUES: usize = 4_096;
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

/// The writer's knowledge of what is stored, and the batch in the making.
pub(super) struct Staging {
    pub(super) rows: RowBatch,
    progress: Progress,
    heads: Recent<Key, StreamHead>,
    queues: Recent<Key, QueueOrder>,
    /// Revisions of values that are a row and nothing else: no expiry, no payload file. Replacing one needs no look at it.
    plain: Recent<Key, Revision>,
    changes: Vec<(Key, storage::Change)>,
}

impl Staging {
    pub(super) fn new(rows: RowBatch, progress: Progress) -> Self {
        let (heads, queues, plain) = (Recent::new(HEADS), Recent::new(QUEUES), Recent::new(VALUES));
        Self { rows, progress, heads, queues, plain, changes: Vec::new() }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Decides about a change and stages it.
    pub(super) fn stage(&mut self, change: Change, now: Timestamp) -> Result<u64, StageError> {
        match change {
            Change::Append(append) => self.append(append),
            Change::Purge { stream, up_to } => self.purge(&stream, up_to, now),
            Change::Put(put) => self.put(put, now),
            Change::Delete { key, revision, durability: _ } => self.delete(key, revision, now),
            Change::Claim { stream, owner, ttl_secs } => {
                let fence = Fence(self.next_number());
                self.update_head(&stream, |head| head.claim(&stream, &owner, ttl_secs, fence, now).map(|fence| fence.0))
            }
            Change::Renew { stream, fence, ttl_secs } => {
                self.update_head(&stream, |head| head.renew(&stream, fence, ttl_secs, now).map(|()| 0))
            }
            Change::Release { stream, fence } => {
                self.update_head(&stream, |head| head.release(&stream, fence, now).map(|()| 0))
            }
            Change::Enqueue { queue, dedupe_id, payload, durability: _ } => {
                self.enqueue(&queue, &dedupe_id, &payload, now)
            }
            Change::Extend { delivery, lease_secs } => {
                let item = self.queue(&delivery.queue)?.extend(&delivery, lease_secs, now)?;
                self.write_item_state(&delivery.queue, delivery.position, item);
                Ok(0)
            }
            Change::Ack { delivery } => self.ack(&delivery),
            Change::Nack { delivery, delay_secs } => {
                let item = self.queue(&delivery.queue)?.nack(&delivery, delay_secs, now)?;
                self.write_item_state(&delivery.queue, delivery.position, item);
                Ok(0)
            }
        }
    }

    fn append(&mut self, append: Append) -> Result<u64, StageError> {
        let Append { stream, fence, expected, payload, durability: _ } = append;
        let sequence = self.head(&stream)?.append(&stream, fence, expected)?;
        let row = rows::record(&stream, sequence);
        self.rows.hold(row, 0, None, &payload).map_err(StageError::Broken)?;
        Ok(sequence)
    }

    fn purge(&mut self, stream: &Key, up_to: Sequence, now: Timestamp) -> Result<u64, StageError> {
        let removed = self.head(stream)?.purge(up_to, now);
        for sequence in removed {
            self.rows.remove(rows::record(stream, sequence)).map_err(StageError::Broken)?;
        }
        self.write_head(stream)?;
        Ok(0)
    }

    fn put(&mut self, put: Put, now: Timestamp) -> Result<u64, StageError> {
        let Put { key, value, expected, ttl_secs, durability: _ } = put;
        let row = rows::value(&key);
        self.displace(&key, &row, expected, now)?;
        let expires_at = ttl_secs.map(|secs| now + Duration::from_secs(secs));
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
        let entry = Entry { value, revision, expires_at };
        self.changes.push((key.clone(), storage::Change::Put(key, entry)));
        Ok(revision)
    }

    fn delete(&mut self, key: Key, revision: u64, now: Timestamp) -> Result<u64, StageError> {
        let row = rows::value(&key);
        self.displace(&key, &row, Expected::Revision(revision), now)?;
        self.rows.write(row, None);
        self.plain.remove(&key);
        self.changes.push((key.clone(), storage::Change::Deleted(key)));
        Ok(0)
    }

    /// Checks what a key holds, and forgets what was noted because of it. The caller replaces or removes the row.
    fn displace(&mut self, key: &Key, row: &[u8], expected: Expected, now: Timestamp) -> Result<(), StorageError> {
        if let Some(revision) = self.plain.get(key) {
            return expected.check(key, Some(*revision));
        }
        let sealed = self.rows.row(row).map_err(|error| error.of(key))?;
        let payload_row = sealed.as_deref().map(|sealed| PayloadRow::unseal(row, sealed)).transpose();
        let payload_row = payload_row.map_err(|detail| ReadError::Damaged(detail).of(key))?;
        let live = payload_row.as_ref().filter(|value| value.expires_at.is_none_or(|moment| now < moment));
        expected.check(key, live.map(|value| value.revision))?;
        if let Some(payload_row) = payload_row {
            self.rows.forget_notes(row, &payload_row);
        }
        Ok(())
    }

    fn enqueue(&mut self, queue: &Key, dedupe_id: &str, payload: &[u8], now: Timestamp) -> Result<u64, StageError> {
        let position = self.next_number();
        let order = self.queue(queue)?;
        order.forget_ids(now);
        if let Some(until) = order.first_sight(dedupe_id, now) {
            order.insert(position, Item::default());
            let dedupe = rows::dedupe(queue, dedupe_id);
            self.rows.expire(until, &dedupe);
            let sealed = rows::seal(&dedupe, &[&until.as_millis().to_le_bytes()]);
            self.rows.write(dedupe, Some(sealed));
            self.rows.hold(rows::item(queue, position), 0, None, payload).map_err(StageError::Broken)?;
        }
        Ok(0)
    }

    /// Delivers the next item of a queue.
    pub(super) fn next(
        &mut self,
        queue: &Key,
        lease_secs: u64,
        now: Timestamp,
    ) -> Result<Option<Delivery>, StorageError> {
        let order = self.queue(queue)?;
        order.forget_ids(now);
        let Some((position, item)) = order.next(lease_secs, now) else { return Ok(None) };
        self.write_item_state(queue, position, item);
        let payload = self.rows.payload(&rows::item(queue, position)).map_err(|error| error.of(queue))?;
        let id = DeliveryId { queue: queue.clone(), position, delivery: item.deliveries };
        Ok(Some(Delivery { id, payload, deliveries: item.deliveries }))
    }

    fn ack(&mut self, delivery: &DeliveryId) -> Result<u64, StageError> {
        if self.queue(&delivery.queue)?.ack(delivery)? {
            self.rows.remove(rows::item(&delivery.queue, delivery.position)).map_err(StageError::Broken)?;
            self.rows.write(rows::item_state(&delivery.queue, delivery.position), None);
        }
        Ok(0)
    }

    fn next_number(&mut self) -> u64 {
        self.progress.last_number += 1;
        self.progress.last_number
    }

    // Heads and queues.

    fn head(&mut self, stream: &Key) -> Result<&mut StreamHead, StorageError> {
        let Self { rows, heads, progress, .. } = self;
        remembered(heads, stream, || load_head(rows.tree(), stream, progress.session))
    }

    fn update_head(
        &mut self,
        stream: &Key,
        decision: impl FnOnce(&mut StreamHead) -> Result<u64, StorageError>,
    ) -> Result<u64, StageError> {
        let decided = decision(self.head(stream)?)?;
        self.write_head(stream)?;
        Ok(decided)
    }

    /// Stores the part of a head that cannot be derived from the stream's records.
    fn write_head(&mut self, stream: &Key) -> Result<(), StageError> {
        let session = self.progress.session;
        let head = self.head(stream)?;
        let claimed = head.fence != Fence::FIRST;
        let stored = claimed.then(|| IVec::from(codec::encode(&HeadRow::new(head, session))));
        let row = rows::head(stream);
        // Most streams are never claimed and have no such row to remove; one that cannot be read is removed.
        if claimed || !matches!(self.rows.row(&row), Ok(None)) {
            self.rows.write(row, stored);
        }
        Ok(())
    }

    fn queue(&mut self, queue: &Key) -> Result<&mut QueueOrder, StorageError> {
        let Self { rows, queues, progress, .. } = self;
        remembered(queues, queue, || load_queue(rows.tree(), queue, progress.session))
    }

    fn write_item_state(&mut self, queue: &Key, position: Sequence, item: Item) {
        let state = codec::encode(&ItemRow::new(item, self.progress.session));
        self.rows.write(rows::item_state(queue, position), Some(IVec::from(state)));
    }

    // The end of a batch.

    /// Applies the batch to the tree, where readers see it. Whether anything has changed, and the changes to publish.
    pub(super) fn apply(&mut self) -> sled::Result<(bool, Vec<(Key, storage::Change)>)> {
        self.heads.turn();
        self.queues.turn();
        self.plain.turn();
        let changes = std::mem::take(&mut self.changes);
        Ok((self.rows.apply()?, changes))
    }

    /// Writes the progress row after everything applied so far: a log that has this row has what comes before it.
    pub(super) fn write_progress(&mut self) -> sled::Result<()> {
        self.progress.sync += 1;
        self.rows.tree().insert(rows::PROGRESS, codec::encode(&self.progress)).map(drop)
    }
}
