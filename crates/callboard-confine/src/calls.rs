//! The results of system calls.

use std::ffi::CStr;
use std::io;

/// The result of a call: an error if it is -1.
pub(crate) fn done(answer: libc::c_int) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn done_long(answer: libc::c_long) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `None` if nothing is at the path of the call any more, as when a socket was removed after it was listed.
pub(crate) fn unless_gone<T>(path: &CStr, made: io::Result<T>) -> io::Result<Option<T>> {
    match made {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) && !exists(path) => Ok(None),
        made => made.map(Some),
    }
}

#[allow(unsafe_code, reason = "a system call")]
pub(crate) fn exists(path: &CStr) -> bool {
    // SAFETY: a path that lives through the call. A link is not followed.
    let exists = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::F_OK, libc::AT_SYMLINK_NOFOLLOW) };
    exists == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT)
}
