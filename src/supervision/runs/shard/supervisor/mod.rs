//! The run supervisor: one owner for each run's state. It decides with the pure rules, journals, and performs what the
//! journal has acknowledged. Processing a message awaits nothing, so any sender's thread may do it: what takes time is
//! spawned and returns as a message. What it logs is logged outside the sender's spans.
//!
//! - `life`: the actor, which opens and closes the shard. `context`: what it needs from outside, and keeps over restarts.
//! - `shard`: the runs in memory, and where each message goes. `messages`: what a message for a run does to it.
//!   `turn_requests`: requests of turns. `refusals`: answers for runs that are not in memory.
//! - `commits`: appends to the journal, and what they release. `recovery`: runs that are read back. `reopening`: runs that
//!   continue after an overwrite. `conversing`: runs that wait in a conversation.
//! - `handing_over`: runs between turns that go to other boards.
//! - `ending`: what the store notes about a run that has ended. `memory_runs`: ended runs whose journals are in memory. `ready_or_spawned`: work that is seldom worth a task.

mod commits;
mod context;
mod conversing;
mod ending;
mod handing_over;
mod life;
mod memory_runs;
mod messages;
mod ready_or_spawned;
mod recovery;
mod refusals;
mod reopening;
mod shard;
mod turn_requests;

pub(crate) use context::ShardContext;
pub(crate) use life::RunSupervisor;
pub(crate) use memory_runs::{MemoryBytes, MemoryRuns};

#[cfg(test)]
mod reference;
