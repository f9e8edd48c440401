//! What agents announce of themselves.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentName, Timestamp};

/// What an agent announces of itself when it starts, and again when it stops (SEMANTICS 11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Its name.
    pub agent: AgentName,
    /// Its role.
    pub role: Option<Arc<str>>,
    /// What it can do.
    pub capabilities: Vec<Arc<str>>,
    /// What it works on.
    pub projects: Vec<Arc<str>>,
    /// Which life of the agent this is, from 1; it grows with each start.
    pub instance: u64,
    /// It has started and takes work; it has stopped, or failed too often, otherwise.
    pub is_available: bool,
    /// When it was announced, by the wall clock.
    pub at: Timestamp,
}
