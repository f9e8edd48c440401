//! The workflows that a store keeps, with their versions; and the migration of runs to another definition.

use std::fmt;
use std::sync::Arc;

use callboard_text::{check_name, quoted};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use crate::messages::{Durability, NameError, Plan, Refusal, RunEvent, RunId, Unacknowledged};
use crate::storage::codec::{self, CodecError, Stored};
use crate::storage::{Expected, Journal, Key, Put, Storage, StorageError};
use crate::supervision::runs::fork::{ForkError, migrate};
use crate::supervision::runs::rules::errors::SubmitError;
use crate::workflow::{Defects, Workflow, difference};

use super::handle::{Board, Callboard};
use super::run_handle::{RunError, RunHandle};

/// The workflows of a board's store. Every change makes a version; a run keeps the one that it started with.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::workflow::Workflow;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let board = Callboard::builder().agent("echo", |_: Turn| async { Ok(Command::new()) }).start().await?;
/// let store = board.workflows();
/// let first = Workflow::from_line("", "workflow daily: echo")?;
/// assert_eq!(store.save(&first).await?, 1);
/// assert_eq!(store.save(&first).await?, 1);
/// assert_eq!(store.save(&Workflow::from_line("", "workflow daily: echo -> then(agent=\"echo\")")?).await?, 2);
/// let (version, latest) = store.latest("daily").await?.expect("it was saved");
/// assert_eq!((version, latest.plan().cast().len()), (2, 2));
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Workflows {
    storage: Arc<dyn Storage>,
    durability: Durability,
}

/// The longest name of a stored workflow, in characters.
const MAX_NAME: usize = 128;

/// Why a stored workflow was not saved or read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowStoreError {
    /// The store reported an error while the workflow was read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Its name could deceive a reader, is empty, or is longer than 128 characters.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The stored bytes of a version cannot be decoded.
    #[error("version {version} of the workflow {} cannot be read: {detail}", quoted(name))]
    Unreadable {
        /// The name of the workflow.
        name: String,
        /// The version that cannot be decoded; versions count from 1.
        version: u32,
        /// The decoder's error.
        detail: String,
    },
    /// What is stored cannot be run by this version of callboard.
    #[error(transparent)]
    Defects(#[from] Defects),
}

/// A version of a workflow, as it is stored.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StoredWorkflow {
    description: Option<String>,
    plan: Arc<Plan>,
}

impl Stored for StoredWorkflow {
    const SCHEMA: u16 = 6;
    const VERSION: u16 = 1;
    const NAME: &'static str = "workflow";
}

impl Workflows {
    fn key(name: &str) -> Key {
        Key::new(["workflow", name])
    }

    /// Versions in the order of their numbers.
    fn version_key(name: &str, version: u32) -> Key {
        Self::key(name).child(&format!("{version:010}"))
    }

    /// Stores a workflow under its name, and returns its version. A workflow that equals the latest version makes no new one.
    ///
    /// # Errors
    /// See [`WorkflowStoreError`].
    pub async fn save(&self, workflow: &Workflow) -> Result<u32, WorkflowStoreError> {
        loop {
            let last = self.versions(workflow.name()).await?.last().copied().unwrap_or_default();
            if let Some(version) = self.save_after(last, workflow).await? {
                return Ok(version);
            }
        }
    }

    /// As [`Workflows::save`], if the latest version is still this one (0: if there is none), and `None` otherwise.
    ///
    /// # Errors
    /// See [`WorkflowStoreError`].
    pub async fn save_after(&self, last: u32, workflow: &Workflow) -> Result<Option<u32>, WorkflowStoreError> {
        let name = workflow.name();
        check_name("workflow", name, MAX_NAME)?;
        let stored = StoredWorkflow {
            description: workflow.description().map(str::to_owned),
            plan: Arc::clone(workflow.plan()),
        };
        let value = codec::encode_shared(&stored);
        if self.versions(name).await?.last().copied().unwrap_or_default() != last {
            return Ok(None);
        }
        if last > 0
            && let Some(latest) = self.storage.get(&Self::version_key(name, last)).await?
            && latest.value == value
        {
            return Ok(Some(last));
        }
        let put = Put {
            expected: Expected::Absent,
            durability: self.durability,
            ..Put::new(Self::version_key(name, last + 1), value)
        };
        match self.storage.put_if_revision(put).await {
            Ok(_) => Ok(Some(last + 1)),
            // Another version was saved concurrently.
            Err(StorageError::WrongRevision { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The versions of a workflow, the first one first; none if there is no such workflow.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn versions(&self, name: &str) -> Result<Vec<u32>, StorageError> {
        let keys = self.keys(&Self::key(name)).await?;
        Ok(keys.iter().filter_map(|segments| segments.get(2)?.parse().ok()).collect())
    }

    /// The names of the workflows, sorted.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn names(&self) -> Result<Vec<String>, StorageError> {
        let keys = self.keys(&Key::new(["workflow"])).await?;
        let mut names: Vec<String> = keys.into_iter().filter_map(|segments| segments.into_iter().nth(1)).collect();
        names.dedup();
        Ok(names)
    }

    async fn keys(&self, above: &Key) -> Result<Vec<Vec<String>>, StorageError> {
        const PAGE: usize = 256;
        let (prefix, mut after, mut keys) = (above.children(), None, Vec::new());
        loop {
            let page = self.storage.scan(&prefix, after.as_ref(), PAGE).await?;
            keys.extend(page.iter().map(|(key, _)| key.segments()));
            match page.into_iter().nth(PAGE - 1) {
                Some((last, _)) => after = Some(last),
                None => return Ok(keys),
            }
        }
    }

    /// A version of a workflow; `None` if there is none.
    ///
    /// # Errors
    /// See [`WorkflowStoreError`].
    pub async fn get(&self, name: &str, version: u32) -> Result<Option<Workflow>, WorkflowStoreError> {
        let Some(entry) = self.storage.get(&Self::version_key(name, version)).await? else { return Ok(None) };
        let unreadable = |error: CodecError| {
            let (name, detail) = (name.to_owned(), error.to_string());
            WorkflowStoreError::Unreadable { name, version, detail }
        };
        let StoredWorkflow { description, plan } = codec::decode(&entry.value).map_err(unreadable)?;
        Ok(Some(Workflow::of_plan(plan, description)?))
    }

    /// The latest version of a workflow, and its number; `None` if there is no such workflow.
    ///
    /// # Errors
    /// See [`WorkflowStoreError`].
    pub async fn latest(&self, name: &str) -> Result<Option<(u32, Workflow)>, WorkflowStoreError> {
        let Some(last) = self.versions(name).await?.last().copied() else { return Ok(None) };
        Ok(self.get(name, last).await?.map(|workflow| (last, workflow)))
    }
}

impl fmt::Debug for Workflows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflows").finish_non_exhaustive()
    }
}

impl Callboard {
    /// Returns a handle to save and read versions of workflows in the board's store.
    #[must_use]
    pub fn workflows(&self) -> Workflows {
        let (storage, durability) = (Arc::clone(self.board.journal.storage()), self.board.durability);
        Workflows { storage, durability }
    }

    /// Migrates a run to another definition of its workflow: a new run begins with it, in which the nodes answer from the
    /// old journal that have ended there, are the same agent's, and work on the same input; the others run. The old run is
    /// cancelled, if it has not ended, and can be migrated again. The new one has its own id, token budget and deadline, as a
    /// fork has.
    ///
    /// Waits for a permit when too many runs are in flight. Each call makes a run of its own.
    ///
    /// # Errors
    /// See [`ForkError`]; what the new definition cannot start with is [`ForkError::Submit`].
    pub async fn migrate(&self, run: RunId, workflow: &Workflow) -> Result<RunHandle, ForkError> {
        let permit = Arc::clone(&self.board.run_permits).acquire_owned().await.map_err(|_| Refusal::ShuttingDown)?;
        let (board, id, plan) = (self.clone(), RunId(self.board.env.id()), Arc::clone(workflow.plan()));
        // In a task of its own: if the caller is dropped, no run is journaled without being begun.
        let migrated = tokio::spawn(async move { board.migrate_as(id, run, plan, permit).await });
        migrated.await.unwrap_or(Err(Unacknowledged::Fork(id).into()))
    }

    async fn migrate_as(
        &self,
        id: RunId,
        run: RunId,
        plan: Arc<Plan>,
        permit: OwnedSemaphorePermit,
    ) -> Result<RunHandle, ForkError> {
        let board = &self.board;
        let history = board.journal.read(run).await?.events;
        let mut task = match history.first() {
            None => return Err(ForkError::Unknown(run)),
            Some(RunEvent::Submitted(original)) => original.task.clone(),
            Some(_) => return Err(ForkError::Trimmed),
        };
        task.plan = Some(Arc::clone(&plan));
        let cast = board.cast(&task).map_err(|error| ForkError::Submit(Box::new(error)))?;
        let durability = task.durability.unwrap_or(board.durability);
        // Later events of the old run are not copied.
        let reason = format!("it continues as run {id}, with another definition of its workflow");
        self.run(run).cancel(&reason).await.map_err(|error| match error {
            RunError::Unknown(run) => ForkError::Unknown(run),
            RunError::Trimmed(_) => ForkError::Trimmed,
            RunError::OverLimit(error) => ForkError::OverLimit(error),
            RunError::Storage(error) | RunError::StoreStopped { error, .. } => ForkError::Storage(error),
            RunError::NotHere(run)
            | RunError::Quarantined { run, .. }
            | RunError::Stopped(run)
            | RunError::NotRequester(run) => ForkError::NotHere(run),
        })?;
        let history = board.journal.read(run).await?.events;
        let events = migrate(&history, (plan, cast), (id, board.env.now().wall), &board.rules)?;
        let begun = self.begin_fork(id, &events, durability, permit).await;
        begun.map_err(|error| if error.is_transient() { Unacknowledged::Fork(id).into() } else { error.into() })
    }
}

impl Board {
    /// Checks that an existing run with a task's id began with the task's plan.
    pub(super) async fn check_same_plan(&self, run: RunId, plan: &Arc<Plan>) -> Result<(), SubmitError> {
        let first = self.journal.storage().read(&Journal::stream(run), 1, 1).await?;
        let events = first.first().and_then(|record| Journal::events_in(&record.payload)).unwrap_or_default();
        let Some(RunEvent::Submitted(submission)) = events.first() else { return Ok(()) };
        let difference = match &submission.task.plan {
            Some(before) if before == plan => return Ok(()),
            Some(before) => difference(before, plan),
            None => vec!["it has no workflow".to_owned()],
        };
        Err(SubmitError::PlanChanged { run, difference })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Block, PlanNode, Work};

    #[test]
    fn the_bytes_of_a_workflow_are_golden() {
        let line =
            r#"workflow daily: a(input="{{ x }}") -> any(b, c(attempts=2)) -> loop(until="state.n > 1", max=3) { d }"#;
        let read = Workflow::from_line("", &line.replace("state.n > 1", "d.output > 1")).unwrap();
        let stored = StoredWorkflow { description: Some("every day".into()), plan: Arc::clone(read.plan()) };
        crate::testing::golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"), &stored);
    }

    fn nested(levels: usize) -> Plan {
        let block = |work| Block { nodes: vec![PlanNode::new("n", work)], output: None };
        let body = (0..levels).fold(block(Work::Join), |body, _| block(Work::Block { body, is_closed: false }));
        Plan::new("deep", Default::default(), body)
    }

    #[test]
    fn a_plan_that_nests_too_deep_is_not_read_from_a_store() {
        let read = |levels| {
            let stored = StoredWorkflow { description: None, plan: Arc::new(nested(levels)) };
            codec::decode::<StoredWorkflow>(&codec::encode(&stored)).map(|stored| stored.plan)
        };
        assert_eq!(*read(64).unwrap(), nested(64));
        let error = read(65).unwrap_err().to_string();
        assert!(error.contains("more than 64 levels deep"), "{error}");
        assert!(read(64).is_ok(), "the next one is read from its own beginning");
    }
}
