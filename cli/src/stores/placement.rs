//! The placement of conversations in a project's stores: a file for each conversation holds the number of the store, because the
//! store itself may be in use by another process.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use callboard::messages::ConversationId;

use crate::atomic_file::AtomicFile;
use crate::page::{Failure, shown_path};
use crate::values::open_file;

/// The most bytes of a placement file that are read.
const MAX: u64 = 32;

/// The placement file of one conversation.
pub(crate) struct Placement {
    folder: PathBuf,
    file: PathBuf,
}

impl Placement {
    /// The file for the conversation, in the folder with all placement files.
    pub(crate) fn of(conversation: &ConversationId, folder: PathBuf) -> Self {
        let hash = Sha256::digest(conversation.as_str().as_bytes());
        let file = folder.join(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>());
        Self { folder, file }
    }

    /// The number of the store; `None` if no file names one.
    pub(crate) fn number(&self) -> Result<Option<u32>, Failure> {
        match fs::symlink_metadata(&self.file) {
            Ok(about) if about.is_file() => self.read().map(Some).map_err(|error| self.failure(error)),
            Ok(_) => Err(self.failure(io::Error::other("it is not a file: remove it"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn read(&self) -> io::Result<u32> {
        let mut text = String::new();
        let read = open_file(&self.file)?.take(MAX).read_to_string(&mut text);
        let number = read.ok().and_then(|_| text.trim().parse().ok());
        number.ok_or_else(|| io::Error::other("it holds no number of a store: remove it"))
    }

    /// Writes the number, unless the file exists; `false` if it does.
    pub(crate) fn claim(&self, number: u32) -> Result<bool, Failure> {
        match self.write(number) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Writes the number, and replaces an earlier one.
    pub(crate) fn replace(&self, number: u32) -> Result<(), Failure> {
        let removed = fs::remove_file(&self.file).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        removed.and_then(|()| self.write(number)).map_err(|error| self.failure(error))
    }

    fn write(&self, number: u32) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut file = AtomicFile::create(&self.folder)?;
        file.file().write_all(number.to_string().as_bytes())?;
        file.persist(&self.file)
    }

    fn failure(&self, error: io::Error) -> Failure {
        Failure::file(&error, format!("{}: {error}", shown_path(&self.file)))
    }
}
