//! Entries of the shared context (SEMANTICS 12).

use serde::{Deserialize, Serialize};

use super::{AgentName, Chain, RunId, Timestamp};

/// An entry of the shared context (SEMANTICS 12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextEntry {
    /// Where it lives.
    pub namespace: String,
    /// Its key there.
    pub key: String,
    /// Its text.
    pub value: String,
    /// Who wrote it; stamped by the runtime.
    pub agent: AgentName,
    /// When it stops existing; `None` means never.
    pub expires_at: Option<Timestamp>,
    /// When it came into being.
    pub created_at: Timestamp,
    /// When its value was last written.
    pub updated_at: Timestamp,
    /// Grows with every write anywhere in the store.
    pub revision: u64,
    /// The run and chain that wrote it, if a turn did.
    pub origin: Option<Origin>,
}

impl ContextEntry {
    /// Whether it may contain untrusted input: the turn that wrote it had read some.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.is_tainted)
    }
}

/// Where an entry comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The run.
    pub run: RunId,
    /// The delegation chain of the writing turn.
    pub chain: Chain,
    /// The turn had read untrusted input (SEMANTICS 13), so the entry may contain it.
    pub is_tainted: bool,
}
