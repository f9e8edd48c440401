//! Why a site is not written.

use std::io;
use std::path::{Path, PathBuf};

/// Why a site is not written. The site that was there before is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// The path has no last part that could be the name of a folder.
    #[error("{} is no name of a folder; name the folder that the site is written into", callboard_text::visible(&folder.to_string_lossy()))]
    NoName {
        /// The path.
        folder: PathBuf,
    },
    /// The folder has something that publishing would delete.
    #[error(
        "{} is not replaced, because {found}; move what is yours elsewhere, or choose a folder that does not exist, is empty, or has only a site",
        callboard_text::visible(&folder.to_string_lossy())
    )]
    NotASite {
        /// The folder.
        folder: PathBuf,
        /// What is there.
        found: String,
    },
    /// Something is written that the outline does not have, so links to it could not have been checked.
    #[error(
        "the {what} {} is not in the outline; add it there before the writer is created",
        callboard_text::quoted(name)
    )]
    NotInOutline {
        /// `document`, `fact` or `entity`.
        what: &'static str,
        /// Its path, id or name.
        name: String,
    },
    /// Something of the outline was not written, so links to it would lead nowhere.
    #[error("the {what} {} is in the outline and was not written", callboard_text::quoted(name))]
    NotWritten {
        /// `document`, `fact` or `entity`.
        what: &'static str,
        /// Its path, id or name.
        name: String,
    },
    /// A fact is not the next one of the outline.
    #[error("the fact {} is not the next one of the outline; write facts in its order", callboard_text::quoted(id))]
    OutOfOrder {
        /// The id of the fact.
        id: String,
    },
    /// Two documents or entities have the same file: one was written twice, or two paths have the same hash.
    #[error("{file} is written twice; rename one of the two that have this file")]
    Twice {
        /// The file, relative to the site.
        file: String,
    },
    /// The index of the search could not be sorted.
    #[error("cannot sort the index of the search beside the site: {0}")]
    Index(#[from] io::Error),
    /// A file could not be read or written.
    #[error("cannot {doing} {}: {source}", callboard_text::visible(&path.to_string_lossy()))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// The error of what was tried with a path.
pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SiteError {
    let path = path.to_owned();
    move |source| SiteError::Io { doing, path, source }
}
