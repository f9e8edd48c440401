//! A database as the store: `postgres://…`, which boards on several machines share. What belongs to this machine alone, as tokens and
//! the audit log, is in the project's folder.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard_agents::hide_from_programs;
use callboard_postgres::{ConnectError, Migrated, Migration, Postgres, PostgresConfig, Report};

use crate::config::secret_source::{MOVE_AWAY, is_within};
use crate::exit::Exit;
use crate::page::{Failure, note, shown_path};

use super::project::Project;
use super::store::Store;

/// A store as it is named: a folder, or the URL of a database. `Debug` shows no password.
#[derive(Clone)]
pub(crate) enum Given {
    Folder(PathBuf),
    Url(String),
}

/// Who has named a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    CommandLine,
    Variable,
    File,
}

/// A database, with the project whose folder has what is of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    config: PostgresConfig,
    /// Its URL without the password.
    shown: PathBuf,
    origin: Origin,
    project: Project,
    /// The name of the project that it has to belong to.
    belongs_to: Option<String>,
}

impl Given {
    /// As it is named, without a password.
    pub(crate) fn shown(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.clone(),
            Self::Url(url) => {
                PostgresConfig::from_url(url).map_or("postgres://".into(), |config| config.shown_url().into())
            }
        }
    }

    /// As it is named, with the password if it has one: for the arguments of this process itself.
    pub(crate) fn as_named(&self) -> OsString {
        match self {
            Self::Folder(folder) => folder.clone().into_os_string(),
            Self::Url(url) => url.into(),
        }
    }

    pub(super) fn has_password(&self) -> bool {
        match self {
            Self::Folder(_) => false,
            // What cannot be read may have one.
            Self::Url(url) => PostgresConfig::from_url(url).map_or(true, |config| config.has_password()),
        }
    }
}

impl From<OsString> for Given {
    fn from(text: OsString) -> Self {
        match text.to_str() {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Self::Url(url.to_owned())
            }
            Some(_) | None => Self::Folder(text.into()),
        }
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(f)
    }
}

impl Database {
    /// The database of a URL. What leads to it is hidden from programs of agents.
    pub(super) fn new(url: &str, origin: Origin, belongs_to: Option<String>) -> Result<Self, Failure> {
        let config = PostgresConfig::from_url(url).map_err(|error| failure(&error))?;
        if config.has_password() && origin == Origin::CommandLine {
            note(
                "warning: other users of this machine see the password in the list of processes; put it into ~/.pgpass, or into the file that \
                 PGPASSFILE names",
            );
        }
        for path in config.paths() {
            hide_from_programs(path.canonicalize().unwrap_or(path));
        }
        Ok(Self { shown: config.shown_url().into(), config, origin, project: Project::here()?, belongs_to })
    }

    /// Its URL, without a password.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// The URL if the command line has it, so that another one has to repeat it.
    pub(super) fn named(&self) -> Option<&Path> {
        match self.origin {
            Origin::CommandLine => Some(&self.shown),
            Origin::Variable | Origin::File => None,
        }
    }

    /// The folder with what is of this machine.
    pub(super) fn folder(&self) -> &Path {
        self.project.folder()
    }

    pub(super) async fn open(&self) -> Result<Store, Failure> {
        let opened = Postgres::connect_with(self.config.clone()).await.map_err(|error| failure(&error))?;
        let store = Store::of_database(&self.shown, Arc::new(opened));
        if let Some(project) = &self.belongs_to {
            store.check_project(project).await?;
        }
        Ok(store)
    }

    /// Creates its schema, or brings it up to date.
    pub(crate) async fn migrate(&self, migration: &Migration) -> Result<Migrated, Failure> {
        callboard_postgres::migrate(&self.config, migration).await.map_err(|error| failure(&error))
    }

    /// Looks at it, without writing to it.
    pub(crate) async fn check(&self) -> Result<Report, Failure> {
        callboard_postgres::check(&self.config).await.map_err(|error| failure(&error))
    }

    /// # Errors
    /// Tools that work in this folder could read the file of passwords there, or reach the database's socket.
    pub(super) fn check_outside(&self, root: &Path) -> Result<(), Failure> {
        let Some(path) = self.config.paths().into_iter().find(|path| is_within(path, root)) else { return Ok(()) };
        let text = format!(
            "{}, by which the database is reached, is in the folder that tools of agents work in: {MOVE_AWAY}",
            shown_path(&path)
        );
        Err(Failure::new(Exit::Denied, text))
    }

    /// That a command is for stores in folders.
    pub(crate) fn refuse(&self, what: &str, instead: &str) -> Failure {
        Failure::usage(format!(
            "{what} is for stores in folders, and {} is a database: {instead}",
            shown_path(&self.shown)
        ))
    }
}

fn failure(error: &ConnectError) -> Failure {
    let exit = match error {
        ConnectError::Url { .. } => Exit::Usage,
        ConnectError::Unreachable { .. }
        | ConnectError::Starting { .. }
        | ConnectError::Server { .. }
        | ConnectError::ReadOnly { .. } => Exit::Unavailable,
        ConnectError::Login { .. } | ConnectError::MissingRight { .. } | ConnectError::MayNotMigrate { .. } => {
            Exit::Denied
        }
        // Others are to be repaired by a person.
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn neither_debug_output_nor_what_is_shown_has_a_password() {
        for url in ["postgres://u:c4n4ry@db/x", "postgres://u@db/x?password=c4n4ry", "postgresql://u:c4n4ry@db:port/x"]
        {
            let given = Given::from(OsString::from(url));
            let shown = format!("{given:?} {}", given.shown().display());
            assert!(given.has_password() && shown.contains("postgres://") && !shown.contains("c4n4ry"), "{shown}");
        }
        assert!(!Given::from(OsString::from("postgres://u@db/x")).has_password());
        assert!(
            matches!(Given::from(OsString::from("postgres")), Given::Folder(folder) if folder == Path::new("postgres"))
        );
    }
}
