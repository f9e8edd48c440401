//! One store, and the runs in it.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, DirEntry};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::approvals::Decider;
use callboard::messages::{
    AgentName, ApprovalId, BoardEntry, Decision, Durability, Reducer, RunEvent, RunId, Schema, StateRules, visible,
};
use callboard::runtime::{BuildError, ConversationsHandle};
use callboard::storage::{Journal, Storage, StorageError};
use callboard::supervision::runs::{Replay, ReplayError, Run};
use callboard_postgres::Postgres;
use callboard_shared_store::SharedStore;
use futures::FutureExt as _;

use tempfile::TempDir;

use crate::exit::Exit;
use crate::output::note;
use crate::page::{Failure, shown_path};
use crate::run_names::short;
use crate::stores::copy::{copy_if_needed, is_denied, with_remedy};
use crate::stores::creation::Missing;
use crate::values::reason;

/// The lease of a board on its store, which it renews each third of it: after this time others take over the runs of one that has died.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// A store that this process uses, by itself or with others.
pub(crate) struct Store {
    storage: Arc<dyn Storage>,
    journal: Journal,
    place: PathBuf,
    kind: Kind,
}

enum Kind {
    Folder {
        shared: Arc<SharedStore>,
        /// The copy that is open in its place, if it cannot be written to; removed after the store is closed.
        copy: Option<TempDir>,
    },
    Database(Arc<Postgres>),
}

/// A run that was read from a store.
pub(crate) struct Loaded {
    pub(crate) id: RunId,
    pub(crate) replay: Replay,
    pub(crate) history: Vec<RunEvent>,
    pub(crate) rules: Rules,
}

/// The reducers that a run is replayed with.
pub(crate) struct Rules {
    pub(crate) state: StateRules,
    /// Channels with custom reducers, which only the run's program has, each with the reducer's name.
    pub(crate) missing: Vec<(String, String)>,
}

impl Store {
    /// Opens an existing store. It creates none: a misspelt folder is an error.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        check_is_there(folder)?;
        Self::open_or_make(folder).map_err(|error| not_opened(folder, &error))
    }

    /// As [`Store::open`], for reading: a store that cannot be written to is copied first.
    pub(crate) fn open_to_read(folder: &Path) -> Result<Self, Failure> {
        check_is_there(folder)?;
        Self::read(folder).map_err(|error| not_opened(folder, &error))
    }

    /// As [`Store::open`]; a copy if the store cannot be opened where it is.
    pub(crate) fn open_or_copy(folder: &Path) -> Result<Self, Failure> {
        check_is_there(folder)?;
        Self::write_or_copy(folder).map_err(|error| not_opened(folder, &error))
    }

    pub(crate) fn write_or_copy(folder: &Path) -> Result<Self, StorageError> {
        match Self::open_or_make(folder) {
            Err(StorageError::Open { .. }) => Self::read(folder),
            opened => opened,
        }
    }

    pub(crate) fn read(folder: &Path) -> Result<Self, StorageError> {
        if let Some(shared) = SharedStore::connect(folder)? {
            return Ok(Self::of_folder(folder, shared, None));
        }
        match copy_if_needed(folder)? {
            Some(copy) => Ok(Self::of_folder(folder, Self::shared(copy.path())?, Some(copy))),
            None => Self::open_or_make(folder),
        }
    }

    /// Opens a store, or creates one. If that fails, the created folders are removed.
    pub(crate) fn open_or_make(folder: &Path) -> Result<Self, StorageError> {
        Ok(Self::of_folder(folder, Self::shared(folder)?, None))
    }

    fn shared(folder: &Path) -> Result<SharedStore, StorageError> {
        let missing = Missing::before(folder);
        let shared = SharedStore::open(folder).inspect_err(|_| missing.remove());
        shared.map_err(|error| with_remedy(folder, error))
    }

    fn of_folder(folder: &Path, shared: SharedStore, copy: Option<TempDir>) -> Self {
        let shared = Arc::new(shared);
        Self::of(folder, Arc::clone(&shared) as _, Kind::Folder { shared, copy })
    }

    /// A database, with its URL without a password.
    pub(super) fn of_database(url: &Path, database: Arc<Postgres>) -> Self {
        Self::of(url, Arc::clone(&database) as _, Kind::Database(database))
    }

    fn of(place: &Path, storage: Arc<dyn Storage>, kind: Kind) -> Self {
        Self { journal: Journal::new(Arc::clone(&storage)), storage, place: place.to_owned(), kind }
    }

    /// Whether it is a copy: writes to it are lost.
    pub(crate) fn is_copy(&self) -> bool {
        match &self.kind {
            Kind::Folder { copy, .. } => copy.is_some(),
            Kind::Database(_) => false,
        }
    }

    /// Whether boards on other machines may work on it.
    pub(crate) fn is_database(&self) -> bool {
        match &self.kind {
            Kind::Folder { .. } => false,
            Kind::Database(_) => true,
        }
    }

    /// The folder of the store, also of a copy; of a database its URL, without a password.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Why no other process can use the store until this one has ended, if it is so.
    pub(crate) fn why_not_shared(&self) -> Option<&str> {
        match &self.kind {
            Kind::Folder { shared, .. } => shared.why_not_shared(),
            Kind::Database(_) => None,
        }
    }

    /// # Errors
    /// The store belongs to another project. One that belongs to none is left so.
    pub(super) async fn check_project(&self, project: &str) -> Result<(), Failure> {
        match self.journal.project().await.map_err(Failure::of)? {
            Some(of_store) if *of_store != *project => {
                Err(Failure::of(BuildError::OtherProject { project: project.into(), of_store }))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The boards that work on the store, and those that are gone and have left runs.
    pub(crate) async fn boards(&self) -> Result<Vec<BoardEntry>, Failure> {
        self.journal.boards().await.map_err(Failure::of)
    }

    /// The same, with the runs that those have left.
    pub(crate) async fn boards_with_left(&self) -> Result<Vec<BoardEntry>, Failure> {
        self.journal.boards_with_left().await.map_err(Failure::of)
    }

    /// The notes about runs and the letters of boards that cannot be read, and rows of a database that no board has written, each by its name
    /// with the reason.
    pub(crate) async fn unreadable_rows(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut rows = self.journal.unreadable_notes().await.map_err(Failure::of)?;
        if let Kind::Database(database) = &self.kind {
            rows.extend(database.unreadable_rows().await.map_err(Failure::of)?);
        }
        Ok(rows)
    }

    /// The board of another process that works on a run, if one does.
    pub(crate) async fn board_of(&self, run: RunId) -> Result<Option<Arc<str>>, Failure> {
        self.check_has_boards()?;
        self.journal.board_of(run).await.map_err(Failure::of)
    }

    /// The agents that an open run waits for while no board works on it, of the boards on a database that live, without `but`; none where all
    /// boards are processes of one machine, of which a command continues what another has left.
    pub(crate) async fn agents_lacking(&self, run: &Run, but: Option<&str>) -> Result<BTreeSet<AgentName>, Failure> {
        if !self.is_database() {
            return Ok(BTreeSet::new());
        }
        let boards = self.boards().await?;
        let living =
            boards.iter().filter(|board| !board.left.is_zero() && but.is_none_or(|but| *board.info.id != *but));
        Ok(run.agents_lacking(living.map(|board| &board.info)))
    }

    fn check_has_boards(&self) -> Result<(), Failure> {
        if !self.is_copy() {
            return Ok(());
        }
        let folder = shown_path(&self.place);
        let text =
            format!("the store {folder} can only be read here, so it is not known which process works on its runs");
        Err(Failure::new(Exit::Denied, text))
    }

    /// Refuses a run that another process works on; nothing that one has written before can come any more.
    pub(crate) async fn check_is_free(&self, run: RunId) -> Result<(), Failure> {
        self.check_has_boards()?;
        match self.journal.board_or_free(run).await.map_err(Failure::of)? {
            None => Ok(()),
            Some(_) => Err(Failure::new(
                Exit::Unavailable,
                format!("another process works on run {run}: wait until it has ended, or cancel it"),
            )),
        }
    }

    /// Deletes a run, with all that is stored of it.
    pub(crate) async fn delete(&self, run: RunId) -> Result<(), Failure> {
        self.check_is_free(run).await?;
        self.journal.forget(run).await.map_err(Failure::of)
    }

    /// The conversations in the store.
    pub(crate) fn conversations(&self) -> ConversationsHandle {
        ConversationsHandle::in_store(Arc::clone(&self.storage), StateRules::default())
    }

    /// The storage, for a board.
    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.storage)
    }

    /// Closes the store. On success, everything that was written to it is on the disk; an error means that it may not be.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        match &self.kind {
            Kind::Folder { shared, .. } => shared.close().await.map_err(Failure::of),
            Kind::Database(database) => {
                database.close().await;
                Ok(())
            }
        }
    }

    /// As [`Store::close`] at the end of a run, whose result is printed whatever becomes of the store.
    pub(crate) async fn close_or_note(&self) {
        if let Err(failure) = self.close().await {
            note(failure.text());
        }
    }

    /// The runs that have not ended.
    pub(crate) async fn open_runs(&self) -> Result<Vec<RunId>, Failure> {
        self.journal.open_runs().await.map_err(Failure::of)
    }

    /// All runs, oldest first.
    pub(crate) async fn ids(&self) -> Result<Vec<RunId>, Failure> {
        self.journal.runs().await.map_err(Failure::of)
    }

    /// When a run was submitted, in milliseconds of Unix time; 0 if it cannot be read.
    pub(crate) async fn begun_at(&self, run: RunId) -> u64 {
        match self.history(run).await.ok().and_then(|history| history.into_iter().next()) {
            Some(RunEvent::Submitted(submission)) => submission.at.as_millis(),
            _ => 0,
        }
    }

    pub(crate) async fn history(&self, run: RunId) -> Result<Vec<RunEvent>, StorageError> {
        self.journal.events(run).await
    }

    /// The turns of an open run that other boards have taken, at any depth. One that cannot be read is left out.
    pub(crate) async fn placed_of(&self, run: &Run) -> Result<Vec<Run>, Failure> {
        let read = async |run| match self.history(run).await {
            Ok(history) => {
                let rules = Rules::of(&history).state;
                Ok(Run::of(history, &rules))
            }
            Err(StorageError::Corrupt { .. }) => Ok(None),
            Err(error) => Err(Failure::of(error)),
        };
        run.read_placed(|run| read(run).boxed()).await
    }

    /// What was decided about an approval, if anything was and the store still has it.
    pub(crate) async fn decision(&self, id: ApprovalId) -> Result<Option<Decision>, Failure> {
        Decider::decision_in(&*self.storage, id).await.map_err(Failure::of)
    }

    /// The events of the records after `record` of a run's journal, and the number of the last record.
    pub(crate) async fn events_after(&self, run: RunId, record: u64) -> Result<(Vec<RunEvent>, u64), StorageError> {
        self.journal.events_after(run, record).await
    }

    /// Writes the first events of a run, which the next board on this store takes over.
    pub(crate) async fn begin(&self, run: RunId, events: &[RunEvent], durability: Durability) -> Result<(), Failure> {
        // The ids of boards are UUIDs, so no running board has this name, and the next one takes the run over.
        const OWNER: &str = "callboard runs fork";
        self.journal.begin(run, OWNER, events, durability).await.map(|_| ()).map_err(Failure::of)
    }

    /// Notes the open runs that have no note: they began while the store was copied. The next board takes them over.
    pub(crate) async fn note_open_runs(&self) -> Result<(), Failure> {
        // The ids of boards are UUIDs, so no running board has this name.
        const OWNER: &str = "callboard store backup";
        let noted = self.open_runs().await?;
        for run in self.ids().await? {
            if !noted.contains(&run) && self.load(run).await?.replay.result().is_none() {
                self.journal.mark_open(run, OWNER).await.map_err(Failure::of)?;
            }
        }
        Ok(())
    }

    pub(crate) async fn load(&self, id: RunId) -> Result<Loaded, Failure> {
        let history = self
            .history(id)
            .await
            .map_err(|error| Failure::new(Exit::from(&error), format!("run {}: {error}", short(id))))?;
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
        let (mut state, mut missing) = (StateRules::new(Schema::swarm()), Vec::new());
        for channel in schema.iter().flat_map(|schema| schema.declared()) {
            if let Some(Ok(Reducer::Custom(name))) = schema.as_ref().map(|schema| schema.reducer(channel)) {
                // Only the run's program knows the reducer. The last write is shown, with a note.
                state = state.reducer(name, |_, write| Ok(write.clone()));
                missing.push((channel.to_owned(), name.to_string()));
            }
        }
        Self { state, missing }
    }

    /// Notes about channels whose values are not what the run's program computes.
    pub(crate) fn notes(&self) -> String {
        let note = |(channel, reducer): &(String, String)| {
            let (channel, reducer) = (visible(channel), visible(reducer));
            format!(
                "note: channel {channel} has the reducer {reducer}, which only its program has; its last write is shown\n"
            )
        };
        self.missing.iter().map(note).collect()
    }
}

/// Creates a folder that only this user can read.
pub(crate) fn make_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(folder)
}

/// Whether a folder has a store, or a damaged one.
///
/// # Errors
/// The folder cannot be searched, as without the permission.
pub(crate) fn is_there(folder: &Path) -> io::Result<bool> {
    for file in ["format", "db"] {
        match folder.join(file).metadata() {
            Ok(_) => return Ok(true),
            Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Refuses a folder in which a new store would be mixed with other files.
pub(crate) fn check_may_have_store(folder: &Path) -> Result<(), Failure> {
    /// What a store has before its format is written, the tokens of its server, and the base of facts.
    const OWN: [&str; 7] = ["lock", "synced", "format.unfinished", "claims", "sessions", "service", "knowledge"];
    let is_other =
        |entry: io::Result<DirEntry>| entry.is_ok_and(|entry| OWN.iter().all(|own| entry.file_name() != *own));
    let has_others = folder.read_dir().is_ok_and(|mut entries| entries.any(is_other));
    // In this order: another process may make the store meanwhile, which writes its format before all that counts as other files.
    if !has_others || is_there(folder).unwrap_or(true) {
        return Ok(());
    }
    let shown = shown_path(folder);
    Err(Failure::usage(format!("{shown} has other files and no store: name a folder that is empty, or does not exist")))
}

fn check_is_there(folder: &Path) -> Result<(), Failure> {
    let shown = shown_path(folder);
    match is_there(folder) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(error) => {
            let text = format!("whether there is a callboard store in {shown} is not known: {}", reason(&error));
            return Err(Failure::file(&error, text));
        }
    }
    let target = std::fs::read_link(folder).ok().filter(|_| !folder.exists());
    let dangling = target.map(|target| {
        let target = visible(&target.display().to_string());
        format!(": it is a symbolic link to {target}, which does not exist")
    });
    Err(Failure::not_found(format!("there is no callboard store in {shown}{}", dangling.unwrap_or_default())))
}

/// The exit of a store that cannot be opened.
pub(crate) fn exit_of_opening(folder: &Path, error: &StorageError) -> Exit {
    match error {
        StorageError::Open { .. } if is_denied(folder) => Exit::Denied,
        error => error.into(),
    }
}

pub(crate) fn not_opened(folder: &Path, error: &StorageError) -> Failure {
    Failure::new(exit_of_opening(folder, error), error.to_string())
}

fn not_replayed(run: RunId, error: ReplayError) -> Failure {
    Failure::failed(format!("run {}: {error}", short(run)))
}
