//! Why there is no channel.

use std::path::PathBuf;

use callboard_private::FolderError;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// The token is none. The text does not contain it.
    #[error("the access token of the account is none: it has at least 8 visible characters and no white space")]
    Token,
    /// The address of the homeserver cannot be used.
    #[error("the address of the homeserver: {0}")]
    Address(String),
    /// A room, an account or a type of events is not one.
    #[error("{given:?} is not {expected}: {why}")]
    Name {
        /// What is written.
        given: String,
        /// What it should be, with an example.
        expected: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// There is no room, or there are too many.
    #[error("there are {0} rooms: name from 1 to 16 of them")]
    Rooms(usize),
    /// No agent has a room, or too many have.
    #[error("there are {0} rooms of agents: name from 1 to 64 of them")]
    Agents(usize),
    /// TLS cannot be set up.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
    /// The folder or the file with what was sent cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file with the requests of rooms of agents is damaged or of a later version.
    #[error("{path}: {why}; without the file, requests that are open are not answered", path = path.display())]
    Requests {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file with what was sent is damaged or of a later version.
    #[error("{path}: {why}; without the file, open questions are sent again", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}
