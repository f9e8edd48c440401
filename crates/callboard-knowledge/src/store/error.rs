//! What can go wrong with a base.

use std::path::PathBuf;

use callboard_text::visible;
use rusqlite::ErrorCode;

use crate::facts::{Contradiction, FactError, FactId, FactState};

/// Why a base cannot be opened, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KnowledgeError {
    /// There is no base at this place.
    #[error("there is no base of facts at {path}; `callboard kb init PATH` makes one of the files in PATH")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file is empty or a database of something else.
    #[error(
        "the file is not a base of facts; `callboard kb restore FILE` puts a backup in its place, and keeps it beside"
    )]
    NotABase,
    /// A newer build wrote it.
    #[error("the base has version {version}, and this build knows versions up to {known}; use a newer callboard")]
    TooNew {
        /// Its version.
        version: usize,
        /// The newest that this build knows.
        known: usize,
    },
    /// The file is damaged.
    #[error(
        "the base is damaged ({cause}); `callboard kb restore FILE` puts a backup in its place, and keeps it beside"
    )]
    Damaged {
        /// What SQLite reports.
        cause: String,
    },
    /// The full-text index is damaged, and is being built again.
    #[error("the full-text index was damaged and has been built again; nothing was changed: repeat it")]
    DamagedIndex,
    /// The disk is full.
    #[error("the disk is full, and nothing was changed; free space on it and repeat the command")]
    Full,
    /// The file of the base or its folder may not be written, which a query needs as well.
    #[error("the file of the base or its folder is read-only; allow writing to both, and repeat it")]
    ReadOnly,
    /// Another process was writing all the time.
    #[error("another process has been writing to the base for 10 s; repeat the change")]
    Busy,
    /// A process has the base open whose file is to be replaced.
    #[error(
        "a process has the base {path} open; stop it (such as `callboard serve`) or wait until it has ended, and repeat the command"
    )]
    InUse {
        /// The file of the base.
        path: PathBuf,
    },
    /// Another process was replacing the file of the base all the time.
    #[error("another process has been replacing the base {path} for 10 s; repeat the command when it has ended")]
    Replaced {
        /// The file of the base.
        path: PathBuf,
    },
    /// A file cannot be put in the place of a base.
    #[error("{path} cannot be restored: {why}; nothing was changed")]
    Backup {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The store did not report whether a change is on disk, so this process makes no more.
    #[error(
        "a change could not be written to disk ({cause}); open the base again, and repeat what was not acknowledged"
    )]
    Failed {
        /// What SQLite reported then.
        cause: String,
    },
    /// The base was closed.
    #[error("the base is closed")]
    Closed,
    /// A statement cannot become a fact.
    #[error(transparent)]
    Fact(#[from] FactError),
    /// No fact has this id.
    #[error("there is no {id}; `callboard kb query` prints the ids of what it finds")]
    NoSuchFact {
        /// The id.
        id: FactId,
    },
    /// A fact has changed since it was read.
    #[error(
        "{id} has changed meanwhile (it has revision {has}, and revision {read} was read); nothing was changed: look at it again"
    )]
    Changed {
        /// Which.
        id: FactId,
        /// Its revision now.
        has: u64,
        /// The revision that was read.
        read: u64,
    },
    /// A change would change nothing.
    #[error("{id} is {state} already")]
    Unchanged {
        /// Which fact.
        id: FactId,
        /// Its state.
        state: FactState,
    },
    /// A person decides whether a disputed fact holds, and this one no longer does.
    #[error(
        "{id} is invalid, and disputed facts alone are accepted; nothing was changed: submit its statement again, and it is compared with what holds now"
    )]
    NotDisputed {
        /// Which fact.
        id: FactId,
    },
    /// What a change would do is not what was shown.
    #[error("what the change of {id} does is no longer what was shown; nothing was changed: look at it again")]
    PreviewChanged {
        /// The fact that was named.
        id: FactId,
    },
    /// A statement contradicts current facts, and was to be refused then.
    #[error("it contradicts {}: nothing was changed", listed(.0))]
    Contradicts(Vec<Contradiction>),
    /// A fact has the words of a statement with another subject, predicate or value.
    #[error(
        "{} {} in the same words ({}): nothing was changed; write a statement that says what differs",
        if *.is_contradiction { "it contradicts" } else { "it has other parts than" }, .known.fact, .known.reason
    )]
    OtherParts {
        /// The fact, and what its words state there.
        known: Contradiction,
        /// Whether both cannot hold.
        is_contradiction: bool,
    },
    /// A predicate is declared otherwise.
    #[error("the predicate {predicate:?} is declared to have {} at a time; a person changes that with `callboard kb predicate`", values(*.is_single))]
    Predicate {
        /// The predicate.
        predicate: String,
        /// Whether it has one value at a time.
        is_single: bool,
    },
    /// A predicate is to have one value at a time, and current facts have several.
    #[error(
        "the predicate {predicate:?} has several values at a time: {} hold; nothing was changed: invalidate all but one of each subject, and repeat it",
        .facts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    SeveralValues {
        /// The predicate.
        predicate: String,
        /// Facts of one subject that have different values.
        facts: Vec<FactId>,
    },
    /// Anything else that SQLite reports.
    #[error("the base reports: {}", reported(.0))]
    Sqlite(rusqlite::Error),
    /// A stored value is not what this build writes.
    #[error("the base has an unreadable value: {}", visible(.0))]
    Unreadable(String),
    /// An export is refused.
    #[error("line {line} of the export: {why}; nothing was imported")]
    Export {
        /// Which line; the first is 1.
        line: u64,
        /// What is wrong with it, or with the lines before it.
        why: String,
    },
    /// An import goes into an empty base alone.
    #[error("the base is not empty, and an export is imported into an empty one alone; name another base")]
    NotEmpty,
    /// An export cannot be written.
    #[error("the export cannot be written: {0}")]
    Text(std::io::Error),
    /// The file or its folder cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system reports.
        error: std::io::Error,
    },
}

impl KnowledgeError {
    /// Whether what failed may be done later, so that it is tried again.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Busy | Self::Full | Self::DamagedIndex)
    }
}

fn listed(contradictions: &[Contradiction]) -> String {
    let each = contradictions.iter().map(|contradiction| format!("{} ({})", contradiction.fact, contradiction.reason));
    each.collect::<Vec<_>>().join(", ")
}

/// What SQLite reports, with the text of the file made visible, and without the statement that it was asked to run.
pub(super) fn reported(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => visible(msg),
        error => visible(&error.to_string()),
    }
}

const fn values(is_single: bool) -> &'static str {
    if is_single { "one value" } else { "several values" }
}

/// What SQLite reports of an index whose own tables are damaged, beside a code for it.
const DAMAGED_INDEX: [&str; 3] =
    ["invalid fts5 file format", "no such fts5 table: main.", "vtable constructor failed: kb_text"];

/// Whether the index cannot be opened or read.
fn is_of_index(error: &rusqlite::Error) -> bool {
    let is_named = |text: &str| DAMAGED_INDEX.iter().any(|of_index| text.starts_with(of_index));
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CORRUPT_VTAB)
        || match error {
            // Of a table of the index, which is not named.
            rusqlite::Error::SqliteFailure(_, Some(text)) => is_named(text) || text == "constraint failed",
            rusqlite::Error::SqlInputError { msg, .. } => is_named(msg),
            _ => false,
        }
}

impl From<rusqlite::Error> for KnowledgeError {
    fn from(error: rusqlite::Error) -> Self {
        if is_of_index(&error) {
            return Self::DamagedIndex;
        }
        // The index of the log cannot grow, which is the first thing that a process does which opens the base.
        if error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE) {
            return Self::Full;
        }
        if let rusqlite::Error::QueryReturnedNoRows = error {
            return Self::Damaged { cause: "it lacks a row that another one names".to_owned() };
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::ReadOnly) => Self::ReadOnly,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { cause: reported(&error) },
            _ => Self::Sqlite(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_that_may_not_be_written_is_read_only() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let error = connection.execute_batch("PRAGMA query_only = ON; CREATE TABLE x (y)").unwrap_err();
        assert!(matches!(KnowledgeError::from(error), KnowledgeError::ReadOnly));
    }
}
