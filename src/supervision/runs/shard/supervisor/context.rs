//! What a run supervisor needs from outside, and what survives its restarts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::env::{Env, Now};
use crate::messages::state::StateRules;
use crate::messages::{Backoff, Durability, OnUnknown, RunId, Unacknowledged};
use crate::storage::{Journal, StorageError};
use crate::supervision::runs::rules::decide::DecisionContext;
use crate::supervision::runs::rules::errors::SubmitError;
use crate::supervision::runs::rules::facts::SharedFacts;
use crate::supervision::runs::rules::snapshot::is_left;
use crate::supervision::runs::shard::claims::Claims;
use crate::supervision::runs::shard::conversing::ConversationQueue;
use crate::supervision::runs::shard::dispatch::Dispatch;
use crate::supervision::runs::shard::queue::{ShardMessage, ShardQueue};
use crate::supervision::runs::shard::roster::Roster;

/// The configuration and services of a run supervisor, and what must survive its restarts.
pub(crate) struct ShardContext {
    /// Clock, random numbers, ids and fault points.
    pub env: Env,
    /// The runs' journals.
    pub journal: Journal,
    /// Where ready turns go.
    pub dispatch: Arc<dyn Dispatch>,
    /// Breakers, waits and reservations, shared with the other run supervisors.
    pub facts: Arc<SharedFacts>,
    /// Schema and reducers of runs that have none of their own.
    pub rules: StateRules,
    /// The delays between the attempts of a turn.
    pub backoff: Backoff,
    /// How long an approval waits if neither policy nor task sets a time.
    pub approval_ttl: Duration,
    /// How long before its expiry people are reminded of an approval.
    pub remind_before: Duration,
    /// What follows an unknown outcome if neither tool nor agent sets a rule.
    pub on_unknown: OnUnknown,
    /// The number of recoveries in a row after which a turn waits for a person.
    pub max_recoveries: u32,
    /// The most dynamic agents in one run.
    pub dynamic_agents: usize,
    /// How many of the last turns a run in memory keeps in its journal.
    pub memory_turns: u32,
    /// The durability of tasks that name none.
    pub durability: Durability,
    /// The board's claims on runs.
    pub claims: Claims,
    /// The conversations of the board's store.
    pub conversations: ConversationQueue,
    /// The shard's messages.
    pub queue: Arc<ShardQueue>,
    /// The runs of this supervisor, which its next life reads back.
    pub roster: Roster,
    /// Runs that could not be read, with the reason; added when reading fails for good.
    pub quarantine: Arc<Mutex<BTreeMap<RunId, String>>>,
    /// Ended runs whose journals are in memory only.
    pub memory_runs: MemoryRuns,
    /// Called with an error that stops the store; the board stops.
    pub on_storage_error: Box<dyn Fn(&StorageError) + Send + Sync>,
}

/// Ended runs whose journals are in memory only: the newest are kept.
#[derive(Debug)]
pub(crate) struct MemoryRuns {
    ended: Mutex<VecDeque<RunId>>,
    max: usize,
}

impl MemoryRuns {
    /// Keeps the last `max` runs.
    #[must_use]
    pub(crate) fn new(max: usize) -> Self {
        Self { ended: Mutex::default(), max }
    }

    /// Removes one that continues.
    pub(super) fn remove(&self, run: RunId) {
        self.ended.lock().retain(|ended| *ended != run);
    }

    /// Adds one, and returns the oldest if there are too many: its journal is deleted.
    pub(super) fn add(&self, run: RunId) -> Option<RunId> {
        let mut ended = self.ended.lock();
        ended.push_back(run);
        if ended.len() > self.max { ended.pop_front() } else { None }
    }
}

impl ShardContext {
    /// The facts that a decision made now depends on.
    pub(super) fn decision_context(&self, now: Now) -> DecisionContext<'_> {
        DecisionContext {
            now,
            random: self.env.random(),
            directory: &*self.dispatch,
            facts: &self.facts,
            backoff: &self.backoff,
            approval_ttl: self.approval_ttl,
            remind_before: self.remind_before,
            on_unknown: self.on_unknown,
            dynamic_agents: self.dynamic_agents,
        }
    }

    /// Acknowledges a submission whose run exists already, here or on another board. A run whose note a crash has lost is
    /// adopted; one of which a crash has kept the note alone was not accepted.
    pub(super) fn accept_if_there(self: &Arc<Self>, run: RunId, ack: oneshot::Sender<Result<RunId, SubmitError>>) {
        let shared = Arc::clone(self);
        let look = async move {
            let there = shared.journal.has(run).await;
            let is_left =
                matches!(there, Ok(true)) && is_left(&shared.journal, run, &shared.rules, shared.durability).await;
            (shared, there, is_left)
        };
        spawn_unless_ready(look.boxed(), move |(shared, there, is_left)| {
            if is_left {
                shared.queue.push(ShardMessage::Adopt { run, new_process: true, recovery: None });
            }
            let _ = ack.send(match there {
                Ok(true) => Ok(run),
                Ok(false) => Err(Unacknowledged::Submission.into()),
                Err(error) => Err(error.into()),
            });
        });
    }
}

/// Polls a future once, and spawns it if it is not ready; `then` runs after it, in both cases.
pub(super) fn spawn_unless_ready<T: Send + 'static>(
    mut future: BoxFuture<'static, T>,
    then: impl FnOnce(T) + Send + 'static,
) {
    match (&mut future).now_or_never() {
        Some(done) => then(done),
        None => drop(tokio::spawn(async move { then(future.await) })),
    }
}
