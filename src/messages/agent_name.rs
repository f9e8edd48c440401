//! The names of agents.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use callboard_text::{MADE_BY, NameError, check_name, check_own_name};
use serde::{Deserialize, Serialize, Serializer};

/// The longest agent name in characters, so that `memory:<agent>` fits a context namespace (SEMANTICS 12).
pub(crate) const MAX_AGENT_NAME: usize = 57;

/// [`MADE_BY`] as it is in a name. Names are short and are searched for it several times a turn: byte by byte is a third of the
/// instructions of a search for a character.
const SEPARATOR: u8 = MADE_BY as u8;

/// The name of an agent: 1 to 57 characters that leave no doubt about which agent it is. There is nothing in it that is not
/// shown, such as control, direction and zero-width characters, and no white space but plain spaces inside; no combining
/// mark, no full-width or mathematical form of a plain character, no word that mixes Latin, Greek and Cyrillic letters, and
/// no path step `.` or `..`.
///
/// Roles, capabilities, projects, channels and context namespaces have the same rule.
///
/// ```
/// use callboard::messages::AgentName;
/// assert!(AgentName::new("reviewer").is_ok());
/// assert!(AgentName::new(" reviewer").is_err());
/// assert!(AgentName::new(&"x".repeat(58)).is_err());
/// assert_eq!(
///     AgentName::new("revi\u{435}wer").unwrap_err().to_string(),
///     "agent name \"revi\u{435}wer\" has `\\u{435}` as character 5: the word began in another script, with which it could \
///      be confused",
/// );
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct AgentName(Arc<str>);

impl AgentName {
    /// The longest name, in characters: `memory:<agent>` fits a context namespace (SEMANTICS 12).
    pub const MAX: usize = MAX_AGENT_NAME;

    /// Checks and takes a name.
    ///
    /// # Errors
    /// When the name breaks one of the rules above; the error says which.
    pub fn new(name: &str) -> Result<Self, NameError> {
        check_name("agent", name, MAX_AGENT_NAME)?;
        Ok(Self(name.into()))
    }

    /// The name of an agent that this one makes while a board runs: `lead~helper`.
    ///
    /// # Errors
    /// The name breaks a rule, or is too long after that of the agent.
    pub(crate) fn of_made(&self, name: &str) -> Result<Self, NameError> {
        check_own_name("agent", name, MAX_AGENT_NAME)?;
        Self::new(&format!("{self}{MADE_BY}{name}"))
    }

    /// The agent that made this one, if one did.
    #[must_use]
    pub fn maker(&self) -> Option<&str> {
        Self::maker_of(&self.0)
    }

    pub(crate) fn maker_of(name: &str) -> Option<&str> {
        name.bytes().rposition(|byte| byte == SEPARATOR).map(|end| &name[..end])
    }

    /// The agents that created it, its maker first; none if no agent created it.
    pub(crate) fn makers(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(self.maker(), |maker| Self::maker_of(maker))
    }

    /// The agent that it works in the place of: the one that others came from which made it, or itself.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.bytes().position(|byte| byte == SEPARATOR).map_or(&*self.0, |end| &self.0[..end])
    }

    /// [`AgentName::host`] as a name.
    pub(crate) fn host_name(&self) -> Self {
        if self.maker().is_none() { self.clone() } else { Self(self.host().into()) }
    }

    /// The same name with a memory of its own. Handles of one memory count their references on all cores, and a turn has many.
    pub(crate) fn apart(&self) -> Self {
        Self(Arc::from(&*self.0))
    }

    /// Returns the whole name; for a dynamic agent it begins with the name of its maker: `lead~helper`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for AgentName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AgentName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        Self::new(&name)
    }
}

impl Serialize for AgentName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl From<&AgentName> for Arc<str> {
    fn from(name: &AgentName) -> Self {
        Self::clone(&name.0)
    }
}
