//! The rules of runs: pure functions over a run's state and its events. They know neither tokio nor ractor.
//!
//! A run, and what happens to it:
//!
//! - `run`: the fold over the journal (`run/step.rs` applies an event), and everything that can be read of a run.
//! - `decide`: what becomes of an outcome, a request or a decision of people: the event to journal.
//! - `requests`: what turns ask their runs for, and what they receive. `once`: effects that must not be repeated.
//! - `errors`: why a task or an answer is not accepted, or a run cannot be read.
//!
//! Rules that `decide` combines:
//!
//! - `guard`: whether a handoff or delegation may go ahead. `budget`: tokens. `breaker`, `wait_for`: circuit breakers, and who
//!   waits for whom, over all runs; `facts` holds both for the run supervisors.
//! - `retry`: what follows a failed attempt. `expiry`: when questions expire. `interrupts`: nodes that a person starts.
//! - `directory`: what the rules ask about agents. `conversation`: what a run leaves for the next one.
//!
//! Reading journals again:
//!
//! - `snapshot`: runs as they are stored between events. `history`: events in the order in which the fold takes them.
//! - `replay`, `follow`: a journal event by event, and turn by turn. `fork`, `reopen`: runs that begin from an old one, or
//!   continue after their end.
//!
//! A file `reference.rs` is the reference model of the rule beside it, compiled for tests alone.

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
