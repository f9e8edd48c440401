//! Where the agents of a server are from, which the server does not know by itself.

use std::collections::BTreeSet;

/// Where the agents of a server are from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentFiles {
    /// The agents that are in no file, because the program brings them.
    pub built_in: BTreeSet<String>,
    /// The files that are not used as they are now: they have defects, or what they change was refused.
    pub refused: Vec<String>,
}
