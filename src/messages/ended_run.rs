//! A run that has ended, as lists have it.

use std::sync::Arc;

use super::{AgentName, RunId, Timestamp};

/// A run that has ended, as [`Callboard::ended_runs`](crate::Callboard::ended_runs) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// The run that has ended.
    pub run: RunId,
    /// The time of its submission, by which it is listed.
    pub submitted_at: Timestamp,
    /// The agent that it was submitted to.
    pub agent: AgentName,
    /// How it ended: the [name](super::Outcome::name) of its outcome.
    pub outcome: Arc<str>,
}
