//! Files that go with this process: in a folder of its own that nobody else may look into, and that the next start removes if this
//! process was killed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::{NamedTempFile, TempDir};

use crate::stores::state_folder;
use crate::values::open_file;

/// The folder of this process, and the lock that says that it lives.
struct Scratch {
    folder: TempDir,
    _lock: File,
}

static SCRATCH: OnceLock<Option<Scratch>> = OnceLock::new();

/// A file that is removed with the value.
pub(crate) fn file(suffix: &str) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("callboard-").suffix(suffix);
    let scratch = SCRATCH.get_or_init(|| state_folder().and_then(|state| Scratch::open(&state.join("scratch")).ok()));
    match scratch {
        Some(scratch) => builder.tempfile_in(scratch.folder.path()),
        None => builder.tempfile(),
    }
}

impl Scratch {
    fn open(place: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).recursive(true).create(place)?;
        // Nobody removes a folder that is being made.
        let all = File::create(place.join("lock"))?;
        all.lock()?;
        for left in abandoned(place)? {
            fs::remove_dir_all(left)?;
        }
        let folder = tempfile::Builder::new().prefix("").tempdir_in(place)?;
        let lock = File::create(folder.path().join("lock"))?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }
}

/// The folders whose processes have gone.
fn abandoned(place: &Path) -> io::Result<Vec<PathBuf>> {
    let folders = fs::read_dir(place)?.filter_map(|file| Some(file.ok()?.path())).filter(|path| path.is_dir());
    let is_left = |folder: &PathBuf| open_file(&folder.join("lock")).map_or(true, |lock| lock.try_lock().is_ok());
    Ok(folders.filter(is_left).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_lives_is_not() {
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
