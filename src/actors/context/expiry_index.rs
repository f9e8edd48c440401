//! The expiry index: rows in order of time that name the entries that may have expired by then (SEMANTICS 12).
//!
//! Each entry that expires has a row with a time that is not after its expiry. A row is written before its entry. An expiry that
//! moves later leaves the row unchanged: when the row is due, the entry is found alive and the row is moved. So a superfluous row
//! does no harm, and reads write nothing. The index can be rebuilt from the entries.

use crate::messages::Timestamp;
use crate::storage::{Key, KeyPrefix};

use super::entries;
use super::rules::{Existing, is_live};

const ROOT: &str = "context-expiry";
const MARKER: &str = "context-expiry-index";

/// The result of a deletion by the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expired {
    /// How many entries were deleted.
    pub(super) deleted: usize,
    /// The time of the first remaining row.
    pub(super) next: Option<Timestamp>,
}

/// The row of an entry that may expire then.
pub(super) fn row(at: Timestamp, entry: &Key) -> Key {
    let key = Key::new([ROOT, &format!("{:020}", at.as_millis())]);
    entry.each_segment().skip(1).fold(key, |key, segment| key.child(&segment))
}

/// All rows, the earliest first.
pub(super) fn rows() -> KeyPrefix {
    Key::new([ROOT]).children()
}

/// The key that exists if all entries that expire have rows.
pub(super) fn marker() -> Key {
    Key::new([MARKER])
}

/// The time and the entry of a row.
pub(super) fn of_row(row: &Key) -> Option<(Timestamp, Key)> {
    let mut segments = row.each_segment().skip(1);
    let at = segments.next()?.parse().ok().map(Timestamp::from_millis)?;
    let (namespace, key) = (segments.next()?, segments.next()?);
    entries::entry(&namespace, &key).ok().map(|entry| (at, entry))
}

/// Whether an entry with this expiry needs a row: an earlier row of the entry may be early enough.
pub(super) fn needs_row(before: Option<Existing>, now: Timestamp, expires_at: Timestamp) -> bool {
    let row = before.and_then(|before| before.expires_at).filter(|at| is_live(Some(*at), now));
    row.is_none_or(|row| expires_at < row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_sort_by_time_and_name_their_entries() {
        let entry = entries::entry("notes/a", "b/c").unwrap();
        let rows = [7, 10, 1_000].map(|at| row(Timestamp::from_millis(at), &entry));
        assert!(rows.is_sorted());
        assert_eq!(of_row(&rows[1]), Some((Timestamp::from_millis(10), entry)));
        assert!(rows[0].starts_with(&super::rows()) && !marker().starts_with(&super::rows()));
    }

    #[test]
    fn an_expiry_that_moves_later_keeps_its_row() {
        let at = Timestamp::from_millis;
        let before = |expires_at| Some(Existing { revision: 1, created_at: at(0), expires_at });
        assert!(needs_row(None, at(5), at(9)));
        assert!(needs_row(before(None), at(5), at(9)));
        assert!(needs_row(before(Some(at(5))), at(5), at(9)), "what has expired may have no row any more");
        assert!(needs_row(before(Some(at(20))), at(5), at(9)));
        assert!(!needs_row(before(Some(at(8))), at(5), at(9)));
        assert!(!needs_row(before(Some(at(9))), at(5), at(9)));
        assert!(needs_row(before(Some(at(9))), at(5), at(8)));
    }
}
