use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard_text::{cut, quoted, visible};
use cap_fs_ext::{DirExt, FollowSymlinks, MetadataExt, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, FileType, Metadata, OpenOptions};
use parking_lot::Mutex;

use super::kept::{KeptNames, is_kept_by_text, name_below};

/// The longest path in bytes, the most nested folders, and the most links in a path.
const MAX_PATH: usize = 4096;
pub(super) const MAX_DEPTH: usize = 64;
const MAX_LINKS: usize = 40;

/// The folder that tools work in. It is opened once, and everything in it is reached from its handle, one name at a time: no
/// path, link or folder that is moved meanwhile leads out of it. A cheap clone.
#[derive(Clone, Debug)]
pub struct Root {
    pub(super) folder: Arc<Dir>,
    /// The path at which it was opened.
    pub(super) place: Arc<Path>,
    pub(super) hidden: Arc<[Hidden]>,
    /// Absolute paths that tools may read and not change.
    pub(super) kept: Arc<[PathBuf]>,
    /// Those of them that are below the root by their text, relative to it.
    kept_below: Arc<[PathBuf]>,
    /// Locked by each change of a file, so that of two concurrent changes neither is lost.
    pub(super) change: Arc<Mutex<()>>,
}

/// A folder that is hidden from tools. Its handle is kept open, so that its identity is not reused.
#[derive(Clone, Debug)]
pub(super) struct Hidden {
    pub(super) place: PathBuf,
    folder: Arc<Dir>,
}

/// Device and inode: the identity of a folder under any name.
pub(super) type Identity = (u64, u64);

/// Why a folder cannot be one for tools, or be kept from them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// The folder does not exist, is no folder, or may not be opened.
    #[error("the folder {} cannot be opened: {error}", quoted(&place.display().to_string()))]
    Open {
        /// The path of the folder, as it was given.
        place: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
    /// The root would lie in what no tool may see.
    #[error("the folder of the tools lies in {}, which they may not see; choose another", quoted(&.0.display().to_string()))]
    Within(PathBuf),
    /// The root would be what no tool may change.
    #[error(
        "the folder of the tools is {}, which they may not change, such as the folder of agents: choose another folder for one of them",
        quoted(&.0.display().to_string())
    )]
    Kept(PathBuf),
}

impl Root {
    /// Opens the folder that tools shall work in.
    ///
    /// # Errors
    /// It is not there, is no folder, or may not be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RootError> {
        let (folder, place) = opened(path.as_ref())?;
        let (hidden, kept, kept_below) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { folder: Arc::new(folder), place: place.into(), hidden, kept, kept_below, change: Arc::default() })
    }

    /// The same folder, without another one that no tool may see, such as the board's data folder. It is known by what it is,
    /// so no other name, link or spelling leads into it. It may also lie elsewhere: then it is kept from shells.
    ///
    /// # Errors
    /// It is not there (make it first: what is not there cannot be recognised), or the root lies in it.
    pub fn without(mut self, path: impl AsRef<Path>) -> Result<Self, RootError> {
        let (folder, place) = opened(path.as_ref())?;
        if self.place.starts_with(&place) {
            return Err(RootError::Within(place));
        }
        self.hidden = self.hidden.iter().cloned().chain([Hidden { place, folder: Arc::new(folder) }]).collect();
        Ok(self)
    }

    /// The same folder, with a file or a folder that tools may read and not change, such as the definitions of the agents
    /// themselves. It need not be there yet: then tools cannot make it. Links that the path goes through stay too.
    /// A root below such a folder is no part of it. docs/tools.md
    /// describes what holds for commands.
    ///
    /// ```
    /// use callboard_agents::tools::Root;
    /// # let project = tempfile::tempdir()?;
    /// # let project = project.path();
    /// let root = Root::open(project)?.keeping(project.join("agents"))?.keeping(project.join("models.toml"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// It is the root itself, or the path is relative and there is no current folder.
    pub fn keeping(mut self, path: impl AsRef<Path>) -> Result<Self, RootError> {
        let place = path.as_ref();
        let absolute = std::path::absolute(place);
        let absolute = absolute.map_err(|error| RootError::Open { place: place.to_owned(), error })?;
        if identity_at(&absolute).is_some_and(|kept| identity(&self.folder).is_ok_and(|own| own == kept)) {
            return Err(RootError::Kept(place.to_owned()));
        }
        self.kept_below = self.kept_below.iter().cloned().chain(name_below(&self.place, &absolute)).collect();
        self.kept = self.kept.iter().cloned().chain([absolute]).collect();
        Ok(self)
    }

    /// Whether a path may lead to a file that is changed, judged by its text.
    ///
    /// # Errors
    /// It leads nowhere that a tool may go, or to what is to stay as it is.
    pub(super) fn check_text_to_change(&self, path: &str) -> Result<(), PathError> {
        check_text(path)?;
        let is_kept = self.kept_below.iter().any(|kept| is_kept_by_text(path, kept));
        if is_kept { Err(PathError { path: path.to_owned(), why: Why::Kept }) } else { Ok(()) }
    }

    /// Resolves a path. Only its last part may be missing.
    ///
    /// # Errors
    /// It leads nowhere that a tool may go.
    pub(super) fn find(&self, path: &str) -> Result<Place, PathError> {
        self.walk(path, For::Reading).map_err(|why| PathError { path: path.to_owned(), why })
    }

    /// As [`Root::find`], for a change.
    ///
    /// # Errors
    /// As there, or it is to stay as it is.
    pub(super) fn find_to_change(&self, path: &str) -> Result<Place, PathError> {
        self.walk(path, For::Changing).map_err(|why| PathError { path: path.to_owned(), why })
    }

    /// As [`Root::find_to_change`]; missing folders are created.
    ///
    /// # Errors
    /// As for [`Root::find_to_change`].
    pub(super) fn find_or_make(&self, path: &str) -> Result<Place, PathError> {
        self.walk(path, For::Making).map_err(|why| PathError { path: path.to_owned(), why })
    }

    /// Checks whether [`Root::find_or_make`] would find the path now, and creates nothing.
    ///
    /// # Errors
    /// As for [`Root::find_to_change`].
    pub(super) fn check_to_change(&self, path: &str) -> Result<(), PathError> {
        self.walk(path, For::Checking).map(drop).map_err(|why| PathError { path: path.to_owned(), why })
    }

    /// Whether the folder is still at the path where it was opened.
    #[cfg(all(target_os = "linux", feature = "shell"))]
    pub(super) fn is_in_place(&self) -> bool {
        identity_at(&self.place).is_some_and(|now| identity(&self.folder).is_ok_and(|own| own == now))
    }

    /// The hidden folders: those that were named, and the present ones at their paths.
    pub(super) fn hidden_now(&self) -> Vec<Identity> {
        let now = |hidden: &Hidden| [identity(&hidden.folder).ok(), identity_at(&hidden.place)];
        self.hidden.iter().flat_map(now).flatten().collect()
    }

    fn walk(&self, path: &str, purpose: For) -> Result<Place, Why> {
        check_text(path).map_err(|error| error.why)?;
        let hidden = self.hidden_now();
        let kept = match purpose {
            For::Reading => KeptNames::default(),
            For::Changing | For::Making | For::Checking => KeptNames::of(&self.kept),
        };
        if kept.is_closed(identity(&self.folder)?) {
            return Err(Why::Closed);
        }
        let mut above = Vec::new();
        let mut folder = self.folder.try_clone()?;
        let mut parts: VecDeque<String> = parts(path)?.collect();
        let mut links = 0;
        while let Some(part) = parts.pop_front() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    folder = above.pop().ok_or(Why::Outside)?;
                    continue;
                }
                _ => {}
            }
            if kept.has(&folder, &part)? {
                return Err(Why::Kept);
            }
            let kind = match folder.symlink_metadata(&part) {
                Ok(found) => found.file_type(),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                Err(_) if parts.is_empty() => return Ok(Place { folder, name: Some(part) }),
                Err(_) if purpose == For::Making => {
                    check_new(&part)?;
                    match folder.create_dir(&part) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
                        Ok(()) | Err(_) => {}
                    }
                    folder.symlink_metadata(&part)?.file_type()
                }
                Err(_) if purpose == For::Checking => {
                    check_new(&part)?;
                    if !leave_missing(&mut parts)? {
                        return Ok(Place { folder, name: None });
                    }
                    continue;
                }
                Err(_) => return Err(Why::Missing),
            };
            if kind.is_symlink() {
                links += 1;
                let target = folder.read_link_contents(&part)?;
                let target = target.to_str().ok_or(Why::Outside)?;
                if links > MAX_LINKS || parts.len() > MAX_PATH {
                    return Err(Why::Links);
                }
                if target.starts_with('/') {
                    return Err(Why::Outside);
                }
                for part in self::parts(target)?.rev() {
                    parts.push_front(part);
                }
            } else if kind.is_dir() {
                let below = match folder.open_dir_nofollow(&part) {
                    Ok(below) => below,
                    // It may have been replaced meanwhile: it is looked up again.
                    Err(_) if links < MAX_LINKS => {
                        links += 1;
                        parts.push_front(part);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                let found = identity(&below)?;
                if hidden.contains(&found) {
                    return Err(Why::Hidden);
                }
                if kept.is_closed(found) {
                    return Err(Why::Closed);
                }
                if above.len() >= MAX_DEPTH {
                    return Err(Why::Deep);
                }
                above.push(std::mem::replace(&mut folder, below));
            } else if parts.is_empty() {
                return Ok(Place { folder, name: Some(part) });
            } else {
                return Err(Why::NotFolder(part));
            }
        }
        Ok(Place { folder, name: None })
    }
}

/// The purpose for which a path is resolved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Reading,
    Changing,
    /// A change that also creates missing folders.
    Making,
    /// A check for such a change, which creates nothing.
    Checking,
}

/// Skips the names below a missing folder, up to the `..` that leads out of it, and returns whether there is one. A new folder has no
/// links, so the text decides.
///
/// # Errors
/// One of these names may not be created.
fn leave_missing(parts: &mut VecDeque<String>) -> Result<bool, Why> {
    let mut below = 1;
    while let Some(part) = parts.pop_front() {
        match part.as_str() {
            "" | "." => {}
            ".." => below -= 1,
            _ => {
                check_new(&part)?;
                below += 1;
            }
        }
        if below == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A resolved path: a name in an open folder, where no link is left to follow; or the folder itself.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) folder: Dir,
    pub(super) name: Option<String>,
}

impl Place {
    /// Opens the file for reading.
    ///
    /// # Errors
    /// It is missing, or is no plain file.
    pub(super) fn open(&self) -> Result<(File, Metadata), Why> {
        let name = self.name.as_ref().ok_or(Why::Folder)?;
        open_file(&self.folder, name)
    }
}

/// Opens a regular file. Pipes and devices are not opened, and if one replaces the file meanwhile, opening it does not block.
pub(super) fn open_file(folder: &Dir, name: &str) -> Result<(File, Metadata), Why> {
    check_plain(folder.symlink_metadata(name)?.file_type())?;
    let file = folder.open_with(name, OpenOptions::new().read(true).follow(FollowSymlinks::No).nonblock(true))?;
    let found = file.metadata()?;
    check_plain(found.file_type())?;
    Ok((file, found))
}

pub(super) fn check_plain(kind: FileType) -> Result<(), Why> {
    match kind {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(Why::Folder),
        _ => Err(Why::Special),
    }
}

/// Checks a new name, which people will see: it must not contain hidden characters.
pub(super) fn check_new(name: &str) -> Result<(), Why> {
    if visible(name) == name { Ok(()) } else { Err(Why::Unseen) }
}

pub(super) fn identity(folder: &Dir) -> io::Result<Identity> {
    folder.dir_metadata().map(|found| (found.dev(), found.ino()))
}

fn identity_at(place: &Path) -> Option<Identity> {
    identity(&Dir::open_ambient_dir(place, ambient_authority()).ok()?).ok()
}

impl Hidden {
    /// Whether the folder is still at its path.
    #[cfg(all(unix, feature = "shell"))]
    pub(super) fn is_in_place(&self) -> bool {
        identity_at(&self.place).is_some_and(|now| identity(&self.folder).is_ok_and(|own| own == now))
    }
}

fn opened(path: &Path) -> Result<(Dir, PathBuf), RootError> {
    let failed = |error| RootError::Open { place: path.to_owned(), error };
    let folder = Dir::open_ambient_dir(path, ambient_authority()).map_err(failed)?;
    let place = path.canonicalize().map_err(failed)?;
    Ok((folder, place))
}

/// Checks a path by its text: after a name, links decide where `..` leads.
///
/// # Errors
/// It leads nowhere that a tool may go.
pub(super) fn check_text(path: &str) -> Result<(), PathError> {
    let check = || {
        if path.is_empty() {
            return Err(Why::Empty);
        }
        if path.len() > MAX_PATH {
            return Err(Why::Long);
        }
        let leads_out = parts(path)?.find(|part| !matches!(part.as_str(), "" | ".")).is_some_and(|first| first == "..");
        if leads_out { Err(Why::Outside) } else { Ok(()) }
    };
    check().map_err(|why| PathError { path: path.to_owned(), why })
}

fn parts(path: &str) -> Result<impl DoubleEndedIterator<Item = String>, Why> {
    if path.starts_with('/') {
        return Err(Why::Absolute);
    }
    if path.contains('\0') {
        return Err(Why::Nul);
    }
    if path.contains('\\') {
        return Err(Why::Backslash);
    }
    Ok(path.split('/').map(str::to_owned))
}

/// The reason why a path cannot be used.
#[derive(Debug)]
pub(super) struct PathError {
    pub(super) path: String,
    pub(super) why: Why,
}

/// The reason without the path.
#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    #[error("is no path; `.` is the folder itself")]
    Empty,
    #[error("has a NUL byte")]
    Nul,
    #[error("has a backslash; folders are parted by `/`")]
    Backslash,
    #[error("is longer than {MAX_PATH} bytes")]
    Long,
    #[error("is absolute; give it as seen from the folder that the tools work in")]
    Absolute,
    #[error("leads out of the folder that the tools work in")]
    Outside,
    #[error("belongs to the board; no tool sees it")]
    Hidden,
    #[error("defines agents, models or servers; tools may read it and not change it: ask a person to change it")]
    Kept,
    #[error(
        "leads into a folder that may hold what defines agents, models or servers and whose permissions keep it from being looked at: \
         ask a person to give them back (chmod u+rwx)"
    )]
    Closed,
    #[error("goes through more than {MAX_LINKS} links, or in circles")]
    Links,
    #[error("is more than {MAX_DEPTH} folders deep")]
    Deep,
    #[error("has characters that are not shown; choose another name")]
    Unseen,
    #[error("is not there")]
    Missing,
    #[error("is not there: {} is not a folder", quoted(.0))]
    NotFolder(String),
    #[error("is a folder; FileSearch with `names` lists what is in it")]
    Folder,
    #[error("is a pipe, a device or a socket; only plain files are used")]
    Special,
    #[error("cannot be used: {0}")]
    Io(io::Error),
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound { Self::Missing } else { Self::Io(error) }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.why.to_string();
        write!(f, "{} {}", quoted(&self.path), if reason.len() > 400 { cut(&reason) } else { reason })
    }
}

impl std::error::Error for PathError {}
