//! Rows that were written and that sled's tree does not have yet. The last writes of the store are here, in memory, for everybody who
//! reads, and on disk in the write-ahead log. So a write costs no search in the tree, and what is replaced or
//! removed soon after it was written never gets there.
//!
//! There are two layers. What is written goes to the young one. When that has grown, it becomes the old one, and the store's thread
//! applies it to the tree, a part at a time. Only then may the young one take its place.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::HashSet;
use parking_lot::RwLock;
use sled::{IVec, Tree};

use super::read_error::ReadError;
use super::rows;
use crate::storage::Key;

/// Rows by their keys; `None` removes the row that the tree has.
pub(super) type Rows = BTreeMap<Vec<u8>, Option<IVec>>;

/// What a row takes beside its key and its bytes.
const ROW_BYTES: usize = 96;

/// How many rows a scan takes from here at once, at least and at most.
const PAGES: RangeInclusive<usize> = 4..=64;

/// The layers. What is freed is freed without the lock: many rows take a while.
#[derive(Default)]
pub(super) struct Overlay {
    layers: RwLock<Layers>,
    /// Set before a write returns, and cleared once the tree has all rows: a store that was idle for a while is read without the lock.
    has_rows: AtomicBool,
}

#[derive(Default)]
struct Layers {
    young: Rows,
    /// Rows of the young layer that neither the old one nor the tree has: if they are removed, nothing of them is left.
    new: HashSet<Vec<u8>>,
    /// Rows of the young layer that were removed before they were written: the tree may have earlier ones of their keys.
    again: HashSet<Vec<u8>>,
    /// About how much memory the young ones take.
    young_bytes: usize,
    /// What the tree is about to get.
    old: Arc<Rows>,
    again_in_old: HashSet<Vec<u8>>,
    /// How often the tree has got an old layer.
    applied: u64,
}

/// A row that a write changes.
pub(super) struct Changed {
    pub(super) row: Vec<u8>,
    /// `None` if it is removed.
    pub(super) sealed: Option<IVec>,
    /// Whether there was none.
    pub(super) is_new: bool,
}

impl Layers {
    fn get(&self, row: &[u8]) -> Option<&Option<IVec>> {
        self.young.get(row).or_else(|| self.old.get(row))
    }
}

impl Overlay {
    /// Adds what one write changes: readers see all of it or nothing.
    pub(super) fn add(&self, rows: impl Iterator<Item = Changed>) {
        let layers = &mut *self.layers.write();
        self.has_rows.store(true, Ordering::Release);
        for Changed { row, sealed, is_new } in rows {
            if sealed.is_none() && (is_new || layers.new.remove(&row)) {
                layers.young.remove(&row);
                continue;
            }
            if is_new {
                layers.new.insert(row.clone());
            }
            layers.young_bytes += row.len() + sealed.as_ref().map_or(0, |sealed| sealed.len()) + ROW_BYTES;
            match layers.young.entry(row) {
                Entry::Vacant(entry) => {
                    entry.insert(sealed);
                }
                Entry::Occupied(mut entry) => {
                    if entry.insert(sealed).is_none() {
                        layers.again.insert(entry.key().clone());
                    }
                }
            }
        }
    }

    /// About how much memory the young layer takes, in bytes.
    pub(super) fn young_bytes(&self) -> usize {
        self.layers.read().young_bytes
    }

    /// Makes the young layer the old one, which must have been applied.
    pub(super) fn age(&self) {
        let new = {
            let layers = &mut *self.layers.write();
            debug_assert!(layers.old.is_empty());
            layers.young_bytes = 0;
            layers.old = Arc::new(std::mem::take(&mut layers.young));
            layers.again_in_old = std::mem::take(&mut layers.again);
            std::mem::take(&mut layers.new)
        };
        drop(new);
    }

    pub(super) fn old(&self) -> Arc<Rows> {
        Arc::clone(&self.layers.read().old)
    }

    /// Takes the rows of the old layer that were removed before they were written.
    pub(super) fn take_written_again(&self) -> HashSet<Vec<u8>> {
        std::mem::take(&mut self.layers.write().again_in_old)
    }

    /// Replaces the old layer by one with the same records and values.
    pub(super) fn replace_old(&self, rows: Rows) {
        let replaced = std::mem::replace(&mut self.layers.write().old, Arc::new(rows));
        drop(replaced);
    }

    /// Removes the old layer: the tree has it.
    pub(super) fn forget_old(&self) {
        let replaced = {
            let layers = &mut *self.layers.write();
            layers.applied += 1;
            self.has_rows.store(!layers.young.is_empty(), Ordering::Release);
            std::mem::take(&mut layers.old)
        };
        drop(replaced);
    }

    /// What is known here of a row: `Some(None)` if it was removed.
    fn get(&self, row: &[u8]) -> Option<Option<IVec>> {
        if !self.has_rows.load(Ordering::Acquire) {
            return None;
        }
        self.layers.read().get(row).cloned()
    }

    /// As [`Overlay::get`]; of a row that is not known here, how often the tree had got an old layer.
    pub(super) fn get_or_applied(&self, row: &[u8]) -> Result<Option<IVec>, u64> {
        let layers = self.layers.read();
        layers.get(row).cloned().ok_or(layers.applied)
    }

    /// How often the tree had got an old layer, if there are no rows of a stream here.
    pub(super) fn applied_without(&self, stream: &Key) -> Option<u64> {
        let (first, last) = rows::all_records(stream);
        let layers = self.layers.read();
        let has =
            |rows: &Rows| rows.range::<[u8], _>((Bound::Included(&*first), Bound::Included(&*last))).next().is_some();
        (!has(&layers.young) && !has(&layers.old)).then_some(layers.applied)
    }

    /// The first rows of a range, at most `limit`, with those that were removed.
    fn page(&self, start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>, limit: usize) -> Vec<(Vec<u8>, Option<IVec>)> {
        if !self.has_rows.load(Ordering::Acquire) {
            return Vec::new();
        }
        let range = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        let layers = self.layers.read();
        let mut old = layers.old.range::<[u8], _>(range).peekable();
        let mut young = layers.young.range::<[u8], _>(range).peekable();
        let mut page = Vec::new();
        while page.len() < limit {
            let next = match (young.peek(), old.peek()) {
                (Some((row, _)), Some((other, _))) if other < row => old.next(),
                (Some((row, _)), other) => {
                    let is_replaced = other.is_some_and(|(other, _)| other == row);
                    if is_replaced {
                        old.next();
                    }
                    young.next()
                }
                (None, _) => old.next(),
            };
            let Some((row, sealed)) = next else { break };
            page.push((row.clone(), sealed.clone()));
        }
        page
    }
}

/// The rows of a store: those of the tree, and over them those that it does not have yet.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) tree: &'a Tree,
    pub(super) overlay: &'a Overlay,
}

impl Stored<'_> {
    pub(super) fn get(&self, row: &[u8]) -> Result<Option<IVec>, ReadError> {
        match self.overlay.get(row) {
            Some(known) => Ok(known),
            None => Ok(self.tree.get(row)?),
        }
    }

    /// Passes on the rows of a range in the order of their keys, until there is no other or `read` returns false, which it is expected to do
    /// after `wanted` rows. What moves into the tree meanwhile is passed on once.
    pub(super) fn scan(
        &self,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        wanted: usize,
        read: impl FnMut(&[u8], &IVec) -> Result<bool, ReadError>,
    ) -> Result<(), ReadError> {
        self.scan_in_pages(range, wanted.clamp(*PAGES.start(), *PAGES.end()), read)
    }

    /// As [`Stored::scan`], of one moment as far as rows are concerned that the tree does not have yet.
    pub(super) fn scan_at_once(
        &self,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        read: impl FnMut(&[u8], &IVec) -> Result<bool, ReadError>,
    ) -> Result<(), ReadError> {
        self.scan_in_pages(range, usize::MAX, read)
    }

    fn scan_in_pages(
        &self,
        (mut start, end): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        limit: usize,
        mut read: impl FnMut(&[u8], &IVec) -> Result<bool, ReadError>,
    ) -> Result<(), ReadError> {
        loop {
            if is_empty(&start, &end) {
                return Ok(());
            }
            // Before the tree is read: what moves there in between is passed on from here.
            let page = self.overlay.page(&start, &end, limit);
            let page_end = page.last().filter(|_| page.len() == limit).map(|(row, _)| row.clone());
            let until = page_end.clone().map_or_else(|| end.clone(), Bound::Included);
            let mut of_tree = self.tree.range::<Vec<u8>, _>((start, until));
            let mut next_of_tree = of_tree.next().transpose()?;
            for (row, sealed) in page {
                while let Some((before, sealed)) = next_of_tree.take_if(|(before, _)| **before < *row) {
                    if !read(&before, &sealed)? {
                        return Ok(());
                    }
                    next_of_tree = of_tree.next().transpose()?;
                }
                if next_of_tree.take_if(|(same, _)| **same == *row).is_some() {
                    next_of_tree = of_tree.next().transpose()?;
                }
                if let Some(sealed) = sealed
                    && !read(&row, &sealed)?
                {
                    return Ok(());
                }
            }
            while let Some((row, sealed)) = next_of_tree {
                if !read(&row, &sealed)? {
                    return Ok(());
                }
                next_of_tree = of_tree.next().transpose()?;
            }
            let Some(last) = page_end else { return Ok(()) };
            start = Bound::Excluded(last);
        }
    }
}

/// Whether a range has no place for a row.
fn is_empty(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}
