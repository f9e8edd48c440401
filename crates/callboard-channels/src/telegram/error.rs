//! Why there is no channel.

use std::path::PathBuf;

use callboard_private::FolderError;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelegramError {
    /// The token is none. The text does not contain it.
    #[error("the token of the bot is none: @BotFather gives out one such as 123456:ABC-DEF")]
    Token,
    /// The address of the server cannot be used.
    #[error("the address of the Bot API: {0}")]
    Address(String),
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
