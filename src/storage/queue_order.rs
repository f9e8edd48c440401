//! The rules of one queue: who gets which item, for how long, and which enqueues are repeats. Pure; every store asks
//! here and keeps the payloads itself.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{DeliveryId, Sequence, StorageError};
use crate::messages::Timestamp;

/// How long a queue remembers a dedupe id.
pub(crate) const DEDUPE_WINDOW: Duration = Duration::from_secs(120);

/// What a queue knows of an item besides its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// How often it was delivered.
    pub(crate) deliveries: u32,
    /// Not delivered before this; `None` means at once.
    pub(crate) not_before: Option<Timestamp>,
    /// Whether the last delivery still holds it (its lease may have run out).
    pub(crate) held: bool,
}

/// Items in order, and the dedupe ids of the last two minutes.
#[derive(Debug, Default)]
pub(crate) struct QueueOrder {
    items: BTreeMap<Sequence, Item>,
    ready: BTreeSet<Sequence>,
    /// Items by the moment from which they may be delivered (again).
    later: BTreeSet<(Timestamp, Sequence)>,
    seen: HashMap<Arc<str>, Timestamp>,
    /// Dedupe ids by the moment they are forgotten.
    forget: VecDeque<(Timestamp, Arc<str>)>,
}

impl QueueOrder {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.seen.is_empty()
    }

    /// Forgets the dedupe ids whose window is over and returns them.
    pub(crate) fn forget_ids(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        let mut forgotten = Vec::new();
        while self.forget.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, id)) = self.forget.pop_front() {
                self.seen.remove(&id);
                forgotten.push(id);
            }
        }
        forgotten
    }

    /// Remembers a dedupe id; `None` if the queue has seen it within the window, else when it will be forgotten.
    pub(crate) fn first_sight(&mut self, dedupe_id: &str, now: Timestamp) -> Option<Timestamp> {
        if self.seen.contains_key(dedupe_id) {
            return None;
        }
        let until = now + DEDUPE_WINDOW;
        self.remember(dedupe_id.into(), until);
        Some(until)
    }

    /// Puts back a dedupe id that was stored. Ids come in the order in which they are forgotten.
    pub(crate) fn remember(&mut self, dedupe_id: Arc<str>, until: Timestamp) {
        self.seen.insert(Arc::clone(&dedupe_id), until);
        self.forget.push_back((until, dedupe_id));
    }

    /// Adds an item, or puts back one that was stored.
    pub(crate) fn insert(&mut self, position: Sequence, item: Item) {
        self.items.insert(position, item);
        match item.not_before {
            Some(moment) => drop(self.later.insert((moment, position))),
            None => drop(self.ready.insert(position)),
        }
    }

    /// Delivers the oldest item that is not leased.
    pub(crate) fn next(&mut self, lease_secs: u64, now: Timestamp) -> Option<(Sequence, Item)> {
        while let Some(&(moment, position)) = self.later.first().filter(|(moment, _)| *moment <= now) {
            self.later.remove(&(moment, position));
            self.ready.insert(position);
        }
        let position = self.ready.pop_first()?;
        let item = self.items.get_mut(&position)?;
        let until = now + Duration::from_secs(lease_secs);
        *item = Item { deliveries: item.deliveries.saturating_add(1), not_before: Some(until), held: true };
        self.later.insert((until, position));
        Some((position, *item))
    }

    /// Holds a delivered item for longer.
    pub(crate) fn extend(
        &mut self,
        delivery: &DeliveryId,
        lease_secs: u64,
        now: Timestamp,
    ) -> Result<Item, StorageError> {
        self.postpone(delivery, now + Duration::from_secs(lease_secs), true)
    }

    /// Gives a delivered item back.
    pub(crate) fn nack(
        &mut self,
        delivery: &DeliveryId,
        delay_secs: u64,
        now: Timestamp,
    ) -> Result<Item, StorageError> {
        self.postpone(delivery, now + Duration::from_secs(delay_secs), false)
    }

    /// Removes a delivered item; whether there was one. Acknowledging twice is fine.
    pub(crate) fn ack(&mut self, delivery: &DeliveryId) -> Result<bool, StorageError> {
        if !self.items.contains_key(&delivery.position) {
            return Ok(false);
        }
        let item = self.held_by(delivery)?;
        self.unschedule(delivery.position, item);
        self.items.remove(&delivery.position);
        Ok(true)
    }

    fn postpone(&mut self, delivery: &DeliveryId, moment: Timestamp, held: bool) -> Result<Item, StorageError> {
        let before = self.held_by(delivery)?;
        self.unschedule(delivery.position, before);
        let item = Item { not_before: Some(moment), held, ..before };
        self.insert(delivery.position, item);
        Ok(item)
    }

    fn unschedule(&mut self, position: Sequence, item: Item) {
        if let Some(moment) = item.not_before {
            self.later.remove(&(moment, position));
        }
        self.ready.remove(&position);
    }

    fn held_by(&self, delivery: &DeliveryId) -> Result<Item, StorageError> {
        let item = self.items.get(&delivery.position).copied().unwrap_or_default();
        if item.held && item.deliveries == delivery.delivery {
            Ok(item)
        } else {
            Err(StorageError::Fenced { key: delivery.queue.clone(), current: item.deliveries.into() })
        }
    }
}
