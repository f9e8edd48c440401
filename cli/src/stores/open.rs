//! The stores that a command has opened, those that it could not open, and the search for runs in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use callboard::messages::{ConversationId, RunId, visible};
use callboard::storage::StorageError;

use crate::exit::Exit;
use crate::page::{Failure, note, shown_path};
use crate::quote::quoted_path;
use crate::run_names::{self, short};
use crate::stores::store::{self, Loaded, Store};

/// Names the newest run on the command line.
pub(crate) const LAST: &str = "@last";

/// Stores that are open, and those that could not be opened.
#[derive(Default)]
pub(crate) struct OpenStores {
    pub(crate) stores: Vec<Store>,
    pub(crate) closed: Vec<ClosedStore>,
}

/// A store that could not be opened.
pub(crate) struct ClosedStore {
    folder: PathBuf,
    /// The reason, and what to do.
    why: String,
    exit: Exit,
}

impl ClosedStore {
    pub(crate) fn new(folder: PathBuf, error: &StorageError) -> Self {
        let why = match error {
            StorageError::InUse { holder: Some(holder), .. } => {
                format!("process {holder} has it open: wait until it has ended, or stop it")
            }
            error => error.to_string(),
        };
        Self { exit: store::exit_of_opening(&folder, error), folder, why }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "store": self.folder.to_string_lossy(), "error": self.why })
    }
}

impl OpenStores {
    pub(crate) fn of_one(store: Store) -> Self {
        Self { stores: vec![store], ..Self::default() }
    }

    /// Whether there is no store, also none that could not be opened.
    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty() && self.closed.is_empty()
    }

    /// The run that an id, a part of one, or `@last` names, and its store.
    pub(crate) async fn find(self, wanted: &str) -> Result<(Store, RunId), Failure> {
        let (place, run) = self.place_of(wanted).await?;
        let store = self.stores.into_iter().nth(place);
        store.map(|store| (store, run)).ok_or_else(|| Failure::failed("the store is gone".to_owned()))
    }

    pub(crate) async fn load(&self, wanted: &str) -> Result<Loaded, Failure> {
        let (place, run) = self.place_of(wanted).await?;
        self.stores[place].load(run).await
    }

    /// All runs, oldest first, each with the indexes of the stores that have it: several after an import with `--again`.
    pub(crate) async fn runs(&self) -> Result<BTreeMap<RunId, Vec<usize>>, Failure> {
        let mut runs: BTreeMap<RunId, Vec<usize>> = BTreeMap::new();
        for (place, store) in self.stores.iter().enumerate() {
            for run in store.ids().await? {
                runs.entry(run).or_default().push(place);
            }
        }
        Ok(runs)
    }

    /// These runs, oldest first. An id of version 7 has its time; others, as those of idempotency keys, do not.
    pub(crate) async fn by_age(&self, runs: &BTreeMap<RunId, Vec<usize>>) -> Result<Vec<RunId>, Failure> {
        let mut aged = Vec::with_capacity(runs.len());
        for (run, places) in runs {
            let millis = match (run.0.get_timestamp(), places.first()) {
                (Some(time), _) => time.to_unix().0 * 1_000 + u64::from(time.to_unix().1 / 1_000_000),
                (None, Some(place)) => self.stores[*place].begun_at(*run).await,
                (None, None) => 0,
            };
            aged.push((millis, *run));
        }
        aged.sort_unstable();
        Ok(aged.into_iter().map(|(_, run)| run).collect())
    }

    async fn place_of(&self, wanted: &str) -> Result<(usize, RunId), Failure> {
        if wanted == LAST && !self.closed.is_empty() {
            note(&format!("{LAST} is the newest run of the other stores\n{}", self.notes().trim_end()));
        }
        let runs = self.runs().await?;
        let ids = self.by_age(&runs).await?;
        let found = match ids.last() {
            Some(last) if wanted == LAST => Ok(*last),
            _ => run_names::find(wanted, &ids, self.exit()),
        };
        let run = found.map_err(|failure| failure.with(&self.notes()))?;
        self.only(&format!("run {}", short(run)), &runs[&run]).map(|place| (place, run))
    }

    /// The index of the store that has a conversation; `None` if no open store has it.
    pub(crate) async fn place_of_conversation(&self, conversation: &ConversationId) -> Result<Option<usize>, Failure> {
        let mut places = Vec::new();
        for (place, store) in self.stores.iter().enumerate() {
            let info = store.conversations().info(conversation).await.map_err(Failure::of)?;
            places.extend(info.map(|_| place));
        }
        if places.is_empty() { Ok(None) } else { self.only(&format!("conversation {conversation}"), &places).map(Some) }
    }

    /// The only one of these stores. If several have the run or the conversation, the person has to choose.
    fn only(&self, what: &str, places: &[usize]) -> Result<usize, Failure> {
        if let [only] = places {
            return Ok(*only);
        }
        let several = in_several_stores(what, places.iter().map(|place| self.stores[*place].place()));
        Err(Failure::usage(several).with(&self.notes()))
    }

    /// Why a search is not complete, if some stores could not be opened: that a later one may be, if one of them is in use.
    pub(crate) fn exit(&self) -> Option<Exit> {
        let exits = || self.closed.iter().map(|closed| closed.exit);
        exits().find(|exit| *exit == Exit::Unavailable).or_else(|| exits().next())
    }

    /// The text where no runs or no conversations (`what`) were found: an error if no store could be opened.
    pub(crate) fn nothing_found(&self, what: &str) -> (String, Exit) {
        let (text, exit) = match (self.stores.is_empty(), self.closed.is_empty()) {
            (_, true) => (format!("there are no {what}\n"), Exit::Done),
            (false, false) => (format!("the stores that could be opened have no {what}\n"), Exit::Done),
            (true, false) => (
                format!("whether there are {what} is not known: no store could be opened\n"),
                self.exit().unwrap_or(Exit::Failed),
            ),
        };
        (text + &self.notes(), exit)
    }

    /// A line for each store that could not be opened.
    pub(crate) fn notes(&self) -> String {
        let note = |ClosedStore { folder, why, exit: _ }: &ClosedStore| {
            format!("not opened: {}: {}\n", shown_path(folder), visible(why))
        };
        self.closed.iter().map(note).collect()
    }
}

/// The text about a run or a conversation that several stores have.
pub(crate) fn in_several_stores<'a>(what: &str, folders: impl Iterator<Item = &'a Path>) -> String {
    let choices: Vec<String> = folders.map(|folder| format!("--store {}", quoted_path(folder))).collect();
    format!("{what} is in several stores: choose one with {}", choices.join(" or "))
}
