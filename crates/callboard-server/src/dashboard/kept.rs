//! Files beside the tokens, which this user alone can read.

use std::path::PathBuf;

#[cfg(unix)]
use callboard_private::Folder;

use crate::tokens::{TokenError, Tokens};

/// The folder of the tokens, or none if these are in memory.
pub(super) struct Kept(Option<PathBuf>);

impl Kept {
    pub(super) fn beside(tokens: &Tokens) -> Self {
        #[cfg(unix)]
        return Self(tokens.folder().map(PathBuf::from));
        #[cfg(not(unix))]
        {
            let _ = tokens;
            Self(None)
        }
    }

    /// Reads a file; `None` if there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, TokenError> {
        #[cfg(unix)]
        if let Some(folder) = &self.0 {
            return Ok(Folder::create(folder)?.read(name)?);
        }
        let _ = name;
        Ok(None)
    }

    /// Replaces a file with mode 0600: after a crash it has either the old content or the new.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), TokenError> {
        #[cfg(unix)]
        if let Some(folder) = &self.0 {
            return Ok(Folder::create(folder)?.locked()?.write(name, bytes)?);
        }
        let _ = (name, bytes);
        Ok(())
    }
}
