//! Which runs there are, in the order of the lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use callboard::Callboard;
use callboard::messages::{AgentName, RunId, Timestamp};
use callboard::runtime::{RunError, RunHandle};
use futures::StreamExt as _;
use parking_lot::Mutex;

use crate::problem::Problem;

/// How many runs are read at a time when runs are seen for the first time.
const READERS: usize = 16;

/// Where a run stands in the lists: by the time of its submission.
pub(crate) type Place = (Timestamp, RunId);

/// The runs that were seen, each of which was read once for its place. Ids have no order: those of idempotency keys are hashes.
#[derive(Clone, Default)]
pub(crate) struct Index(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// Also those that cannot be read, and have no place.
    runs: BTreeSet<RunId>,
    agents: BTreeMap<Place, AgentName>,
}

impl Index {
    /// Takes in what was submitted and deleted since the last time.
    pub(crate) async fn update(&self, board: &Callboard) -> Result<(), Problem> {
        let handles = board.runs().await.map_err(|error| Problem::of_store(&error))?;
        let ids: BTreeSet<RunId> = handles.iter().map(RunHandle::id).collect();
        let new: Vec<RunHandle> = {
            let mut seen = self.0.lock();
            let Seen { runs, agents } = &mut *seen;
            runs.retain(|run| ids.contains(run));
            agents.retain(|(_, run), _| ids.contains(run));
            handles.into_iter().filter(|handle| !runs.contains(&handle.id())).collect()
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
                    seen.agents.insert((submission.at, run), submission.agent.clone());
                }
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

    /// The places before `before`, newest first, of this agent.
    pub(crate) fn before(&self, before: Option<Place>, agent: Option<&str>, count: usize) -> Vec<Place> {
        let seen = self.0.lock();
        let is_wanted = |(_, of): &(&Place, &AgentName)| agent.is_none_or(|agent| of.as_str() == agent);
        let older = match before {
            Some(before) => seen.agents.range(..before),
            None => seen.agents.range(..),
        };
        older.rev().filter(is_wanted).map(|(place, _)| *place).take(count).collect()
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
