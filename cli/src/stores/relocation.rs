//! Records which project a folder of stores belongs to, so that the stores of a project that was moved are found: its path has
//! changed, its inode has not.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use callboard::messages::visible;

use crate::atomic_file::AtomicFile;
use crate::quote::quoted_path;
use crate::values::open_file;

/// The file beside the stores of a project that records its path and inode.
const FILE: &str = "project.json";

/// The most bytes of the file that are read; a path is shorter.
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

/// Records the project of the stores in a folder. An error is ignored: the stores work without the record.
pub(crate) fn remember(folder: &Path, root: &Path) {
    let identity = Identity::of(root);
    if let Some(text) = identity.as_ref().filter(|identity| Identity::read(folder).as_ref() != Some(identity))
        && let Ok(text) = serde_json::to_vec(text)
    {
        // The path may not be a file: opening a pipe would block.
        let _ = fs::remove_file(folder.join(FILE));
        let _ = AtomicFile::create(folder).and_then(|mut file| {
            file.file().write_all(&text)?;
            file.persist(&folder.join(FILE))
        });
    }
}

/// The path of the project that the stores in a folder belong to; the folder itself if it is not recorded.
pub(crate) fn root_of(folder: &Path) -> PathBuf {
    Identity::read(folder).map_or_else(|| folder.to_owned(), |identity| identity.root)
}

/// If this project was moved and has no stores yet: where its stores are, and the command that moves them.
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
                "this project was at {} before; to keep its runs: mv {other} {folder}",
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
    fn only_a_project_that_was_moved_has_a_hint() {
        let place = tempfile::tempdir().unwrap();
        let [state, site, moved] = ["state", "site", "moved"].map(|name| place.path().join(name));
        let [old, new] = ["site-1", "moved-2"].map(|name| state.join(name));
        fs::create_dir_all(&old).unwrap();
        fs::create_dir(&site).unwrap();
        remember(&old, &site);
        assert_eq!(super::hint(&new, &site), None, "it was not moved");
        fs::rename(&site, &moved).unwrap();
        let hint = super::hint(&new, &moved).unwrap();
        assert!(
            hint.contains(&*site.to_string_lossy())
                && hint.contains(&format!("mv {} {}", quoted_path(&old), quoted_path(&new)))
        );
        fs::create_dir(&new).unwrap();
        assert_eq!(super::hint(&new, &moved), None, "it has stores of its own");
    }
}
