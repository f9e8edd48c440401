//! The context store: shared, namespaced memory that outlives runs (SEMANTICS 12).
//!
//! Writers are ordered by the storage's revisions: an operation reads, decides with the pure rules, and writes only if
//! nobody else has written meanwhile. So handles read and write without passing the actor; the actor sweeps.

mod rules;
mod sweeper;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::ready;
use futures::stream::BoxStream;
use serde::de::DeserializeOwned;

use crate::env::Env;
use crate::messages::names::{check_key, check_name};
use crate::messages::{AgentName, ContextEntry, Durability, NameError, Origin, Timestamp};
use crate::storage::{Change, Entry, Expected, Key, KeyPrefix, Put, Storage, StorageError, codec};

pub use rules::{EXTENSION, MAX_KEY, MAX_NAMESPACE, MAX_VALUE};
pub(crate) use sweeper::Sweeper;

use rules::{StoredEntry, Writing};

/// Why an operation on the context failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A namespace or key that breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A value over the limit; nothing was written.
    #[error("the value of {namespace}/{key} has {size} bytes; at most {MAX_VALUE} are allowed")]
    TooLarge {
        /// Where.
        namespace: String,
        /// Where in it.
        key: String,
        /// The size in bytes.
        size: usize,
    },
    /// The agent was not granted the namespace.
    #[error("agent {agent} has no grant for namespace {namespace:?}")]
    NotGranted {
        /// Who asked.
        agent: AgentName,
        /// For what.
        namespace: String,
    },
    /// The entry was written by somebody else meanwhile.
    #[error("{namespace}/{key} is at revision {actual:?}")]
    Changed {
        /// Where.
        namespace: String,
        /// Where in it.
        key: String,
        /// The current revision; `None` when there is no entry.
        actual: Option<u64>,
    },
    /// The value is not JSON of the expected shape.
    #[error("{namespace}/{key} does not hold the expected JSON: {detail}")]
    BadJson {
        /// Where.
        namespace: String,
        /// Where in it.
        key: String,
        /// What does not fit.
        detail: String,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

const ROOT: &str = "context";
const PAGE: usize = 256;

/// The shared context as its owner sees it: all namespaces, writing in the name of any agent. A cheap clone.
#[derive(Clone, Debug)]
pub struct ContextStore {
    storage: Arc<dyn Storage>,
    env: Env,
    default_ttls: Arc<BTreeMap<String, Duration>>,
    durability: Durability,
}

/// A change that [`ContextStore::watch`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextChange {
    /// An entry was written.
    Set(Box<ContextEntry>),
    /// An entry was deleted.
    Deleted {
        /// Its key.
        key: String,
    },
    /// The watcher fell behind and lost this many changes.
    Missed(u64),
}

impl ContextStore {
    /// The namespaces whose entries expire when nobody says otherwise, with their times to live.
    #[must_use]
    pub fn usual_ttls() -> BTreeMap<String, Duration> {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        [("performance", DAY), ("security", DAY * 7), ("pm_learnings", DAY * 30)]
            .map(|(namespace, ttl)| (namespace.to_owned(), ttl))
            .into()
    }

    /// A context in this store.
    #[must_use]
    pub fn new(
        storage: Arc<dyn Storage>,
        env: Env,
        durability: Durability,
        default_ttls: BTreeMap<String, Duration>,
    ) -> Self {
        Self { storage, env, default_ttls: Arc::new(default_ttls), durability }
    }

    /// The same context, with writes acknowledged at this durability.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Writes an entry, replacing value, agent and expiry together. Without a time to live the entry stays, unless its
    /// namespace has a default.
    ///
    /// # Errors
    /// Input over its limits, or a failing store.
    pub async fn set(
        &self,
        namespace: &str,
        key: &str,
        value: &str,
        agent: &AgentName,
        ttl: Option<Duration>,
    ) -> Result<ContextEntry, ContextError> {
        self.write(namespace, key, value, agent, None, Mode::Set(ttl)).await
    }

    /// Writes an entry and moves its expiry later: never earlier, and an entry that does not expire stays so.
    ///
    /// # Errors
    /// As [`ContextStore::set`].
    pub async fn set_with_extension(
        &self,
        namespace: &str,
        key: &str,
        value: &str,
        agent: &AgentName,
        ttl: Duration,
    ) -> Result<ContextEntry, ContextError> {
        self.write(namespace, key, value, agent, None, Mode::Extend(ttl)).await
    }

    /// Writes an entry only if its revision is still the given one (`None`: only if there is none).
    ///
    /// # Errors
    /// [`ContextError::Changed`] with the current revision, and as [`ContextStore::set`].
    pub async fn compare_and_set(
        &self,
        namespace: &str,
        key: &str,
        expected: Option<u64>,
        value: &str,
        agent: &AgentName,
        ttl: Option<Duration>,
    ) -> Result<ContextEntry, ContextError> {
        self.write(namespace, key, value, agent, None, Mode::Compare(expected, ttl)).await
    }

    /// The entry, unless it has expired. Sees every acknowledged write.
    ///
    /// # Errors
    /// A bad name, or a failing store.
    pub async fn get(&self, namespace: &str, key: &str) -> Result<Option<ContextEntry>, ContextError> {
        let name = entry_key(namespace, key)?;
        let now = self.now();
        Ok(self
            .read(&name)
            .await?
            .filter(|(_, entry)| entry.is_live(now))
            .map(|(revision, entry)| shown(namespace.to_owned(), key.to_owned(), revision, entry)))
    }

    /// The entry's value as JSON.
    ///
    /// # Errors
    /// [`ContextError::BadJson`], and as [`ContextStore::get`].
    pub async fn get_structured<T: DeserializeOwned>(
        &self,
        namespace: &str,
        key: &str,
    ) -> Result<Option<T>, ContextError> {
        let Some(entry) = self.get(namespace, key).await? else { return Ok(None) };
        serde_json::from_str(&entry.value).map(Some).map_err(|error| ContextError::BadJson {
            namespace: namespace.to_owned(),
            key: key.to_owned(),
            detail: error.to_string(),
        })
    }

    /// The newest entries of a namespace; ties go by revision.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn query(&self, namespace: &str, limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        self.search(&[namespace], limit).await
    }

    /// The newest entries of several namespaces, merged.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn search(&self, namespaces: &[&str], limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        let mut entries = Vec::new();
        for namespace in namespaces {
            check_name("namespace", namespace, MAX_NAMESPACE)?;
            entries.extend(self.scan(namespace, &Key::new([ROOT, namespace]).children(), usize::MAX).await?);
        }
        entries.sort_by_key(|entry| std::cmp::Reverse((entry.updated_at, entry.revision)));
        entries.dedup_by(|a, b| (&a.namespace, &a.key) == (&b.namespace, &b.key));
        entries.truncate(limit);
        Ok(entries)
    }

    /// The entries of a namespace whose keys begin with `prefix`, every character taken literally, in key order.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn query_by_prefix(
        &self,
        namespace: &str,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<ContextEntry>, ContextError> {
        check_name("namespace", namespace, MAX_NAMESPACE)?;
        self.scan(namespace, &Key::new([ROOT, namespace]).children_beginning_with(prefix), limit).await
    }

    /// Moves an entry's expiry later without rewriting it. `false` when there is no such entry.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn touch(&self, namespace: &str, key: &str, ttl: Duration) -> Result<bool, ContextError> {
        let name = entry_key(namespace, key)?;
        loop {
            let now = self.now();
            let there = self.read(&name).await?.filter(|(_, entry)| entry.is_live(now));
            let Some((revision, entry)) = there else { return Ok(false) };
            let Some(touched) = rules::touch(&entry, ttl, now) else { return Ok(true) };
            if self.put(&name, &touched, Expected::Revision(revision)).await?.is_some() {
                return Ok(true);
            }
        }
    }

    /// The entry, kept for (90 days) from now: what is used survives.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn recall(&self, namespace: &str, key: &str) -> Result<Option<ContextEntry>, ContextError> {
        self.touch(namespace, key, EXTENSION).await?;
        self.get(namespace, key).await
    }

    /// Deletes an entry. `false` when there is no such entry.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn delete(&self, namespace: &str, key: &str) -> Result<bool, ContextError> {
        let name = entry_key(namespace, key)?;
        loop {
            let Some((revision, entry)) = self.read(&name).await? else { return Ok(false) };
            match self.storage.delete_if_revision(&name, revision, self.durability).await {
                Ok(()) => return Ok(entry.is_live(self.now())),
                Err(StorageError::WrongRevision { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Changes to a namespace from now on.
    ///
    /// # Errors
    /// A bad name.
    pub fn watch(&self, namespace: &str) -> Result<BoxStream<'static, ContextChange>, ContextError> {
        check_name("namespace", namespace, MAX_NAMESPACE)?;
        let changes = self.storage.watch(&Key::new([ROOT, namespace]).children());
        let namespace = namespace.to_owned();
        let shown = move |name: Key, entry: Entry| {
            let stored = decode_stored(&name, &entry).ok()?;
            Some(ContextChange::Set(Box::new(shown(namespace.clone(), key_of(&name), entry.revision, stored))))
        };
        let changed = move |change| match change {
            Change::Put(name, entry) => shown(name, entry),
            Change::Deleted(name) => Some(ContextChange::Deleted { key: key_of(&name) }),
            Change::Missed(count) => Some(ContextChange::Missed(count)),
        };
        Ok(changes.filter_map(move |change| ready(changed(change))).boxed())
    }

    /// Deletes what has expired; an entry that was written again meanwhile stays. Returns how many are gone.
    ///
    /// # Errors
    /// A failing store.
    pub async fn sweep(&self) -> Result<usize, ContextError> {
        let prefix = Key::new([ROOT]).children();
        let (mut swept, mut after) = (0, None);
        loop {
            let page = self.storage.scan(&prefix, after.as_ref(), PAGE).await?;
            let now = self.now();
            for (key, entry) in &page {
                let has_expired = codec::decode::<StoredEntry>(&entry.value).is_ok_and(|entry| !entry.is_live(now));
                if has_expired && self.storage.delete_if_revision(key, entry.revision, self.durability).await.is_ok() {
                    swept += 1;
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
                _ => return Ok(swept),
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.env.now().wall
    }

    async fn write(
        &self,
        namespace: &str,
        key: &str,
        value: &str,
        agent: &AgentName,
        origin: Option<Origin>,
        mode: Mode,
    ) -> Result<ContextEntry, ContextError> {
        let name = entry_key(namespace, key)?;
        if value.len() > MAX_VALUE {
            let (namespace, key) = (namespace.to_owned(), key.to_owned());
            return Err(ContextError::TooLarge { namespace, key, size: value.len() });
        }
        let default_ttl = self.default_ttls.get(namespace).copied();
        loop {
            let there = self.read(&name).await?;
            let now = self.now();
            let writing = Writing { value: value.to_owned(), agent: agent.clone(), origin: origin.clone(), now };
            let live = there.as_ref().filter(|(_, entry)| entry.is_live(now));
            let entry = match mode {
                Mode::Compare(expected, _) if live.map(|(revision, _)| *revision) != expected => {
                    return Err(ContextError::Changed {
                        namespace: namespace.to_owned(),
                        key: key.to_owned(),
                        actual: live.map(|(revision, _)| *revision),
                    });
                }
                Mode::Set(ttl) | Mode::Compare(_, ttl) => {
                    rules::set(there.as_ref().map(|(_, entry)| entry), writing, ttl.or(default_ttl))
                }
                Mode::Extend(ttl) => rules::set_with_extension(there.as_ref().map(|(_, entry)| entry), writing, ttl),
            };
            let expected = there.map_or(Expected::Absent, |(revision, _)| Expected::Revision(revision));
            if let Some(revision) = self.put(&name, &entry, expected).await? {
                return Ok(shown(namespace.to_owned(), key.to_owned(), revision, entry));
            }
        }
    }

    async fn read(&self, name: &Key) -> Result<Option<(u64, StoredEntry)>, ContextError> {
        let Some(entry) = self.storage.get(name).await? else { return Ok(None) };
        Ok(Some((entry.revision, decode_stored(name, &entry)?)))
    }

    /// The new revision, or `None` if somebody else was first.
    async fn put(&self, name: &Key, entry: &StoredEntry, expected: Expected) -> Result<Option<u64>, ContextError> {
        let value = codec::encode_shared(entry);
        let put = Put { key: name.clone(), value, expected, ttl_secs: None, durability: self.durability };
        match self.storage.put_if_revision(put).await {
            Ok(revision) => Ok(Some(revision)),
            Err(StorageError::WrongRevision { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn scan(&self, namespace: &str, prefix: &KeyPrefix, limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        let (mut entries, mut after) = (Vec::new(), None);
        while entries.len() < limit {
            let wanted = PAGE.min(limit - entries.len());
            let page = self.storage.scan(prefix, after.as_ref(), wanted).await?;
            let now = self.now();
            entries.reserve(page.len());
            for (name, entry) in &page {
                let stored = decode_stored(name, entry)?;
                if stored.is_live(now) {
                    entries.push(shown(namespace.to_owned(), key_of(name), entry.revision, stored));
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == wanted => after = Some(key.clone()),
                _ => break,
            }
        }
        Ok(entries)
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Set(Option<Duration>),
    Extend(Duration),
    Compare(Option<u64>, Option<Duration>),
}

fn entry_key(namespace: &str, key: &str) -> Result<Key, ContextError> {
    check_name("namespace", namespace, MAX_NAMESPACE)?;
    check_key(key, MAX_KEY)?;
    Ok(Key::new([ROOT, namespace, key]))
}

fn decode_stored(name: &Key, entry: &Entry) -> Result<StoredEntry, StorageError> {
    codec::decode(&entry.value).map_err(|error| StorageError::Corrupt { key: name.clone(), detail: error.to_string() })
}

/// The entry's key in its namespace.
fn key_of(name: &Key) -> String {
    name.each_segment().nth(2).unwrap_or_default().into_owned()
}

fn shown(namespace: String, key: String, revision: u64, entry: StoredEntry) -> ContextEntry {
    let StoredEntry { value, agent, expires_at, created_at, updated_at, origin } = entry;
    ContextEntry { namespace, key, value, agent, expires_at, created_at, updated_at, revision, origin }
}

/// The shared context as one agent sees it: the namespaces that it was granted, and its own memory. What it writes bears
/// its name and the turn's origin.
#[derive(Clone, Debug)]
pub struct ContextAccess {
    store: ContextStore,
    agent: AgentName,
    namespaces: Option<Arc<[Arc<str>]>>,
    origin: Option<Origin>,
}

impl ContextAccess {
    pub(crate) fn new(
        store: ContextStore,
        agent: AgentName,
        namespaces: Option<Arc<[Arc<str>]>>,
        origin: Option<Origin>,
    ) -> Self {
        Self { store, agent, namespaces, origin }
    }

    /// The namespace of this agent's own memory.
    #[must_use]
    pub fn memory(&self) -> String {
        format!("memory:{}", self.agent)
    }

    /// As [`ContextStore::set`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn set(
        &self,
        namespace: &str,
        key: &str,
        value: &str,
        ttl: Option<Duration>,
    ) -> Result<ContextEntry, ContextError> {
        self.write(namespace, key, value, Mode::Set(ttl)).await
    }

    /// As [`ContextStore::set_with_extension`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn set_with_extension(
        &self,
        namespace: &str,
        key: &str,
        value: &str,
    ) -> Result<ContextEntry, ContextError> {
        self.write(namespace, key, value, Mode::Extend(EXTENSION)).await
    }

    /// As [`ContextStore::compare_and_set`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn compare_and_set(
        &self,
        namespace: &str,
        key: &str,
        expected: Option<u64>,
        value: &str,
        ttl: Option<Duration>,
    ) -> Result<ContextEntry, ContextError> {
        self.write(namespace, key, value, Mode::Compare(expected, ttl)).await
    }

    /// As [`ContextStore::get`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn get(&self, namespace: &str, key: &str) -> Result<Option<ContextEntry>, ContextError> {
        self.granted(namespace)?.get(namespace, key).await
    }

    /// As [`ContextStore::get_structured`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn get_structured<T: DeserializeOwned>(
        &self,
        namespace: &str,
        key: &str,
    ) -> Result<Option<T>, ContextError> {
        self.granted(namespace)?.get_structured(namespace, key).await
    }

    /// As [`ContextStore::query`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn query(&self, namespace: &str, limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        self.granted(namespace)?.query(namespace, limit).await
    }

    /// As [`ContextStore::query_by_prefix`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn query_by_prefix(
        &self,
        namespace: &str,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<ContextEntry>, ContextError> {
        self.granted(namespace)?.query_by_prefix(namespace, prefix, limit).await
    }

    /// As [`ContextStore::search`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn search(&self, namespaces: &[&str], limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        for namespace in namespaces {
            self.granted(namespace)?;
        }
        self.store.search(namespaces, limit).await
    }

    /// As [`ContextStore::recall`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn recall(&self, namespace: &str, key: &str) -> Result<Option<ContextEntry>, ContextError> {
        self.granted(namespace)?.recall(namespace, key).await
    }

    /// As [`ContextStore::touch`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn touch(&self, namespace: &str, key: &str, ttl: Duration) -> Result<bool, ContextError> {
        self.granted(namespace)?.touch(namespace, key, ttl).await
    }

    /// As [`ContextStore::delete`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn delete(&self, namespace: &str, key: &str) -> Result<bool, ContextError> {
        self.granted(namespace)?.delete(namespace, key).await
    }

    async fn write(&self, namespace: &str, key: &str, value: &str, mode: Mode) -> Result<ContextEntry, ContextError> {
        self.granted(namespace)?.write(namespace, key, value, &self.agent, self.origin.clone(), mode).await
    }

    /// Memory belongs to its agent, whatever else was granted.
    fn granted(&self, namespace: &str) -> Result<&ContextStore, ContextError> {
        let is_granted = match namespace.strip_prefix("memory:") {
            Some(owner) => owner == self.agent.as_str(),
            None => self.namespaces.as_ref().is_none_or(|granted| granted.iter().any(|name| **name == *namespace)),
        };
        if is_granted {
            return Ok(&self.store);
        }
        Err(ContextError::NotGranted { agent: self.agent.clone(), namespace: namespace.to_owned() })
    }
}
