//! The rules of the shared context (SEMANTICS 12), without storage: what an operation makes of the entry that is there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::messages::{AgentName, Origin, Timestamp};
use crate::storage::codec::Stored;

/// The longest namespace, in characters.
pub const MAX_NAMESPACE: usize = 64;
/// The longest key, in characters.
pub const MAX_KEY: usize = 128;
/// The longest value, in bytes.
pub const MAX_VALUE: usize = 64 << 10;
/// What `set_with_extension` keeps an entry for when nobody says otherwise.
pub const EXTENSION: Duration = Duration::from_secs(90 * 24 * 3600);

/// What is stored under a namespace and key.
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
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

/// Who writes what, and when.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    pub(super) value: String,
    pub(super) agent: AgentName,
    pub(super) origin: Option<Origin>,
    pub(super) now: Timestamp,
}

/// When an entry stops existing that lives for `ttl`: rounded up, so that no entry is born dead.
fn expiry(now: Timestamp, ttl: Duration) -> Timestamp {
    now + ttl.saturating_add(Duration::from_nanos(999_999))
}

/// Replaces value, agent and expiry together; a live entry keeps its birthday.
pub(super) fn set(there: Option<&StoredEntry>, writing: Writing, ttl: Option<Duration>) -> StoredEntry {
    let Writing { value, agent, origin, now } = writing;
    let created_at = there.filter(|entry| entry.is_live(now)).map_or(now, |entry| entry.created_at);
    StoredEntry { value, agent, expires_at: ttl.map(|ttl| expiry(now, ttl)), created_at, updated_at: now, origin }
}

/// Replaces value and agent; the expiry moves later, never earlier, and an entry without one stays without.
pub(super) fn set_with_extension(there: Option<&StoredEntry>, writing: Writing, ttl: Duration) -> StoredEntry {
    let now = writing.now;
    let kept = there.filter(|entry| entry.is_live(now)).map(|entry| entry.expires_at);
    let mut entry = set(there, writing, Some(ttl));
    entry.expires_at = match kept {
        Some(None) => None,
        Some(Some(before)) => entry.expires_at.max(Some(before)),
        None => entry.expires_at,
    };
    entry
}

/// Moves the expiry later and leaves everything else, `updated_at` included. `None` when there is nothing to change.
pub(super) fn touch(there: &StoredEntry, ttl: Duration, now: Timestamp) -> Option<StoredEntry> {
    let before = there.expires_at?;
    let later = expiry(now, ttl);
    (later > before).then(|| StoredEntry { expires_at: Some(later), ..there.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    fn writing(value: &str, now: u64) -> Writing {
        Writing { value: value.into(), agent: AgentName::new("writer").unwrap(), origin: None, now: at(now) }
    }

    const TEN: Duration = Duration::from_secs(10);

    #[test]
    fn the_bytes_of_an_entry_are_golden() {
        use crate::messages::{Chain, RunId};
        let [lead, coder] = ["lead", "coder"].map(|name| AgentName::new(name).unwrap());
        let chain = Chain::default().add_step(&lead, &coder, "fix");
        let origin = Some(Origin { run: RunId(uuid::Uuid::from_u128(7)), chain });
        let entry = StoredEntry { origin, ..set(None, writing("a", 1), Some(TEN)) };
        crate::testing::golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"), &entry);
    }

    #[test]
    fn set_replaces_value_and_expiry_and_keeps_the_birthday_of_a_live_entry() {
        let first = set(None, writing("a", 1), Some(TEN));
        assert_eq!((first.created_at, first.expires_at), (at(1), Some(at(11))));
        let second = set(Some(&first), writing("b", 5), None);
        assert_eq!((second.created_at, second.updated_at, second.expires_at), (at(1), at(5), None));
        let reborn = set(Some(&first), writing("c", 11), None);
        assert_eq!(reborn.created_at, at(11), "an expired entry is absent");
    }

    #[test]
    fn an_extension_never_shortens_and_never_adds_an_expiry() {
        let long = set(None, writing("a", 0), Some(TEN * 10));
        assert_eq!(set_with_extension(Some(&long), writing("b", 1), TEN).expires_at, Some(at(100)));
        assert_eq!(set_with_extension(Some(&long), writing("b", 95), TEN).expires_at, Some(at(105)));
        let lasting = set(None, writing("a", 0), None);
        assert_eq!(set_with_extension(Some(&lasting), writing("b", 1), TEN).expires_at, None);
        assert_eq!(set_with_extension(None, writing("b", 1), TEN).expires_at, Some(at(11)));
        assert_eq!(
            set_with_extension(Some(&long), writing("b", 100), TEN).expires_at,
            Some(at(110)),
            "expired is absent"
        );
    }

    #[test]
    fn touch_moves_the_expiry_only() {
        let entry = set(None, writing("a", 0), Some(TEN));
        let touched = touch(&entry, TEN, at(5)).unwrap();
        assert_eq!(touched, StoredEntry { expires_at: Some(at(15)), ..entry.clone() });
        assert_eq!(touch(&entry, Duration::from_secs(1), at(5)), None);
        assert_eq!(touch(&set(None, writing("a", 0), None), TEN, at(5)), None);
    }
}
