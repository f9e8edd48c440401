//! The run supervisor: one owner for each run's state. It decides with the pure rules, journals, and performs what the
//! journal has acknowledged. Processing a message awaits nothing, so any sender's thread may do it: what takes time is
//! spawned and returns as a message. What it logs is logged outside the sender's spans.

mod commits;
mod context;
mod conversing;
mod life;
mod recovery;
mod reopening;
mod requests;
mod shard;

pub(crate) use context::{MemoryRuns, ShardContext};
pub(crate) use life::RunSupervisor;

#[cfg(test)]
mod reference;
