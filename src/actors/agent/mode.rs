//! What an agent may do by itself.

use crate::messages::Effect;

/// What an agent may do by itself; an approval policy reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Anything that its tools allow.
    #[default]
    Build,
    /// Plans, and has no effects outside.
    Plan,
    /// Reads, and has no effects outside.
    Explore,
    /// Talks; anything that its tools allow.
    General,
}

impl Mode {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Plan => "plan",
            Self::Explore => "explore",
            Self::General => "general",
        }
    }

    /// Whether it only analyses: what it asks consent for is approved by itself.
    #[must_use]
    pub const fn is_analysis_only(self) -> bool {
        matches!(self, Self::Plan | Self::Explore)
    }
}

impl Effect {
    /// Whether an agent of this mode has tools with it (SEMANTICS 13): who plans carries nothing out, and who explores leaves
    /// everything as it is.
    #[must_use]
    pub const fn fits(self, mode: Mode) -> bool {
        match (mode, self) {
            (Mode::Build | Mode::General, _) => true,
            (Mode::Plan, Self::Reads | Self::Notes | Self::Sends) => true,
            (Mode::Explore, Self::Reads | Self::Sends) => true,
            (Mode::Plan, Self::Writes | Self::Executes) => false,
            (Mode::Explore, Self::Notes | Self::Writes | Self::Executes) => false,
        }
    }
}
