//! Files and folders that tools may read and not change, such as those that define agents and models. They are kept as paths,
//! because some do not exist yet: each is looked up again at every use of a tool, name by name, including links.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_fs_ext::MetadataExt;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::root::{Identity, identity};

/// The most links in a path.
const MAX_LINKS: usize = 40;

/// A name in the resolution of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The folder of the name, without links.
    pub(super) folder: PathBuf,
    pub(super) name: OsString,
    pub(super) kind: StepKind,
}

/// The kind of a name's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// A folder on the way.
    Folder,
    /// A link on the way.
    Link,
    /// The target of the path.
    End,
    /// Nothing exists here; the rest of the path cannot exist.
    Missing,
    /// It cannot be read, as in a folder without permission. Its owner can change the permission, and may be this user.
    Unknown,
}

impl Step {
    #[cfg(all(target_os = "linux", feature = "shell"))]
    pub(super) fn place(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

/// All names in the resolution of an absolute path, up to the first that is missing or cannot be read.
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
                let Ok(target) = fs::read_link(&place) else {
                    step(StepKind::Unknown);
                    break;
                };
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
            Err(_) => {
                step(StepKind::Unknown);
                break;
            }
        }
    }
    steps
}

/// The names that may not be changed now.
#[derive(Debug, Default)]
pub(super) struct KeptNames {
    /// Names in folders: protected files, missing ones that must not be created, and links that lead there.
    names: Vec<(Identity, String)>,
    /// Protected files and folders, by identity.
    things: Vec<Identity>,
    /// Unreadable folders in the resolution of protected paths.
    closed: Vec<Identity>,
}

impl KeptNames {
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        let mut kept = Self::default();
        for step in paths.iter().flat_map(|path| steps(path)) {
            if kept.add(&step).is_err() {
                kept.closed.extend(first_seen(&step.folder));
            }
        }
        kept
    }

    /// # Errors
    /// The folder of the step, or what is in it, cannot be looked at.
    fn add(&mut self, step: &Step) -> io::Result<()> {
        let folder = match step.kind {
            // No tool that writes files can move or remove a folder.
            StepKind::Folder => return Ok(()),
            StepKind::Unknown => return Err(io::ErrorKind::PermissionDenied.into()),
            StepKind::Link | StepKind::Missing | StepKind::End => {
                Dir::open_ambient_dir(&step.folder, ambient_authority())?
            }
        };
        if step.kind == StepKind::End {
            let found = folder.symlink_metadata(&step.name)?;
            self.things.push((found.dev(), found.ino()));
        }
        self.names.push((identity(&folder)?, folded(&step.name)));
        Ok(())
    }

    /// Whether the content of this folder cannot be read, or could not be a moment ago, and may be protected.
    pub(super) fn is_closed(&self, folder: Identity) -> bool {
        self.closed.contains(&folder)
    }

    /// Whether this name in a folder must stay as it is, or missing.
    pub(super) fn has(&self, folder: &Dir, name: &str) -> io::Result<bool> {
        if self.names.is_empty() && self.things.is_empty() {
            return Ok(false);
        }
        let folder_identity = identity(folder)?;
        let name_folded = folded(OsStr::new(name));
        let is_named = self.names.iter().any(|(folder, name)| *folder == folder_identity && *name == name_folded);
        let found = folder.symlink_metadata(name);
        Ok(is_named || found.is_ok_and(|found| self.things.contains(&(found.dev(), found.ino()))))
    }
}

/// The identity of a folder, or of the nearest readable one above it.
fn first_seen(folder: &Path) -> Option<Identity> {
    let found = folder.ancestors().find_map(|folder| fs::symlink_metadata(folder).ok())?;
    let found = cap_std::fs::Metadata::from_just_metadata(found);
    Some((found.dev(), found.ino()))
}

/// The path from the root to a protected path, if that path's text begins with the root: the names below the root are as they
/// were written, whatever links they are.
pub(super) fn name_below(root: &Path, kept: &Path) -> Option<PathBuf> {
    let above = kept.ancestors().skip(1).find(|above| above.canonicalize().is_ok_and(|above| above == root))?;
    let below = kept.strip_prefix(above).ok()?;
    below.components().all(|part| matches!(part, Component::Normal(_))).then(|| below.to_owned())
}

/// Whether a path below the root leads to a protected path, or into it, judged by its text. After a name, links decide where `..`
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

/// A name without differences of case, which some file systems ignore.
fn folded(name: &OsStr) -> String {
    name.to_string_lossy().to_lowercase()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_text_of_a_path_shows_that_it_leads_to_what_is_kept_only_where_no_link_decides() {
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
    fn what_cannot_be_looked_at_closes_the_folder_that_it_would_be_in() {
        let world = tempfile::tempdir().unwrap();
        let folder = world.path().canonicalize().unwrap().join("conf");
        fs::create_dir(&folder).unwrap();
        let own = identity(&Dir::open_ambient_dir(&folder, ambient_authority()).unwrap()).unwrap();
        assert_eq!(first_seen(&folder), Some(own));
        assert_eq!(first_seen(&folder.join("gone/deep")), Some(own));
        let step = |folder: PathBuf, kind| Step { folder, name: "models.toml".into(), kind };
        let mut kept = KeptNames::default();
        kept.add(&step(folder.clone(), StepKind::Unknown)).unwrap_err();
        // It no longer exists, or cannot be read.
        for kind in [StepKind::Link, StepKind::Missing, StepKind::End] {
            kept.add(&step(folder.join("gone"), kind)).unwrap_err();
        }
        kept.add(&step(folder.clone(), StepKind::Missing)).unwrap();
        // No process can open a name that is too long.
        let long = folder.join("x".repeat(300)).join("models.toml");
        assert_eq!(steps(&long).last().map(|step| (step.kind, &step.folder)), Some((StepKind::Unknown, &folder)));
        assert!(KeptNames::of(&[long]).is_closed(own));
        assert!(!KeptNames::of(&[folder.join("models.toml")]).is_closed(own));
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
