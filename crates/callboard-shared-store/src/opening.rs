//! Which process has the store open: the one that locks the store's folder first. The others connect to it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Clock;
use callboard::storage::{Sled, StorageError};
use callboard_private::SocketFile;

use crate::handshake::{self, introduce};
use crate::holder::Holder;
use crate::locks::lock_folder;
use crate::sockets;

/// How long a process that starts waits for the one that is opening or closing the store.
pub(crate) const AT_START: Duration = Duration::from_secs(10);
/// How long it waits when the process that had the files open is gone.
pub(crate) const LATER: Duration = Duration::from_secs(60);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The store, here or in another process.
pub(crate) enum Opened {
    Here(Box<Here>),
    Elsewhere(UnixStream),
}

/// What the process has that has the store open. Dropped in this order: the folder is unlocked last.
pub(crate) struct Here {
    pub(crate) holder: Arc<Holder>,
    /// `None` if no folder can have the socket: other processes cannot use the store.
    pub(crate) socket: Option<(UnixListener, SocketFile)>,
    pub(crate) why_not_shared: Option<String>,
    _lock: File,
}

/// Opens the store here, or connects to the process that has it open. Waits so long for one that is opening or closing it. A store
/// that is not there is made if it `may_be_new`.
pub(crate) fn open(
    folder: &Path,
    clock: &Arc<dyn Clock>,
    patience: Duration,
    may_be_new: bool,
) -> Result<Opened, StorageError> {
    let mut rest = patience;
    while !rest.is_zero() {
        match try_open(folder, clock, may_be_new)? {
            Attempt::Opened(opened) => return Ok(opened),
            Attempt::Wait => {
                std::thread::sleep(LOOK_AGAIN);
                rest = rest.saturating_sub(LOOK_AGAIN);
            }
            Attempt::Silent => rest = rest.saturating_sub(handshake::PATIENCE),
        }
    }
    let holder = File::open(folder.join("lock")).and_then(|lock| io::read_to_string(lock.take(32)));
    let holder = holder.ok().and_then(|text| text.trim().parse().ok());
    Err(StorageError::InUse { path: folder.display().to_string(), holder })
}

/// Connects to the process that shares a store; `None` if none answers.
pub(crate) fn join(folder: &Path) -> Result<Option<Opened>, StorageError> {
    let Ok(stream) = sockets::connect(folder) else { return Ok(None) };
    Ok(match connect(folder, stream)? {
        Attempt::Opened(opened) => Some(opened),
        Attempt::Wait | Attempt::Silent => None,
    })
}

enum Attempt {
    Opened(Opened),
    /// A process that shares the store is opening or closing it.
    Wait,
    /// A process has it open that does not answer, such as one that is suspended.
    Silent,
}

fn try_open(folder: &Path, clock: &Arc<dyn Clock>, may_be_new: bool) -> Result<Attempt, StorageError> {
    if let Ok(stream) = sockets::connect(folder) {
        return connect(folder, stream);
    }
    let is_new = may_be_new && make(folder).map_err(|error| refused(folder, &error))?;
    let lock = match lock_folder(folder) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Ok(Attempt::Wait),
        // The store says what is wrong with its folder, unless a new one would be made.
        Err(error) if !may_be_new => return Err(refused(folder, &error)),
        Err(error) => {
            Sled::open_with_clock(folder, Arc::clone(clock))?;
            return Err(refused(folder, &error));
        }
    };
    let opened = Sled::open_with_clock(folder, Arc::clone(clock));
    if is_new && opened.is_err() {
        // Only if it is still empty.
        let _ = std::fs::remove_dir(folder);
    }
    let holder = Arc::new(Holder::new(opened?, Arc::clone(clock), folder));
    let socket = sockets::listen(folder);
    if let Err(error) = &socket {
        tracing::warn!(%error, "no other process can use the store until this one has ended");
    }
    let why_not_shared = socket.as_ref().err().map(ToString::to_string);
    Ok(Attempt::Opened(Opened::Here(Box::new(Here { holder, socket: socket.ok(), why_not_shared, _lock: lock }))))
}

/// Makes the folder of a new store, where nothing is in the way; whether it did.
fn make(folder: &Path) -> io::Result<bool> {
    if folder.symlink_metadata().is_ok() || folder.as_os_str().is_empty() {
        return Ok(false);
    }
    DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(true)
}

fn connect(folder: &Path, mut stream: UnixStream) -> Result<Attempt, StorageError> {
    match introduce(&mut stream) {
        Ok(Ok(_)) => {}
        Ok(Err(detail)) => return Err(StorageError::Open { path: folder.display().to_string(), detail }),
        Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) => {
            return Ok(Attempt::Silent);
        }
        // It is about to end.
        Err(_) => return Ok(Attempt::Wait),
    }
    let is_ready = stream.set_nonblocking(true).is_ok();
    Ok(if is_ready { Attempt::Opened(Opened::Elsewhere(stream)) } else { Attempt::Wait })
}

fn refused(folder: &Path, error: &io::Error) -> StorageError {
    StorageError::Open { path: folder.display().to_string(), detail: error.to_string() }
}
