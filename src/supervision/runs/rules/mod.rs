//! The rules of runs: pure functions over a run's state and its events. They know neither tokio nor ractor.

pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod conversation;
pub(crate) mod decide;
pub(crate) mod directory;
pub(crate) mod errors;
pub(crate) mod expiry;
pub(crate) mod facts;
pub(crate) mod follow;
pub(crate) mod fork;
pub(crate) mod guard;
pub(crate) mod history;
pub(crate) mod interrupts;
pub(crate) mod once;
pub(crate) mod reopen;
pub(crate) mod replay;
pub(crate) mod requests;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod snapshot;
pub(crate) mod wait_for;

#[cfg(test)]
mod reference;
