//! The record outside of the runtime: one file, to which every board appends what it does before and after it does it, and the driver
//! which boards are fenced. A line is one write, so the order of the lines is the order in which they were written.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A board's end of the record, or the driver's. A cheap clone.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Recording>);

struct Recording {
    file: File,
    /// The life of the board: no other process of it has the same.
    who: String,
    life: u64,
    next: AtomicU64,
}

impl Recorder {
    /// Of the life with this number, of the board `who`.
    pub(crate) fn open(file: &Path, who: &str, life: u64) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        Self(Arc::new(Recording { file, who: who.to_owned(), life, next: AtomicU64::new(1) }))
    }

    pub(crate) fn who(&self) -> &str {
        &self.0.who
    }

    /// A number that nobody else has.
    pub(crate) fn number(&self) -> u64 {
        self.0.life * 1_000_000 + self.0.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn write(&self, line: impl Display) {
        (&self.0.file).write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
