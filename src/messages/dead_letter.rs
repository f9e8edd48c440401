//! Turns that failed for good.

use serde::{Deserialize, Serialize};

use super::{AgentName, Failure, Json, RunId, Timestamp, TurnId};

/// A turn that failed for good, to be retried or dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The failed turn; [`DeadLettersHandle::retry`](crate::runtime::DeadLettersHandle::retry) and
    /// [`DeadLettersHandle::discard`](crate::runtime::DeadLettersHandle::discard) take its id.
    pub turn: TurnId,
    /// The agent that took the turn.
    pub agent: AgentName,
    /// The turn's input.
    pub input: Json,
    /// The number of the last attempt, from 1: how often the turn was tried.
    pub attempts: u32,
    /// The error of the last attempt.
    pub failure: Failure,
    /// When the turn failed for good, by the wall clock.
    pub at: Timestamp,
    /// The run that took over, if it was retried.
    pub retried_as: Option<RunId>,
}
