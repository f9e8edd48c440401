//! The rules of the shared context (SEMANTICS 12), without storage: what an operation makes of the entry that is there.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::messages::{AgentName, ContextEntry, Origin, RunId, Timestamp};

use super::entries::StoredEntry;

/// The longest namespace, in characters.
pub(crate) const MAX_NAMESPACE: usize = 64;
/// The longest key, in characters.
pub(crate) const MAX_KEY: usize = 128;
/// The longest value, in bytes.
pub(crate) const MAX_VALUE: usize = 64 << 10;
/// The default time to live of `set_with_extension`.
pub(crate) const EXTENSION: Duration = Duration::from_secs(90 * 24 * 3600);
/// The name by which agents address the namespace of their run.
pub(super) const OF_RUN: &str = "run";

/// An agent's access to the shared context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant<'a> {
    pub(super) agent: &'a AgentName,
    /// The granted namespaces; without a list, only that of its run.
    pub(super) namespaces: Option<&'a [Arc<str>]>,
    pub(super) run: Option<RunId>,
}

impl Grant<'_> {
    /// The namespace for a name, if the agent may use it. An agent's memory is its own, and a run's namespace is for the agents
    /// of that run, whatever else was granted.
    pub(super) fn resolve<'n>(&self, namespace: &'n str) -> Option<Cow<'n, str>> {
        if let Some(owner) = namespace.strip_prefix("memory:") {
            // A dynamic agent ends with its run; its memory would pass to another agent of the same name.
            return (owner == self.agent.as_str() && self.agent.maker().is_none()).then_some(Cow::Borrowed(namespace));
        }
        let is_granted = |name: &str| match self.namespaces {
            Some(granted) => granted.iter().any(|granted| **granted == *name),
            None => name == OF_RUN,
        };
        if namespace == OF_RUN || namespace.starts_with("run:") {
            let own = self.run.filter(|_| is_granted(OF_RUN)).map(RunId::namespace)?;
            return (namespace == OF_RUN || namespace == own).then_some(Cow::Owned(own));
        }
        is_granted(namespace).then_some(Cow::Borrowed(namespace))
    }
}

/// The namespaces of a dynamic agent: those of its host (without a list: its run's) that its makers grant (without a list: all of
/// them).
pub(in crate::actors) fn within_host(
    host: Option<Arc<[Arc<str>]>>,
    makers: Option<&[Arc<str>]>,
) -> Option<Arc<[Arc<str>]>> {
    let Some(makers) = makers else { return host };
    let is_of_host = |name: &str| match &host {
        Some(host) => host.iter().any(|granted| **granted == *name),
        None => name == OF_RUN,
    };
    Some(makers.iter().filter(|name| is_of_host(name)).cloned().collect())
}

/// The mode of a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// Value, agent and expiry together; no time to live means for ever.
    Set(Option<Duration>),
    /// The expiry moves later, never earlier, and an entry without one stays without.
    Extend(Duration),
    /// As `Set`, if the live entry has this revision (`None`: if there is none).
    Compare(Option<u64>, Option<Duration>),
}

/// The value, the writer and the time of a write.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    pub(super) value: String,
    pub(super) agent: AgentName,
    pub(super) origin: Option<Origin>,
    pub(super) now: Timestamp,
}

/// The part of an existing entry that a write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Existing {
    pub(super) revision: u64,
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
}

impl Existing {
    pub(super) fn of(revision: u64, entry: &StoredEntry) -> Self {
        Self { revision, created_at: entry.created_at, expires_at: entry.expires_at }
    }
}

/// The live entry has this revision, which is not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed(pub(super) Option<u64>);

/// Whether an entry with this expiry exists.
pub(super) fn is_live(expires_at: Option<Timestamp>, now: Timestamp) -> bool {
    expires_at.is_none_or(|expires_at| now < expires_at)
}

/// The expiry of an entry that lives for `ttl`: rounded up, so that no entry is expired at once.
fn expiry(now: Timestamp, ttl: Duration) -> Timestamp {
    now + ttl.saturating_add(Duration::from_nanos(999_999))
}

/// The entry after a write; a live one keeps its time of creation.
pub(super) fn write(there: Option<Existing>, mode: Mode, writing: Writing) -> Result<StoredEntry, Changed> {
    let Writing { value, agent, origin, now } = writing;
    let live = there.filter(|entry| is_live(entry.expires_at, now));
    let expires_at = match mode {
        Mode::Set(ttl) => ttl.map(|ttl| expiry(now, ttl)),
        Mode::Compare(expected, ttl) => {
            let actual = live.map(|entry| entry.revision);
            if actual != expected {
                return Err(Changed(actual));
            }
            ttl.map(|ttl| expiry(now, ttl))
        }
        Mode::Extend(ttl) => match live.map(|entry| entry.expires_at) {
            Some(None) => None,
            Some(Some(before)) => Some(expiry(now, ttl).max(before)),
            None => Some(expiry(now, ttl)),
        },
    };
    let created_at = live.map_or(now, |entry| entry.created_at);
    Ok(StoredEntry { value, agent, expires_at, created_at, updated_at: now, origin })
}

/// Moves the expiry later and leaves everything else, `updated_at` included. `None` when there is nothing to change.
pub(super) fn touch(there: &StoredEntry, ttl: Duration, now: Timestamp) -> Option<StoredEntry> {
    let before = there.expires_at?;
    let later = expiry(now, ttl);
    (later > before).then(|| StoredEntry { expires_at: Some(later), ..there.clone() })
}

/// What a write sets, and [`touch`] leaves as it is.
pub(super) fn written(entry: &ContextEntry) -> impl PartialEq + '_ {
    (&entry.value, &entry.agent, &entry.origin, entry.created_at, entry.updated_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    fn write_at(now: u64, there: Option<&StoredEntry>, mode: Mode) -> Result<StoredEntry, Changed> {
        let writing =
            Writing { value: "x".into(), agent: AgentName::new("writer").unwrap(), origin: None, now: at(now) };
        write(there.map(|entry| Existing::of(7, entry)), mode, writing)
    }

    fn set(now: u64, there: Option<&StoredEntry>, ttl: Option<Duration>) -> StoredEntry {
        write_at(now, there, Mode::Set(ttl)).unwrap()
    }

    const TEN: Duration = Duration::from_secs(10);

    #[test]
    fn without_a_list_an_agent_has_its_own_memory_and_the_namespace_of_its_run() {
        let (agent, other) = (AgentName::new("lead").unwrap(), RunId(uuid::Uuid::from_u128(8)).namespace());
        let run = RunId(uuid::Uuid::from_u128(7));
        let own = run.namespace();
        let lists: [Option<Vec<Arc<str>>>; 4] = [
            None,
            Some(vec![]),
            Some(vec!["notes".into(), other.as_str().into()]),
            Some(vec!["notes".into(), "run".into()]),
        ];
        for (list, has_run, has_notes) in
            lists.iter().zip([true, false, false, true]).zip([false, false, true, true]).map(|((a, b), c)| (a, b, c))
        {
            let grant = Grant { agent: &agent, namespaces: list.as_deref(), run: Some(run) };
            assert_eq!(grant.resolve("memory:lead").as_deref(), Some("memory:lead"), "{list:?}");
            for name in ["run", &own] {
                assert_eq!(grant.resolve(name).as_deref(), has_run.then_some(&*own), "{list:?}");
            }
            assert_eq!(grant.resolve("notes").is_some(), has_notes, "{list:?}");
            for name in ["memory:other", "memory:", "run:", "Run", "other", "", &other] {
                assert_eq!(grant.resolve(name), None, "{list:?} {name:?}");
            }
            assert_eq!(Grant { run: None, ..grant }.resolve("run"), None, "outside a run there is none");
        }
    }

    #[test]
    fn a_dynamic_agent_has_no_namespace_that_its_host_lacks() {
        let list = |names: &[&str]| -> Arc<[Arc<str>]> { names.iter().map(|name| Arc::from(*name)).collect() };
        assert_eq!(within_host(None, None), None);
        assert_eq!(within_host(None, Some(&list(&["run", "notes"]))), Some(list(&["run"])));
        assert_eq!(within_host(Some(list(&["notes"])), None), Some(list(&["notes"])));
        assert_eq!(within_host(Some(list(&["notes"])), Some(&list(&["run", "notes", "x"]))), Some(list(&["notes"])));
    }

    #[test]
    fn set_replaces_value_and_expiry_and_keeps_the_birthday_of_a_live_entry() {
        let first = set(1, None, Some(TEN));
        assert_eq!((first.created_at, first.expires_at), (at(1), Some(at(11))));
        let second = set(5, Some(&first), None);
        assert_eq!((second.created_at, second.updated_at, second.expires_at), (at(1), at(5), None));
        let reborn = set(11, Some(&first), None);
        assert_eq!(reborn.created_at, at(11), "an expired entry is absent");
    }

    #[test]
    fn only_the_expected_revision_of_a_live_entry_is_replaced() {
        let first = set(1, None, Some(TEN));
        let compare = |now, there, expected| write_at(now, there, Mode::Compare(expected, None)).map(|_| ());
        assert_eq!(compare(5, Some(&first), Some(7)), Ok(()));
        assert_eq!(compare(5, Some(&first), Some(6)), Err(Changed(Some(7))));
        assert_eq!(compare(5, Some(&first), None), Err(Changed(Some(7))));
        assert_eq!(compare(5, None, Some(7)), Err(Changed(None)));
        assert_eq!(compare(11, Some(&first), Some(7)), Err(Changed(None)), "an expired entry is absent");
        assert_eq!(compare(11, Some(&first), None), Ok(()));
    }

    #[test]
    fn an_extension_never_shortens_and_never_adds_an_expiry() {
        let extended = |now, there| write_at(now, there, Mode::Extend(TEN)).unwrap().expires_at;
        let (long, lasting) = (set(0, None, Some(TEN * 10)), set(0, None, None));
        assert_eq!(extended(1, Some(&long)), Some(at(100)));
        assert_eq!(extended(95, Some(&long)), Some(at(105)));
        assert_eq!(extended(1, Some(&lasting)), None);
        assert_eq!(extended(1, None), Some(at(11)));
        assert_eq!(extended(100, Some(&long)), Some(at(110)), "expired is absent");
    }

    #[test]
    fn touch_moves_the_expiry_only() {
        let entry = set(0, None, Some(TEN));
        let touched = touch(&entry, TEN, at(5)).unwrap();
        assert_eq!(touched, StoredEntry { expires_at: Some(at(15)), ..entry.clone() });
        assert_eq!(touch(&entry, Duration::from_secs(1), at(5)), None);
        assert_eq!(touch(&set(0, None, None), TEN, at(5)), None);
    }
}
