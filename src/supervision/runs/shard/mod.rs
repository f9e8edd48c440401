//! What carries the rules of runs out: queues, supervisors, commits, recovery and timers.

pub mod claims;
pub(crate) mod conversing;
pub mod dispatch;
mod live;
pub mod queue;
pub mod roster;
pub mod supervisor;
mod timers;
