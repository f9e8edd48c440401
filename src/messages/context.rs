//! Entries of the shared context (SEMANTICS 12).

use serde::{Deserialize, Serialize};

use super::{AgentName, Chain, RunId, Timestamp};

/// An entry of the shared context (SEMANTICS 12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextEntry {
    /// The namespace of the entry, in at most 64 characters.
    pub namespace: String,
    /// The key, unique within the namespace, in at most 128 characters.
    pub key: String,
    /// The text of the entry, in at most 64 KiB.
    pub value: String,
    /// The agent that last wrote the value. For writes of a turn, the runtime sets it.
    pub agent: AgentName,
    /// When it stops existing; `None` means never.
    pub expires_at: Option<Timestamp>,
    /// When the entry was first written. Later writes keep this time; a write after the expiry starts a new one.
    pub created_at: Timestamp,
    /// When the value was last written. [`ContextStore::touch`](crate::actors::ContextStore::touch) leaves it as it is.
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

impl Origin {
    /// What comes from outside of any run, and is not trusted.
    pub(crate) fn outside() -> Self {
        Self { run: RunId(uuid::Uuid::nil()), chain: Chain::default(), is_tainted: true }
    }
}

/// The turn that wrote an entry: its run, its chain, and whether it was tainted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The run of the writing turn.
    pub run: RunId,
    /// The delegation chain of the writing turn.
    pub chain: Chain,
    /// The turn had read untrusted input (SEMANTICS 13), so the entry may contain it.
    pub is_tainted: bool,
}
