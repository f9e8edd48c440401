//! Where the agents of a server are from and what they are for, which the server does not know by itself.

use std::collections::{BTreeMap, BTreeSet};

/// Where the agents of a server are from, and what they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentFiles {
    /// The agents that are in no file, because the program brings them.
    pub built_in: BTreeSet<String>,
    /// What agents are for, in words, by their names. Clients choose by it.
    pub descriptions: BTreeMap<String, String>,
    /// The files that are not used as they are now, each with the reason: it has defects, or what it changes was refused.
    pub refused: BTreeMap<String, String>,
    /// The files that agents are from, by the names of the agents.
    pub files: BTreeMap<String, AgentFile>,
}

/// The file of an agent, and what it says about the agent, in words for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentFile {
    /// The path of the file, as people know it.
    pub path: String,
    /// What it says: names and values, in the order in which they are shown.
    pub facts: Vec<(&'static str, String)>,
    /// The agents, roles and capabilities that it may give tasks to.
    pub team: Vec<String>,
}
