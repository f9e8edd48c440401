//! A section of a prompt.

use std::borrow::Cow;

use callboard::actors::Mode;

/// A part of a prompt: a template, the modes that have it, and its place among the other parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Names it; a section of the author's takes the place of one of ours that has its name.
    pub name: Cow<'static, str>,
    /// Sections stand in the order of their priorities, from 0; what the author wrote as the prompt itself stands at 10.
    pub priority: u16,
    /// Where it stands in modes in which it has another priority.
    pub priorities: Vec<(Mode, u16)>,
    /// The modes that have it; all of them if none are named.
    pub modes: Vec<Mode>,
    /// What it says: a template, strict about what it names.
    pub text: Cow<'static, str>,
}

impl Section {
    /// Returns its priority in a mode: that of [`Section::priorities`] if the mode is there, else
    /// [`Section::priority`].
    #[must_use]
    pub fn priority_in(&self, mode: Mode) -> u16 {
        self.priorities.iter().find(|(other, _)| *other == mode).map_or(self.priority, |(_, priority)| *priority)
    }
}
