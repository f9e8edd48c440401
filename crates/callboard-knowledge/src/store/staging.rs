//! A file that is written beside its destination, and moved there once it is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The beginning of the names of folders for such files.
const PREFIX: &str = ".callboard-facts-";

/// A folder for a file and what SQLite keeps beside it. It is removed when it is dropped; one that a killed process has left is removed by the
/// next process that makes one in the same place or opens a base there, because nobody holds its lock.
#[derive(Debug)]
pub(super) struct Staging {
    folder: TempDir,
    _lock: File,
}

impl Staging {
    /// Makes one in the folder of the destination.
    pub(super) fn beside(destination: &Path) -> io::Result<Self> {
        let parent = parent(destination);
        remove_abandoned(parent);
        loop {
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(fs::Permissions::from_mode(0o700))
                .tempdir_in(parent)?;
            let lock = match File::create(folder.path().join("lock")) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            lock.lock()?;
            // Another process may have taken it for one that was left, before it was locked.
            if folder.path().join("lock").exists() {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    /// The path of the file, which does not exist yet.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("facts.db")
    }

    /// Creates the file, readable by this user alone.
    pub(super) fn create(&self) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path())
    }

    /// Gives the file its name; an error if something has that name.
    pub(super) fn keep_as(self, destination: &Path) -> io::Result<()> {
        let staged = self.path();
        File::open(&staged)?.sync_all()?;
        tempfile::TempPath::try_from_path(staged)?.persist_noclobber(destination).map_err(|error| error.error)?;
        sync_folder_of(destination)
    }

    /// Puts the file in the place of what has that name.
    pub(super) fn replace(self, destination: &Path) -> io::Result<()> {
        let staged = self.path();
        File::open(&staged)?.sync_all()?;
        fs::rename(&staged, destination)?;
        sync_folder_of(destination)
    }
}

/// The folder that a file is in.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts the names of a folder on disk.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// Removes the folders in a folder that killed processes left.
pub(super) fn remove_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let staged = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    for folder in staged.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()) {
        match File::open(folder.join("lock")) {
            Ok(lock) if lock.try_lock().is_ok() => drop(fs::remove_dir_all(folder)),
            // Its process was killed before it made the lock, or is about to make it, and then makes another folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => drop(fs::remove_dir(folder)),
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_a_killed_process_left_is_removed_and_one_that_is_used_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let destination = place.path().join("copy.db");
        let used = Staging::beside(&destination).unwrap();
        assert_eq!(fs::metadata(used.folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
        for left in ["1", "2"].map(|name| place.path().join(format!("{PREFIX}{name}"))) {
            fs::create_dir(&left).unwrap();
            if left.ends_with(format!("{PREFIX}1")) {
                fs::write(left.join("lock"), "").unwrap();
                fs::write(left.join("facts.db"), "half").unwrap();
            }
        }
        drop(Staging::beside(&destination).unwrap());
        let there: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(there, [used.folder.path()]);
        drop(used.create().unwrap());
        used.keep_as(&destination).unwrap();
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
        let other = Staging::beside(&destination).unwrap();
        drop(other.create().unwrap());
        assert_eq!(other.keep_as(&destination).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
