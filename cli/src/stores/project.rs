//! The stores of a project: numbered folders in the user's state folder.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};

use callboard::messages::ConversationId;
use callboard::storage::StorageError;

use crate::exit::Exit;
use crate::page::{Failure, note, shown_path};

use super::open::{ClosedStore, OpenStores};
use super::placement::Placement;
use super::relocation;
use super::store::{self, Store};

/// The remedies where the project's stores cannot be used.
const ELSEWHERE: &str =
    "name a folder with --store or CALLBOARD_STORE, or have `run` or `workflow run` store nothing with --ephemeral";

/// Names of which one marks a folder as a project; a folder of agents marks it too.
const MARKERS: [&str; 2] = [".callboard", ".git"];
const AGENTS: &str = "agents";

/// Whether the folder is a project. An empty folder of agents does not count: the confinement of commands creates one while a command
/// runs.
fn is_project(folder: &Path) -> bool {
    MARKERS.iter().any(|mark| folder.join(mark).exists())
        || folder.join(AGENTS).read_dir().is_ok_and(|mut entries| entries.next().is_some())
}

/// The folder of the project: the nearest of this folder and its parents that is one, or else the folder itself.
pub(crate) fn root_of(folder: &Path) -> &Path {
    folder.ancestors().find(|parent| is_project(parent)).unwrap_or(folder)
}

/// The stores of a project, each in a folder named by its number.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    folder: PathBuf,
    /// The folder of the project.
    root: PathBuf,
}

impl Project {
    /// The project of the current folder: the nearest parent that is one, or else the folder itself.
    pub(super) fn here() -> Result<Self, Failure> {
        let folder = std::env::current_dir()
            .map_err(|error| Failure::file(&error, format!("the current folder cannot be read: {error}")))?;
        let root = root_of(&folder).to_owned();
        let state = state_folder().ok_or_else(|| {
            Failure::usage(format!("there is no folder for stores, because HOME names none: {ELSEWHERE}"))
        })?;
        make_private(&state).map_err(|error| {
            let text = format!("the folder of all stores, {}: {error}; {ELSEWHERE}", shown_path(&state));
            Failure::file(&error, text)
        })?;
        Ok(Self { folder: state.join(name_of(&root)), root })
    }

    /// The project that a folder of numbered stores belongs to.
    pub(super) fn of_folder(folder: PathBuf) -> Self {
        Self { root: relocation::root_of(&folder), folder }
    }

    /// The folder of the project.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that its stores are in.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A line about where the earlier stores are if the project was moved.
    pub(super) async fn relocation_hint(&self) -> Option<String> {
        relocation::hint(&self.folder, &self.root).await
    }

    /// If this project was moved: where it was, and the base of facts that it had there.
    pub(crate) fn facts_before(&self) -> Option<(PathBuf, PathBuf)> {
        relocation::facts_before(&self.folder, &self.root)
    }

    /// The nearest folder around this project that has a base of facts, and the store that chooses it.
    pub(crate) fn facts_around(&self) -> Option<(PathBuf, PathBuf)> {
        let state = self.folder.parent()?;
        self.root.ancestors().skip(1).find_map(|around| {
            let folder = state.join(name_of(around));
            facts_in(&folder).exists().then(|| (around.to_owned(), folder.join("1")))
        })
    }

    /// The folders of its stores, in order.
    fn stores(&self) -> Result<Vec<PathBuf>, Failure> {
        stores_in(&self.folder).map_err(|error| Failure::file(&error, format!("{}: {error}", shown_path(&self.folder))))
    }

    /// Opens the first store that can be opened, or creates one.
    pub(super) fn take(&self) -> Result<Store, Failure> {
        for number in 1_u32.. {
            let folder = self.folder.join(number.to_string());
            let was_there = fs::symlink_metadata(&folder).is_ok();
            match Store::open_or_make(&folder) {
                Ok(store) => {
                    relocation::remember(&self.folder, &self.root);
                    return Ok(store);
                }
                Err(StorageError::InUse { .. }) => {}
                // Another store serves as well.
                Err(error) if was_there => note(&error.to_string()),
                Err(error) => {
                    let exit = store::exit_of_opening(&folder, &error);
                    return Err(Failure::new(exit, format!("{error}; {ELSEWHERE}")));
                }
            }
        }
        Err(Failure::failed("there is no free store".to_owned()))
    }

    /// Opens the store that has the conversation, by its placement file or by a search, or one for a new conversation.
    pub(super) async fn take_for(&self, conversation: &ConversationId) -> Result<Store, Failure> {
        let placement = self.placement(conversation);
        if let Some(number) = placement.number()? {
            return self.take_placed(number, conversation);
        }
        let store = match self.having(conversation).await? {
            Some(store) => store,
            None => self.take()?,
        };
        if placement.claim(number_of(store.place()).unwrap_or_default())? {
            return Ok(store);
        }
        // Another process has created the conversation meanwhile.
        drop(store);
        placement.number()?.map_or_else(|| self.take(), |number| self.take_placed(number, conversation))
    }

    /// The placement file of a conversation.
    pub(crate) fn placement(&self, conversation: &ConversationId) -> Placement {
        Placement::of(conversation, self.folder.join(PLACEMENTS))
    }

    fn take_placed(&self, number: u32, conversation: &ConversationId) -> Result<Store, Failure> {
        let folder = self.folder.join(number.to_string());
        Store::open_or_make(&folder).map_err(|error| match error {
            StorageError::InUse { holder, .. } => {
                let holder = holder.map_or_else(|| "another process".to_owned(), |holder| format!("process {holder}"));
                let text = format!(
                    "conversation {conversation} is in the store {}, which {holder} has open: wait until it has ended, or choose \
                     another conversation",
                    shown_path(&folder)
                );
                Failure::new(Exit::Unavailable, text)
            }
            error => store::not_opened(&folder, &error),
        })
    }

    /// A free store that has the conversation without a placement file.
    async fn having(&self, conversation: &ConversationId) -> Result<Option<Store>, Failure> {
        let open = self.open(Store::open_or_make)?;
        let place = open.place_of_conversation(conversation).await?;
        Ok(place.and_then(|place| open.stores.into_iter().nth(place)))
    }

    /// Renames a store that was made elsewhere in this folder to the first free number, and returns its new folder.
    pub(crate) fn adopt(&self, made: &Path) -> io::Result<PathBuf> {
        for number in 1_u32.. {
            let folder = self.folder.join(number.to_string());
            if fs::symlink_metadata(&folder).is_ok() {
                continue;
            }
            match fs::rename(made, &folder) {
                Ok(()) => {
                    relocation::remember(&self.folder, &self.root);
                    return Ok(folder);
                }
                // Another process took the number.
                Err(_) if fs::symlink_metadata(&folder).is_ok() => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("there is no free number for a store"))
    }

    /// Opens all its stores for reading.
    pub(crate) fn open_to_read(&self) -> Result<OpenStores, Failure> {
        self.open(Store::read)
    }

    /// Locks the folder, so that no other process adopts a store until the value is dropped.
    pub(crate) fn lock_additions(&self) -> io::Result<File> {
        let folder = File::open(&self.folder)?;
        folder.lock()?;
        Ok(folder)
    }

    pub(super) fn open(&self, open: impl Fn(&Path) -> Result<Store, StorageError>) -> Result<OpenStores, Failure> {
        let mut found = OpenStores::default();
        for folder in self.stores()? {
            match open(&folder) {
                Ok(store) => found.stores.push(store),
                Err(error) => found.closed.push(ClosedStore::new(folder, &error)),
            }
        }
        Ok(found)
    }
}

/// The file with the base of facts in a folder with stores, or with one store.
pub(crate) fn facts_in(folder: &Path) -> PathBuf {
    folder.join("knowledge").join("facts.db")
}

/// The numbered stores in a folder, in order; none if there is no such folder.
pub(super) fn stores_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let files = match fs::read_dir(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let number = |file: io::Result<fs::DirEntry>| file.ok()?.file_name().to_str()?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = files.filter_map(number).collect();
    numbers.sort_unstable();
    let folders = numbers.into_iter().map(|number| folder.join(number.to_string()));
    // A folder that cannot be searched may have one: opening it reports why.
    Ok(folders.filter(|folder| store::is_there(folder).unwrap_or(true)).collect())
}

/// The number of a store of a project.
pub(crate) fn number_of(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.parse().ok()
}

/// Removes the permissions of other users on the folder that has all stores.
fn make_private(state: &Path) -> io::Result<()> {
    let about = match fs::metadata(state) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let user = geteuid();
    if about.uid() != user.as_raw() {
        // Root can use any user's folder; other users would have to trust its owner.
        let owner = about.uid();
        return if user.is_root() {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it belongs to the user {owner}")))
        };
    }
    let mode = about.permissions().mode();
    if mode & 0o077 == 0 { Ok(()) } else { fs::set_permissions(state, fs::Permissions::from_mode(mode & 0o700)) }
}

/// The folder with the placement files of conversations.
const PLACEMENTS: &str = "conversations";

/// The folder for state, by the XDG base directory specification: `$XDG_STATE_HOME` or `~/.local/state`, with `callboard` in it.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let state = named.or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".local/state")))?;
    Some(state.join("callboard"))
}

/// The name of a project's folder of stores: the name of the project, for people, and a hash of its path.
fn name_of(root: &Path) -> String {
    let hash = Sha256::digest(root.as_os_str().as_bytes());
    let digits: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let name = root.file_name().unwrap_or(OsStr::new("root")).to_string_lossy();
    let plain: String = name.chars().take(40).map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    format!("{plain}-{digits}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn an_empty_folder_of_agents_makes_no_project() {
        let folder = tempfile::tempdir().unwrap();
        let agents = folder.path().join("agents");
        std::fs::create_dir(&agents).unwrap();
        assert!(!is_project(folder.path()));
        std::fs::write(agents.join("a.toml"), "").unwrap();
        assert!(is_project(folder.path()));
        std::fs::remove_dir_all(agents).unwrap();
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        assert!(is_project(folder.path()));
    }

    #[test]
    fn projects_of_one_name_differ_and_names_are_plain() {
        let names = ["/a/site", "/b/site", "/a/si te\u{1b}", "/"].map(|root| name_of(Path::new(root)));
        assert!(names[0].starts_with("site-") && names[1].starts_with("site-") && names[0] != names[1], "{names:?}");
        assert!(names[2].starts_with("si-te--") && names[3].starts_with("root-"), "{names:?}");
        assert_eq!(names[0], name_of(Path::new("/a/site")));
    }

    #[test]
    fn processes_share_a_store_and_leave_one_that_is_not_shared() {
        let state = tempfile::tempdir().unwrap();
        let project = Project { folder: state.path().join("site-0"), root: "/site".into() };
        let (first, second) = (project.take().unwrap(), project.take().unwrap());
        assert!(first.place().ends_with("1") && second.place().ends_with("1"));
        drop((first, second));
        let unshared = callboard::storage::Sled::open(project.folder.join("1")).unwrap();
        assert!(project.take().unwrap().place().ends_with("2"));
        let open = project.open(Store::open_or_make).unwrap();
        assert_eq!((open.stores.len(), open.closed.len()), (1, 1));
        assert!(open.notes().contains(&format!("1: process {} has it open", std::process::id())), "{}", open.notes());
        drop(unshared);
        assert!(project.take().unwrap().place().ends_with("1"));
    }

    #[test]
    fn files_that_are_not_stores_do_not_prevent_a_run() {
        let state = tempfile::tempdir().unwrap();
        let project = Project { folder: state.path().join("site-0"), root: "/site".into() };
        fs::create_dir(&project.folder).unwrap();
        std::os::unix::fs::symlink("nowhere", project.folder.join("1")).unwrap();
        fs::write(project.folder.join("2"), "a file").unwrap();
        fs::create_dir(project.folder.join("3")).unwrap();
        fs::write(project.folder.join("3/db"), "of another program").unwrap();
        assert!(project.take().unwrap().place().ends_with("4"));
        let open = project.open(Store::open_or_make).unwrap();
        let closed: Vec<_> = open.closed.iter().map(|store| store.folder().file_name().unwrap().to_owned()).collect();
        assert_eq!(closed, ["3"], "{}", open.notes());
    }

    #[test]
    fn other_users_have_no_permissions_on_the_folder_of_all_stores() {
        let state = tempfile::tempdir().unwrap();
        assert!(make_private(&state.path().join("missing")).is_ok());
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        make_private(state.path()).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        if !geteuid().is_root() {
            assert!(make_private(Path::new("/")).unwrap_err().to_string().contains("belongs to the user 0"));
        }
    }

    #[test]
    fn a_damaged_store_does_not_prevent_a_run() {
        let state = tempfile::tempdir().unwrap();
        let project = Project { folder: state.path().join("site-0"), root: "/site".into() };
        drop(project.take().unwrap());
        std::fs::write(project.folder.join("1/format"), "x").unwrap();
        assert!(project.take().unwrap().place().ends_with("2"));
        let open = project.open(Store::open_or_make).unwrap();
        assert!(open.notes().contains("its file `format` is damaged"), "{}", open.notes());
    }
}
