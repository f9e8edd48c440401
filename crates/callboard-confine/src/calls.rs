//! The results of system calls.

use std::io;

/// The result of a call: an error if it is -1.
pub(crate) fn done(answer: libc::c_int) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn done_long(answer: libc::c_long) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `None` if nothing is at the path of the call any more, as when a socket was removed after it was listed.
pub(crate) fn unless_gone<T>(made: io::Result<T>) -> io::Result<Option<T>> {
    match made {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        made => made.map(Some),
    }
}
