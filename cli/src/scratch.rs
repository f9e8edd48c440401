//! Temporary files of this process, in a folder that only this user can read; the next start removes it if this process was killed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::OFlags;
use tempfile::{NamedTempFile, TempDir};

use crate::stores::project::state_folder;
use crate::values::open_file;

/// The folder of this process, and the lock that it holds while it runs.
struct Scratch {
    folder: TempDir,
    _lock: File,
}

/// The folder, made at the first use. `None` where the state folder cannot be used; an error where its lock file is not a file.
static SCRATCH: OnceLock<Result<Option<Scratch>, String>> = OnceLock::new();

/// A temporary file that is removed when the value is dropped.
pub(crate) fn file(suffix: &str) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("callboard-").suffix(suffix);
    match SCRATCH.get_or_init(Scratch::of_process) {
        Ok(Some(scratch)) => builder.tempfile_in(scratch.folder.path()),
        Ok(None) => builder.tempfile(),
        Err(error) => Err(io::Error::other(error.clone())),
    }
}

impl Scratch {
    fn of_process() -> Result<Option<Self>, String> {
        let Some(place) = state_folder().map(|state| state.join("scratch")) else { return Ok(None) };
        match Self::open(&place) {
            Ok(scratch) => Ok(Some(scratch)),
            Err(_) => match wrong_kind(&place.join("lock")) {
                Some(error) => Err(error),
                None => Ok(None),
            },
        }
    }

    fn open(place: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).recursive(true).create(place)?;
        // Held while the folder is made, so that no other process removes it before it is locked.
        let all = lock_file(&place.join("lock"))?;
        all.lock()?;
        for left in orphaned(place)? {
            fs::remove_dir_all(left)?;
        }
        let folder = tempfile::Builder::new().prefix("").tempdir_in(place)?;
        let lock = lock_file(&folder.path().join("lock"))?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }
}

/// Opens or creates a file to lock it. Its content is kept; a link is not followed, and opening a pipe or a device does not block.
fn lock_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let file = File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}

/// An error if something other than a regular file has this path.
fn wrong_kind(path: &Path) -> Option<String> {
    let is_odd = fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
    is_odd.then(|| format!("{} is no regular file, so it cannot be locked: remove it", path.display()))
}

/// The folders of processes that have ended.
fn orphaned(place: &Path) -> io::Result<Vec<PathBuf>> {
    let folders = fs::read_dir(place)?.filter_map(|file| Some(file.ok()?.path())).filter(|path| path.is_dir());
    let is_left = |folder: &PathBuf| open_file(&folder.join("lock")).map_or(true, |lock| lock.try_lock().is_ok());
    Ok(folders.filter(is_left).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn the_folder_of_a_killed_process_is_removed_and_that_of_a_running_one_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let living = Scratch::open(place.path()).unwrap();
        let killed = Scratch::open(place.path()).unwrap();
        let left = killed.folder.keep();
        fs::write(left.join("state.json"), "{}").unwrap();
        drop(killed._lock);
        let next = Scratch::open(place.path()).unwrap();
        assert!(living.folder.path().exists() && next.folder.path().exists() && !left.exists());
    }
}
