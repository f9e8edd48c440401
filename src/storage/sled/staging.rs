//! One batch in the making: every request is decided here, against what is stored and what the batch already holds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sled::{Batch, IVec, Tree};

use super::disk::Disk;
use super::payloads::{MAX_INLINE, PayloadName, Payloads};
use super::recent::Recent;
use super::rows::{self, Content, HeadRow, Holding, ItemRow, Progress};
use super::writes::Change;
use crate::messages::Timestamp;
use crate::storage::codec;
use crate::storage::queue_order::{Item, QueueOrder};
use crate::storage::stream_head::StreamHead;
use crate::storage::{
    self as storage, Append, Delivery, DeliveryId, Entry, Expected, Fence, Key, Put, Sequence, StorageError,
};

/// Streams and queues whose state the writer remembers.
const HEADS: usize = 65_536;
const QUEUES: usize = 4_096;

/// Expired rows that one batch removes at most.
const SWEEP: usize = 64;

/// Why a request does not go ahead.
pub(super) enum Trouble {
    /// The caller is told and the store goes on.
    Refused(StorageError),
    /// The store cannot go on.
    Broken(String),
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Self {
        Self::Refused(error)
    }
}

/// The writer's knowledge of what is stored, and the batch in the making.
pub(super) struct Staging {
    tree: Tree,
    payloads: Payloads,
    progress: Progress,
    heads: Recent<Key, StreamHead>,
    queues: Recent<Key, QueueOrder>,
    /// Rows that this batch changes; `None` removes.
    rows: HashMap<IVec, Option<IVec>>,
    bytes: usize,
    changes: Vec<(Key, storage::Change)>,
    /// Whether this batch wrote payload files.
    new_payloads: bool,
    /// Files that may have lost their last reference.
    loose_payloads: Vec<PayloadName>,
    /// No row expires before this.
    next_expiry: Timestamp,
}

impl Staging {
    pub(super) fn new(tree: Tree, payloads: Payloads, progress: Progress) -> Self {
        Self {
            tree,
            payloads,
            progress,
            heads: Recent::new(HEADS),
            queues: Recent::new(QUEUES),
            rows: HashMap::new(),
            bytes: 0,
            changes: Vec::new(),
            new_payloads: false,
            loose_payloads: Vec::new(),
            next_expiry: Timestamp::default(),
        }
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn payloads(&self) -> &Payloads {
        &self.payloads
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Bytes that the batch holds in memory so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decides about a change and stages it.
    pub(super) fn stage(&mut self, change: Change, now: Timestamp, disk: &mut dyn Disk) -> Result<u64, Trouble> {
        match change {
            Change::Append(append) => self.append(append, disk),
            Change::Purge { stream, up_to } => self.purge(&stream, up_to, now),
            Change::Put(put) => self.put(put, now, disk),
            Change::Delete { key, revision, durability: _ } => self.delete(key, revision, now),
            Change::Claim { stream, owner, ttl_secs } => {
                let fence = Fence(self.next_number());
                self.decide(&stream, |head| head.claim(&stream, &owner, ttl_secs, fence, now).map(|fence| fence.0))
            }
            Change::Renew { stream, fence, ttl_secs } => {
                self.decide(&stream, |head| head.renew(&stream, fence, ttl_secs, now).map(|()| 0))
            }
            Change::Release { stream, fence } => {
                self.decide(&stream, |head| head.release(&stream, fence, now).map(|()| 0))
            }
            Change::Enqueue { queue, dedupe_id, payload, durability: _ } => {
                self.enqueue(&queue, &dedupe_id, &payload, now, disk)
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

    fn append(&mut self, append: Append, disk: &mut dyn Disk) -> Result<u64, Trouble> {
        let Append { stream, fence, expected, payload, durability: _ } = append;
        let sequence = self.head(&stream)?.append(&stream, fence, expected)?;
        let row = rows::record(&stream, sequence);
        self.hold(row, 0, None, &payload, disk)?;
        Ok(sequence)
    }

    fn purge(&mut self, stream: &Key, up_to: Sequence, now: Timestamp) -> Result<u64, Trouble> {
        let removed = self.head(stream)?.purge(up_to, now);
        for sequence in removed {
            self.let_go(rows::record(stream, sequence)).map_err(Trouble::Broken)?;
        }
        self.write_head(stream)?;
        Ok(0)
    }

    fn put(&mut self, put: Put, now: Timestamp, disk: &mut dyn Disk) -> Result<u64, Trouble> {
        let Put { key, value, expected, ttl_secs, durability: _ } = put;
        let row = rows::value(&key);
        self.check_value(&key, &row, expected, now)?;
        self.let_go(row.clone()).map_err(Trouble::Broken)?;
        let expires_at = ttl_secs.map(|secs| now + Duration::from_secs(secs));
        let revision = self.next_number();
        if let Some(moment) = expires_at {
            self.expire(moment, &row);
        }
        self.hold(row, revision, expires_at, &value, disk)?;
        let entry = Entry { value, revision, expires_at };
        self.changes.push((key.clone(), storage::Change::Put(key, entry)));
        Ok(revision)
    }

    fn delete(&mut self, key: Key, revision: u64, now: Timestamp) -> Result<u64, Trouble> {
        let row = rows::value(&key);
        self.check_value(&key, &row, Expected::Revision(revision), now)?;
        self.let_go(row).map_err(Trouble::Broken)?;
        self.changes.push((key.clone(), storage::Change::Deleted(key)));
        Ok(0)
    }

    fn check_value(&self, key: &Key, row: &[u8], expected: Expected, now: Timestamp) -> Result<(), StorageError> {
        let sealed = self.row(row).map_err(|detail| corrupt(key, detail))?;
        let holding = sealed.as_deref().map(|sealed| Holding::unseal(row, sealed)).transpose();
        let holding = holding.map_err(|detail| corrupt(key, detail))?;
        let live = holding.filter(|value| value.expires_at.is_none_or(|moment| now < moment));
        expected.check(key, live.map(|value| value.revision))
    }

    fn enqueue(
        &mut self,
        queue: &Key,
        dedupe_id: &str,
        payload: &[u8],
        now: Timestamp,
        disk: &mut dyn Disk,
    ) -> Result<u64, Trouble> {
        let position = self.next_number();
        let order = self.queue(queue)?;
        order.forget_ids(now);
        if let Some(until) = order.first_sight(dedupe_id, now) {
            order.insert(position, Item::default());
            let dedupe = rows::dedupe(queue, dedupe_id);
            self.expire(until, &dedupe);
            let sealed = rows::seal(&dedupe, &[&until.as_millis().to_le_bytes()]);
            self.write(dedupe, Some(sealed));
            self.hold(rows::item(queue, position), 0, None, payload, disk)?;
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
        let payload = self.payload(&rows::item(queue, position)).map_err(|detail| corrupt(queue, detail))?;
        let id = DeliveryId { queue: queue.clone(), position, delivery: item.deliveries };
        Ok(Some(Delivery { id, payload, deliveries: item.deliveries }))
    }

    fn ack(&mut self, delivery: &DeliveryId) -> Result<u64, Trouble> {
        if self.queue(&delivery.queue)?.ack(delivery)? {
            self.let_go(rows::item(&delivery.queue, delivery.position)).map_err(Trouble::Broken)?;
            self.write(rows::item_state(&delivery.queue, delivery.position), None);
        }
        Ok(0)
    }

    fn next_number(&mut self) -> u64 {
        self.progress.last_number += 1;
        self.progress.last_number
    }

    // Heads and queues.

    fn head(&mut self, stream: &Key) -> Result<&mut StreamHead, StorageError> {
        let Self { tree, heads, progress, .. } = self;
        heads
            .get_or_load(stream, || load_head(tree, stream, progress.session).map_err(|detail| corrupt(stream, detail)))
    }

    fn decide(
        &mut self,
        stream: &Key,
        decision: impl FnOnce(&mut StreamHead) -> Result<u64, StorageError>,
    ) -> Result<u64, Trouble> {
        let decided = decision(self.head(stream)?)?;
        self.write_head(stream)?;
        Ok(decided)
    }

    /// Stores of a head what the stream's records do not say.
    fn write_head(&mut self, stream: &Key) -> Result<(), Trouble> {
        let session = self.progress.session;
        let head = self.head(stream)?;
        let claimed = head.fence != Fence::FIRST;
        let stored = claimed.then(|| IVec::from(codec::encode(&HeadRow::new(head, session))));
        let row = rows::head(stream);
        // Most streams are never claimed and have no such row to remove.
        if claimed || self.row(&row).map_err(|detail| corrupt(stream, detail))?.is_some() {
            self.write(row, stored);
        }
        Ok(())
    }

    fn queue(&mut self, queue: &Key) -> Result<&mut QueueOrder, StorageError> {
        let Self { tree, queues, progress, .. } = self;
        queues.get_or_load(queue, || load_queue(tree, queue, progress.session).map_err(|detail| corrupt(queue, detail)))
    }

    fn write_item_state(&mut self, queue: &Key, position: Sequence, item: Item) {
        let state = codec::encode(&ItemRow::new(item, self.progress.session));
        self.write(rows::item_state(queue, position), Some(IVec::from(state)));
    }

    // Rows.

    /// A row as the batch leaves it.
    fn row(&self, row: &[u8]) -> Result<Option<IVec>, String> {
        match self.rows.get(row) {
            Some(staged) => Ok(staged.clone()),
            None => self.tree.get(row).map_err(|error| error.to_string()),
        }
    }

    fn write(&mut self, row: Vec<u8>, sealed: Option<IVec>) {
        self.bytes += row.len() + sealed.as_ref().map_or(0, |sealed| sealed.len());
        self.rows.insert(IVec::from(row), sealed);
    }

    /// Stores a caller's bytes under a row.
    fn hold(
        &mut self,
        row: Vec<u8>,
        revision: u64,
        expires_at: Option<Timestamp>,
        bytes: &[u8],
        disk: &mut dyn Disk,
    ) -> Result<(), Trouble> {
        let content = if bytes.len() <= MAX_INLINE {
            Content::Inline(bytes)
        } else {
            let written = self.payloads.write(disk, bytes);
            let name =
                written.map_err(|error| Trouble::Broken(format!("a payload file cannot be written: {error}")))?;
            self.new_payloads = true;
            self.write(rows::payload_use(&name, &row), Some(IVec::default()));
            Content::File(name)
        };
        let sealed = Holding { revision, expires_at, content }.seal(&row);
        self.write(row, Some(sealed));
        Ok(())
    }

    /// Removes a row with a caller's bytes, and all that was noted because of it.
    fn let_go(&mut self, row: Vec<u8>) -> Result<(), String> {
        let Some(sealed) = self.row(&row)? else { return Ok(()) };
        // A damaged row cannot say what belongs to it; its payload file is removed when the store is opened.
        if let Ok(holding) = Holding::unseal(&row, &sealed) {
            if let Some(moment) = holding.expires_at {
                self.write(rows::expiry(moment, &row), None);
            }
            if let Content::File(name) = holding.content {
                self.write(rows::payload_use(&name, &row), None);
                self.loose_payloads.push(name);
            }
        }
        self.write(row, None);
        Ok(())
    }

    fn payload(&self, row: &[u8]) -> Result<Arc<[u8]>, String> {
        let sealed = self.row(row)?.ok_or("its row is missing")?;
        match Holding::unseal(row, &sealed)?.content {
            Content::Inline(bytes) => Ok(bytes.into()),
            Content::File(name) => self.payloads.read(&name),
        }
    }

    fn expire(&mut self, moment: Timestamp, row: &[u8]) {
        self.next_expiry = self.next_expiry.min(moment);
        self.write(rows::expiry(moment, row), Some(IVec::default()));
    }

    /// Removes some rows that have expired.
    pub(super) fn sweep(&mut self, now: Timestamp) -> Result<(), String> {
        if now < self.next_expiry {
            return Ok(());
        }
        self.next_expiry = Timestamp::from_millis(u64::MAX);
        let noted: Vec<_> = self.tree.scan_prefix([rows::EXPIRY]).keys().take(SWEEP).collect();
        if noted.len() == SWEEP {
            self.next_expiry = now;
        }
        for note in noted {
            let note = note.map_err(|error| error.to_string())?;
            let Some((moment, row)) = rows::parse_expiry(&note) else { continue };
            if now < moment {
                self.next_expiry = moment;
                break;
            }
            // The batch may have replaced the value, and with it this note.
            if self.row(&note)?.is_some() {
                self.let_go(row.to_vec())?;
                self.write(note.to_vec(), None);
            }
        }
        Ok(())
    }

    // The end of a batch.

    /// The batch, if anything has changed, and the changes to publish.
    pub(super) fn finish(&mut self, even_if_empty: bool) -> (Option<Batch>, Vec<(Key, storage::Change)>) {
        self.bytes = 0;
        self.heads.turn();
        self.queues.turn();
        let changes = std::mem::take(&mut self.changes);
        if self.rows.is_empty() && !even_if_empty {
            return (None, changes);
        }
        self.progress.commit += 1;
        let mut batch = Batch::default();
        for (row, sealed) in self.rows.drain() {
            match sealed {
                Some(sealed) => batch.insert(row, sealed),
                None => batch.remove(row),
            }
        }
        batch.insert(rows::PROGRESS, codec::encode(&self.progress));
        (Some(batch), changes)
    }

    /// Whether the batch wrote payload files whose names are not durable yet.
    pub(super) fn take_new_payloads(&mut self) -> bool {
        std::mem::take(&mut self.new_payloads)
    }

    /// Removes payload files that nothing refers to any more. Only after a sync: until then a crash brings the rows back.
    pub(super) fn remove_loose_payloads(&mut self) {
        for name in std::mem::take(&mut self.loose_payloads) {
            if !is_used(&self.tree, &name) {
                self.payloads.remove(&name);
            }
        }
    }
}

/// Whether a row refers to a payload file; in doubt it does.
pub(super) fn is_used(tree: &Tree, name: &PayloadName) -> bool {
    tree.scan_prefix(rows::payload_uses(name)).next().is_some()
}

pub(super) fn corrupt(key: &Key, detail: impl Into<String>) -> StorageError {
    StorageError::Corrupt { key: key.clone(), detail: detail.into() }
}

fn load_head(tree: &Tree, stream: &Key, session: u64) -> Result<StreamHead, String> {
    let stored = tree.get(rows::head(stream)).map_err(|error| error.to_string())?;
    let stored = stored.map(|row| codec::decode::<HeadRow>(&row)).transpose().map_err(|error| error.to_string())?;
    let mut records = tree.range(rows::record(stream, 0)..=rows::record(stream, u64::MAX)).keys();
    let sequence = |row: sled::Result<IVec>| {
        row.map_err(|error| error.to_string()).and_then(|row| rows::number_of(&row).ok_or("a row has no number".into()))
    };
    let first = records.next().map(sequence).transpose()?;
    let last = records.next_back().map(sequence).transpose()?;
    Ok(HeadRow::head(stored, first.map(|first| (first, last.unwrap_or(first))), session))
}

fn load_queue(tree: &Tree, queue: &Key, session: u64) -> Result<QueueOrder, String> {
    let mut order = QueueOrder::default();
    for row in tree.scan_prefix(rows::items(queue)).keys() {
        let row = row.map_err(|error| error.to_string())?;
        let position = rows::number_of(&row).ok_or("a row has no number")?;
        let state = tree.get(rows::item_state(queue, position)).map_err(|error| error.to_string())?;
        let item = match state {
            Some(state) => codec::decode::<ItemRow>(&state).map_err(|error| error.to_string())?.item(session),
            None => Item::default(),
        };
        order.insert(position, item);
    }
    let prefix = rows::dedupes(queue);
    let mut ids = Vec::new();
    for row in tree.scan_prefix(&prefix) {
        let (row, sealed) = row.map_err(|error| error.to_string())?;
        let until = rows::unseal(&row, &sealed)?;
        let until = u64::from_le_bytes(until.try_into().map_err(|_| "a dedupe id has no date")?);
        ids.push((Timestamp::from_millis(until), String::from_utf8_lossy(&row[prefix.len()..]).into_owned()));
    }
    ids.sort();
    ids.into_iter().for_each(|(until, id)| order.remember(id.into(), until));
    Ok(order)
}
