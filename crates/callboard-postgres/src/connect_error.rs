//! Why a database cannot be used as a store.

use callboard::storage::StorageError;

/// Why a database cannot be used as a store, and what to do. No variant has a password in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be read, or asks for what this package does not do.
    #[error("the URL of the database: {detail}")]
    Url {
        /// What is wrong with it. It repeats nothing of the URL but the name of a parameter.
        detail: String,
    },
    /// The file of passwords or of root certificates cannot be used.
    #[error("{path}: {detail}")]
    File {
        /// The file.
        path: String,
        /// Why.
        detail: String,
    },
    /// No server answers at the address.
    #[error("no PostgreSQL server answers at {address}: {detail}")]
    Unreachable {
        /// The hosts and ports that were tried, or the path of the socket.
        address: String,
        /// Why, as the operating system says it.
        detail: String,
    },
    /// The connection is not encrypted as it has to be: the server has no TLS, or its certificate is not accepted.
    #[error("TLS to {address}: {detail}")]
    Tls {
        /// The hosts and ports.
        address: String,
        /// Why.
        detail: String,
    },
    /// The server does not let this user in.
    #[error("{address} refuses the user {user}: {detail}")]
    Login {
        /// The hosts and ports.
        address: String,
        /// The user of the URL.
        user: String,
        /// What the server says.
        detail: String,
    },
    /// There is no such database.
    #[error(
        "there is no database {database} at {address}; create it (`createdb {database}`), or name another one in the URL"
    )]
    NoDatabase {
        /// The hosts and ports.
        address: String,
        /// The name of the database.
        database: String,
    },
    /// The database has no schema of callboard.
    #[error("the database has no schema {schema} of callboard; create it with `callboard store migrate`")]
    NoSchema {
        /// The name that was looked for.
        schema: String,
    },
    /// The schema is of another version.
    #[error(
        "the schema {schema} has version {found}, this callboard has version {known}: {}",
        if found > known { "a newer callboard wrote it; use that one" } else { "bring it up to date with `callboard store migrate`" }
    )]
    SchemaVersion {
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
        /// The version of this package.
        known: i32,
    },
    /// The server takes no writes: it is a standby, or set to read only.
    #[error(
        "the server at {address} is read-only: {detail}. Connect to the primary; with several hosts in the URL, \
         target_session_attrs=read-write finds it"
    )]
    ReadOnly {
        /// The hosts and ports.
        address: String,
        /// Which of the two.
        detail: String,
    },
    /// The user may not do what a store has to do.
    #[error("the user {user} may not use {object}; as its owner: {grant}")]
    MissingRight {
        /// The user of the connection.
        user: String,
        /// The table, sequence or schema.
        object: String,
        /// The statement that gives the right.
        grant: String,
    },
    /// The user may not make the schema or a role, or bring the schema up to date. Nothing was changed.
    #[error("the user {user} may not migrate: {detail}; {remedy}")]
    MayNotMigrate {
        /// The user of the connection.
        user: String,
        /// What the server says, with its code.
        detail: String,
        /// Which right is missing, or which role to connect as.
        remedy: String,
    },
    /// The server starts, or is being stopped, and did not take connections in time.
    #[error("the server at {address} takes no connections now: {detail}; try again in a moment")]
    Starting {
        /// The hosts and ports.
        address: String,
        /// What the server says, with its code.
        detail: String,
    },
    /// Another error of the server, or of the connection.
    #[error("the database at {address}: {detail}")]
    Server {
        /// The hosts and ports.
        address: String,
        /// What the server says, with its code.
        detail: String,
    },
    /// The operating system starts no thread for the store, or the store ended while it was opened.
    #[error("the store cannot be started: {detail}")]
    Start {
        /// Why.
        detail: String,
    },
}

impl From<ConnectError> for StorageError {
    fn from(error: ConnectError) -> Self {
        Self::Open { path: "PostgreSQL".to_owned(), detail: error.to_string() }
    }
}
