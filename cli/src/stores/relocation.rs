//! Records which project a folder of stores belongs to, so that the stores of a project that was moved are found: its path has
//! changed, its inode has not. The time at which the folder was created tells it from a later one with the inode of a removed one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use callboard::messages::visible;

use crate::atomic_file::AtomicFile;
use crate::quote::quoted_path;
use crate::values::open_file;

use super::project::{facts_in, stores_in};
use super::store::Store;

/// The file beside the stores of a project that records its path and inode.
const FILE: &str = "project.json";

/// The most bytes of the file that are read; a path is shorter.
const MAX: u64 = 64 << 10;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Identity {
    root: PathBuf,
    device: u64,
    inode: u64,
    /// When the folder was created, in nanoseconds since 1970; `None` where the file system does not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<u128>,
}

impl Identity {
    fn of(root: &Path) -> Option<Self> {
        let about = fs::metadata(root).ok()?;
        let created_at = about.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let created_at = created_at.map(|time| time.as_nanos());
        Some(Self { root: root.to_owned(), device: about.dev(), inode: about.ino(), created_at })
    }

    fn read(folder: &Path) -> Option<Self> {
        serde_json::from_reader(open_file(&folder.join(FILE)).ok()?.take(MAX)).ok()
    }

    /// Whether it is the same folder at another path, and nothing is at its own path any more.
    fn was_moved_to(&self, now: &Self) -> bool {
        let is_same = (self.device, self.inode) == (now.device, now.inode)
            && self.created_at.zip(now.created_at).is_none_or(|(one, other)| one == other);
        is_same && matches!(self.root.try_exists(), Ok(false))
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

/// If this project was moved, and its earlier stores have runs or facts: where they are, and the command that moves them.
pub(super) async fn hint(folder: &Path, root: &Path) -> Option<String> {
    for (identity, other) in before(folder, root) {
        let stores = stores_in(&other).unwrap_or_default();
        let line = move_line((&other, &stores), folder);
        if !line.is_empty() && (facts_in(&other).exists() || has_runs(&stores).await) {
            let root = visible(&identity.root.display().to_string());
            return Some(format!("this project was at {root} before; to keep its runs and facts: {line}"));
        }
    }
    None
}

/// If this project was moved: where it was, and the base of facts that it had there.
pub(super) fn facts_before(folder: &Path, root: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut facts = before(folder, root).map(|(identity, other)| (identity.root, facts_in(&other)));
    facts.find(|(_, facts)| facts.exists())
}

/// Where the project was before it was moved, with the folder that it had for its stores.
fn before(folder: &Path, root: &Path) -> impl Iterator<Item = (Identity, PathBuf)> {
    let (own, folder) = (Identity::of(root), folder.to_owned());
    let others = folder.parent().and_then(|state| fs::read_dir(state).ok());
    let others = others.into_iter().flatten().filter_map(|other| Some(other.ok()?.path()));
    others.filter(move |other| *other != folder).filter_map(move |other| {
        let identity =
            Identity::read(&other).filter(|identity| own.as_ref().is_some_and(|own| identity.was_moved_to(own)))?;
        Some((identity, other))
    })
}

/// Whether one of the stores has a run, or cannot be read.
async fn has_runs(stores: &[PathBuf]) -> bool {
    for store in stores {
        let Ok(store) = Store::read(store) else { return true };
        if !store.ids().await.is_ok_and(|runs| runs.is_empty()) {
            return true;
        }
    }
    false
}

/// The command that moves the stores in `from` to the folder, with the base of facts; each store gets the next free number if the folder has
/// stores already. A base of facts that the folder has already stays.
fn move_line((from, stores): (&Path, &[PathBuf]), folder: &Path) -> String {
    if !folder.exists() {
        return format!("mv {} {}", quoted_path(from), quoted_path(folder));
    }
    let mut free =
        (1_u32..).map(|number| folder.join(number.to_string())).filter(|target| fs::symlink_metadata(target).is_err());
    let line = |from: &Path, to: &Path| format!("mv {} {}", quoted_path(from), quoted_path(to));
    let stores = stores.iter().filter_map(|store| Some(line(store, &free.next()?)));
    let facts = match [from, folder].map(facts_in) {
        [from, to] if from.exists() && !to.exists() => from.parent().zip(to.parent()).map(|(from, to)| line(from, to)),
        _ => None,
    };
    stores.chain(facts).collect::<Vec<_>>().join(" && ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn only_the_same_folder_at_another_path_was_moved() {
        let place = tempfile::tempdir().unwrap();
        let [site, moved] = ["site", "moved"].map(|name| place.path().join(name));
        fs::create_dir(&site).unwrap();
        let before = Identity::of(&site).unwrap();
        fs::create_dir(&moved).unwrap();
        assert!(!before.was_moved_to(&Identity::of(&moved).unwrap()), "it is another folder");
        fs::remove_dir(&moved).unwrap();
        fs::rename(&site, &moved).unwrap();
        let now = Identity::of(&moved).unwrap();
        assert!(before.was_moved_to(&now));
        let later = Identity { created_at: now.created_at.map(|at| at + 1), ..Identity::of(&moved).unwrap() };
        assert_eq!(before.was_moved_to(&later), now.created_at.is_none(), "a later folder has its inode");
        fs::create_dir(&site).unwrap();
        assert!(!before.was_moved_to(&now), "its path is in use again");
    }

    #[test]
    fn stores_are_moved_to_numbers_that_are_free() {
        let place = tempfile::tempdir().unwrap();
        let [old, new] = ["old-1", "new-2"].map(|name| place.path().join(name));
        let stores = [old.join("1"), old.join("2")];
        let shown = place.path().display();
        assert_eq!(move_line((&old, &stores), &new), format!("mv {shown}/old-1 {shown}/new-2"));
        fs::create_dir_all(new.join("2")).unwrap();
        let line = format!("mv {shown}/old-1/1 {shown}/new-2/1 && mv {shown}/old-1/2 {shown}/new-2/3");
        assert_eq!(move_line((&old, &stores), &new), line);
        fs::create_dir_all(old.join("knowledge")).unwrap();
        fs::write(old.join("knowledge/facts.db"), "").unwrap();
        let with_facts = format!("{line} && mv {shown}/old-1/knowledge {shown}/new-2/knowledge");
        assert_eq!(move_line((&old, &stores), &new), with_facts);
        fs::create_dir(new.join("knowledge")).unwrap();
        fs::write(new.join("knowledge/facts.db"), "").unwrap();
        assert_eq!(move_line((&old, &stores), &new), line, "there is a base already");
    }
}
