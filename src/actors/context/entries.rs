//! The keys and the stored form of entries.

use callboard_text::{check_key, check_name};
use serde::{Deserialize, Serialize};

use crate::messages::{AgentName, ContextEntry, NameError, Origin, Timestamp};
use crate::storage::codec::{self, Stored};
use crate::storage::{CONTEXT, Key, KeyPrefix, StorageError};

use super::rules::{MAX_KEY, MAX_NAMESPACE, is_live};

/// The stored value of a namespace and key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredEntry {
    pub(super) value: String,
    pub(super) agent: AgentName,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) origin: Option<Origin>,
}

impl Stored for StoredEntry {
    const SCHEMA: u16 = 2;
    const VERSION: u16 = 1;
    const NAME: &'static str = "context-entry";
}

impl StoredEntry {
    pub(super) fn decode(name: &Key, value: &[u8]) -> Result<Self, StorageError> {
        Self::decode_at(name.as_bytes(), value)
    }

    /// As [`StoredEntry::decode`], under the key of these encoded bytes.
    pub(super) fn decode_at(name: &[u8], value: &[u8]) -> Result<Self, StorageError> {
        codec::decode(value)
            .map_err(|error| StorageError::Corrupt { key: Key::unchecked(name), detail: error.to_string() })
    }

    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        is_live(self.expires_at, now)
    }

    pub(super) fn shown(self, namespace: &str, key: impl Into<String>, revision: u64) -> ContextEntry {
        let Self { value, agent, expires_at, created_at, updated_at, origin } = self;
        let (namespace, key) = (namespace.to_owned(), key.into());
        ContextEntry { namespace, key, value, agent, expires_at, created_at, updated_at, revision, origin }
    }
}

pub(super) fn entry(namespace: &str, key: &str) -> Result<Key, NameError> {
    check_name("namespace", namespace, MAX_NAMESPACE)?;
    check_key(key, MAX_KEY)?;
    Ok(Key::new([CONTEXT, namespace, key]))
}

/// What the names of a namespace's entries begin with.
pub(super) fn namespace_key(namespace: &str) -> Result<Key, NameError> {
    check_name("namespace", namespace, MAX_NAMESPACE)?;
    Ok(Key::new([CONTEXT, namespace]))
}

/// The entries of a namespace whose keys begin with `prefix`.
pub(super) fn in_namespace(namespace: &str, prefix: &str) -> Result<KeyPrefix, NameError> {
    Ok(namespace_key(namespace)?.children_beginning_with(prefix))
}

/// The entries of all namespaces.
pub(super) fn everywhere() -> KeyPrefix {
    Key::new([CONTEXT]).children()
}

/// A key after all entries of a namespace, but for keys that begin with very many of the last characters, and before those of the next
/// namespace.
pub(super) fn after_namespace(namespace: &str) -> Key {
    Key::new([CONTEXT, namespace, &"\u{10ffff}".repeat(64)])
}

/// The entry's namespace.
pub(super) fn namespace_of(name: &Key) -> String {
    name.segment(1).unwrap_or_default().into_owned()
}

/// The entry's key in its namespace.
pub(super) fn key_of(name: &Key) -> String {
    name.segment(2).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::messages::{Chain, RunId};

    #[test]
    fn the_bytes_of_an_entry_are_golden() {
        let [lead, coder] = ["lead", "coder"].map(|name| AgentName::new(name).unwrap());
        let chain = Chain::default().add_step(&lead, &coder, "fix");
        let at = Timestamp::from_millis(1000);
        let entry = StoredEntry {
            value: "a".into(),
            agent: AgentName::new("writer").unwrap(),
            expires_at: Some(at + Duration::from_secs(10)),
            created_at: at,
            updated_at: at,
            origin: Some(Origin { run: RunId(uuid::Uuid::from_u128(7)), chain, is_tainted: true }),
        };
        crate::testing::golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"), &entry);
    }
}
