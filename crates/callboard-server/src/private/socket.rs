//! The socket that a server listens on.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

use crate::audit::Peer;
use crate::folders::{Folder, FolderError};
use crate::serving::Accept;

/// Why a socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The folder is not this user's alone, or the socket cannot be made in it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Another process listens on it.
    #[error("another process listens on {}", .0.display())]
    InUse(PathBuf),
    /// The name is not that of a file in the folder.
    #[error("`{0}` is no name of a socket")]
    Name(String),
}

/// A socket that only processes of this user are served on. Its file is removed when this value is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file.
    identity: Option<(u64, u64)>,
}

impl Listener {
    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // While the socket is open nobody considers its file dead and replaces it.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Listens on the socket `name` in a folder that is this user's alone (mode 0700), and is created so if it is missing. The file
/// of a socket on which nobody listens any more is replaced.
///
/// # Errors
/// See [`ListenError`].
pub async fn listen(folder: &Path, name: &str) -> Result<Listener, ListenError> {
    let path = path_of(folder, name).ok_or_else(|| ListenError::Name(name.to_owned()))?;
    // Until the end, so that of two processes that find a dead socket one alone replaces it.
    let _locked = Folder::create(folder)?.locked()?;
    match fs::symlink_metadata(&path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(FolderError::Kind { path, needed: "socket" }.into());
        }
        Ok(_) => match UnixStream::connect(&path).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(&path).map_err(|error| FolderError::io(&path, error))?;
            }
            // Also one that is too busy to accept.
            Ok(_) | Err(_) => return Err(ListenError::InUse(path)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(FolderError::io(&path, error).into()),
    }
    let made = UnixListener::bind(&path)
        .and_then(|socket| fs::set_permissions(&path, Permissions::from_mode(0o600)).map(|()| socket));
    let socket = made.map_err(|error| FolderError::io(&path, error))?;
    Ok(Listener { identity: identity(&path), socket, path })
}

/// The path of a socket; `None` if the name leads out of the folder.
pub(super) fn path_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut parts = Path::new(name).components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    is_name.then(|| folder.join(name))
}

/// Whether the process on the other side is this user's.
pub(super) fn is_own(stream: &UnixStream) -> io::Result<bool> {
    Ok(stream.peer_cred()?.uid() == geteuid().as_raw())
}

impl Accept for Listener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<Option<(UnixStream, Peer)>> {
        let (stream, _) = self.socket.accept().await?;
        let is_own = is_own(&stream);
        if !matches!(is_own, Ok(true)) {
            tracing::warn!(peer = ?stream.peer_cred(), "a connection of another user was refused");
            return Ok(None);
        }
        let from = match stream.peer_cred().ok().and_then(|peer| peer.pid()) {
            Some(process) => format!("process {process}"),
            None => "a process".to_owned(),
        };
        Ok(Some((stream, Peer { shown: from.into(), address: None })))
    }
}
