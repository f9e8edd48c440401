//! The store that a command looks into, and the runs in it.

use std::path::Path;
use std::sync::Arc;

use callboard::messages::state::{ReduceFn, Reducer, Reducers, Schema, StateRules};
use callboard::messages::{Durability, RunEvent, RunId, visible};
use callboard::storage::{Fence, Journal, Sled, StorageError};
use callboard::supervision::runs::replay::{Replay, ReplayError};

use crate::page::{Failure, brief};

/// How many runs are named when one is not found.
const SUGGESTED: usize = 3;

/// A store that no other process has open.
pub(crate) struct Store {
    sled: Arc<Sled>,
    journal: Journal,
}

/// A run that was read.
pub(crate) struct Loaded {
    pub(crate) id: RunId,
    pub(crate) replay: Replay,
    pub(crate) history: Vec<RunEvent>,
    pub(crate) rules: Rules,
}

/// The rules that a run is replayed by.
pub(crate) struct Rules {
    pub(crate) state: StateRules,
    /// Channels whose reducers only the run's program has, each with the reducer's name.
    pub(crate) missing: Vec<(String, String)>,
}

impl Store {
    /// Opens a store that is there. It makes none: a folder that is misspelt is an error.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        if !folder.join("format").is_file() {
            let folder = visible(&folder.display().to_string());
            return Err(Failure::trouble(format!("there is no callboard store in {folder}")));
        }
        Self::open_or_make(folder)
    }

    /// Opens a store, or makes one.
    pub(crate) fn open_or_make(folder: &Path) -> Result<Self, Failure> {
        let sled = Arc::new(Sled::open(folder).map_err(trouble)?);
        Ok(Self { journal: Journal::new(Arc::clone(&sled) as _), sled })
    }

    /// For a board.
    pub(crate) fn sled(&self) -> Arc<Sled> {
        Arc::clone(&self.sled)
    }

    /// All runs, oldest first.
    pub(crate) async fn ids(&self) -> Result<Vec<RunId>, Failure> {
        self.journal.runs().await.map_err(trouble)
    }

    pub(crate) async fn history(&self, run: RunId) -> Result<Vec<RunEvent>, StorageError> {
        Ok(self.journal.read(run).await?.events)
    }

    /// Writes the beginning of a run, for whichever board comes next.
    pub(crate) async fn begin(&self, run: RunId, events: &[RunEvent], durability: Durability) -> Result<(), Failure> {
        // Boards are named by ids, so none that lives has this name, and the next one takes the run over.
        const OWNER: &str = "callboard runs fork";
        let begun = self
            .journal
            .append_and_note((run, OWNER), &Journal::stream(run), Fence::FIRST, 0, events, durability)
            .await;
        begun.map(|_| ()).map_err(trouble)
    }

    /// The run that an id, or the beginning of one, stands for.
    pub(crate) async fn find(&self, wanted: &str) -> Result<RunId, Failure> {
        let ids = self.ids().await?;
        find(wanted, &ids)
    }

    pub(crate) async fn load(&self, wanted: &str) -> Result<Loaded, Failure> {
        let id = self.find(wanted).await?;
        let history = self.history(id).await.map_err(|error| Failure::trouble(format!("run {id}: {error}")))?;
        let rules = Rules::of(&history);
        let replay = Replay::of(history.clone(), &rules.state).map_err(|error| not_replayed(id, error))?;
        Ok(Loaded { id, replay, history, rules })
    }
}

impl Rules {
    pub(crate) fn of(history: &[RunEvent]) -> Self {
        let schema = match history.first() {
            Some(RunEvent::Submitted(submission)) => {
                let task = &submission.task;
                task.schema.clone().or_else(|| task.plan.as_ref().map(|plan| Arc::clone(&plan.schema)))
            }
            _ => None,
        };
        let (mut reducers, mut missing) = (Reducers::default(), Vec::new());
        for channel in schema.iter().flat_map(|schema| schema.declared()) {
            if let Some(Ok(Reducer::Custom(name))) = schema.as_ref().map(|schema| schema.reducer(channel)) {
                // What it makes of two values is the program's to say. The last one is shown, and that it is.
                let last: ReduceFn = Arc::new(|_, write| Ok(write.clone()));
                reducers.insert(name, last);
                missing.push((channel.to_owned(), name.to_string()));
            }
        }
        let state =
            StateRules { schema: Arc::new(Schema::swarm()), reducers: Arc::new(reducers), ..StateRules::default() };
        Self { state, missing }
    }

    /// What has to be said about the state that these rules come to.
    pub(crate) fn notes(&self) -> String {
        let note = |(channel, reducer): &(String, String)| {
            let (channel, reducer) = (visible(channel), visible(reducer));
            format!(
                "note: {channel} is made by the reducer {reducer}, which only its program has; shown is what was written last\n"
            )
        };
        self.missing.iter().map(note).collect()
    }
}

fn trouble(error: StorageError) -> Failure {
    Failure::trouble(error.to_string())
}

fn not_replayed(run: RunId, error: ReplayError) -> Failure {
    Failure::trouble(format!("run {run}: {error}"))
}

/// The only run whose id begins like this; hyphens and upper case do not matter.
fn find(wanted: &str, ids: &[RunId]) -> Result<RunId, Failure> {
    let digits: String = wanted.chars().filter(|c| *c != '-').flat_map(char::to_lowercase).collect();
    let shown = brief(wanted, 80);
    let plain = |run: &RunId| run.0.as_simple().to_string();
    let fitting: Vec<&RunId> = ids.iter().filter(|run| !digits.is_empty() && plain(run).starts_with(&digits)).collect();
    let (mut text, named) = match fitting.as_slice() {
        [only] => return Ok(**only),
        [] if ids.is_empty() => (format!("there is no run \"{shown}\": the store has none"), Vec::new()),
        [] => {
            let likeness = |run: &&RunId| {
                let id = plain(run);
                (strsim::levenshtein(&id[..digits.len().clamp(1, id.len())], &digits), **run)
            };
            let mut nearest: Vec<&RunId> = ids.iter().collect();
            nearest.sort_by_cached_key(likeness);
            nearest.truncate(SUGGESTED);
            (format!("there is no run \"{shown}\"; the nearest:"), nearest)
        }
        several => (format!("{} runs begin with \"{shown}\":", several.len()), fitting),
    };
    text.extend(named.iter().take(SUGGESTED).map(|run| format!("\n  {run}")));
    if named.len() > SUGGESTED {
        text.push_str(&format!("\n  and {} more", named.len() - SUGGESTED));
    }
    Err(Failure::unknown(text))
}
