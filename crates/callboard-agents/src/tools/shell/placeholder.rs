//! Empty folders at the paths of files that commands must not create: the kernel can only protect a name that exists, by a mount
//! on it. Readers of such a file treat a folder as a missing file, and version control ignores empty folders.
//!
//! Commands of several processes share one. Each holds a shared lock on it; the last process removes it. What a process leaves
//! that was killed is removed after the next command there, unless commands of that process have outlived it: with the folder
//! they would lose what is mounted on it. Then it stays until a command ends there after them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::process::orphans;

/// The mode by which, besides being empty, they are distinguished from folders of people.
const MODE: u32 = 0o1555;

/// The number of checks for processes that have outlived their board, and the pause in between.
const LOOKS: u32 = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The most tries, since another process may have just removed or locked it.
const MAX_TRIES: usize = 1_000;

/// A placeholder, which exists as long as this is held.
#[derive(Debug)]
pub(in super::super) struct Placeholder {
    place: PathBuf,
    folder: File,
}

impl Placeholder {
    /// Creates it, or shares an existing one; `None` on a read-only file system, where no process can create anything.
    ///
    /// # Errors
    /// Among others, this user may not write in the folder: one who owns it can permit it.
    pub(super) fn at(place: &Path) -> io::Result<Option<Self>> {
        for _ in 0..MAX_TRIES {
            match DirBuilder::new().mode(MODE).create(place) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return match error.kind() {
                        io::ErrorKind::ReadOnlyFilesystem => Ok(None),
                        _ => Err(error),
                    };
                }
            }
            let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
            let folder = match OpenOptions::new().read(true).custom_flags(flags).open(place) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            match folder.try_lock_shared() {
                Ok(()) => {}
                // It is locked by a process that removes it, or by a command, for which it waits no longer.
                Err(fs::TryLockError::WouldBlock) => {
                    thread::sleep(LOOK_AGAIN);
                    continue;
                }
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
            let placeholder = Self { place: place.to_owned(), folder };
            if placeholder.is_in_place() {
                return Ok(Some(placeholder));
            }
        }
        Err(io::Error::other(format!("{} is locked, or made and removed, all the time", place.display())))
    }

    fn is_in_place(&self) -> bool {
        let same = |own: fs::Metadata, now: fs::Metadata| (own.dev(), own.ino()) == (now.dev(), now.ino());
        self.folder.metadata().and_then(|own| Ok(same(own, fs::symlink_metadata(&self.place)?))).unwrap_or(false)
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // A process that shares it holds a lock too, and removes it later.
        if self.folder.try_lock().is_err() || !self.is_in_place() {
            return;
        }
        // A killed process takes a moment to end.
        for _ in 0..LOOKS {
            if !orphans::has_mount(&self.place) {
                let _ = fs::remove_dir(&self.place);
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Whether this is a placeholder.
pub(super) fn is_one(place: &Path) -> bool {
    let has_mode = |it: fs::Metadata| it.is_dir() && it.permissions().mode() & 0o1700 == MODE & 0o1700;
    fs::symlink_metadata(place).is_ok_and(has_mode)
        && fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_last_one_who_holds_it_removes_it_and_one_that_was_left_is_taken_over() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("mcp.toml");
        let first = Placeholder::at(&place).unwrap();
        let second = Placeholder::at(&place).unwrap();
        assert!(is_one(&place) && !is_one(parent.path()));
        drop(first);
        assert!(place.is_dir());
        drop(second);
        assert!(!place.exists());
        // As when the process is killed.
        let left = Placeholder::at(&place).unwrap().unwrap();
        left.folder.unlock().unwrap();
        std::mem::forget(left);
        assert!(is_one(&place));
        drop(Placeholder::at(&place).unwrap());
        assert!(!place.exists());
    }

    #[test]
    fn a_lock_of_others_is_an_error_and_not_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("mcp.toml");
        fs::create_dir(&place).unwrap();
        let other = File::open(&place).unwrap();
        other.lock().unwrap();
        let error = Placeholder::at(&place).unwrap_err();
        assert!(error.to_string().contains("mcp.toml is locked"), "{error}");
    }

    #[test]
    fn it_stays_while_a_process_lives_that_has_something_mounted_on_it() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().canonicalize().unwrap().join("a \\ b\tmcp.toml");
        let placeholder = Placeholder::at(&place).unwrap().unwrap();
        let script = "mount --bind \"$0\" \"$0\" && echo mounted && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(&place);
        let mut outlives = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        io::BufReader::new(outlives.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            drop(outlives.wait());
            assert!(std::env::var_os("CALLBOARD_CI").is_none(), "namespaces are refused here");
            return;
        }
        drop(placeholder);
        assert!(is_one(&place));
        drop(outlives.stdin.take());
        assert!(outlives.wait().unwrap().success());
        drop(Placeholder::at(&place).unwrap());
        assert!(!place.exists());
    }

    #[test]
    fn what_others_have_put_there_meanwhile_stays() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("mcp.toml");
        let placeholder = Placeholder::at(&place).unwrap();
        fs::remove_dir(&place).unwrap();
        fs::write(&place, "a person's").unwrap();
        drop(placeholder);
        assert_eq!(fs::read_to_string(&place).unwrap(), "a person's");
        assert_eq!(Placeholder::at(&place).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }
}
