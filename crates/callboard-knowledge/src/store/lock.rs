//! The lock beside the file of a base: the processes that have the base open share it, and one that replaces or removes the file has it alone.
//!
//! The locks of SQLite do not suffice for that: they are on the file that is replaced, and one that is damaged cannot be opened to take them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::error::KnowledgeError;
use super::with_suffix;

/// How long the opening of a base waits while another process replaces its file: so often, so long.
const TRIES: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(10);

/// The lock, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes a share of the lock of a base. The file of the lock is created if it is missing, and stays as long as there is a base.
    pub(super) fn share(base: &Path) -> Result<Self, KnowledgeError> {
        let (mut file, path) = open(base, true)?;
        for _ in 0..TRIES {
            match file.try_lock_shared() {
                Ok(()) if is_at(&file, &path) => return Ok(Self { _file: file }),
                // Removed by a process that has made no base after all.
                Ok(()) => (file, _) = open(base, true)?,
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(KnowledgeError::Io { path, error }),
            }
        }
        Err(KnowledgeError::Replaced { path: base.to_owned() })
    }

    /// Takes the lock of a base that no process has open, this one included.
    pub(super) fn alone(base: &Path) -> Result<Self, KnowledgeError> {
        alone(open(base, true)?, base)
    }

    /// Releases a lock that was taken alone, and removes its file if there is no base: a process that has opened the file meanwhile finds
    /// that it is no longer at its path.
    pub(super) fn release_without_base(self, base: &Path) {
        if matches!(base.try_exists(), Ok(false)) {
            // What is not removed is locked again by the next process.
            let _ = fs::remove_file(with_suffix(base, "-lock"));
        }
    }

    /// As [`Lock::alone`], of a file that may never have been opened as a base: `None` if it has no lock.
    pub(super) fn alone_if_there(base: &Path) -> Result<Option<Self>, KnowledgeError> {
        match open(base, false) {
            Ok(opened) => alone(opened, base).map(Some),
            Err(KnowledgeError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn alone((file, path): (File, PathBuf), base: &Path) -> Result<Lock, KnowledgeError> {
    match file.try_lock() {
        Ok(()) if is_at(&file, &path) => Ok(Lock { _file: file }),
        // Another process has removed it, and a third one may have made another.
        Ok(()) => Err(KnowledgeError::InUse { path: base.to_owned() }),
        Err(TryLockError::WouldBlock) => Err(KnowledgeError::InUse { path: base.to_owned() }),
        Err(TryLockError::Error(error)) => Err(KnowledgeError::Io { path, error }),
    }
}

/// Whether the file is still at its path.
fn is_at(file: &File, path: &Path) -> bool {
    let of = |about: fs::Metadata| (about.dev(), about.ino());
    file.metadata().is_ok_and(|about| fs::symlink_metadata(path).is_ok_and(|there| of(there) == of(about)))
}

fn open(base: &Path, creates: bool) -> Result<(File, PathBuf), KnowledgeError> {
    let path = with_suffix(base, "-lock");
    // Neither a pipe is waited for, nor a link followed.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(creates)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(&path);
    match opened {
        Ok(file) => Ok((file, path)),
        Err(error) => Err(KnowledgeError::Io { path, error }),
    }
}
