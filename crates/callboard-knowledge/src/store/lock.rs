//! The lock beside the file of a base: the processes that have the base open share it, and one that replaces or removes the file has it alone.
//!
//! The locks of SQLite do not suffice for that: they are on the file that is replaced, and one that is damaged cannot be opened to take them.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
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
    /// Takes a share of the lock of a base. The file of the lock is created if it is missing, and never removed: another process may be about
    /// to lock it.
    pub(super) fn share(base: &Path) -> Result<Self, KnowledgeError> {
        let (file, path) = open(base, true)?;
        for _ in 0..TRIES {
            match file.try_lock_shared() {
                Ok(()) => return Ok(Self { _file: file }),
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
        Ok(()) => Ok(Lock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(KnowledgeError::InUse { path: base.to_owned() }),
        Err(TryLockError::Error(error)) => Err(KnowledgeError::Io { path, error }),
    }
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
