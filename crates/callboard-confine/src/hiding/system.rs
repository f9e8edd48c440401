//! What keeps a program of the superuser, who owns the system's files, from having the system start something outside.

use std::ffi::{CStr, CString};
use std::io;
use std::path::{Path, PathBuf};

use libc::c_int;

use crate::calls::{done, done_long};
use crate::mounts::{c_path, make_read_only, move_mount, open_tree};

use super::covers::Cover;

/// The character devices that programs of the superuser find in `/dev`. Those of disks and of memory have all that is hidden.
const DEVICES: [&str; 12] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/shm",
    "/dev/mqueue",
    "/dev/fuse",
    "/dev/net",
    "/dev/kvm",
    "/dev/dri",
];

/// The links of `/dev` to terminals and to a process's own descriptors.
const LINKS: [(&CStr, &CStr); 5] = [
    (c"pts/ptmx", c"/dev/ptmx"),
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
];

/// What keeps a program of the superuser, who owns the system's files, from having the system start something outside.
#[derive(Debug)]
pub(super) struct System {
    /// The program may write here, and in the folder that it starts in.
    writable: Vec<CString>,
    /// Room for their mounts, while these are moved into place.
    mounts: Vec<c_int>,
    devices: Vec<(CString, Cover)>,
    device_mounts: Vec<c_int>,
}

impl System {
    pub(super) fn with(writable: &[PathBuf]) -> Self {
        // A mount on `/` is below what paths lead to, and is found by `/..`.
        let named = writable.iter().filter_map(|path| path.canonicalize().ok()).filter(|path| path.parent().is_some());
        let named = named.filter_map(|path| c_path(&path));
        let writable: Vec<_> = [c".".to_owned()].into_iter().chain(named).collect();
        let devices: Vec<_> =
            DEVICES.iter().map(Path::new).filter_map(|device| Some((c_path(device)?, Cover::of(device)?))).collect();
        Self { mounts: vec![-1; writable.len()], writable, device_mounts: vec![-1; devices.len()], devices }
    }

    /// Makes the file system read-only except for what is writable, and leaves of the devices those that are listed.
    #[allow(unsafe_code, reason = "system calls")]
    pub(super) fn protect(&mut self) -> io::Result<()> {
        let own = usize::from(is_in_root()?);
        for (path, mount) in self.writable.iter().zip(&mut self.mounts).skip(own) {
            *mount = open_tree(path)?;
        }
        for ((path, _), mount) in self.devices.iter().zip(&mut self.device_mounts) {
            *mount = open_tree(path)?;
        }
        make_read_only(c"/")?;
        for (path, mount) in self.writable.iter().zip(&self.mounts).skip(own) {
            move_mount(*mount, path)?;
        }
        let (kind, data) = (c"tmpfs".as_ptr(), c"mode=0755,size=64k".as_ptr());
        // SAFETY: texts that live through the call.
        done(unsafe { libc::mount(kind, c"/dev".as_ptr(), kind, libc::MS_NOSUID | libc::MS_NOEXEC, data.cast()) })?;
        for ((path, cover), mount) in self.devices.iter().zip(&self.device_mounts) {
            cover.create(path)?;
            move_mount(*mount, path)?;
        }
        // SAFETY: a path that lives through the call.
        done(unsafe { libc::mkdir(c"/dev/pts".as_ptr(), 0o755) })?;
        own_terminals()?;
        for (target, link) in LINKS {
            // SAFETY: paths that live through the call.
            done(unsafe { libc::symlink(target.as_ptr(), link.as_ptr()) })?;
        }
        Ok(())
    }
}

/// Gives the program terminals of its own, so that it cannot open those of its user: what a person types and sees there.
#[allow(unsafe_code, reason = "a system call")]
pub(super) fn own_terminals() -> io::Result<()> {
    let (kind, data) = (c"devpts".as_ptr(), c"newinstance,ptmxmode=0666,mode=0620".as_ptr());
    // SAFETY: texts that live through the call.
    done(unsafe { libc::mount(kind, c"/dev/pts".as_ptr(), kind, libc::MS_NOSUID | libc::MS_NOEXEC, data.cast()) })
}

/// Whether the current folder is `/`.
#[allow(unsafe_code, reason = "a system call")]
fn is_in_root() -> io::Result<bool> {
    let mut path = [0_u8; 2];
    // SAFETY: memory of this size that lives through the call.
    match done_long(unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) }) {
        Ok(()) => Ok(path == *b"/\0"),
        Err(error) if error.raw_os_error() == Some(libc::ERANGE) => Ok(false),
        Err(error) => Err(error),
    }
}
