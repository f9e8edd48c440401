//! Locks of files, by which processes know of each other: the lock of the store's folder belongs to the process that shares the store,
//! and one file for each claimed stream to the process that claimed it. The system releases a lock when its process ends.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard::storage::{Fence, Key};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

use crate::request::Earlier;

/// The folder of the claims, in the folder of the store.
const CLAIMS: &str = "claims";
/// How long to wait for the owner of a claim to be written.
const WRITTEN_SOON: Duration = Duration::from_millis(1);
/// How often; it may have been suspended meanwhile.
const PATIENCE: u32 = 1_000;

/// Locks the folder of a store for the process that is to share it; `None` if another process has it.
pub(crate) fn lock_folder(folder: &Path) -> io::Result<Option<File>> {
    // Neither a pipe nor anything else that is no folder is waited for.
    let flags = (OFlags::DIRECTORY | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(folder)?;
    match opened.try_lock() {
        Ok(()) => Ok(Some(opened)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The claims of this process.
#[derive(Debug)]
pub(crate) struct ClaimLocks {
    folder: PathBuf,
    locked: Mutex<HashMap<Key, File>>,
}

impl ClaimLocks {
    pub(crate) fn new(store: &Path) -> Self {
        Self { folder: store.join(CLAIMS), locked: Mutex::default() }
    }

    /// Locks the file of a stream that this owner is to claim, and writes the owner into it; returns whose it was.
    pub(crate) fn lock(&self, stream: &Key, owner: &str) -> io::Result<Earlier> {
        let mut locked = self.locked.lock();
        if locked.contains_key(stream) {
            return Ok(Earlier::Same);
        }
        match fs::DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let path = self.path(stream);
        let mut tries = 0;
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut owner = String::new();
                    file.take(Fence::MAX_OWNER as u64).read_to_string(&mut owner)?;
                    tries += 1;
                    if owner.is_empty() && tries == PATIENCE {
                        "another process".clone_into(&mut owner);
                    }
                    if !owner.is_empty() {
                        return Ok(Earlier::Lives { owner });
                    }
                    // It was locked a moment ago, and is about to be written.
                    std::thread::sleep(WRITTEN_SOON);
                    continue;
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Its owner may have removed it before it was locked here: others would lock a new file.
            let is_there =
                fs::metadata(&path).is_ok_and(|there| file.metadata().is_ok_and(|it| there.ino() == it.ino()));
            if is_there {
                file.set_len(0)?;
                file.write_all(owner.as_bytes())?;
                locked.insert(stream.clone(), file);
                return Ok(Earlier::Gone);
            }
        }
    }

    /// Removes the file of a stream that is no longer claimed.
    pub(crate) fn unlock(&self, stream: &Key) {
        if let Some(file) = self.locked.lock().remove(stream) {
            // While it is locked, so that nobody has locked another of this name.
            let _ = fs::remove_file(self.path(stream));
            drop(file);
        }
    }

    fn path(&self, stream: &Key) -> PathBuf {
        let hash = Sha256::digest(stream.as_bytes());
        self.folder.join(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>())
    }
}

impl Drop for ClaimLocks {
    fn drop(&mut self) {
        let streams: Vec<Key> = self.locked.lock().keys().cloned().collect();
        streams.iter().for_each(|stream| self.unlock(stream));
    }
}
