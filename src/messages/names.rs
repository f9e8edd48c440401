use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// The longest agent name in characters, so that `memory:<agent>` fits a context namespace (SEMANTICS 12).
pub const MAX_AGENT_NAME: usize = 57;

/// The name of an agent: 1 to 57 characters, no control characters, no white space at either end.
///
/// ```
/// use callboard::messages::AgentName;
/// assert!(AgentName::new("reviewer").is_ok());
/// assert!(AgentName::new(" reviewer").is_err());
/// assert!(AgentName::new(&"x".repeat(58)).is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct AgentName(Arc<str>);

impl AgentName {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// When the name breaks one of the rules above; the error says which.
    pub fn new(name: &str) -> Result<Self, NameError> {
        check_name("agent", name, MAX_AGENT_NAME)?;
        Ok(Self(name.into()))
    }

    /// The name as text.
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

/// A name that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} name {name:?} {problem}")]
pub struct NameError {
    /// What it should name.
    pub kind: &'static str,
    /// The name, cut for display.
    pub name: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Checks a name of at most `max` characters.
pub(crate) fn check_name(kind: &'static str, name: &str, max: usize) -> Result<(), NameError> {
    let length = name.chars().count();
    let problem = if name.is_empty() {
        "is empty".to_owned()
    } else if length > max {
        format!("has {length} characters; at most {max} are allowed")
    } else if name.chars().any(char::is_control) {
        "contains a control character".to_owned()
    } else if name.trim() != name {
        "begins or ends with white space".to_owned()
    } else {
        return Ok(());
    };
    Err(NameError { kind, name: name.chars().take(80).collect(), problem })
}

/// The candidate most like `name`, if one is like enough to be what was meant.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, candidate)| candidate.to_owned())
}

/// `; did you mean "x"?`, or nothing.
pub(crate) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}
