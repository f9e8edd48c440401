//! A program's own view of the file system, in a mount namespace. It is read-only except for what is named, because a Landlock ruleset
//! protects the content of files and not their permissions, owners and times. `/dev/shm`, where the C library stores named semaphores
//! and shared memory, is the program's own; otherwise all processes of a user share it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libc::c_int;

use crate::calls::done;
use crate::identity::Identity;
use crate::mounts::{bind, bind_link, c_path, make_read_only, move_mount, open_tree};
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
    /// That of a new user namespace; `None` where this process may mount without one.
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

    fn by<'p>(namespaces: Namespaces, writable: impl IntoIterator<Item = &'p Path>) -> Option<Self> {
        let named = writable.into_iter().map(c_path);
        let writable: Vec<_> = [Some(c".".to_owned())].into_iter().chain(named).collect::<Option<_>>()?;
        let namespace = (namespaces == Namespaces::MountsOfUser).then(Identity::own);
        let mounts = vec![-1; writable.len()];
        Some(Self { writable, mounts, read_only: Vec::new(), pins: Vec::new(), has_shared_memory: true, namespace })
    }

    /// Runs in the child, between fork and exec, where there is one thread.
    #[allow(unsafe_code, reason = "system calls")]
    pub(crate) fn mount(&mut self) -> io::Result<()> {
        match &self.namespace {
            Some(identity) => identity.enter()?,
            // SAFETY: integers alone.
            None => done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?,
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
