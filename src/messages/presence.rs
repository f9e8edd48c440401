use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentName, Timestamp};

/// The announcement of an agent when it starts (SEMANTICS 11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
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
    /// When it was made, by the wall clock.
    pub at: Timestamp,
}

/// A message of an agent to the router about its presence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Presence {
    /// An agent has started and takes work.
    Announced(Announcement),
    /// An agent has stopped, or failed too often.
    Withdrawn {
        /// Its name.
        agent: AgentName,
        /// Which life of it has ended.
        instance: u64,
        /// When it stopped, by the wall clock.
        at: Timestamp,
    },
}
