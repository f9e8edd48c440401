//! Sockets between processes of this user, and the folders that have them.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

use crate::folders::{Folder, FolderError};

/// Returns the folder for sockets of this user: `$XDG_RUNTIME_DIR/callboard`, or `/tmp/callboard-UID` if that variable has no
/// folder of this user.
#[must_use]
pub fn folder() -> PathBuf {
    named().unwrap_or_else(in_tmp)
}

/// Returns the folders that may have a socket of this user, the one that is preferred first: processes of one user may be started
/// with different environments, so a client searches all of them.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let usual = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    let usual = is_own(&usual).then(|| usual.join("callboard"));
    let mut folders: Vec<PathBuf> = named().into_iter().chain(usual).collect();
    folders.push(in_tmp());
    folders.dedup();
    folders
}

fn named() -> Option<PathBuf> {
    below(std::env::var_os("XDG_RUNTIME_DIR"))
}

/// The folder for sockets below the one that a variable names. After `sudo` that may be one of another user, who could replace what
/// is in it.
pub(crate) fn below(runtime: Option<OsString>) -> Option<PathBuf> {
    Some(runtime.map(PathBuf::from).filter(|path| is_own(path))?.join("callboard"))
}

fn in_tmp() -> PathBuf {
    PathBuf::from(format!("/tmp/callboard-{}", geteuid().as_raw()))
}

/// Whether a folder belongs to this user, and no other user may write to it.
fn is_own(path: &Path) -> bool {
    let is_own = |it: fs::Metadata| it.is_dir() && it.uid() == geteuid().as_raw() && it.mode() & 0o022 == 0;
    path.is_absolute() && path.metadata().is_ok_and(is_own)
}

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

/// A socket on which processes of this user are served. Its file is removed when this value is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    file: SocketFile,
}

impl Listener {
    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Accepts the next connection; `None` if it is one of another user, which is closed.
    ///
    /// # Errors
    /// What the system reports.
    pub async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.socket.accept().await?;
        if is_of_this_user(&stream) {
            return Ok(Some(stream));
        }
        tracing::warn!(peer = ?stream.peer_cred(), "a connection of another user was refused");
        Ok(None)
    }
}

/// The file of a socket, which is removed when this value is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: Option<(u64, u64)>,
}

impl Drop for SocketFile {
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
    let (socket, file) = bind(path.clone())?;
    let socket = UnixListener::from_std(socket).map_err(|error| FolderError::io(&path, error))?;
    Ok(Listener { socket, file })
}

/// Listens on the socket `name` in a folder, in the place of whatever is there: for a process that alone may have this socket, by
/// a lock of its own. The socket does not block.
///
/// # Errors
/// See [`FolderError`].
pub fn replace(folder: &Path, name: &str) -> Result<(std::os::unix::net::UnixListener, SocketFile), FolderError> {
    let path = Folder::create(folder)?.path().join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(FolderError::io(&path, error)),
        Ok(()) | Err(_) => {}
    }
    bind(path)
}

fn bind(path: PathBuf) -> Result<(std::os::unix::net::UnixListener, SocketFile), FolderError> {
    let made = std::os::unix::net::UnixListener::bind(&path).and_then(|socket| {
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    let socket = made.map_err(|error| FolderError::io(&path, error))?;
    Ok((socket, SocketFile { identity: identity(&path), path }))
}

/// Returns the path of a socket; `None` if the name leads out of the folder.
#[must_use]
pub fn path_of(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut parts = Path::new(name).components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    is_name.then(|| folder.join(name))
}

/// Returns whether the process at the other end is one of this user, root not included.
#[must_use]
pub fn is_of_this_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}
