//! Where runs are kept: in a folder that is named, or in the numbered stores of the project.
//!
//! A store is open to one process at a time. So each process that begins a run takes the project's first store that is free,
//! and those that look for runs look into all of them.

mod copy;
mod creation;
pub(crate) mod open;
mod placement;
pub(crate) mod project;
mod relocation;
pub(crate) mod store;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use callboard::messages::{ConversationId, RunId};

use crate::page::Failure;

use open::Open;
use project::{Project, number_of, state_folder};
use store::{Loaded, Store};

/// What names the folder of the store, if nothing on the command line does.
const VARIABLE: &str = "CALLBOARD_STORE";

/// Which store.
#[derive(Clone, Debug, Args)]
pub(crate) struct Choice {
    /// The folder of the store; CALLBOARD_STORE names one too. Without either, the stores of the project are used, which lie in the
    /// user's state folder
    #[arg(long, visible_alias = "data", value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

/// Where runs are kept.
#[derive(Clone, Debug)]
pub(crate) enum Stores {
    Named(PathBuf),
    Project(Project),
}

impl Choice {
    pub(crate) fn stores(&self) -> Result<Stores, Failure> {
        let variable = || std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        match self.store.clone().or_else(variable) {
            Some(folder) => Ok(Stores::Named(folder)),
            None => Ok(Stores::Project(Project::here()?)),
        }
    }
}

impl Stores {
    /// What a command line that continues in the same place has to name.
    pub(crate) fn named(&self) -> Option<&Path> {
        match self {
            Self::Named(folder) => Some(folder),
            Self::Project(_) => None,
        }
    }

    /// Where all of it lies; no tool may see it.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Named(folder) => folder,
            Self::Project(project) => project.folder(),
        }
    }

    /// A store for a run that begins.
    pub(crate) fn take(&self) -> Result<Store, Failure> {
        match self {
            Self::Named(folder) => Store::open_or_make(folder).map_err(store::trouble),
            Self::Project(project) => project.take(),
        }
    }

    /// The store that a conversation is in, or is to be in: all its runs are in one.
    pub(crate) async fn take_for(&self, conversation: &ConversationId) -> Result<Store, Failure> {
        match self {
            Self::Named(_) => self.take(),
            Self::Project(project) => project.take_for(conversation).await,
        }
    }

    /// What may be said to whoever finds no runs here.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Named(_) => None,
            Self::Project(project) => project.relocation_hint(),
        }
    }

    /// The store that a run to continue is in, and its id.
    pub(crate) async fn take_with(&self, wanted: &str) -> Result<(Store, RunId), Failure> {
        self.open_to_change()?.find(wanted).await
    }

    /// A run that is to be resumed, with its store. Of one that has ended the result is printed, which changes nothing: so it is also
    /// read from a copy, where its store cannot be opened to be written to.
    pub(crate) async fn load_to_resume(&self, wanted: &str) -> Result<(Store, Loaded), Failure> {
        let open = match self {
            Self::Named(folder) => Open { stores: vec![Store::open_or_copy(folder)?], ..Open::default() },
            Self::Project(project) => project.open(Store::write_or_copy)?,
        };
        let (store, run) = open.find(wanted).await?;
        let loaded = store.load(run).await?;
        if store.is_copy() && loaded.replay.result().is_none() {
            // It has to be written to: this fails with the reason why it cannot be.
            return Store::open(store.folder()).map(|store| (store, loaded));
        }
        Ok((store, loaded))
    }

    /// All stores, to be written to.
    pub(crate) fn open_to_change(&self) -> Result<Open, Failure> {
        match self {
            Self::Named(folder) => Ok(Open { stores: vec![Store::open(folder)?], ..Open::default() }),
            Self::Project(project) => project.open(Store::open_or_make),
        }
    }

    /// All stores, to be looked into.
    pub(crate) fn open(&self) -> Result<Open, Failure> {
        match self {
            Self::Named(folder) => Ok(Open { stores: vec![Store::open_to_read(folder)?], ..Open::default() }),
            Self::Project(project) => project.open_to_read(),
        }
    }

    /// The project that the stores are of, also if one of its stores is named.
    pub(crate) fn project(&self) -> Option<Project> {
        match self {
            Self::Project(project) => Some(project.clone()),
            Self::Named(folder) => {
                number_of(folder)?;
                let folder = fs::canonicalize(folder.parent()?).ok()?;
                let state = fs::canonicalize(state_folder()?).ok()?;
                (folder.parent()? == state).then(|| Project::of_folder(folder))
            }
        }
    }

    /// A run, from whichever store has it.
    pub(crate) async fn load(&self, wanted: &str) -> Result<Loaded, Failure> {
        self.open()?.load(wanted).await
    }
}
