//! What is left of a store that could not be made, as on a disk that is full.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::values::open_file;

/// The folders that are not there before a store is made: its own, and those that it lies in.
pub(crate) struct Missing(Vec<PathBuf>);

impl Missing {
    /// Which of these folders are missing, the innermost first.
    pub(crate) fn before(folder: &Path) -> Self {
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && fs::symlink_metadata(folder).is_err();
        Self(folder.ancestors().take_while(is_missing).map(Path::to_owned).collect())
    }

    /// Removes those that have been made since. A store that another process has made there meanwhile stays, and so does what is in
    /// the folders around it.
    pub(crate) fn remove(&self) {
        let Some((folder, around)) = self.0.split_first() else { return };
        match open_file(&folder.join("lock")) {
            Ok(lock) if lock.try_lock().is_ok() => drop(fs::remove_dir_all(folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => drop(fs::remove_dir(folder)),
            Ok(_) | Err(_) => {}
        }
        for folder in around {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn what_was_made_is_removed_but_for_what_another_process_holds_or_has_put_there() {
        let place = tempfile::tempdir().unwrap();
        let [around, store] = ["project", "project/1"].map(|name| place.path().join(name));
        let missing = Missing::before(&store);
        let make = || {
            fs::create_dir_all(&store).unwrap();
            fs::File::create(store.join("lock")).unwrap()
        };
        let other = make();
        other.lock().unwrap();
        missing.remove();
        assert!(store.exists());
        drop(other);
        fs::write(around.join("project.json"), "{}").unwrap();
        missing.remove();
        assert!(around.exists() && !store.exists());
        fs::remove_file(around.join("project.json")).unwrap();
        drop(make());
        Missing::before(&store).remove();
        assert!(store.exists(), "it was there before");
        missing.remove();
        assert!(!around.exists());
    }
}
