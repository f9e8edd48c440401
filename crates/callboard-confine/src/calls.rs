//! The results of system calls.

use std::io;

/// The result of a call: an error if it is -1.
pub(crate) fn done(answer: libc::c_int) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn done_long(answer: libc::c_long) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
