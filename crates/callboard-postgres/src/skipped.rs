//! Rows whose names are not those of keys. No board has written them, and none can ask for them: readers leave them out and report each
//! once.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// So many rows are reported by one handle.
const MOST_REPORTED: usize = 1024;

/// The names of the rows that were reported.
#[derive(Default)]
pub(crate) struct Skipped(Mutex<BTreeSet<Vec<u8>>>);

impl Skipped {
    /// Reports a row that a reader leaves out, the first time.
    pub(crate) fn report(&self, table: &'static str, name: &[u8]) {
        let mut reported = self.0.lock();
        if reported.len() < MOST_REPORTED && reported.insert(name.to_vec()) {
            let (row, why) = shown(table, name);
            tracing::warn!(
                parent: None, %row, why,
                "a row of the store cannot be read, and is left out; `callboard store check` lists all of them"
            );
        }
    }
}

/// The name of a row as SQL has it, and why it cannot be read.
pub(crate) fn shown(table: &str, name: &[u8]) -> (String, String) {
    let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let why = format!("its name in the table {table} is not that of a key; delete the row, which no board has written");
    (format!("\\x{digits}"), why)
}
