//! Shared memory of a program's own. The C library keeps named semaphores and shared memory as files in `/dev/shm`, which all
//! processes of a user share; in a mount namespace another file system stands there.

use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::confinement::done;

/// Where the C library looks for shared memory.
pub(crate) const PLACE: &CStr = c"/dev/shm";

/// A file system in memory that stands for the shared memory of the machine, and goes with the last program that sees it.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    /// The user and the group of a new user namespace; `None` where this process may mount without one.
    namespace: Option<Identity>,
}

/// Who a program is in a user namespace of its own: who it was.
#[derive(Clone, Debug)]
struct Identity {
    users: Vec<u8>,
    groups: Vec<u8>,
}

/// What the kernel lets this process do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A mount namespace, as the superuser.
    Mounts,
    /// A mount namespace in a user namespace.
    MountsOfUser,
}

impl SharedMemory {
    /// An empty one for each program that is given it; `None` where the kernel refuses namespaces to this process. In the user
    /// namespace of an ordinary user, files of all others seem to belong to `nobody`.
    ///
    /// What the kernel allows is tried once in the life of this process, by starting `true`.
    #[must_use]
    pub fn empty() -> Option<Self> {
        static WAY: OnceLock<Option<Way>> = OnceLock::new();
        WAY.get_or_init(|| [Way::Mounts, Way::MountsOfUser].into_iter().find(|way| works(*way))).map(Self::by)
    }

    /// Whether the program is in a user namespace of its own.
    #[must_use]
    pub fn has_user_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    #[allow(unsafe_code, reason = "system calls")]
    fn by(way: Way) -> Self {
        let namespace = match way {
            Way::Mounts => None,
            Way::MountsOfUser => {
                // SAFETY: they take no arguments, and cannot fail.
                let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
                let line = |id: u32| format!("{id} {id} 1\n").into_bytes();
                Some(Identity { users: line(user), groups: line(group) })
            }
        };
        Self { namespace }
    }

    /// Runs in the child, between fork and exec, where there is one thread.
    #[allow(unsafe_code, reason = "system calls")]
    pub(crate) fn mount(&self) -> io::Result<()> {
        let user = if self.namespace.is_some() { libc::CLONE_NEWUSER } else { 0 };
        // SAFETY: integers alone.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS | user) })?;
        if let Some(Identity { users, groups }) = &self.namespace {
            write(c"/proc/self/setgroups", b"deny")?;
            write(c"/proc/self/uid_map", users)?;
            write(c"/proc/self/gid_map", groups)?;
        }
        let none = std::ptr::null();
        // SAFETY: a path that lives through the call; what is null is not read. Nothing that is mounted here reaches others.
        done(unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) })?;
        let (kind, flags) = (c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
        // SAFETY: texts that live through the call.
        done(unsafe { libc::mount(kind, PLACE.as_ptr(), kind, flags, c"mode=0700".as_ptr().cast()) })
    }
}

/// Whether a program with such a memory can be started.
#[allow(unsafe_code, reason = "a hook between fork and exec")]
fn works(way: Way) -> bool {
    let memory = SharedMemory::by(way);
    let mut nothing = Command::new("true");
    nothing.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: `mount` makes only system calls, on memory that was allocated before the fork.
    let nothing = unsafe { nothing.pre_exec(move || memory.mount()) };
    nothing.status().is_ok_and(|status| status.success())
}

/// Writes all of it into a file of the kernel.
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

    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "a hook between fork and exec")]
    fn what_a_program_keeps_in_shared_memory_is_seen_by_no_other() {
        let name = format!("/dev/shm/callboard-memory-{}", std::process::id());
        for way in [Way::Mounts, Way::MountsOfUser].into_iter().filter(|way| works(*way)) {
            let memory = SharedMemory::by(way);
            assert_eq!(memory.has_user_namespace(), way == Way::MountsOfUser);
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ls -A /dev/shm; echo kept > {name} && cat {name} && id -u")]);
            // SAFETY: `mount` makes only system calls.
            let output = unsafe { shell.pre_exec(move || memory.mount()) }.output().unwrap();
            let own = Command::new("id").arg("-u").output().unwrap().stdout;
            assert_eq!(output.stdout, [b"kept\n", &*own].concat(), "{way:?}: it is who it was");
            assert!(!std::path::Path::new(&name).exists());
        }
    }
}
