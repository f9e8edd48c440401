//! What the writer has to know of a stream or a queue that it has not touched for a while.

use sled::{IVec, Tree};

use super::read_error::ReadError;
use super::rows::{self, HeadRow, ItemRow};
use crate::messages::Timestamp;
use crate::storage::queue_order::{Item, QueueOrder};
use crate::storage::recent::Recent;
use crate::storage::stream_head::StreamHead;
use crate::storage::{Key, StorageError, codec};

/// What is remembered, or was just loaded.
pub(super) fn remembered<'a, V>(
    recent: &'a mut Recent<Key, V>,
    key: &Key,
    load: impl FnOnce() -> Result<V, ReadError>,
) -> Result<&'a mut V, StorageError> {
    if recent.get(key).is_none() {
        recent.insert(key.clone(), load().map_err(|error| error.of(key))?);
    }
    Ok(recent.get(key).expect("it is there or was put there"))
}

pub(super) fn load_head(tree: &Tree, stream: &Key, session: u64) -> Result<StreamHead, ReadError> {
    let stored = tree.get(rows::head(stream))?;
    let stored = stored.map(|row| codec::decode::<HeadRow>(&row)).transpose().map_err(|error| error.to_string())?;
    let mut records = tree.range(rows::record(stream, 0)..=rows::record(stream, u64::MAX)).keys();
    let sequence = |row: sled::Result<IVec>| rows::number_of(&row?).ok_or(ReadError::from("a row has no number"));
    let first = records.next().map(sequence).transpose()?;
    let last = records.next_back().map(sequence).transpose()?;
    Ok(HeadRow::head(stored, first.map(|first| (first, last.unwrap_or(first))), session))
}

pub(super) fn load_queue(tree: &Tree, queue: &Key, session: u64) -> Result<QueueOrder, ReadError> {
    let mut order = QueueOrder::default();
    for row in tree.scan_prefix(rows::items(queue)).keys() {
        let row = row?;
        let position = rows::number_of(&row).ok_or("a row has no number")?;
        let state = tree.get(rows::item_state(queue, position))?;
        let item = match state {
            Some(state) => codec::decode::<ItemRow>(&state).map_err(|error| error.to_string())?.item(session),
            None => Item::default(),
        };
        order.insert(position, item);
    }
    let prefix = rows::dedupes(queue);
    let mut ids = Vec::new();
    for row in tree.scan_prefix(&prefix) {
        let (row, sealed) = row?;
        let until = rows::unseal(&row, &sealed)?;
        let until = u64::from_le_bytes(until.try_into().map_err(|_| "a dedupe id has no date")?);
        ids.push((Timestamp::from_millis(until), String::from_utf8_lossy(&row[prefix.len()..]).into_owned()));
    }
    ids.sort();
    ids.into_iter().for_each(|(until, id)| order.remember(id.into(), until));
    Ok(order)
}
