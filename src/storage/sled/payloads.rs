//! Payloads too long for a row: files named by the hash of their content.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::disk::{Disk, sync_folder, write_whole};
use super::read_error::ReadError;
use crate::storage::Record;

/// The longest payload that is kept in a row, in bytes. A row stays under 64 KiB with it, and the 17 rows of a full page
/// stay far below the 2 MiB from which on sled would write the page to a file that it never syncs.
pub(super) const MAX_INLINE: usize = (64 << 10) - 64;

/// SHA-256 of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PayloadName([u8; 32]);

impl PayloadName {
    fn of(payload: &[u8]) -> Self {
        Self(Sha256::digest(payload).into())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    fn from_file_name(name: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(name.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let parsed = Self(bytes);
        (parsed.file_name() == name).then_some(parsed)
    }

    fn file_name(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        })
    }
}

impl std::fmt::Debug for PayloadName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file_name())
    }
}

/// The folder of payload files.
#[derive(Clone)]
pub(super) struct Payloads {
    folder: Arc<Path>,
    disk: Arc<dyn Disk>,
}

impl Payloads {
    /// Opens the folder and makes it if needed.
    pub(super) fn open(folder: PathBuf, disk: Arc<dyn Disk>) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self { folder: folder.into(), disk })
    }

    /// Writes and syncs a file. Its name is durable after [`Payloads::sync_names`].
    pub(super) fn write(&self, payload: &[u8]) -> io::Result<PayloadName> {
        let name = PayloadName::of(payload);
        write_whole(&*self.disk, &self.path(&name), payload)?;
        Ok(name)
    }

    /// Makes the names of the files written so far durable.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        sync_folder(&*self.disk, &self.folder)
    }

    /// The content of a file, if it is the one that was written.
    pub(super) fn read(&self, name: &PayloadName) -> Result<Arc<[u8]>, ReadError> {
        let path = self.path(name);
        let about = fs::metadata(&path);
        // A pipe would be waited for without an end.
        if about.as_ref().is_ok_and(|about| !about.is_file()) {
            return Err(format!("payload file {name:?} is not a file").into());
        }
        let damaged = || ReadError::Damaged(format!("payload file {name:?} is damaged"));
        // Nothing so long was ever written, so its hash need not be known.
        if about.is_ok_and(|about| about.len() > Record::MAX as u64) {
            return Err(damaged());
        }
        let mut payload = Vec::new();
        // It may have grown meanwhile.
        let read = File::open(path).and_then(|file| file.take(Record::MAX as u64 + 1).read_to_end(&mut payload));
        read.map_err(|error| ReadError::from(error).about(format_args!("payload file {name:?}")))?;
        if PayloadName::of(&payload) == *name { Ok(payload.into()) } else { Err(damaged()) }
    }

    /// Removes a file that nothing refers to; one that is left behind is removed when the store is opened.
    pub(super) fn remove(&self, name: &PayloadName) {
        if let Err(error) = fs::remove_file(self.path(name)) {
            tracing::debug!(%error, ?name, "a payload file was not removed");
        }
    }

    /// Removes what a crash left behind: unfinished files, and those that are not `used`.
    pub(super) fn remove_unused(&self, used: impl Fn(&PayloadName) -> bool) -> io::Result<()> {
        for file in fs::read_dir(&self.folder)? {
            let file = file?;
            let name = file.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(".unfinished") || PayloadName::from_file_name(&name).is_some_and(|name| !used(&name)) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &PayloadName) -> PathBuf {
        self.folder.join(name.file_name())
    }
}
