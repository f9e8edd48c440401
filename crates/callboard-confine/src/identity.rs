//! The users and groups of a user namespace.

use std::ffi::CStr;
use std::fs;
use std::io;

use libc::c_int;

use crate::calls::done;
use crate::mounts::write;
use crate::processes::{exit, fork, wait};

/// The users and groups in a program's user namespace: each is mapped to itself.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    /// One user and one group.
    Own { user: Vec<u8>, group: Vec<u8> },
    /// Those of this process, which is the superuser's. They are written by a process outside the namespace.
    All { users: Vec<u8>, groups: Vec<u8> },
}

impl Identity {
    /// The user and the group of this process.
    #[allow(unsafe_code, reason = "system calls")]
    pub(crate) fn own() -> Self {
        // SAFETY: they take no arguments, and cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let line = |id: u32| format!("{id} {id} 1\n").into_bytes();
        Self::Own { user: line(user), group: line(group) }
    }

    /// All users and groups of this process, for the superuser.
    pub(crate) fn all() -> io::Result<Self> {
        let same = |map| fs::read_to_string(map).map(|map| same(&map));
        Ok(Self::All { users: same("/proc/self/uid_map")?, groups: same("/proc/self/gid_map")? })
    }

    /// Enters a new user namespace, and a mount namespace that belongs to it. Runs in the child, between fork and exec.
    #[allow(unsafe_code, reason = "system calls")]
    pub(crate) fn enter(&self) -> io::Result<()> {
        // The files by which a process that cannot be inspected maps its users belong to the superuser.
        // SAFETY: integers alone.
        done(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) })?;
        // SAFETY: integers alone.
        let enter = || done(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUSER) });
        match self {
            Self::Own { user, group } => {
                enter()?;
                write(c"/proc/self/setgroups", b"deny")?;
                write(c"/proc/self/uid_map", user)?;
                write(c"/proc/self/gid_map", group)
            }
            Self::All { users, groups } => {
                let mut entered = [-1; 2];
                // SAFETY: two integers that live through the call.
                done(unsafe { libc::pipe2(entered.as_mut_ptr(), libc::O_CLOEXEC) })?;
                // SAFETY: it takes no arguments.
                let program = unsafe { libc::getpid() };
                let outside = fork()?;
                if outside == 0 {
                    exit(map_from_outside(program, entered, users, groups).is_err().into());
                }
                let result = enter();
                // SAFETY: descriptors that are open; the end of the stream is the sign.
                unsafe {
                    libc::close(entered[0]);
                    libc::close(entered[1]);
                }
                let mut status = 0;
                while wait(outside, &mut status) == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
                {
                }
                result?;
                if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
            }
        }
    }
}

/// Maps users and groups for a process that has entered a user namespace, as soon as it has closed the pipe.
#[allow(unsafe_code, reason = "system calls")]
fn map_from_outside(program: c_int, [ends, held]: [c_int; 2], users: &[u8], groups: &[u8]) -> io::Result<()> {
    let mut none = [0_u8; 1];
    // SAFETY: descriptors that are open, and a byte that lives through the call.
    unsafe {
        libc::close(held);
        libc::read(ends, none.as_mut_ptr().cast(), 1);
    }
    let mut path = [0_u8; 64];
    write(proc_file(&mut path, program, b"/uid_map")?, users)?;
    write(proc_file(&mut path, program, b"/gid_map")?, groups)
}

/// `/proc/NUMBER/NAME`, without an allocation.
fn proc_file<'p>(path: &'p mut [u8; 64], number: c_int, name: &[u8]) -> io::Result<&'p CStr> {
    let mut digits = [0_u8; 10];
    let (mut rest, mut begin) = (number.cast_unsigned(), digits.len());
    while rest > 0 || begin == digits.len() {
        begin -= 1;
        digits[begin] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let parts = [b"/proc/".as_slice(), &digits[begin..], name, b"\0"];
    let mut length = 0;
    for part in parts {
        path[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    CStr::from_bytes_with_nul(&path[..length]).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Each range of a map, mapped to itself.
fn same(map: &str) -> Vec<u8> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (first, _, count) = (words.next()?, words.next()?, words.next()?);
        Some(format!("{first} {first} {count}\n"))
    };
    map.lines().filter_map(line).collect::<String>().into_bytes()
}
