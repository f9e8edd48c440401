//! Removes the folders of a store that could not be created, as on a full disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::values::open_file;

/// The folders that do not exist before a store is created: its own, and its parents.
pub(crate) struct Missing(Vec<PathBuf>);

impl Missing {
    /// The missing folders, innermost first.
    pub(crate) fn before(folder: &Path) -> Self {
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && fs::symlink_metadata(folder).is_err();
        Self(folder.ancestors().take_while(is_missing).map(Path::to_owned).collect())
    }

    /// Removes those that were created since. A store that another process has created there meanwhile is kept, and so are parents that
    /// are not empty.
    pub(crate) fn remove(&self) {
        let Some((folder, parents)) = self.0.split_first() else { return };
        match open_file(&folder.join("lock")) {
            Ok(lock) if lock.try_lock().is_ok() => drop(fs::remove_dir_all(folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => drop(fs::remove_dir(folder)),
            Ok(_) | Err(_) => {}
        }
        for folder in parents {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn created_folders_are_removed_unless_another_process_locks_or_fills_them() {
        let place = tempfile::tempdir().unwrap();
        let [project, store] = ["project", "project/1"].map(|name| place.path().join(name));
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
        fs::write(project.join("project.json"), "{}").unwrap();
        missing.remove();
        assert!(project.exists() && !store.exists());
        fs::remove_file(project.join("project.json")).unwrap();
        drop(make());
        Missing::before(&store).remove();
        assert!(store.exists(), "it existed before");
        missing.remove();
        assert!(!project.exists());
    }
}
