//! Private copies of stores that cannot be written to: opening a store writes to its folder, so such a store is read from a copy.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use callboard::storage::StorageError;
use rustix::fs::{Access, OFlags, access};
use tempfile::TempDir;

/// How much disk space opening a store takes, in bytes: two segments of its log.
pub(crate) const NEEDED: u64 = 16 << 20;

/// The most bytes that are read of the lock file, which holds a process id.
const MAX_ID: u64 = 32;

/// A copy of the store if it cannot be opened where it is; removed when the value is dropped.
pub(crate) fn copy_if_needed(folder: &Path) -> Result<Option<TempDir>, StorageError> {
    if fs::metadata(folder.join("lock")).is_ok_and(|lock| !lock.is_file()) {
        // Opening the store reports this. Opening a pipe here would block.
        return Ok(None);
    }
    let Some(why) = why_not_writable(folder) else { return Ok(None) };
    let refuse = |detail: String| StorageError::Open { path: folder.display().to_string(), detail };
    // Held until the copy is complete. A user who may not read the lock file cannot take it, and copies without it.
    let lock = File::open(folder.join("lock")).ok();
    if lock.as_ref().is_some_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))) {
        let holder = lock.and_then(|lock| io::read_to_string(lock.take(MAX_ID)).ok()?.trim().parse().ok());
        return Err(StorageError::InUse { path: folder.display().to_string(), holder });
    }
    let needed = size(folder).map_err(|error| refuse(format!("{why}, and it cannot be read: {error}")))?;
    let temporary = std::env::temp_dir();
    let free = free(&temporary).unwrap_or(u64::MAX);
    if free < needed + NEEDED {
        return Err(refuse(format!(
            "{why}, and a copy to read takes {} bytes in {}, which has {free}: name a folder with more in TMPDIR",
            needed + NEEDED,
            temporary.display()
        )));
    }
    let copied = tempfile::Builder::new().prefix("callboard-store-").tempdir().and_then(|copy| {
        copy_all(folder, copy.path())?;
        Ok(copy)
    });
    copied.map(Some).map_err(|error| {
        let place = temporary.display();
        refuse(format!("{why}, and a copy to read cannot be made in {place}: {error}; name another folder in TMPDIR"))
    })
}

/// The error of a store that cannot be opened, with remedies if its disk is full or it cannot be written to.
pub(crate) fn with_remedy(folder: &Path, error: StorageError) -> StorageError {
    let StorageError::Open { path, detail } = error else { return error };
    let detail = match (free(folder).filter(|free| *free < NEEDED), why_not_writable(folder)) {
        (Some(free), _) => format!(
            "{detail}; its disk has {free} bytes free, and opening a store takes {NEEDED}, even to remove runs: remove other files \
             there, or move the folder of the store to another disk and name it with --store"
        ),
        (None, Some(why)) => format!(
            "{detail}; {why}, and only commands that read runs work without that: change its permissions, or copy the folder of the \
             store and name the copy with --store"
        ),
        (None, None) => detail,
    };
    StorageError::Open { path, detail }
}

const NOT_PERMITTED: &str = "this user may not write to it";

/// Whether the user has no permission to write to the store.
pub(crate) fn is_denied(folder: &Path) -> bool {
    why_not_writable(folder) == Some(NOT_PERMITTED)
}

fn why_not_writable(folder: &Path) -> Option<&'static str> {
    // Without waiting for the other end of a pipe.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().write(true).custom_flags(nonblocking).open(folder.join("lock")).map(drop);
    // A folder in which no file can be created is no better than a file that cannot be written.
    let paths = [folder.to_owned(), folder.join("db")];
    let checked = paths.iter().map(|path| access(path, Access::WRITE_OK).map_err(io::Error::from));
    for error in std::iter::once(opened).chain(checked).filter_map(Result::err) {
        match error.kind() {
            io::ErrorKind::PermissionDenied => return Some(NOT_PERMITTED),
            io::ErrorKind::ReadOnlyFilesystem => return Some("it is on a read-only file system"),
            _ => {}
        }
    }
    free(folder).is_some_and(|free| free < NEEDED).then_some("its disk is full")
}

/// The free bytes of the folder's file system.
pub(crate) fn free(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for file in fs::read_dir(folder)? {
        let file = file?;
        let kind = file.file_type()?;
        bytes += if kind.is_dir() { size(&file.path())? } else { file.metadata()?.len() };
    }
    Ok(bytes)
}

/// Copies files and folders; a store has nothing else.
fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    for file in fs::read_dir(from)? {
        let file = file?;
        let (kind, target) = (file.file_type()?, to.join(file.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy_all(&file.path(), &target)?;
        } else if kind.is_file() {
            // Not `fs::copy`, which would copy the permissions, so that the copy could not be written either.
            io::copy(&mut File::open(file.path())?, &mut File::create(target)?)?;
        }
    }
    Ok(())
}
