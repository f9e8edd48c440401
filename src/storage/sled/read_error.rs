//! Why something stored cannot be read: the disk does not return it, or it is not what was written.
//!
//! The two are kept apart because recovery tries the first again and gives up on the second.

use std::fmt;
use std::io::{self, ErrorKind};

use crate::storage::{Key, StorageError};

/// Why a row or a payload file cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The operating system refused: too many open files, a failing disk. What is stored may be whole.
    Io(io::Error),
    /// What is stored is not what was written, and does not become so by another read.
    Damaged(String),
}

impl ReadError {
    /// The error of a call about `key`.
    pub(super) fn of(self, key: &Key) -> StorageError {
        match self {
            Self::Io(error) => StorageError::Unavailable { detail: format!("{key} cannot be read now: {error}") },
            Self::Damaged(detail) => StorageError::Corrupt { key: key.clone(), detail },
        }
    }

    /// The same error, with what was read in front of its text.
    pub(super) fn about(self, what: impl fmt::Display) -> Self {
        match self {
            Self::Io(error) => Self::Io(io::Error::new(error.kind(), format!("{what}: {error}"))),
            Self::Damaged(detail) => Self::Damaged(format!("{what}: {detail}")),
        }
    }
}

/// A file that is missing, or that ends early, is damage.
impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData => Self::Damaged(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

impl From<sled::Error> for ReadError {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => error.into(),
            sled::Error::Corruption { .. }
            | sled::Error::CollectionNotFound(_)
            | sled::Error::Unsupported(_)
            | sled::Error::ReportableBug(_) => Self::Damaged(error.to_string()),
        }
    }
}

impl From<String> for ReadError {
    fn from(damage: String) -> Self {
        Self::Damaged(damage)
    }
}

impl From<&str> for ReadError {
    fn from(damage: &str) -> Self {
        Self::Damaged(damage.to_owned())
    }
}

/// For what stops the store, where only the text is kept.
impl From<ReadError> for String {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error.to_string(),
            ReadError::Damaged(detail) => detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_disk_is_not_reported_as_damage() {
        let key = Key::new(["a"]);
        // EIO, EMFILE and EACCES.
        for code in [5, 24, 13] {
            let error = || io::Error::from_raw_os_error(code);
            assert!(ReadError::from(error()).of(&key).is_transient(), "{code}");
            assert!(ReadError::from(sled::Error::Io(error())).of(&key).is_transient(), "{code}");
            assert!(ReadError::from(error()).about("record 1").of(&key).is_transient(), "{code}");
        }
        let damages = [
            ReadError::from(io::Error::from(ErrorKind::NotFound)),
            ReadError::from(sled::Error::Io(ErrorKind::UnexpectedEof.into())),
            ReadError::from(sled::Error::Corruption { at: None, bt: () }),
            ReadError::from("the checksum does not match").about("record 1"),
        ];
        for damage in damages {
            let error = damage.of(&key);
            assert!(matches!(&error, StorageError::Corrupt { key: of, .. } if *of == key), "{error}");
        }
    }
}
