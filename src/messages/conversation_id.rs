//! The names of conversations.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use callboard_text::{NameError, check_name};
use serde::{Deserialize, Serialize, Serializer};

/// Names a conversation, which several runs of an agent or a workflow share (SEMANTICS 15): 1 to 128 characters under the
/// rule of agent names. The submitter chooses it.
///
/// ```
/// use callboard::messages::ConversationId;
/// assert_eq!(ConversationId::new("support:ann")?.as_str(), "support:ann");
/// assert_eq!(ConversationId::new("").unwrap_err().to_string(), r#"conversation name "" is empty"#);
/// # Ok::<(), callboard::messages::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct ConversationId(Arc<str>);

impl ConversationId {
    /// The longest id, in characters.
    pub const MAX: usize = 128;

    /// Checks and takes an id.
    ///
    /// # Errors
    /// When it breaks the rule; the error states how.
    pub fn new(id: &str) -> Result<Self, NameError> {
        check_name("conversation", id, Self::MAX)?;
        Ok(Self(id.into()))
    }

    /// Returns the id as it was given to [`ConversationId::new`].
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ConversationId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for ConversationId {
    type Err = NameError;

    fn from_str(id: &str) -> Result<Self, NameError> {
        Self::new(id)
    }
}

impl TryFrom<String> for ConversationId {
    type Error = NameError;

    fn try_from(id: String) -> Result<Self, NameError> {
        Self::new(&id)
    }
}

impl Serialize for ConversationId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}
