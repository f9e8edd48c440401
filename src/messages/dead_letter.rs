//! Turns that failed for good.

use serde::{Deserialize, Serialize};

use super::{AgentName, Failure, Json, RunId, Timestamp, TurnId};

/// A turn that failed for good, to be retried or dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The turn.
    pub turn: TurnId,
    /// Whose turn it was.
    pub agent: AgentName,
    /// What it worked on.
    pub input: Json,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it failed.
    pub failure: Failure,
    /// When it happened, by the wall clock.
    pub at: Timestamp,
    /// The run that took over, if it was retried.
    pub retried_as: Option<RunId>,
}
