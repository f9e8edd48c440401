//! Why there is no channel.

use std::path::PathBuf;

use callboard_private::FolderError;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhooksError {
    /// The secret is none. The text does not contain it.
    #[error("{0}")]
    Secret(String),
    /// The address of a receiver cannot be used. The text does not contain it.
    #[error("the address of the webhook {name}: {why}")]
    Address {
        /// The name of the webhook.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two webhooks have one name.
    #[error("there are two webhooks {0}")]
    Twice(String),
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
