//! What agents announce of themselves.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentName, Timestamp};

/// What an agent announces of itself when it starts, and again when it stops (SEMANTICS 11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// The name of the agent: of this one among those with its role. Tasks are addressed to it by this name.
    pub agent: AgentName,
    /// The role that tasks may be addressed to ([`AgentSpec::role`](crate::AgentSpec::role)); `None` if the agent has
    /// none.
    pub role: Option<Arc<str>>,
    /// Capabilities that tasks may be addressed to ([`AgentSpec::capability`](crate::AgentSpec::capability)).
    pub capabilities: Vec<Arc<str>>,
    /// Projects that the agent works on ([`AgentSpec::project`](crate::AgentSpec::project)). Tasks cannot be addressed
    /// to them.
    pub projects: Vec<Arc<str>>,
    /// Which life of the agent this is, from 1; it grows with each start.
    pub instance: u64,
    /// It has started and takes work; it has stopped, or failed too often, otherwise.
    pub is_available: bool,
    /// When it was announced, by the wall clock.
    pub at: Timestamp,
}
