//! The rules of runs: pure functions over a run's state and its events. They know neither tokio nor ractor.
//!
//! A run, and what happens to it:
//!
//! - `run`: the fold over the journal (`run/step.rs` applies an event), and everything that can be read of a run.
//! - `decide`: maps an outcome, a request or a decision of a person to the event to journal.
//! - `errors`: the errors of submissions and answers, and of reading runs.
//! - `errors`: why a task or an answer is not accepted, or a run cannot be read.
//!
//! Rules that `decide` combines:
//!
//! - `guard`: whether a handoff or delegation may go ahead. `budget`: tokens. `breaker`, `wait_for`: circuit breakers, and the
//!   wait-for graph over all runs; `facts` holds both for the run supervisors.
//! - `retry`: what follows a failed attempt. `expiry`: when questions expire. `interrupts`: nodes that a person starts.
//! - `directory`: the interface to the board's agents. `conversation`: the messages that runs store for later runs.
//!
//! Reading journals again:
//!
//! - `snapshot`: runs as they are stored between events. `history`: events in the order in which the fold takes them.
//! - `failures`: what of a run waits for a person after it failed.
//! - `replay`, `follow`: a journal event by event, and turn by turn. `fork`, `reopen`: runs that begin from an old one, or
//!   continue after their end.
//!
//! `small_map` is the map and set that the fold keeps the parts of a run in, `numbered` the map of its branches and turns, and `rare` is for
//! parts that most runs have not.
//!
//! A file `reference.rs` is the reference model of the rule beside it, compiled for tests alone.

pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod conversation;
pub(crate) mod day_ledger;
pub(crate) mod decide;
pub(crate) mod directory;
pub(crate) mod errors;
pub(crate) mod expiry;
pub(crate) mod facts;
pub(crate) mod failures;
pub(crate) mod follow;
pub(crate) mod fork;
pub(crate) mod guard;
pub(crate) mod history;
pub(crate) mod interrupts;
pub(crate) mod numbered;
pub(crate) mod once;
pub(crate) mod rare;
pub(crate) mod reopen;
pub(crate) mod replay;
pub(crate) mod requests;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod small_map;
pub(crate) mod snapshot;
pub(crate) mod wait_for;

#[cfg(test)]
mod reference;
