//! What carries the rules of runs out: queues, supervisors, commits, recovery and timers.

pub(crate) mod claims;
pub(crate) mod conversing;
pub(crate) mod dispatch;
mod live;
pub(crate) mod queue;
pub(crate) mod roster;
pub(crate) mod supervisor;
mod timers;
