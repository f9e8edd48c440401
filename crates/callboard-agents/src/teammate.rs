//! Another agent that an agent can name.

/// Another agent, as a prompt may name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Teammate {
    /// Its name, or a role or capability that agents of the board announce.
    pub name: String,
    /// What it is for. Models see it next to the name when they choose whom to give a task or control.
    pub description: String,
}
