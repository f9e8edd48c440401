//! A failure that waits for a person.

use serde::{Deserialize, Serialize};

use super::{AgentName, Failure, Timestamp, TurnId};

/// A turn that failed for good, or writes that conflict, and about which nobody has decided:
/// [`DeadLettersHandle::open`](crate::runtime::DeadLettersHandle::open) lists them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenFailure {
    /// The failed turn; for a conflict, the turn whose end joined the branches.
    pub turn: TurnId,
    /// The agent that took the turn.
    pub agent: AgentName,
    /// How often the turn was tried.
    pub attempts: u32,
    /// The error of the last attempt; for a conflict, which writes there are.
    pub failure: Failure,
    /// When it failed, by the wall clock.
    pub at: Timestamp,
    /// Whether the run has ended because branches wrote one place concurrently: a person writes over it with
    /// [`RunHandle::resume_with`](crate::RunHandle::resume_with). Otherwise the turn is retried, or its letter is dropped.
    pub is_conflict: bool,
}
