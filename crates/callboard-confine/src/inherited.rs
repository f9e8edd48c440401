//! The one descriptor besides its standard streams that a program can inherit: a socket, as descriptor 3.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use libc::c_int;

/// The number of the descriptor.
const DESCRIPTOR: c_int = 3;

/// Keeps descriptor 3 of this process in use. Otherwise it could become the pipe by which the standard library reports a failed exec, and
/// the socket would replace that.
static RESERVED: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Has the program inherit this socket as descriptor 3. Its process holds no other descriptor of it.
///
/// Call it last, after [`apart`](crate::apart) and what confines the program: it replaces whatever descriptor 3 is then.
///
/// ```
/// use callboard_confine::{CoreDumps, apart, inherits};
/// use std::io::Read as _;
/// use std::os::unix::net::UnixStream;
/// use std::process::Command;
///
/// let (mut own, other) = UnixStream::pair()?;
/// let mut shell = Command::new("sh");
/// shell.args(["-c", "echo here >&3"]);
/// apart(&mut shell, CoreDumps::Inherited);
/// assert!(inherits(&mut shell, other.into())?.status()?.success());
/// drop(shell);
/// let mut text = String::new();
/// own.read_to_string(&mut text)?;
/// assert_eq!(text, "here\n");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// No descriptor is left. A start fails where another thread has closed descriptor 3 meanwhile; it may be tried again.
#[allow(unsafe_code, reason = "a hook between fork and exec")]
pub fn inherits(command: &mut Command, socket: OwnedFd) -> io::Result<&mut Command> {
    reserve()?;
    let reserved = identity();
    // SAFETY: the closure owns the descriptor, and `pass` makes only async-signal-safe calls: it neither allocates nor takes a lock, so it
    // may run in the child of a process with several threads.
    Ok(unsafe { command.pre_exec(move || pass(socket.as_raw_fd(), reserved)) })
}

/// The socket that this process has inherited as descriptor 3, as a descriptor of its own. Programs that this process starts inherit none.
///
/// # Errors
/// Descriptor 3 is no connected Unix stream socket without a name.
#[allow(unsafe_code, reason = "system calls")]
pub fn inherited() -> io::Result<UnixStream> {
    // SAFETY: integers; a descriptor that is not open is an error.
    let copy = unsafe { libc::fcntl(DESCRIPTOR, libc::F_DUPFD_CLOEXEC, DESCRIPTOR + 1) };
    if copy == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else has it.
    let copy = UnixStream::from(unsafe { OwnedFd::from_raw_fd(copy) });
    // They fail for what is no Unix socket, or is not connected.
    let is_unnamed = copy.local_addr()?.is_unnamed() && copy.peer_addr()?.is_unnamed();
    if !is_unnamed || !is_stream(&copy)? {
        return Err(io::Error::other("it is a socket of another kind"));
    }
    // SAFETY: integers, and a descriptor that is open.
    unsafe { libc::fcntl(DESCRIPTOR, libc::F_SETFD, libc::FD_CLOEXEC) };
    Ok(copy)
}

#[allow(unsafe_code, reason = "a system call")]
fn is_stream(socket: &UnixStream) -> io::Result<bool> {
    let (mut kind, mut size): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_TYPE);
    // SAFETY: an integer and its size, which live through the call.
    let read = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut kind).cast(), &raw mut size) };
    if read == -1 { Err(io::Error::last_os_error()) } else { Ok(kind == libc::SOCK_STREAM) }
}

/// Opens descriptor 3 of this process, unless it is in use.
#[allow(unsafe_code, reason = "a system call")]
fn reserve() -> io::Result<()> {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    if reserved.is_some() {
        return Ok(());
    }
    let nothing = OwnedFd::from(File::open("/dev/null")?);
    // SAFETY: integers, and a descriptor that is open.
    let lowest = unsafe { libc::fcntl(nothing.as_raw_fd(), libc::F_DUPFD_CLOEXEC, DESCRIPTOR) };
    if lowest == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else has it.
    let lowest = unsafe { OwnedFd::from_raw_fd(lowest) };
    *reserved = [nothing, lowest].into_iter().find(|one| one.as_raw_fd() == DESCRIPTOR);
    Ok(())
}

/// What descriptor 3 is: the numbers of its file; `None` if it is not open.
#[allow(unsafe_code, reason = "a system call")]
fn identity() -> Option<(u64, u64)> {
    let mut about = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the memory has the size of what is written there.
    if unsafe { libc::fstat(DESCRIPTOR, about.as_mut_ptr()) } == -1 {
        return None;
    }
    // SAFETY: the call has succeeded, so it has written all of it.
    let about = unsafe { about.assume_init() };
    #[allow(clippy::unnecessary_cast, reason = "not all systems have them as 64 bits")]
    Some((about.st_dev as u64, about.st_ino as u64))
}

/// Runs in the child, between fork and exec.
#[allow(unsafe_code, reason = "system calls")]
fn pass(socket: c_int, reserved: Option<(u64, u64)>) -> io::Result<()> {
    let now = identity();
    if socket == DESCRIPTOR {
        // SAFETY: integers, and a descriptor that is open.
        return if unsafe { libc::fcntl(DESCRIPTOR, libc::F_SETFD, 0) } == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        };
    }
    // It may be the pipe of the standard library.
    if now.is_some() && now != reserved {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    }
    // SAFETY: integers, and a descriptor that is open. The copy stays open in the program.
    if unsafe { libc::dup2(socket, DESCRIPTOR) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::{CoreDumps, apart};

    fn shell(line: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]);
        apart(&mut shell, CoreDumps::Inherited);
        shell
    }

    #[test]
    fn a_program_inherits_the_socket_and_nothing_else_beside_its_streams() {
        let (_own, other) = UnixStream::pair().unwrap();
        let line =
            "readlink /proc/$$/fd/3 | cut -c 1-7; for n in $(seq 4 64); do test -e /proc/$$/fd/$n && echo $n; done";
        let mut shell = shell(line);
        let output = inherits(&mut shell, other.into()).unwrap().output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "socket:\n");
    }

    #[test]
    fn a_program_that_is_not_there_is_still_an_error_of_the_start() {
        let (_own, other) = UnixStream::pair().unwrap();
        let mut nothing = Command::new("/nonexistent");
        apart(&mut nothing, CoreDumps::Inherited);
        let error = inherits(&mut nothing, other.into()).unwrap().spawn().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_socket_of_a_pair_is_not_taken() {
        // Descriptor 3 is reserved, by a file.
        reserve().unwrap();
        assert!(inherited().is_err());
    }
}
