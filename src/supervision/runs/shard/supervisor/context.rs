//! The inputs of a run supervisor from outside, and the state that survives its restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::env::{Env, Now};
use crate::messages::state::StateRules;
use crate::messages::{Backoff, Durability, OnUnknown, RunId};
use crate::storage::{Journal, StorageError};
use crate::supervision::runs::rules::decide::DecisionContext;
use crate::supervision::runs::rules::facts::SharedFacts;
use crate::supervision::runs::shard::conversing::ConversationQueue;
use crate::supervision::runs::shard::dispatch::Dispatch;
use crate::supervision::runs::shard::ownership::Ownership;
use crate::supervision::runs::shard::queue::ShardQueue;
use crate::supervision::runs::shard::roster::Roster;
use crate::supervision::runs::shard::run_reader::RunReader;

use super::memory_runs::MemoryRuns;

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
    /// Which board owns a run.
    pub ownership: Ownership,
    /// Reads runs that other boards have left.
    pub reader: RunReader,
    /// Whether boards of other processes may work on the store, which have agents that this one lacks.
    pub is_shared: bool,
    /// The conversations of the board's store.
    pub conversations: ConversationQueue,
    /// The shard's messages.
    pub queue: Arc<ShardQueue>,
    /// The runs of this supervisor, which its next life reads back.
    pub roster: Arc<Roster>,
    /// Runs that could not be read, with the reason; added when reading fails for good.
    pub quarantine: Arc<Mutex<BTreeMap<RunId, String>>>,
    /// Ended runs whose journals are in memory only.
    pub memory_runs: Arc<MemoryRuns>,
    /// Called with an error that stops the store; the board stops.
    pub on_storage_error: Box<dyn Fn(&StorageError) + Send + Sync>,
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
}
