//! The machinery that carries out the rules of runs: queues, supervisors, commits, recovery and timers.
//!
//! - `queue`: the messages of a run supervisor (`message`), and which thread processes them (`flat_combining`).
//! - `supervisor`: what each message does to the runs of one supervisor; see the map there.
//! - `live`: a run in memory, with what waits for its commit. `ahead`, `beginning`: turns that do not wait for it. `timers`: what is due when.
//! - `dispatch`: the interface to the agents' side. `roster`: the runs that a next life of the supervisor reads back.
//! - `ownership`: which board owns a run. `run_reader`: reads those that others have left. `conversing`: the tickets of conversations.

pub(crate) mod ahead;
pub(crate) mod beginning;
pub(crate) mod conversing;
pub(crate) mod dispatch;
mod live;
pub(crate) mod ownership;
pub(crate) mod queue;
pub(crate) mod roster;
pub(crate) mod run_reader;
#[cfg(test)]
mod sizes;
pub(crate) mod supervisor;
mod timers;
