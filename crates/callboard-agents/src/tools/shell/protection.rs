//! A part of the confinement of commands.

/// A part of the confinement of commands, and whether it holds on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// What it is about, as `signals to other processes`.
    pub name: &'static str,
    /// What it does where it holds, as `refused`.
    pub means: &'static str,
    /// Why it does not hold here, and what would have to be there; `None` if it holds.
    pub lacks: Option<String>,
}
