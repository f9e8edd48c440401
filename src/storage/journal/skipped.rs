//! Rows among the notes of open runs, in the list of ended runs and among the letters that are none of these. Whoever reads the rows beside
//! them leaves them out and reports each once; they stay, and [`Journal::unreadable_notes`](super::Journal::unreadable_notes) finds them.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::messages::visible;
use crate::storage::Key;

/// Why a row under the notes of open runs is left out.
pub(super) const NO_RUN: &str = "its key names no run";
/// Why a row of the list of ended runs is left out.
pub(super) const NOT_LISTED: &str = "it is not the row of an ended run";
/// Why a row among the letters is left out.
pub(super) const NO_LETTER: &str = "its key names no letter to a board";

/// So many rows are reported by one journal and its clones.
const MOST_REPORTED: usize = 1024;

/// The keys of the rows that were reported.
#[derive(Debug, Default)]
pub(super) struct Skipped(Mutex<BTreeSet<Key>>);

impl Skipped {
    /// Reports a row that a reader leaves out, the first time.
    pub(super) fn report(&self, key: &Key, why: &'static str) {
        let mut reported = self.0.lock();
        if reported.len() < MOST_REPORTED && reported.insert(key.clone()) {
            let row = name_of(key);
            tracing::warn!(
                parent: None, %row, why,
                "a row of the store cannot be read, and is left out; `callboard store check` lists all of them"
            );
        }
    }
}

/// The name of a row for people.
pub(super) fn name_of(key: &Key) -> String {
    visible(&key.segments().join("/"))
}
