//! How many rows have a word. SQLite counts them by iterating all of them, so the counts of common words are remembered.

use std::collections::HashMap;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::error::KnowledgeError;

/// A count of so many rows or more is used until the base has grown by one part in so many; a smaller one until there is a new row.
const MANY: u64 = 256;
const TOLERANCE: u64 = 16;

/// The most words that are remembered.
const MOST: usize = 8_192;

/// The counts that the readers of a base share.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    counted: Mutex<HashMap<String, Counted>>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    rows: u64,
    /// The highest row of the base then.
    highest: u64,
}

impl Frequencies {
    /// How many rows that hold have a token, about; none only if none has. `highest` is the highest row of
    /// the base.
    pub(crate) fn rows(&self, connection: &Connection, token: &str, highest: u64) -> Result<u64, KnowledgeError> {
        let is_usable = |counted: &Counted| {
            let tolerated = if counted.rows < MANY { 0 } else { counted.highest / TOLERANCE };
            highest.abs_diff(counted.highest) <= tolerated
        };
        if let Some(counted) = self.counted.lock().get(token).copied().filter(is_usable) {
            return Ok(counted.rows);
        }
        let mut count = connection.prepare_cached("SELECT doc FROM kb_text_words WHERE term = ?1")?;
        let rows: u64 = count.query_map([token], |row| row.get(0))?.next().transpose()?.unwrap_or(0);
        let mut counted = self.counted.lock();
        if rows == 0 {
            // A row that had ended may hold again, and then it is to be found.
            counted.remove(token);
        } else {
            if counted.len() == MOST && !counted.contains_key(token) {
                counted.clear();
            }
            counted.insert(token.to_owned(), Counted { rows, highest });
        }
        Ok(rows)
    }
}
