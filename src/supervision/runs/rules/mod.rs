//! The rules of runs: pure functions over a run's state and its events. They know neither tokio nor ractor.

pub mod breaker;
pub mod budget;
pub(crate) mod conversation;
pub mod decide;
pub mod directory;
pub mod errors;
pub(crate) mod expiry;
pub mod facts;
pub mod follow;
pub mod fork;
pub mod guard;
pub(crate) mod history;
pub mod interrupts;
pub(crate) mod once;
pub mod reopen;
pub mod replay;
pub mod requests;
pub mod retry;
pub mod run;
pub mod snapshot;
pub mod wait_for;

pub use run::node_states;
