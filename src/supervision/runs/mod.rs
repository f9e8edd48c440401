//! Run supervision: the pure rules of runs, and the thin actors that carry them.

pub mod breaker;
pub mod budget;
pub mod claims;
pub(crate) mod conversing;
pub mod decide;
pub mod dispatch;
mod expiry;
pub mod facts;
pub mod follow;
pub mod fork;
pub mod glance;
pub mod guard;
pub mod inbox;
pub mod interrupts;
mod live;
pub(crate) mod once;
mod planned;
pub mod reopen;
pub mod replay;
pub mod retry;
pub mod roster;
pub mod run;
pub mod snapshot;
pub mod step;
pub mod supervisor;
mod timers;
pub mod wait_for;
