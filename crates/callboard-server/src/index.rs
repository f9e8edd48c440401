//! The runs of the board in the order of the lists: the latest submission first, of one moment by their ids.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use callboard::Callboard;
use callboard::messages::{AgentName, EndedRun, RunId, Timestamp};
use callboard::runtime::{RunError, RunHandle};
use futures::StreamExt as _;
use parking_lot::Mutex;

use crate::problem::Problem;

/// How many open runs are read at a time when they are seen for the first time.
const READERS: usize = 16;
/// How many ended runs are taken from the store at once.
const CHUNK: usize = 128;

/// Where a run stands in the lists: by the time of its submission. Ids have no order: those of idempotency keys are hashes.
pub(crate) type Place = (Reverse<Timestamp>, RunId);

/// A run in the lists.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) place: Place,
    pub(crate) agent: AgentName,
    /// The name of its outcome; `None` if it was open a moment ago.
    pub(crate) outcome: Option<Arc<str>>,
}

impl From<EndedRun> for Listed {
    fn from(EndedRun { run, submitted_at, agent, outcome }: EndedRun) -> Self {
        Self { place: (Reverse(submitted_at), run), agent, outcome: Some(outcome) }
    }
}

/// The places of the open runs, each of which was read once for it. The store lists the others.
#[derive(Clone, Default)]
pub(crate) struct Index(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// Also those that cannot be read, and have no place.
    runs: BTreeSet<RunId>,
    agents: BTreeMap<Place, AgentName>,
}

impl Index {
    /// Goes through the runs after a place, or through all.
    pub(crate) async fn walk<'b>(&self, board: &'b Callboard, after: Option<Place>) -> Result<Walk<'b>, Problem> {
        // First: a run that ends meanwhile is among the ended ones, and is passed once because its place is the same.
        self.update(board).await?;
        let open = {
            let seen = self.0.lock();
            let is_left = |place: &Place| after.is_none_or(|after| *place > after);
            let open = seen.agents.iter().filter(|(place, _)| is_left(place));
            open.map(|(place, agent)| Listed { place: *place, agent: agent.clone(), outcome: None }).collect()
        };
        Ok(Walk { board, open, ended: VecDeque::new(), after, is_at_end: false })
    }

    /// Takes in which runs are open.
    async fn update(&self, board: &Callboard) -> Result<(), Problem> {
        let noted = board.unfinished_runs().await.map_err(|error| Problem::of_store(&error))?;
        let ids: BTreeSet<RunId> = noted.iter().chain(&board.runs_at_work()).map(RunHandle::id).collect();
        let new: Vec<RunHandle> = {
            let mut seen = self.0.lock();
            let Seen { runs, agents } = &mut *seen;
            runs.retain(|run| ids.contains(run));
            agents.retain(|(_, run), _| ids.contains(run));
            ids.iter().filter(|run| !runs.contains(run)).map(|run| board.run(*run)).collect()
        };
        let mut read = futures::stream::iter(new)
            .map(|handle| async move { (handle.id(), handle.read().await) })
            .buffer_unordered(READERS);
        while let Some((run, fold)) = read.next().await {
            let mut seen = self.0.lock();
            match fold {
                Ok(fold) => {
                    let submission = fold.submission();
                    seen.runs.insert(run);
                    seen.agents.insert((Reverse(submission.at), run), submission.agent.clone());
                }
                // It is not journaled yet, or was deleted.
                Err(RunError::Unknown(_)) => {}
                Err(RunError::Storage(error)) if error.is_transient() => return Err(Problem::of_store(&error)),
                // Once, and not again for each list.
                Err(error) => {
                    skip(run, &error);
                    seen.runs.insert(run);
                }
            }
        }
        Ok(())
    }
}

/// Goes through the lists from a place on.
pub(crate) struct Walk<'b> {
    board: &'b Callboard,
    open: VecDeque<Listed>,
    /// Those that were taken from the store and not passed yet.
    ended: VecDeque<Listed>,
    /// The last one that was taken from the store.
    after: Option<Place>,
    /// Whether the store has no more.
    is_at_end: bool,
}

impl Walk<'_> {
    /// The next run; `None` after the oldest.
    pub(crate) async fn next(&mut self) -> Result<Option<Listed>, Problem> {
        if self.ended.is_empty() && !self.is_at_end {
            let after = self.after.map(|(Reverse(at), run)| (at, run));
            let taken = self.board.ended_runs(after, CHUNK).await.map_err(|error| Problem::of_store(&error))?;
            self.is_at_end = taken.is_empty();
            self.ended.extend(taken.into_iter().map(Listed::from));
            self.after = self.ended.back().map(|listed| listed.place).or(self.after);
        }
        let (open, ended) = (self.open.front(), self.ended.front());
        let is_open_next = match (open, ended) {
            (Some(open), Some(ended)) if open.place == ended.place => {
                self.open.pop_front();
                false
            }
            (Some(open), Some(ended)) => open.place < ended.place,
            (open, _) => open.is_some(),
        };
        Ok(if is_open_next { self.open.pop_front() } else { self.ended.pop_front() })
    }
}

/// Leaves a run out of a list. `GET /v1/delegations/{id}` answers what is wrong with it.
pub(crate) fn skip(run: RunId, error: &RunError) {
    match error {
        // It was deleted meanwhile.
        RunError::Unknown(_) => {}
        error => tracing::warn!(%run, %error, "a run was left out of a list"),
    }
}
