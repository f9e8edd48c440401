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

use crate::page::{Failure, note, shown_path};

use super::open::{Closed, Open};
use super::placement::Placement;
use super::relocation;
use super::store::{self, Store};

/// What helps where the project's own stores cannot be used.
const ELSEWHERE: &str = "name a folder with --store or CALLBOARD_STORE, or keep nothing with --ephemeral";

/// What a project's folder has, one of these or agents.
const MARKS: [&str; 2] = [".callboard", ".git"];
const AGENTS: &str = "agents";

/// A folder of agents that is empty is none: while a command runs, one may stand in the place of one that is not there.
fn is_project(folder: &Path) -> bool {
    MARKS.iter().any(|mark| folder.join(mark).exists())
        || folder.join(AGENTS).read_dir().is_ok_and(|mut entries| entries.next().is_some())
}

/// The stores of a project, each in a folder that is its number.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    folder: PathBuf,
    /// The project itself.
    root: PathBuf,
}

impl Project {
    /// The project of the current folder: the nearest parent that has one of the marks, or else the folder itself.
    pub(super) fn here() -> Result<Self, Failure> {
        let folder = std::env::current_dir()
            .map_err(|error| Failure::trouble(format!("the current folder cannot be read: {error}")))?;
        let root = folder.ancestors().find(|parent| is_project(parent));
        let root = root.unwrap_or(&folder).to_owned();
        let state = state_folder().ok_or_else(|| {
            Failure::trouble(format!("there is no folder to keep runs in, because HOME names none: {ELSEWHERE}"))
        })?;
        keep_private(&state).map_err(|error| {
            Failure::trouble(format!("the folder of all stores, {}: {error}; {ELSEWHERE}", shown_path(&state)))
        })?;
        Ok(Self { folder: state.join(name_of(&root)), root })
    }

    /// The project that a folder of numbered stores belongs to.
    pub(super) fn of_folder(folder: PathBuf) -> Self {
        Self { root: relocation::root_of(&folder), folder }
    }

    /// The folder that its stores are in.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A line that says where the stores are if the project was moved.
    pub(super) fn relocation_hint(&self) -> Option<String> {
        relocation::hint(&self.folder, &self.root)
    }

    /// Its stores in order.
    fn stores(&self) -> Result<Vec<PathBuf>, Failure> {
        let files = match std::fs::read_dir(&self.folder) {
            Ok(files) => files,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Failure::trouble(format!("{}: {error}", shown_path(&self.folder)))),
        };
        let number = |file: std::io::Result<std::fs::DirEntry>| file.ok()?.file_name().to_str()?.parse::<u32>().ok();
        let mut numbers: Vec<u32> = files.filter_map(number).collect();
        numbers.sort_unstable();
        let folders = numbers.into_iter().map(|number| self.folder.join(number.to_string()));
        Ok(folders.filter(|folder| store::is_there(folder)).collect())
    }

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
                // The next one is as good.
                Err(error) if was_there => note(&error.to_string()),
                Err(error) => return Err(Failure::trouble(format!("{error}; {ELSEWHERE}"))),
            }
        }
        Err(Failure::trouble("there is no free store".to_owned()))
    }

    /// A file says in which store a conversation is, because the store may be in use by another process.
    pub(super) async fn take_for(&self, conversation: &ConversationId) -> Result<Store, Failure> {
        let home = self.home(conversation);
        if let Some(number) = home.number()? {
            return self.take_home(number, conversation);
        }
        let store = match self.having(conversation).await? {
            Some(store) => store,
            None => self.take()?,
        };
        if home.claim(number_of(store.folder()).unwrap_or_default())? {
            return Ok(store);
        }
        // Another process has begun the conversation just now.
        drop(store);
        home.number()?.map_or_else(|| self.take(), |number| self.take_home(number, conversation))
    }

    /// The file that says in which store a conversation is.
    pub(crate) fn home(&self, conversation: &ConversationId) -> Placement {
        Placement::of(conversation, self.folder.join(HOMES))
    }

    fn take_home(&self, number: u32, conversation: &ConversationId) -> Result<Store, Failure> {
        let folder = self.folder.join(number.to_string());
        Store::open_or_make(&folder).map_err(|error| match error {
            StorageError::InUse { holder, .. } => {
                let holder = holder.map_or_else(|| "another process".to_owned(), |holder| format!("process {holder}"));
                Failure::trouble(format!(
                    "conversation {conversation} is in the store {}, which {holder} has open: wait until it has ended, or choose \
                     another conversation",
                    shown_path(&folder)
                ))
            }
            error => store::trouble(error),
        })
    }

    /// The free store that has a conversation, such as one that was imported.
    async fn having(&self, conversation: &ConversationId) -> Result<Option<Store>, Failure> {
        let open = self.open(Store::open_or_make)?;
        let place = open.place_of_conversation(conversation).await?;
        Ok(place.and_then(|place| open.stores.into_iter().nth(place)))
    }

    /// Gives a store that was made elsewhere in this folder the first free number; its folder from then on.
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
                // Somebody else was quicker.
                Err(_) if fs::symlink_metadata(&folder).is_ok() => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("there is no free number for a store"))
    }

    /// All its stores, to be looked into.
    pub(crate) fn open_to_read(&self) -> Result<Open, Failure> {
        self.open(Store::read)
    }

    /// Keeps other processes from adding a store of their making until the value is dropped.
    pub(crate) fn lock_additions(&self) -> io::Result<File> {
        let folder = File::open(&self.folder)?;
        folder.lock()?;
        Ok(folder)
    }

    pub(super) fn open(&self, open: impl Fn(&Path) -> Result<Store, StorageError>) -> Result<Open, Failure> {
        let mut found = Open::default();
        for folder in self.stores()? {
            match open(&folder) {
                Ok(store) => found.stores.push(store),
                Err(error) => found.closed.push(Closed::new(folder, &error)),
            }
        }
        Ok(found)
    }
}

/// The number of a store of a project.
pub(crate) fn number_of(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.parse().ok()
}

/// Keeps others out of the folder that has all stores.
fn keep_private(state: &Path) -> io::Result<()> {
    let about = match fs::metadata(state) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let user = geteuid();
    if about.uid() != user.as_raw() {
        // Root may use the folder of anybody; anybody else would trust its owner.
        let owner = about.uid();
        return if user.is_root() { Ok(()) } else { Err(io::Error::other(format!("it belongs to the user {owner}"))) };
    }
    let mode = about.permissions().mode();
    if mode & 0o077 == 0 { Ok(()) } else { fs::set_permissions(state, fs::Permissions::from_mode(mode & 0o700)) }
}

/// The folder with the files that say where conversations are.
const HOMES: &str = "conversations";

/// Where programs keep what outlives them and is no setting, by the XDG base directories.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let state = named.or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".local/state")))?;
    Some(state.join("callboard"))
}

/// A project's folder among the others: its name, for people, and what tells it from others of that name.
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
    fn projects_of_one_name_are_told_apart_and_names_are_plain() {
        let names = ["/a/site", "/b/site", "/a/si te\u{1b}", "/"].map(|root| name_of(Path::new(root)));
        assert!(names[0].starts_with("site-") && names[1].starts_with("site-") && names[0] != names[1], "{names:?}");
        assert!(names[2].starts_with("si-te--") && names[3].starts_with("root-"), "{names:?}");
        assert_eq!(names[0], name_of(Path::new("/a/site")));
    }

    #[test]
    fn each_process_takes_the_first_store_that_is_free() {
        let state = tempfile::tempdir().unwrap();
        let project = Project { folder: state.path().join("site-0"), root: "/site".into() };
        let first = project.take().unwrap();
        let second = project.take().unwrap();
        assert_eq!([&first, &second].map(|store| store.folder().file_name().unwrap().to_owned()), ["1", "2"]);
        drop(first);
        assert!(project.take().unwrap().folder().ends_with("1"));
        let open = project.open(Store::open_or_make).unwrap();
        assert_eq!((open.stores.len(), open.closed.len()), (1, 1));
        assert!(open.notes().contains(&format!("2: process {} has it open", std::process::id())), "{}", open.notes());
    }

    #[test]
    fn what_is_no_store_keeps_no_run_from_beginning() {
        let state = tempfile::tempdir().unwrap();
        let project = Project { folder: state.path().join("site-0"), root: "/site".into() };
        fs::create_dir(&project.folder).unwrap();
        std::os::unix::fs::symlink("nowhere", project.folder.join("1")).unwrap();
        fs::write(project.folder.join("2"), "a file").unwrap();
        fs::create_dir(project.folder.join("3")).unwrap();
        fs::write(project.folder.join("3/db"), "of another program").unwrap();
        assert!(project.take().unwrap().folder().ends_with("4"));
        let open = project.open(Store::open_or_make).unwrap();
        let closed: Vec<_> = open.closed.iter().map(|store| store.folder().file_name().unwrap().to_owned()).collect();
        assert_eq!(closed, ["3"], "{}", open.notes());
    }

    #[test]
    fn others_are_kept_out_of_the_folder_of_all_stores() {
        let state = tempfile::tempdir().unwrap();
        assert!(keep_private(&state.path().join("missing")).is_ok());
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        keep_private(state.path()).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        if !geteuid().is_root() {
            assert!(keep_private(Path::new("/")).unwrap_err().to_string().contains("belongs to the user 0"));
        }
    }

    #[test]
    fn a_store_that_is_damaged_keeps_no_run_from_beginning() {
        let state = tempfile::tempdir().unwrap();
        let project = Project { folder: state.path().join("site-0"), root: "/site".into() };
        drop(project.take().unwrap());
        std::fs::write(project.folder.join("1/format"), "x").unwrap();
        assert!(project.take().unwrap().folder().ends_with("2"));
        let open = project.open(Store::open_or_make).unwrap();
        assert!(open.notes().contains("its file `format` is damaged"), "{}", open.notes());
    }
}
