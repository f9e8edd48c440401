//! The stores of runs: a folder or a database that is named, or the numbered stores of the project.
//!
//! Processes share a store. The project has a second one where the first is damaged, or where an earlier version of this program, which
//! did not share, made it: commands that search for runs open all of them.

mod chosen;
pub(crate) mod copy;
mod creation;
pub(crate) mod database;
pub(crate) mod open;
mod placement;
pub(crate) mod project;
mod relocation;
pub(crate) mod store;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use callboard::messages::{ConversationId, RunId, visible};
use callboard_agents::hide_from_programs;

use crate::page::{Failure, note, shown_path};
use crate::values::variable;

use database::{Database, Given, Origin};
use open::OpenStores;
use project::{Project, number_of, state_folder};
use store::{Loaded, Store};

/// The variable that names the store, unless `--store` does.
pub(crate) const VARIABLE: &str = "CALLBOARD_STORE";

/// The option that chooses the store.
#[derive(Clone, Debug, Args)]
pub(crate) struct Choice {
    /// The folder of the store, or the URL of a database (postgres://USER@HOST/DATABASE); the variable CALLBOARD_STORE names one too,
    /// and `store` in callboard.toml a database. By default the stores of the project, in the user's state folder
    #[arg(long, visible_alias = "data", value_name = "STORE")]
    pub(crate) store: Option<Given>,
}

/// The options of commands that use a store.
#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a command reads and writes runs.
#[derive(Clone, Debug)]
pub(crate) enum Stores {
    Named(PathBuf),
    Project(Project),
    Database(Arc<Database>),
}

/// Whether the variable of the store has a password, which a program that is started has no use for.
pub(crate) fn has_variable_a_password() -> bool {
    variable(VARIABLE).is_some_and(|store| Given::from(store).has_password())
}

impl Stores {
    fn of_folder(folder: &Path) -> Self {
        hide_from_programs(folder);
        Self::Named(folder.to_owned())
    }

    fn of_url(url: &str, origin: Origin, project: Option<String>) -> Result<Self, Failure> {
        Ok(Self::Database(Arc::new(Database::new(url, origin, project)?)))
    }

    /// The store that is an argument, whichever project it belongs to.
    pub(crate) fn of_argument(given: &Given) -> Result<Self, Failure> {
        match given {
            Given::Folder(folder) => Ok(Self::of_folder(folder)),
            Given::Url(url) => Self::of_url(url, Origin::CommandLine, None),
        }
    }

    /// What a command line has to name with `--store` to use the same stores; `None` for the project's own.
    pub(crate) fn named(&self) -> Option<&Path> {
        match self {
            Self::Named(folder) => Some(folder),
            Self::Project(_) => None,
            Self::Database(database) => database.named(),
        }
    }

    /// The database, if they are one.
    pub(crate) fn database(&self) -> Option<&Database> {
        match self {
            Self::Named(_) | Self::Project(_) => None,
            Self::Database(database) => Some(database),
        }
    }

    /// # Errors
    /// Tools that work in this folder could reach the database, or read its password.
    pub(crate) fn check_outside(&self, root: &Path) -> Result<(), Failure> {
        self.database().map_or(Ok(()), |database| database.check_outside(root))
    }

    /// The folder with all of it that is on this machine, which tools may not access.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Named(folder) => folder,
            Self::Project(project) => project.folder(),
            Self::Database(database) => database.folder(),
        }
    }

    /// A file of the server, which each of a project's numbered stores has in common with the project: one server serves them.
    pub(crate) fn of_server(&self, file: &str) -> PathBuf {
        self.server_folder().join("service").join(file)
    }

    /// The folder that one server serves.
    pub(crate) fn server_folder(&self) -> PathBuf {
        let folder = fs::canonicalize(self.folder()).unwrap_or_else(|_| self.folder().to_owned());
        let state = state_folder().and_then(|state| state.canonicalize().ok());
        match folder.parent() {
            Some(project) if number_of(&folder).is_some() && state.is_some_and(|it| project.parent() == Some(&it)) => {
                project.to_owned()
            }
            Some(_) | None => folder,
        }
    }

    /// What they are, in words: the project and the folder with its stores, or the store that was named.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::Named(folder) => format!("the store {}", shown_path(folder)),
            Self::Database(database) => format!("the store {}", shown_path(database.shown())),
            Self::Project(project) => {
                format!(
                    "the project {}, whose stores are in {}",
                    shown_path(project.root()),
                    shown_path(project.folder())
                )
            }
        }
    }

    /// Makes the folder with what is of this machine beside a database: tools are kept from it, so it has to be there.
    pub(crate) fn make_folder_beside(&self) -> Result<(), Failure> {
        let Some(folder) = self.database().map(Database::folder) else { return Ok(()) };
        store::make_folder(folder).map_err(|error| Failure::file(&error, format!("{}: {error}", shown_path(folder))))
    }

    /// Opens a store for a new run; for one of a conversation the store that has it, because all runs of a conversation are in one store.
    pub(crate) async fn take_new(&self, conversation: Option<&ConversationId>) -> Result<Store, Failure> {
        let store = match (self, conversation) {
            (Self::Named(folder), _) => {
                store::check_may_have_store(folder)?;
                Store::open_or_make(folder).map_err(|error| store::not_opened(folder, &error))?
            }
            (Self::Project(project), Some(conversation)) => project.take_for(conversation).await?,
            (Self::Project(project), None) => project.take()?,
            (Self::Database(database), _) => {
                self.make_folder_beside()?;
                database.open().await?
            }
        };
        if let Some(why) = store.why_not_shared() {
            note(&format!("no other process can use the store until this one has ended: {}", visible(why)));
        }
        Ok(store)
    }

    /// Opens the store for new runs; one that `--store` names has to exist.
    pub(crate) async fn take(&self) -> Result<Store, Failure> {
        match self {
            Self::Named(folder) => Store::open(folder),
            Self::Project(_) | Self::Database(_) => self.take_new(None).await,
        }
    }

    /// A hint for a person who misses runs: where the earlier stores are if the project was moved. What it names is free once a store
    /// for a new run is open.
    pub(crate) async fn hint(&self) -> Option<String> {
        match self {
            Self::Named(_) | Self::Database(_) => None,
            Self::Project(project) => project.relocation_hint().await,
        }
    }

    /// The same result; an error is followed by the hint.
    async fn or_hint<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        match result {
            Err(failure) => Err(failure.with(&self.hint().await.unwrap_or_default())),
            found => found,
        }
    }

    /// # Errors
    /// The project has no store, because nothing was run in it.
    async fn existing(&self, open: OpenStores) -> Result<OpenStores, Failure> {
        match self.without_store(&open) {
            Some(text) => self.or_hint(Err(Failure::not_found(text))).await,
            None => Ok(open),
        }
    }

    /// That the project has no store, and where one would be; `None` if it has one.
    pub(crate) fn without_store(&self, open: &OpenStores) -> Option<String> {
        let Self::Project(project) = self else { return None };
        let [root, folder] = [project.root(), project.folder()].map(shown_path);
        open.is_empty().then(|| {
            format!(
                "the project {root} has no store: none is in {folder}\n    runs of another project are found from its folder, or with its \
                 --store"
            )
        })
    }

    /// Opens the store that has the run, for writing; also the run's id.
    pub(crate) async fn take_with(&self, wanted: &str) -> Result<(Store, RunId), Failure> {
        self.or_hint(self.existing(self.open_to_change().await?).await?.find(wanted).await).await
    }

    /// Reads a run to resume, with its store. If the run has ended, only its result is printed: so it is also read from a copy where the
    /// store cannot be opened for writing.
    pub(crate) async fn load_to_resume(&self, wanted: &str) -> Result<(Store, Loaded), Failure> {
        let open = match self {
            Self::Named(folder) => OpenStores::of_one(Store::open_or_copy(folder)?),
            Self::Project(project) => project.open(Store::write_or_copy)?,
            Self::Database(database) => OpenStores::of_one(database.open().await?),
        };
        let (store, run) = self.or_hint(self.existing(open).await?.find(wanted).await).await?;
        let loaded = store.load(run).await?;
        if loaded.replay.result().is_none() {
            if store.is_copy() {
                // An open run has to be written to: this fails with the reason.
                return Store::open(store.place()).map(|store| (store, loaded));
            }
            store.check_is_free(run).await?;
        }
        Ok((store, loaded))
    }

    /// The store that has the run, for reading; also the run's id.
    pub(crate) async fn find(&self, wanted: &str) -> Result<(Store, RunId), Failure> {
        self.or_hint(self.open_existing().await?.find(wanted).await).await
    }

    /// As [`Stores::open`], where there has to be one.
    pub(crate) async fn open_existing(&self) -> Result<OpenStores, Failure> {
        self.existing(self.open().await?).await
    }

    /// Opens all stores for writing.
    pub(crate) async fn open_to_change(&self) -> Result<OpenStores, Failure> {
        match self {
            Self::Named(folder) => Store::open(folder).map(OpenStores::of_one),
            Self::Project(project) => project.open(Store::open_or_make),
            Self::Database(database) => database.open().await.map(OpenStores::of_one),
        }
    }

    /// Opens all stores for reading.
    pub(crate) async fn open(&self) -> Result<OpenStores, Failure> {
        match self {
            Self::Named(folder) => Store::open_to_read(folder).map(OpenStores::of_one),
            Self::Project(project) => project.open_to_read(),
            Self::Database(database) => database.open().await.map(OpenStores::of_one),
        }
    }

    /// The project of the stores, also if `--store` names one of its stores.
    pub(crate) fn project(&self) -> Option<Project> {
        match self {
            Self::Project(project) => Some(project.clone()),
            Self::Database(_) => None,
            Self::Named(folder) => {
                number_of(folder)?;
                let folder = fs::canonicalize(folder.parent()?).ok()?;
                let state = fs::canonicalize(state_folder()?).ok()?;
                (folder.parent()? == state).then(|| Project::of_folder(folder))
            }
        }
    }

    /// Reads a run from the store that has it.
    pub(crate) async fn load(&self, wanted: &str) -> Result<Loaded, Failure> {
        self.or_hint(self.open_existing().await?.load(wanted).await).await
    }
}
