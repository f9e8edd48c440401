//! The files of a folder, found one after another and read within bounds.

use std::collections::VecDeque;
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use callboard_text::visible;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use ignore::{Walk, WalkBuilder};
use parking_lot::Mutex;
use thiserror::Error;

use super::document::ReadLimits;
use super::left_out::LeftOut;
use crate::{regular_file, site_marker};

/// Files whose lines name what is not found.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The largest file of that kind, because its lines are compiled and compared with every path below.
const MAX_IGNORE_FILE: u64 = 64 << 10;

/// A file of a folder.
#[derive(Debug)]
pub struct FileFound {
    /// The path below the folder, with `/` between its parts.
    pub path: String,
    /// The size when it was found.
    pub bytes: u64,
    folder: Arc<Dir>,
}

impl FileFound {
    /// A file that was named, in its folder. A link is followed.
    ///
    /// # Errors
    ///
    /// [`FileError::Unreadable`], [`FileError::Folder`] and [`FileError::NameNotUtf8`].
    pub fn named(file: &Path) -> Result<Self, FileError> {
        let shown = || file.to_string_lossy().into_owned();
        let whole = file.canonicalize().map_err(|source| FileError::Unreadable { path: shown(), source })?;
        let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else {
            return Err(FileError::LeftOut { path: shown(), why: LeftOut::NoFile });
        };
        let path = name.to_str().ok_or_else(|| FileError::NameNotUtf8 { path: shown() })?.to_owned();
        let failed = |source| FileError::Folder { path: folder.to_owned(), source };
        let bytes = whole.metadata().map_err(|source| FileError::Unreadable { path: shown(), source })?.len();
        let folder = Dir::open_ambient_dir(folder, ambient_authority()).map_err(failed)?;
        Ok(Self { path, bytes, folder: Arc::new(folder) })
    }

    /// The file at a path below a folder, whether or not [`files`] finds it; `None` if there is no file.
    ///
    /// # Errors
    ///
    /// [`FileError::Unreadable`] and [`FileError::Folder`].
    pub fn below(folder: &Path, path: &str) -> Result<Option<Self>, FileError> {
        let failed = |source| FileError::Folder { path: folder.to_owned(), source };
        let folder = Arc::new(Dir::open_ambient_dir(folder, ambient_authority()).map_err(failed)?);
        match folder.symlink_metadata(path) {
            Ok(about) if about.is_file() => Ok(Some(Self { path: path.to_owned(), bytes: about.len(), folder })),
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(source) => Err(FileError::Unreadable { path: path.to_owned(), source }),
        }
    }

    /// Reads the file, up to the limit of bytes.
    ///
    /// The file is opened below the handle of the folder, so that a link that has replaced a part of the path meanwhile does not lead out of
    /// it. What is no file any more, such as a pipe, is not waited for.
    ///
    /// # Errors
    ///
    /// [`FileError::Unreadable`], and [`FileError::LeftOut`] if the file is too large or no file any more.
    pub fn read(&self, limits: &ReadLimits) -> Result<Vec<u8>, FileError> {
        let failed = |source| FileError::Unreadable { path: self.path.clone(), source };
        let left_out = |why| FileError::LeftOut { path: self.path.clone(), why };
        let file =
            regular_file::open(&self.folder, &self.path).map_err(failed)?.ok_or_else(|| left_out(LeftOut::NoFile))?;
        let metadata = file.metadata().map_err(failed)?;
        let too_large = |bytes| left_out(LeftOut::TooLarge { bytes, limit: limits.bytes });
        if metadata.len() > limits.bytes {
            return Err(too_large(metadata.len()));
        }
        bounded(file, limits.bytes).map_err(failed)?.map_err(too_large)
    }
}

/// Reads up to a limit of bytes. The size that a file had when it was opened is no bound: it may have grown, and some have no size. More than
/// the limit is returned as the size that was read.
fn bounded(file: impl io::Read, limit: u64) -> io::Result<Result<Vec<u8>, u64>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    Ok(if length > limit { Err(length) } else { Ok(bytes) })
}

/// Why a file or a folder was not found or not read. The others are not affected.
#[derive(Debug, Error)]
pub enum FileError {
    /// The folder cannot be opened, so nothing in it is found.
    #[error("cannot open the folder {}: {source}", visible(&path.to_string_lossy()))]
    Folder {
        /// The folder, as it was given.
        path: PathBuf,
        /// What the system reports.
        source: io::Error,
    },
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", visible(path))]
    Unreadable {
        /// The path below the folder, as far as it is known.
        path: String,
        /// What the system reports.
        source: io::Error,
    },
    /// A name is not UTF-8, so no path can refer to it.
    #[error("the name of {} is not UTF-8: rename it", visible(path))]
    NameNotUtf8 {
        /// The path below the folder, with U+FFFD for what is not UTF-8.
        path: String,
    },
    /// A `.gitignore` or `.ignore` is no file or too large, so its folder is left out.
    #[error("the folder of {} is left out, because that is no file of at most {MAX_IGNORE_FILE} bytes", visible(path))]
    IgnoreFile {
        /// The path below the folder.
        path: String,
    },
    /// A folder is a site that was published, so its pages repeat documents that are read elsewhere.
    #[error("the folder {} is left out, because it is a site that `callboard kb publish` wrote", visible(path))]
    Site {
        /// The path below the folder.
        path: String,
    },
    /// The file is left out.
    #[error("{}: {why}", visible(path))]
    LeftOut {
        /// The path below the folder.
        path: String,
        /// Why it is left out.
        why: LeftOut,
    },
}

impl FileError {
    /// The path below the folder, and why the file or folder is not read.
    #[must_use]
    pub fn into_parts(self) -> (String, String) {
        match self {
            Self::Folder { path, source } => {
                (path.to_string_lossy().into_owned(), format!("the folder cannot be opened: {source}"))
            }
            Self::Unreadable { path, source } => (path, format!("cannot be read: {source}")),
            Self::NameNotUtf8 { path } => (path, "the name is not UTF-8: rename it".to_owned()),
            Self::IgnoreFile { path } => {
                (path, format!("its folder is left out, because this is no file of at most {MAX_IGNORE_FILE} bytes"))
            }
            Self::Site { path } => (path, "it is a site that `callboard kb publish` wrote".to_owned()),
            Self::LeftOut { path, why } => (path, why.to_string()),
        }
    }
}

/// Finds the files of a folder and of the folders in it, in the order of their names: a folder is where its name is.
///
/// What a `.gitignore` or `.ignore` there or above names is not found, whether or not there is a repository, nor is anything whose name begins with a
/// dot, such as `.git` and `.env`, nor a site that was published below the folder. Links are not followed: what they lead to in the folder is found by
/// its own path. They are errors, as pipes, sockets and devices are. Of each open folder the names are in memory, and of no file its content.
pub fn files(folder: &Path) -> impl Iterator<Item = Result<FileFound, FileError>> + use<> {
    match Found::open(folder) {
        Ok(found) => Files::Found(Box::new(found)),
        Err(error) => Files::Failed(Some(error)),
    }
}

enum Files {
    Found(Box<Found>),
    Failed(Option<FileError>),
}

impl Iterator for Files {
    type Item = Result<FileFound, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Found(found) => found.next(),
            Self::Failed(error) => error.take().map(Err),
        }
    }
}

struct Found {
    root: PathBuf,
    folder: Arc<Dir>,
    walk: Walk,
    /// Why the walk has left out folders.
    left_out: Arc<Mutex<VecDeque<FileError>>>,
    /// What the walk has found after such a folder.
    next: Option<Result<ignore::DirEntry, ignore::Error>>,
}

impl Found {
    fn open(root: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Folder { path: root.to_owned(), source };
        let folder = Dir::open_ambient_dir(root, ambient_authority()).map_err(failed)?;
        if let Some(error) = unusable_ignore_file(root, root) {
            return Err(error);
        }
        let left_out = Arc::new(Mutex::new(VecDeque::new()));
        let (noted, top) = (Arc::clone(&left_out), root.to_owned());
        let mut builder = WalkBuilder::new(root);
        builder
            .follow_links(false)
            .require_git(false)
            .git_global(false)
            .git_exclude(false)
            .sort_by_file_name(std::ffi::OsStr::cmp)
            .filter_entry(move |entry| {
                let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                let site =
                    || site_marker::is_in(entry.path()).then(|| FileError::Site { path: below(&top, entry.path()).0 });
                let why = || unusable_ignore_file(&top, entry.path()).or_else(site);
                let why = if is_folder { why() } else { None };
                let is_usable = why.is_none();
                noted.lock().extend(why);
                is_usable
            });
        Ok(Self { root: root.to_owned(), folder: Arc::new(folder), walk: builder.build(), left_out, next: None })
    }

    fn next(&mut self) -> Option<Result<FileFound, FileError>> {
        loop {
            let entry = self.next.take().or_else(|| self.walk.next());
            if let Some(error) = self.left_out.lock().pop_front() {
                self.next = entry;
                return Some(Err(error));
            }
            let entry = entry?;
            let found = entry.map_err(|error| self.unreadable(error)).and_then(|entry| self.file(&entry)).transpose();
            if found.is_some() {
                return found;
            }
        }
    }

    fn file(&self, entry: &ignore::DirEntry) -> Result<Option<FileFound>, FileError> {
        // The folder itself may have been named by a link.
        let Some(kind) = entry.file_type().filter(|kind| !kind.is_dir() && entry.depth() > 0) else { return Ok(None) };
        let (path, is_utf8) = below(&self.root, entry.path());
        if !is_utf8 {
            return Err(FileError::NameNotUtf8 { path });
        }
        if !kind.is_file() {
            return Err(FileError::LeftOut { path, why: LeftOut::Special { kind: special(kind) } });
        }
        let metadata = entry.metadata().map_err(|error| self.unreadable(error))?;
        Ok(Some(FileFound { path, bytes: metadata.len(), folder: Arc::clone(&self.folder) }))
    }

    fn unreadable(&self, error: ignore::Error) -> FileError {
        let path = path_of(&error).map_or_else(String::new, |path| below(&self.root, path).0);
        let text = error.to_string();
        FileError::Unreadable { path, source: error.into_io_error().unwrap_or_else(|| io::Error::other(text)) }
    }
}

/// What is no file and no folder.
fn special(kind: fs::FileType) -> &'static str {
    if kind.is_symlink() {
        "symbolic link"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        ignore::Error::Loop { child, .. } => Some(child),
        _ => None,
    }
}

/// A path below the folder, and whether it is UTF-8.
fn below(root: &Path, path: &Path) -> (String, bool) {
    let below = path.strip_prefix(root).unwrap_or(path);
    let names =
        below.components().filter_map(|part| if let Component::Normal(name) = part { Some(name) } else { None });
    let names: Vec<_> = names.map(|name| (name.to_string_lossy(), name.to_str().is_some())).collect();
    let path = names.iter().map(|(name, _)| name.as_ref()).collect::<Vec<_>>().join("/");
    (path, names.iter().all(|&(_, is_utf8)| is_utf8))
}

/// The error of a file that names what is not found, if the folder has one that is not read: no file, or too large.
fn unusable_ignore_file(root: &Path, folder: &Path) -> Option<FileError> {
    let is_unusable = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file() || metadata.len() > MAX_IGNORE_FILE)
    };
    let file = IGNORE_FILES.into_iter().map(|name| folder.join(name)).find(is_unusable)?;
    Some(FileError::IgnoreFile { path: below(root, &file).0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_read_up_to_the_limit() {
        assert_eq!(bounded(io::repeat(1), 4).unwrap(), Err(5));
        assert_eq!(bounded(io::repeat(1).take(4), 4).unwrap(), Ok(vec![1; 4]));
    }
}
