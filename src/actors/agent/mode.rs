//! What an agent may do without consent.

use crate::messages::Effect;

/// What an agent may do by itself; an approval policy reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Permits tools of every [`Effect`]; the default of an [`AgentSpec`](super::AgentSpec).
    #[default]
    Build,
    /// Permits tools whose effect is [`Effect::Reads`], [`Effect::Notes`] or [`Effect::Sends`]: the agent plans, and
    /// carries nothing out.
    Plan,
    /// Permits tools whose effect is [`Effect::Reads`] or [`Effect::Sends`]: the agent reads and reports.
    Explore,
    /// Permits the same as [`Mode::Build`]. By default, a language model's agent is also prompted to answer what is
    /// asked.
    General,
}

impl Mode {
    /// Returns the mode's name as agents' files have it: `build`, `plan`, `explore` or `general`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Plan => "plan",
            Self::Explore => "explore",
            Self::General => "general",
        }
    }

    /// The mode of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Build, Self::Plan, Self::Explore, Self::General].into_iter().find(|mode| mode.name() == name)
    }

    /// Whether it only analyses: what it asks consent for is approved by itself.
    #[must_use]
    pub const fn is_analysis_only(self) -> bool {
        matches!(self, Self::Plan | Self::Explore)
    }
}

impl Effect {
    /// Whether an agent of this mode has tools with it (SEMANTICS 13): who plans carries nothing out, and who explores changes
    /// nothing; both may send messages.
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
