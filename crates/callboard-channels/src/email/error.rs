//! Why there is no channel.

use std::path::PathBuf;

use callboard_private::FolderError;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmailError {
    /// It is no address of mail.
    #[error("{address} is no address such as ann@example.org")]
    Address {
        /// What is in its place.
        address: String,
    },
    /// The server cannot be used.
    #[error("{0}")]
    Server(String),
    /// The password is none. The text does not contain it.
    #[error("the password is empty, or has control characters")]
    Password,
    /// TLS cannot be set up.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
    /// The folder or the file with what was sent cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file with what was sent is damaged or of a later version.
    #[error("{path}: {why}; without the file, open questions are sent again", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}
