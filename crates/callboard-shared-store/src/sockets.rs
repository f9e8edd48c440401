//! The socket of a store: in a folder that only this user may enter, and between processes of this user alone.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use callboard_private::{Folder, SocketFile, folders, replace};
use sha2::{Digest as _, Sha256};

/// The name of the socket of the store in this folder.
fn name_of(store: &Path) -> io::Result<String> {
    let hash = Sha256::digest(fs::canonicalize(store)?.as_os_str().as_bytes());
    let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digits}.sock"))
}

/// Listens on the socket of a store. Only the process that has locked the store's folder may call this: it replaces the socket of one
/// that has ended.
///
/// # Errors
/// No folder for sockets can be used; the error of the last one.
pub(crate) fn listen(store: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let name = name_of(store)?;
    let mut failure = io::Error::other("there is no folder for sockets");
    for folder in folders() {
        match replace(&folder, &name) {
            Ok(listening) => return Ok(listening),
            Err(error) => failure = io::Error::other(error),
        }
    }
    Err(failure)
}

/// Connects to the process that shares a store.
///
/// # Errors
/// None listens, or what listens may be another user's.
pub(crate) fn connect(store: &Path) -> io::Result<UnixStream> {
    let name = name_of(store)?;
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders().iter().filter(|folder| folder.symlink_metadata().is_ok()) {
        let checked = Folder::open(folder).map_err(io::Error::other);
        match checked.and_then(|folder| UnixStream::connect(folder.path().join(&name))) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
