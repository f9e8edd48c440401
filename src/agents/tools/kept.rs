//! Files and folders that tools may read and not change, such as those that define agents and models. They are paths, because some
//! of them are not there yet: each is looked at anew whenever a tool is used, name by name, with the links on the way.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_fs_ext::MetadataExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::root::{Identity, identity};

/// The most links on the way.
const MAX_LINKS: usize = 40;

/// A name on the way to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Its folder, without links, and itself.
    pub(super) folder: PathBuf,
    pub(super) name: OsString,
    pub(super) kind: StepKind,
}

/// What has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// A folder on the way.
    Folder,
    /// A link on the way.
    Link,
    /// Where the path leads.
    End,
    /// Nothing; the rest of the path cannot be there.
    Missing,
}

impl Step {
    #[cfg(all(target_os = "linux", feature = "shell"))]
    pub(super) fn place(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

/// All names on the way to an absolute path, up to the first one that is missing.
pub(super) fn steps(path: &Path) -> Vec<Step> {
    let mut left: VecDeque<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    let (mut steps, mut at, mut links) = (Vec::new(), PathBuf::new(), 0);
    while let Some(part) = left.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            Some(Component::RootDir | Component::Prefix(_)) => {
                at.push(&part);
                continue;
            }
            Some(Component::CurDir) | None => continue,
        }
        let place = at.join(&part);
        let mut step = |kind| steps.push(Step { folder: at.clone(), name: part.clone(), kind });
        match fs::symlink_metadata(&place) {
            Ok(found) if found.is_symlink() => {
                step(StepKind::Link);
                links += 1;
                let Ok(target) = fs::read_link(&place) else { break };
                if links > MAX_LINKS {
                    break;
                }
                for part in target.components().rev() {
                    left.push_front(part.as_os_str().to_owned());
                }
            }
            Ok(found) if found.is_dir() && !left.is_empty() => {
                step(StepKind::Folder);
                at = place;
            }
            Ok(_) => {
                step(StepKind::End);
                break;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                step(StepKind::Missing);
                break;
            }
            // Who may not look at it may not read it either.
            Err(_) => break,
        }
    }
    steps
}

/// What may not be changed now.
#[derive(Debug, Default)]
pub(super) struct KeptNames {
    /// Names in folders: of what is to stay, is not to come, or leads there.
    names: Vec<(Identity, String)>,
    /// What is to stay, whatever its name.
    things: Vec<Identity>,
}

impl KeptNames {
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        let mut kept = Self::default();
        for step in paths.iter().flat_map(|path| steps(path)) {
            let Ok(folder) = Dir::open_ambient_dir(&step.folder, ambient_authority()) else { continue };
            match step.kind {
                // Nothing that writes files can move or remove it.
                StepKind::Folder => continue,
                StepKind::Link | StepKind::Missing => {}
                StepKind::End => {
                    let found = folder.symlink_metadata(&step.name);
                    kept.things.extend(found.map(|found| (found.dev(), found.ino())));
                }
            }
            if let Ok(folder) = identity(&folder) {
                kept.names.push((folder, folded(&step.name)));
            }
        }
        kept
    }

    /// Whether this name in a folder has to stay as it is, or missing.
    pub(super) fn has(&self, folder: &Dir, name: &str) -> io::Result<bool> {
        if self.names.is_empty() {
            return Ok(false);
        }
        let folder_identity = identity(folder)?;
        let name_folded = folded(OsStr::new(name));
        let is_named = self.names.iter().any(|(folder, name)| *folder == folder_identity && *name == name_folded);
        let found = folder.symlink_metadata(name);
        Ok(is_named || found.is_ok_and(|found| self.things.contains(&(found.dev(), found.ino()))))
    }
}

/// The path from the root to what is to stay, if its text leads through the root: the names below the root are as they were written,
/// whatever links they are.
pub(super) fn name_below(root: &Path, kept: &Path) -> Option<PathBuf> {
    let above = kept.ancestors().skip(1).find(|above| above.canonicalize().is_ok_and(|above| above == root))?;
    let below = kept.strip_prefix(above).ok()?;
    below.components().all(|part| matches!(part, Component::Normal(_))).then(|| below.to_owned())
}

/// Whether a path below the root leads to what is to stay, or into it, as far as its text tells. After a name, links decide where `..`
/// leads.
pub(super) fn is_kept_by_text(path: &str, kept: &Path) -> bool {
    let mut parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
    let mut names = kept.components().peekable();
    while let Some(name) = names.next() {
        let Some(part) = parts.next() else { return false };
        let is_last = names.peek().is_none();
        let is_same = if is_last { folded(part.as_os_str()) == folded(name.as_os_str()) } else { part == name };
        if !is_same {
            return false;
        }
    }
    parts.all(|part| part != Component::ParentDir)
}

/// Some file systems take names for the same that differ in case.
fn folded(name: &OsStr) -> String {
    name.to_string_lossy().to_lowercase()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_text_of_a_path_tells_that_it_leads_to_what_is_kept_only_where_no_link_decides() {
        let kept = Path::new("conf/agents");
        for path in ["conf/agents", "./conf//agents/a.toml", "conf/AGENTS/", "conf/./agents/deep/a"] {
            assert!(is_kept_by_text(path, kept), "{path}");
        }
        for path in ["conf", "agents", "CONF/agents", "conf/agents.toml", "x/../conf/agents", "conf/agents/../x", "."] {
            assert!(!is_kept_by_text(path, kept), "{path}");
        }
    }

    #[test]
    fn names_below_the_root_are_found_through_links_above_it() {
        let world = tempfile::tempdir().unwrap();
        let base = world.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("root/sub")).unwrap();
        symlink("root", base.join("link")).unwrap();
        let root = base.join("root");
        let below = |path: &str| name_below(&root, &base.join(path));
        assert_eq!(below("root/agents"), Some("agents".into()));
        assert_eq!(below("link/conf/agents"), Some("conf/agents".into()));
        assert_eq!(below("root/sub/../agents"), Some("agents".into()));
        for path in ["root", "agents", "root/conf/../agents"] {
            assert_eq!(below(path), None, "{path}");
        }
    }

    #[test]
    fn the_way_to_a_path_has_its_folders_and_links_and_ends_with_what_is_missing() {
        let world = tempfile::tempdir().unwrap();
        let base = world.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("a/b")).unwrap();
        fs::write(base.join("a/b/file"), "x").unwrap();
        symlink("a/../a/b", base.join("link")).unwrap();
        let below = |path: &Path| {
            let steps = steps(path).into_iter().filter(|step| step.folder.starts_with(&base));
            let shown = steps.map(|step| {
                let place = step.folder.join(&step.name);
                (place.strip_prefix(&base).unwrap().display().to_string(), step.kind)
            });
            shown.collect::<Vec<_>>()
        };
        let step = |name: &str, kind| (name.to_owned(), kind);
        assert_eq!(
            below(&base.join("link/file")),
            [
                step("link", StepKind::Link),
                step("a", StepKind::Folder),
                step("a", StepKind::Folder),
                step("a/b", StepKind::Folder),
                step("a/b/file", StepKind::End),
            ]
        );
        assert_eq!(
            below(&base.join("a/none/deeper")),
            [step("a", StepKind::Folder), step("a/none", StepKind::Missing)]
        );
        assert_eq!(below(&base.join("a")), [step("a", StepKind::End)]);
    }
}
