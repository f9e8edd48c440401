//! Which project a folder of stores is of, so that the stores of one that was moved are found: its path has changed, its inode has
//! not.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use callboard::messages::visible;

use crate::atomic_file::Unfinished;
use crate::quote::quoted_path;
use crate::values::open_file;

/// The file beside the stores of a project.
const FILE: &str = "project.json";

/// The most bytes of it that are read; a path has fewer.
const MAX: u64 = 64 << 10;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Identity {
    root: PathBuf,
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(root: &Path) -> Option<Self> {
        let about = fs::metadata(root).ok()?;
        Some(Self { root: root.to_owned(), device: about.dev(), inode: about.ino() })
    }

    fn read(folder: &Path) -> Option<Self> {
        serde_json::from_reader(open_file(&folder.join(FILE)).ok()?.take(MAX)).ok()
    }
}

/// Notes which project the stores in a folder are of. Without the note they are used all the same.
pub(crate) fn remember(folder: &Path, root: &Path) {
    let identity = Identity::of(root);
    if let Some(text) = identity.as_ref().filter(|identity| Identity::read(folder).as_ref() != Some(identity))
        && let Ok(text) = serde_json::to_vec(text)
    {
        // What is there may be no file: a pipe would be waited for.
        let _ = fs::remove_file(folder.join(FILE));
        let _ = Unfinished::begin(folder).and_then(|mut file| {
            file.file().write_all(&text)?;
            file.appear(&folder.join(FILE))
        });
    }
}

/// The project that the stores in a folder are of; the folder itself, if no file names it.
pub(crate) fn root_of(folder: &Path) -> PathBuf {
    Identity::read(folder).map_or_else(|| folder.to_owned(), |identity| identity.root)
}

/// Where the stores of this project are, if it was moved and has none yet, and how they are taken along.
pub(crate) fn hint(folder: &Path, root: &Path) -> Option<String> {
    let own = Identity::of(root).filter(|_| !folder.exists())?;
    let others = fs::read_dir(folder.parent()?).ok()?;
    others.filter_map(|other| Some(other.ok()?.path())).find_map(|other| {
        let identity = Identity::read(&other)?;
        let is_moved = (identity.device, identity.inode) == (own.device, own.inode)
            && Identity::of(&identity.root).is_none_or(|now| now.inode != own.inode);
        is_moved.then(|| {
            let (other, folder) = (quoted_path(&other), quoted_path(folder));
            format!(
                "this project was at {} before; its runs are taken along by: mv {other} {folder}",
                visible(&identity.root.display().to_string())
            )
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_project_that_was_moved_is_found_and_one_that_was_not_is_not() {
        let place = tempfile::tempdir().unwrap();
        let [state, site, moved] = ["state", "site", "moved"].map(|name| place.path().join(name));
        let [old, new] = ["site-1", "moved-2"].map(|name| state.join(name));
        fs::create_dir_all(&old).unwrap();
        fs::create_dir(&site).unwrap();
        remember(&old, &site);
        assert_eq!(hint(&new, &site), None, "it is where it was");
        fs::rename(&site, &moved).unwrap();
        let told = hint(&new, &moved).unwrap();
        assert!(
            told.contains(&*site.to_string_lossy())
                && told.contains(&format!("mv {} {}", quoted_path(&old), quoted_path(&new)))
        );
        fs::create_dir(&new).unwrap();
        assert_eq!(hint(&new, &moved), None, "it has stores of its own");
    }
}
