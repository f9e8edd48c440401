//! The temporary folders of one command: its `HOME` and its `TMPDIR`. A lock beside them is held by the process that runs the
//! command, so that folders of a process that was killed can be distinguished from those in use.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use callboard::env::Env;
use rustix::fs::OFlags;
use rustix::process::geteuid;

/// The prefix of the names of these folders.
const PREFIX: &str = "callboard-shell-";

const LOCK: &str = "lock";

/// `HOME` and `TMPDIR` of the command.
const FOLDERS: [&str; 2] = ["home", "tmp"];

/// The age from which a folder without a lock is unused: a command takes at most ten minutes.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Empty folders for one command.
pub(super) struct Home {
    place: PathBuf,
    _lock: File,
}

impl Home {
    pub(super) fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> io::Result<Self> {
        let mut private = DirBuilder::new();
        private.mode(0o700);
        loop {
            let place = parent.join(format!("{PREFIX}{}", Env::system().id()));
            private.create(&place)?;
            let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(place.join(LOCK))?;
            match lock.try_lock() {
                // Another process considers it abandoned and is removing it.
                Err(TryLockError::WouldBlock) => continue,
                Ok(()) if lock.metadata()?.nlink() == 0 => continue,
                Err(TryLockError::Error(error)) => return Err(error),
                Ok(()) => {}
            }
            let home = Self { place, _lock: lock };
            home.folders().iter().try_for_each(|folder| private.create(folder))?;
            return Ok(home);
        }
    }

    /// The writable folders of the command.
    pub(super) fn folders(&self) -> [PathBuf; 2] {
        FOLDERS.map(|name| self.place.join(name))
    }

    /// The variables with their paths.
    pub(super) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        let [home, tmp] = self.folders();
        [("HOME", home), ("TMPDIR", tmp)]
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        remove(&self.place);
    }
}

/// Removes the folders of commands of killed processes; once per process.
pub(super) fn remove_abandoned() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| remove_abandoned_within(&std::env::temp_dir()));
}

fn remove_abandoned_within(parent: &Path) {
    // An unreadable parent has nothing that this user could remove.
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_ours(&entry.file_name())) {
        let place = entry.path();
        // The parent is shared by all users.
        let is_own = |it: &fs::Metadata| it.is_dir() && it.uid() == geteuid().as_raw();
        let Some(folder) = place.symlink_metadata().ok().filter(is_own) else { continue };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        match OpenOptions::new().read(true).custom_flags(flags).open(place.join(LOCK)) {
            Ok(lock) => {
                if lock.try_lock().is_ok() {
                    remove(&place);
                }
            }
            Err(_) => {
                let is_old = folder.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED));
                if is_old {
                    remove(&place);
                }
            }
        }
    }
}

fn is_ours(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

/// Removes the folders of a command, and the lock last, so that a kill meanwhile leaves a folder that is known as abandoned.
fn remove(place: &Path) {
    FOLDERS.iter().for_each(|name| remove_folder(&place.join(name)));
    remove_folder(place);
}

/// Removes a folder and its content. Remains are in a folder for temporary files.
fn remove_folder(place: &Path) {
    #[cfg(target_os = "linux")]
    let _ = flat::remove(place);
    #[cfg(not(target_os = "linux"))]
    let _ = fs::remove_dir_all(place);
}

/// Removes folders of any depth with two descriptors and no recursion: a folder in a folder is moved up before the one that it
/// was in is removed. It works by handles, so no link is followed, even if one replaces a folder meanwhile.
#[cfg(target_os = "linux")]
mod flat {
    use std::ffi::CStr;
    use std::fs::{self, Permissions};
    use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, unlinkat};
    use rustix::io::Errno;

    /// The most times that the folder is read: another process may keep adding entries.
    const MAX_LOOKS: u32 = 1_000_000;

    pub(super) fn remove(place: &Path) -> Result<(), Errno> {
        let top = open(CWD, place)?;
        let mut moved = 0_u32;
        for _ in 0..MAX_LOOKS {
            let mut has_changed = false;
            each(&top, |name| has_changed |= clear(&top, name, &mut moved));
            if !has_changed {
                break;
            }
        }
        unlinkat(CWD, place, AtFlags::REMOVEDIR)
    }

    /// Removes a file, or a folder after moving its subfolders up; returns whether it is gone.
    fn clear(top: &OwnedFd, name: &CStr, moved: &mut u32) -> bool {
        if unlinkat(top, name, AtFlags::empty()).is_ok() {
            return true;
        }
        let Ok(folder) = open(top, name) else { return false };
        each(&folder, |inner| {
            if unlinkat(&folder, inner, AtFlags::empty()).is_err() {
                // To be moved, a folder needs the permissions of its owner.
                let _ = open(&folder, inner);
                *moved += 1;
                let _ = renameat(&folder, inner, top, format!("moved-{moved}"));
            }
        });
        unlinkat(top, name, AtFlags::REMOVEDIR).is_ok()
    }

    /// Opens a folder and gives its owner all permissions: package managers leave some without.
    fn open(at: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
        let folder = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(at, name, folder | OFlags::PATH, Mode::empty())?;
        let _ = fs::set_permissions(format!("/proc/self/fd/{}", handle.as_raw_fd()), Permissions::from_mode(0o700));
        openat(&handle, c".", folder | OFlags::RDONLY, Mode::empty())
    }

    fn each(folder: &OwnedFd, mut what: impl FnMut(&CStr)) {
        let Ok(entries) = Dir::read_from(folder) else { return };
        for entry in entries.flatten().filter(|entry| ![c".", c".."].contains(&entry.file_name())) {
            what(entry.file_name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_of_a_killed_process_have_left_is_removed_and_what_is_in_use_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let living = Home::within(parent.path()).unwrap();
        let killed = Home::within(parent.path()).unwrap();
        let left = killed.place.clone();
        fs::write(killed.folders()[1].join("secret"), "x").unwrap();
        // As after a kill: the lock is released, the folder stays.
        killed._lock.unlock().unwrap();
        std::mem::forget(killed);
        // A folder that is being created, and one that is not ours.
        let made = parent.path().join(format!("{PREFIX}made"));
        fs::create_dir(&made).unwrap();
        let other = parent.path().join("callboard-other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, parent.path().join(format!("{PREFIX}link"))).unwrap();
        remove_abandoned_within(parent.path());
        assert!(!left.exists());
        assert!(living.folders().iter().all(|folder| folder.is_dir()) && made.is_dir() && other.is_dir());
    }

    #[test]
    fn folders_of_any_depth_and_without_rights_are_removed_and_what_links_lead_to_is_not() {
        use std::os::unix::fs::PermissionsExt as _;

        let parent = tempfile::tempdir().unwrap();
        let outside = parent.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        let home = Home::within(parent.path()).unwrap();
        let [_, tmp] = home.folders();
        std::os::unix::fs::symlink(&outside, tmp.join("link")).unwrap();
        // A path has at most 4,096 bytes: deeper ones are built from below.
        let mut deep = tmp.join("below");
        fs::create_dir(&deep).unwrap();
        for _ in 0..30 {
            let above = tmp.join("next");
            let last = above.join(vec!["d"; 1_000].join("/"));
            fs::create_dir_all(&last).unwrap();
            fs::write(last.join("moved-1"), "x").unwrap();
            fs::rename(&deep, last.join("below")).unwrap();
            deep = tmp.join("below");
            fs::rename(above, &deep).unwrap();
        }
        let closed = tmp.join("closed/inner");
        fs::create_dir_all(&closed).unwrap();
        fs::write(closed.join("file"), "x").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(tmp.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        let place = home.place.clone();
        drop(home);
        assert!(!place.exists());
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "x");
    }
}
