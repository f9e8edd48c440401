//! The socket of a store: in a folder that only this user may enter, and between processes of this user alone.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};

/// The folders that may have the sockets of this user, the preferred one first. Processes of one user may be started with different
/// environments, so that all are searched.
fn folders() -> Vec<PathBuf> {
    let user = geteuid().as_raw();
    // After `sudo` it may be that of another user, who could replace what is in it.
    let is_own = |folder: &PathBuf| {
        let about = folder.metadata();
        folder.is_absolute() && about.is_ok_and(|it| it.is_dir() && it.uid() == user && it.mode() & 0o022 == 0)
    };
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(is_own);
    let mut folders: Vec<PathBuf> = named.map(|folder| folder.join("callboard")).into_iter().collect();
    folders.push(PathBuf::from(format!("/run/user/{user}/callboard")));
    folders.push(PathBuf::from(format!("/tmp/callboard-{user}")));
    folders.dedup();
    folders
}

/// The name of the socket of the store in this folder.
fn name_of(store: &Path) -> io::Result<String> {
    let hash = Sha256::digest(fs::canonicalize(store)?.as_os_str().as_bytes());
    let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digits}.sock"))
}

/// Refuses a folder that another user could have made or may enter: what answers there could be anybody's.
fn check(folder: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(folder)?;
    let refused = |why: String| Err(io::Error::other(format!("{}: {why}", folder.display())));
    if !about.is_dir() {
        return refused("it is no folder: remove it".to_owned());
    }
    if about.uid() != geteuid().as_raw() {
        return refused(format!("it belongs to the user {}: have that user remove it", about.uid()));
    }
    match about.permissions().mode() & 0o777 {
        0o700 => Ok(()),
        mode => refused(format!("its mode is {mode:03o}, and only this user may enter it: chmod 700")),
    }
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(0o700))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    check(folder)
}

/// The socket file of a store; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
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
        let path = folder.join(&name);
        let listening = make(&folder).and_then(|()| {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match listening {
            Ok(listener) => return Ok((listener, SocketFile(path))),
            Err(error) => failure = error,
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
    for folder in folders() {
        match check(&folder).and_then(|()| UnixStream::connect(folder.join(&name))) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Whether the process at the other end is one of this user.
pub(crate) fn is_of_this_user(stream: &tokio::net::UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn a_folder_that_another_user_made_or_may_enter_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("callboard");
        make(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        make(&folder).unwrap();
        let link = place.path().join("link");
        symlink(&folder, &link).unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for (squatted, why) in [(&link, "it is no folder"), (&file, "it is no folder")] {
            assert!(make(squatted).unwrap_err().to_string().contains(why), "{squatted:?}");
            assert!(check(squatted).is_err());
        }
        for mode in [0o755, 0o770, 0o701, 0o1777] {
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            assert!(make(&folder).unwrap_err().to_string().contains("chmod 700"), "{mode:o}");
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        if geteuid().is_root() {
            chown(&folder, Some(65_534), None).unwrap();
            assert!(make(&folder).unwrap_err().to_string().contains("belongs to the user 65534"));
        }
    }
}
