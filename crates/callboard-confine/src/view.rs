//! A program's own view of the file system, in a mount namespace. It is read-only except for what is named, because a Landlock ruleset
//! protects the content of files and not their permissions, owners and times. `/dev/shm`, where the C library stores named semaphores
//! and shared memory, is the program's own; otherwise all processes of a user share it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libc::{c_int, c_long};

use crate::confinement::{done, done_long};
use crate::processes;

/// The folder in which the C library stores shared memory.
pub(crate) const SHARED_MEMORY: &CStr = c"/dev/shm";

/// A view of the file system: read-only, except for the folder that the program starts in and others that are named. It ends with the
/// last program that has it.
#[derive(Clone, Debug)]
pub struct View {
    /// The writable folders: the one that the program starts in, and others.
    writable: Vec<CString>,
    /// Room for their mounts, while these are moved into place.
    mounts: Vec<c_int>,
    /// Paths that are read-only although they are in writable folders.
    read_only: Vec<CString>,
    /// Paths that cannot be moved or removed although they are in writable folders, each after the folders that contain it.
    pins: Vec<(CString, Pin)>,
    has_shared_memory: bool,
    /// The user and the group of a new user namespace; `None` where this process may mount without one.
    namespace: Option<Identity>,
}

/// A path that cannot be moved or removed: it is a mount point, which the kernel neither removes nor moves. Files are moved across its
/// boundary by copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pin {
    /// A folder whose content can be changed.
    Folder,
    /// A symbolic link, which is bound itself and not what it leads to.
    Link,
    /// A file, or a folder with its content, which is also read-only.
    ReadOnly,
}

/// The mapping of the user and group in a new user namespace: to themselves.
#[derive(Clone, Debug)]
struct Identity {
    users: Vec<u8>,
    groups: Vec<u8>,
}

/// The namespaces that the kernel lets this process create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespaces {
    /// A mount namespace, as the superuser.
    Mounts,
    /// A mount namespace in a user namespace.
    MountsOfUser,
}

impl View {
    /// A view in which these files and folders can be written besides the folder that the program starts in; their paths are
    /// absolute. `None` where the kernel refuses namespaces to this process. In the user namespace of an ordinary user, files of
    /// other users appear to belong to `nobody`.
    ///
    /// Which namespaces the kernel allows is tested once per process, in a child that runs no program.
    #[must_use]
    pub fn of<'p>(writable: impl IntoIterator<Item = &'p Path>) -> Option<Self> {
        static NAMESPACES: OnceLock<Option<Namespaces>> = OnceLock::new();
        let namespaces = *NAMESPACES.get_or_init(|| {
            [Namespaces::Mounts, Namespaces::MountsOfUser].into_iter().find(|namespaces| works(*namespaces))
        });
        Self::by(namespaces?, writable)
    }

    /// Makes these files and folders read-only; `None` if a path contains a zero byte.
    #[must_use]
    pub fn read_only<'p>(mut self, paths: impl IntoIterator<Item = &'p Path>) -> Option<Self> {
        self.read_only = paths.into_iter().map(c_path).collect::<Option<_>>()?;
        Some(self)
    }

    /// Pins these, by absolute paths without links; `None` if a path contains a zero byte.
    #[must_use]
    pub fn pinned<'p>(mut self, pins: impl IntoIterator<Item = (&'p Path, Pin)>) -> Option<Self> {
        self.pins = pins.into_iter().map(|(path, pin)| Some((c_path(path)?, pin))).collect::<Option<_>>()?;
        // A folder comes before its content.
        self.pins.sort();
        self.pins.dedup();
        Some(self)
    }

    /// Keeps the shared memory of the machine, for a program whose folders are in it.
    #[must_use]
    pub fn without_shared_memory(mut self) -> Self {
        self.has_shared_memory = false;
        self
    }

    /// Whether the program has its own shared memory.
    #[must_use]
    pub fn has_shared_memory(&self) -> bool {
        self.has_shared_memory
    }

    /// Whether the program is in its own user namespace.
    #[must_use]
    pub fn has_user_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    #[allow(unsafe_code, reason = "system calls")]
    fn by<'p>(namespaces: Namespaces, writable: impl IntoIterator<Item = &'p Path>) -> Option<Self> {
        let named = writable.into_iter().map(c_path);
        let writable: Vec<_> = [Some(c".".to_owned())].into_iter().chain(named).collect::<Option<_>>()?;
        let namespace = match namespaces {
            Namespaces::Mounts => None,
            Namespaces::MountsOfUser => {
                // SAFETY: they take no arguments, and cannot fail.
                let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
                let line = |id: u32| format!("{id} {id} 1\n").into_bytes();
                Some(Identity { users: line(user), groups: line(group) })
            }
        };
        let mounts = vec![-1; writable.len()];
        Some(Self { writable, mounts, read_only: Vec::new(), pins: Vec::new(), has_shared_memory: true, namespace })
    }

    /// Runs in the child, between fork and exec, where there is one thread.
    #[allow(unsafe_code, reason = "system calls")]
    pub(crate) fn mount(&mut self) -> io::Result<()> {
        let user = if self.namespace.is_some() { libc::CLONE_NEWUSER } else { 0 };
        // SAFETY: integers alone.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS | user) })?;
        if let Some(Identity { users, groups }) = &self.namespace {
            write(c"/proc/self/setgroups", b"deny")?;
            write(c"/proc/self/uid_map", users)?;
            write(c"/proc/self/gid_map", groups)?;
        }
        let none = std::ptr::null();
        // SAFETY: a path that lives through the call; what is null is not read. Mounts in this namespace do not propagate to others.
        done(unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) })?;
        for (path, mount) in self.writable.iter().zip(&mut self.mounts) {
            *mount = open_tree(path)?;
        }
        make_read_only(c"/")?;
        for (path, mount) in self.writable.iter().zip(&self.mounts) {
            move_mount(*mount, path)?;
        }
        // The current folder is hidden below the new mount: enter the mount.
        if let Some(mount) = self.mounts.first() {
            // SAFETY: a descriptor that is open.
            done(unsafe { libc::fchdir(*mount) })?;
        }
        for (path, pin) in &self.pins {
            match pin {
                Pin::Folder => bind(path)?,
                Pin::Link => bind_link(path)?,
                Pin::ReadOnly => {
                    bind(path)?;
                    make_read_only(path)?;
                }
            }
        }
        for path in &self.read_only {
            bind(path)?;
            make_read_only(path)?;
        }
        if self.has_shared_memory {
            let (kind, flags) = (c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
            // SAFETY: texts that live through the call.
            done(unsafe { libc::mount(kind, SHARED_MEMORY.as_ptr(), kind, flags, c"mode=0700".as_ptr().cast()) })?;
        }
        Ok(())
    }
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Bind mounts a path on itself.
#[allow(unsafe_code, reason = "system calls")]
fn bind(path: &CStr) -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: a path that lives through the call; what is null is not read.
    done(unsafe { libc::mount(path.as_ptr(), path.as_ptr(), none, libc::MS_BIND | libc::MS_REC, none.cast()) })
}

/// Bind mounts a symbolic link on itself: it is still a link to the same target.
#[allow(unsafe_code, reason = "system calls")]
fn bind_link(path: &CStr) -> io::Result<()> {
    const BOTH_EMPTY_PATHS: c_int = 0x44;
    // SAFETY: a path that lives through the call. Exec closes the descriptor.
    let link = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
    done(link)?;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_EMPTY_PATH;
    // SAFETY: a descriptor that is open, a text that lives through the call, and integers.
    let mount = unsafe { libc::syscall(libc::SYS_open_tree, link, c"".as_ptr(), flags) };
    done_long(mount)?;
    let (call, empty) = (libc::SYS_move_mount, c"".as_ptr());
    // SAFETY: descriptors that are open, texts that live through the call, and integers.
    done_long(unsafe { libc::syscall(call, mount as c_int, empty, link, empty, BOTH_EMPTY_PATHS) })
}

/// The flag of `open_tree` for a detached mount.
const OPEN_TREE_CLONE: c_int = 1;

/// A detached bind mount of a path. Exec closes it.
#[allow(unsafe_code, reason = "system calls")]
fn open_tree(path: &CStr) -> io::Result<c_int> {
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_RECURSIVE;
    // SAFETY: a path that lives through the call, and integers.
    let mount = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    done_long(mount)?;
    // A descriptor.
    Ok(mount as c_int)
}

#[allow(unsafe_code, reason = "system calls")]
fn move_mount(mount: c_int, path: &CStr) -> io::Result<()> {
    const FROM_EMPTY_PATH: c_int = 4;
    let (call, empty, here) = (libc::SYS_move_mount, c"".as_ptr(), libc::AT_FDCWD);
    // SAFETY: paths that live through the call, a descriptor that is open, and integers.
    done_long(unsafe { libc::syscall(call, mount, empty, here, path.as_ptr(), FROM_EMPTY_PATH) })
}

/// Changes attributes of a mount and of all mounts below it.
#[allow(unsafe_code, reason = "system calls")]
fn make_read_only(path: &CStr) -> io::Result<()> {
    /// The argument of `mount_setattr`.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const READ_ONLY: u64 = 1;
    let attributes = Attributes { set: READ_ONLY, clear: 0, propagation: 0, user_namespace: 0 };
    let (call, flags, size) = (libc::SYS_mount_setattr, libc::AT_RECURSIVE, size_of::<Attributes>() as c_long);
    // SAFETY: a path and attributes of this size, which live through the call.
    done_long(unsafe { libc::syscall(call, libc::AT_FDCWD, path.as_ptr(), flags, &raw const attributes, size) })
}

/// Whether a program with such a view can be started.
#[allow(unsafe_code, reason = "a hook between fork and exec")]
fn works(namespaces: Namespaces) -> bool {
    let Some(mut view) = View::by(namespaces, []) else { return false };
    // The child ends before a program is run: the program in PATH could be one of another user.
    let mut nothing = Command::new("/");
    nothing.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(std::env::temp_dir());
    let enter = move || {
        view.mount()?;
        processes::separate()?;
        processes::exit(0)
    };
    // SAFETY: it makes only system calls, on memory that was allocated before the fork.
    let nothing = unsafe { nothing.pre_exec(enter) };
    nothing.status().is_ok_and(|status| status.success())
}

/// Writes the bytes to a file of the kernel in one call.
#[allow(unsafe_code, reason = "system calls")]
fn write(path: &CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: a path that lives through the call.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    done(file)?;
    // SAFETY: the descriptor is open, and the bytes live through the call.
    let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
    let failed = (written != bytes.len().cast_signed()).then(io::Error::last_os_error);
    // SAFETY: the descriptor is open, and used no more.
    unsafe { libc::close(file) };
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "a hook between fork and exec")]
    fn a_program_changes_what_is_named_and_nothing_else_and_its_shared_memory_is_seen_by_no_other() {
        let place = std::env::temp_dir().join(format!("callboard-view-{}", std::process::id()));
        let memory = format!("/dev/shm/callboard-view-{}", std::process::id());
        for namespaces in
            [Namespaces::Mounts, Namespaces::MountsOfUser].into_iter().filter(|namespaces| works(*namespaces))
        {
            ["", "own", "named", "other"].iter().for_each(|name| fs::create_dir(place.join(name)).unwrap());
            let mut view = View::by(namespaces, [&*place.join("named")]).unwrap();
            assert_eq!(view.has_user_namespace(), namespaces == Namespaces::MountsOfUser);
            let line = format!(
                "ls -A /dev/shm; echo kept > {memory} && cat {memory} && id -u && pwd; touch here ../named/there; \
                 chmod 777 ../other 2>/dev/null && echo changed"
            );
            let mut shell = Command::new("sh");
            shell.args(["-c", &line]).current_dir(place.join("own"));
            // SAFETY: `mount` makes only system calls.
            let output = unsafe { shell.pre_exec(move || view.mount()) }.output().unwrap();
            let user = String::from_utf8(Command::new("id").arg("-u").output().unwrap().stdout).unwrap();
            let expected = format!("kept\n{user}{}\n", place.join("own").display());
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{namespaces:?}");
            assert!(place.join("own/here").exists() && place.join("named/there").exists());
            assert!(!Path::new(&memory).exists());
            assert_ne!(fs::metadata(place.join("other")).unwrap().permissions().mode() & 0o777, 0o777);
            fs::remove_dir_all(&place).unwrap();
        }
    }
}
