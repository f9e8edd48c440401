//! What carries the rules of runs out: queues, supervisors, commits, recovery and timers.

pub mod claims;
pub(crate) mod conversing;
pub mod dispatch;
pub mod inbox;
mod live;
pub mod roster;
pub mod supervisor;
mod timers;
