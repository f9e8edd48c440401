//! The uses of tools about which people are asked (SEMANTICS 13).

use std::fmt;

use callboard::messages::{Consent, Effect};
use serde::{Deserialize, Serialize};

/// Where an agent comes from. It is never claimed, but follows from how the agent was made, and never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Made while the board runs, by another agent.
    Dynamic,
    /// Read from a file; also the tier of an [`AgentLoop`](crate::AgentLoop) that sets none.
    #[default]
    UserDefined,
    /// Compiled into the program that runs the board.
    BuiltIn,
}

impl Tier {
    /// Whether a use of a tool may go ahead, or people decide. `is_tainted` says that the run is tainted: it has read untrusted input.
    ///
    /// ```
    /// use callboard::messages::Consent;
    /// use callboard_agents::{Effect, Tier};
    /// assert_eq!(Tier::BuiltIn.consent(Effect::Executes, false), Consent::Auto);
    /// assert_eq!(Tier::BuiltIn.consent(Effect::Executes, true), Consent::Ask);
    /// assert_eq!(Tier::UserDefined.consent(Effect::Writes, false), Consent::Ask);
    /// assert_eq!(Tier::Dynamic.consent(Effect::Reads, true), Consent::Auto);
    /// ```
    #[must_use]
    pub const fn consent(self, effect: Effect, is_tainted: bool) -> Consent {
        let is_trusted = match self {
            Self::BuiltIn => !is_tainted,
            Self::UserDefined | Self::Dynamic => false,
        };
        if is_trusted || !effect.is_dangerous() { Consent::Auto } else { Consent::Ask }
    }

    /// Why people are asked where [`Tier::consent`] says so.
    pub(crate) const fn rule(self) -> &'static str {
        match self {
            Self::BuiltIn => {
                "the run has read untrusted input, so people are asked before it changes or discloses anything"
            }
            Self::UserDefined => "people are asked before an agent of a file changes or discloses anything",
            Self::Dynamic => {
                "people are asked each time before an agent that another has made changes or discloses anything"
            }
        }
    }
}

/// Writes its name, as it is stored.
impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dynamic => "dynamic",
            Self::UserDefined => "user_defined",
            Self::BuiltIn => "built_in",
        })
    }
}
