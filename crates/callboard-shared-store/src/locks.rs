//! The lock of the store's folder, which belongs to the process that shares the store. The system releases it when that process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Locks the folder of a store for the process that is to share it; `None` if another process has it.
pub(crate) fn lock_folder(folder: &Path) -> io::Result<Option<File>> {
    // Neither a pipe nor anything else that is no folder is waited for.
    let flags = (OFlags::DIRECTORY | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(folder)?;
    match opened.try_lock() {
        Ok(()) => Ok(Some(opened)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
