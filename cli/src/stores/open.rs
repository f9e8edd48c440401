//! The stores that a command looks into, those that it cannot look into, and which of them has a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use callboard::messages::{ConversationId, RunId, visible};
use callboard::storage::StorageError;

use crate::page::{Failure, note, shown_path};
use crate::quote::quoted_path;
use crate::stores::store::{self, Loaded, Store};

/// The newest run, on the command line.
pub(crate) const LAST: &str = "@last";

/// Stores that are open, and those that cannot be opened.
#[derive(Default)]
pub(crate) struct Open {
    pub(crate) stores: Vec<Store>,
    pub(crate) closed: Vec<Closed>,
}

/// A store that cannot be looked into.
pub(crate) struct Closed {
    folder: PathBuf,
    /// Why, and what to do.
    why: String,
}

impl Closed {
    pub(crate) fn new(folder: PathBuf, error: &StorageError) -> Self {
        let why = match error {
            StorageError::InUse { holder: Some(holder), .. } => {
                format!("process {holder} has it open: wait until it has ended, or stop it")
            }
            error => error.to_string(),
        };
        Self { folder, why }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "store": self.folder.to_string_lossy(), "error": self.why })
    }
}

impl Open {
    /// The run that an id, the beginning of one, or `@last` stands for, and its store.
    pub(crate) async fn find(self, wanted: &str) -> Result<(Store, RunId), Failure> {
        let (place, run) = self.place_of(wanted).await?;
        let store = self.stores.into_iter().nth(place);
        store.map(|store| (store, run)).ok_or_else(|| Failure::trouble("the store is gone".to_owned()))
    }

    pub(crate) async fn load(&self, wanted: &str) -> Result<Loaded, Failure> {
        let (place, run) = self.place_of(wanted).await?;
        self.stores[place].load(run).await
    }

    /// All runs, oldest first, each with the places of the stores that have it: an import may have made it double.
    pub(crate) async fn runs(&self) -> Result<BTreeMap<RunId, Vec<usize>>, Failure> {
        let mut runs: BTreeMap<RunId, Vec<usize>> = BTreeMap::new();
        for (place, store) in self.stores.iter().enumerate() {
            for run in store.ids().await? {
                runs.entry(run).or_default().push(place);
            }
        }
        Ok(runs)
    }

    async fn place_of(&self, wanted: &str) -> Result<(usize, RunId), Failure> {
        if wanted == LAST && !self.closed.is_empty() {
            note(&format!("{LAST} is the newest run of the other stores\n{}", self.notes().trim_end()));
        }
        let runs = self.runs().await?;
        let ids: Vec<RunId> = runs.keys().copied().collect();
        let found = match ids.last() {
            Some(last) if wanted == LAST => Ok(*last),
            _ => store::find(wanted, &ids, self.closed.is_empty()),
        };
        let run = found.map_err(|failure| failure.with(&self.notes()))?;
        self.only(&format!("run {run}"), &runs[&run]).map(|place| (place, run))
    }

    /// The store that has a conversation; `None` if none of those that are open has it.
    pub(crate) async fn place_of_conversation(&self, conversation: &ConversationId) -> Result<Option<usize>, Failure> {
        let mut places = Vec::new();
        for (place, store) in self.stores.iter().enumerate() {
            let info = store.conversations().info(conversation).await.map_err(store::trouble)?;
            places.extend(info.map(|_| place));
        }
        if places.is_empty() { Ok(None) } else { self.only(&format!("conversation {conversation}"), &places).map(Some) }
    }

    /// The only one of these stores. A run or a conversation that is in several is not one of them by chance.
    fn only(&self, what: &str, places: &[usize]) -> Result<usize, Failure> {
        if let [only] = places {
            return Ok(*only);
        }
        let doubled = doubled(what, places.iter().map(|place| self.stores[*place].folder()));
        Err(Failure::trouble(doubled).with(&self.notes()))
    }

    /// What is printed where none of these (`runs`, `conversations`) was found, and the exit code: that there is none is only known of
    /// stores that were looked into.
    pub(crate) fn nothing_found(&self, what: &str) -> (String, u8) {
        let (text, code) = match (self.stores.is_empty(), self.closed.is_empty()) {
            (_, true) => (format!("there are no {what}\n"), 0),
            (false, false) => (format!("the stores that were looked into have no {what}\n"), 0),
            (true, false) => (format!("whether there are {what} is not known: no store could be looked into\n"), 2),
        };
        (text + &self.notes(), code)
    }

    /// What is printed of the stores that could not be looked into.
    pub(crate) fn notes(&self) -> String {
        let note =
            |Closed { folder, why }: &Closed| format!("not looked into: {}: {}\n", shown_path(folder), visible(why));
        self.closed.iter().map(note).collect()
    }
}

/// What is printed of a run or a conversation that several stores have.
pub(crate) fn doubled<'a>(what: &str, folders: impl Iterator<Item = &'a Path>) -> String {
    let choices: Vec<String> = folders.map(|folder| format!("--store {}", quoted_path(folder))).collect();
    format!("{what} is in several stores: choose one with {}", choices.join(" or "))
}
