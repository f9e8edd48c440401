//! The handle of a context, and how entries are written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use crate::env::Env;
use crate::messages::{AgentName, ContextEntry, Durability, Origin, Timestamp};
use crate::storage::recent::Recent;
use crate::storage::{Delete, EntryRef, Expected, Key, Put, Storage, StorageError, codec};

use super::entries::{self, StoredEntry};
use super::expiry_timer::ExpiryTimer;
use super::rules::{self, Changed, EXTENSION, Existing, MAX_VALUE, Mode, Writing};
use super::{ContextChange, ContextError, expiry_index, watch};

/// The most entries whose revisions a store remembers.
const REMEMBERED: usize = 16_384;

/// The shared context as its owner sees it: all namespaces, writing in the name of any agent. A cheap clone.
#[derive(Clone, Debug)]
pub struct ContextStore {
    pub(super) storage: Arc<dyn Storage>,
    pub(in crate::actors) env: Env,
    default_ttls: Arc<BTreeMap<String, Duration>>,
    pub(super) durability: Durability,
    /// Whether what is written through this handle may be untrusted input.
    is_untrusted: bool,
    /// The expiry index is known to be complete.
    pub(super) is_indexed: Arc<AtomicBool>,
    pub(super) expiry_timer: Arc<ExpiryTimer>,
    /// The entries written through this store, so that a write need not read first. The storage compares revisions, so an
    /// outdated entry here only costs a second attempt.
    written: Arc<Mutex<Recent<Key, Existing>>>,
}

impl ContextStore {
    /// The longest namespace, in characters.
    pub const MAX_NAMESPACE: usize = rules::MAX_NAMESPACE;
    /// The longest key, in characters.
    pub const MAX_KEY: usize = rules::MAX_KEY;
    /// The longest value, in bytes.
    pub const MAX_VALUE: usize = MAX_VALUE;
    /// How long entries are kept by default whose expiry is moved later: 90 days.
    pub const EXTENSION: Duration = EXTENSION;

    /// The namespaces whose entries expire by default, with their times to live.
    #[must_use]
    pub fn usual_ttls() -> BTreeMap<String, Duration> {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        [("performance", DAY), ("security", DAY * 7), ("pm_learnings", DAY * 30)]
            .map(|(namespace, ttl)| (namespace.to_owned(), ttl))
            .into()
    }

    /// Creates a context whose entries are kept in `storage`. Writes are acknowledged at `durability`. An entry that is
    /// written without a time to live gets the one that `default_ttls` has for its namespace (see
    /// [`ContextStore::usual_ttls`]).
    #[must_use]
    pub fn new(
        storage: Arc<dyn Storage>,
        env: Env,
        durability: Durability,
        default_ttls: BTreeMap<String, Duration>,
    ) -> Self {
        let written = Arc::new(Mutex::new(Recent::new(REMEMBERED)));
        let (is_indexed, expiry_timer, default_ttls) = (Arc::default(), Arc::default(), Arc::new(default_ttls));
        Self { storage, env, default_ttls, durability, is_untrusted: false, is_indexed, expiry_timer, written }
    }

    /// The same context, with writes acknowledged at this durability.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The same context, for writes whose values come from outside: they are untrusted input, as those of a tainted turn are
    /// (SEMANTICS 13), and their origin has the nil run.
    #[must_use]
    pub fn untrusted(mut self) -> Self {
        self.is_untrusted = true;
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

    /// Moves an entry's expiry later without rewriting it: to a time from now, which is [`ContextStore::EXTENSION`] (90 days) if none is given.
    /// `false` when there is no such entry.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn touch(
        &self,
        namespace: &str,
        key: &str,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<bool, ContextError> {
        let (name, ttl) = (entries::entry(namespace, key)?, ttl.into().unwrap_or(EXTENSION));
        loop {
            let now = self.now();
            let there = self.read(&name).await?.filter(|(_, entry)| entry.is_live(now));
            let Some((revision, entry)) = there else { return Ok(false) };
            let Some(touched) = rules::touch(&entry, ttl, now) else { return Ok(true) };
            if self.put(&name, &touched, Some(Existing::of(revision, &entry))).await?.is_some() {
                return Ok(true);
            }
        }
    }

    /// The entry, kept for (90 days) from now: what is used survives.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn recall(&self, namespace: &str, key: &str) -> Result<Option<ContextEntry>, ContextError> {
        self.touch(namespace, key, None).await?;
        self.get(namespace, key).await
    }

    /// Deletes an entry. `false` when there is no such entry.
    ///
    /// # Errors
    /// As [`ContextStore::get`].
    pub async fn delete(&self, namespace: &str, key: &str) -> Result<bool, ContextError> {
        let name = entries::entry(namespace, key)?;
        loop {
            let Some((revision, entry)) = self.read(&name).await? else { return Ok(false) };
            match self.storage.delete_if_revision(Delete::new(name.clone(), revision, self.durability)).await {
                Ok(()) => return Ok(entry.is_live(self.now())),
                Err(StorageError::WrongRevision { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Deletes an entry only if its revision is still the given one. `false` when there is no such entry.
    ///
    /// # Errors
    /// [`ContextError::Changed`] with the current revision, and as [`ContextStore::get`].
    pub async fn compare_and_delete(&self, namespace: &str, key: &str, expected: u64) -> Result<bool, ContextError> {
        let name = entries::entry(namespace, key)?;
        let Some((revision, _)) = self.read(&name).await?.filter(|(_, entry)| entry.is_live(self.now())) else {
            return Ok(false);
        };
        let changed = |actual| {
            let (namespace, key) = (namespace.to_owned(), key.to_owned());
            ContextError::Changed { namespace, key, actual }
        };
        if revision != expected {
            return Err(changed(Some(revision)));
        }
        match self.storage.delete_if_revision(Delete::new(name, revision, self.durability)).await {
            Ok(()) => Ok(true),
            Err(StorageError::WrongRevision { actual, .. }) => Err(changed(actual)),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes to a namespace from now on. An entry that expires is reported as deleted when it expires, as long as a board
    /// runs on this context; without one, when [`ContextStore::expire`] is called.
    ///
    /// # Errors
    /// A bad name.
    pub fn watch(&self, namespace: &str) -> Result<BoxStream<'static, ContextChange>, ContextError> {
        let changes = watch::watch(&*self.storage, namespace)?;
        let watching = self.expiry_timer.watched();
        Ok(changes
            .inspect(move |_| {
                let _ = &watching;
            })
            .boxed())
    }

    /// Waits until an entry has another revision than `seen`, which is that of an earlier read; with `None`, until it is there. Returns the
    /// entry as it is then, and `None` if it is gone. While it waits, a new expiry alone is no change.
    ///
    /// The wait has no bound of its own; dropping the future ends it.
    ///
    /// # Errors
    /// As [`ContextStore::get`]; [`StorageError::Closed`] if the store closes meanwhile.
    pub async fn changed(
        &self,
        namespace: &str,
        key: &str,
        seen: Option<u64>,
    ) -> Result<Option<ContextEntry>, ContextError> {
        // Watched before it is read, so that no change in between is lost.
        let mut changes = self.watch(namespace)?;
        let before = self.get(namespace, key).await?;
        if before.as_ref().map(|entry| entry.revision) != seen {
            return Ok(before);
        }
        while let Some(change) = changes.next().await {
            if !change.may_concern(key) {
                continue;
            }
            let now = self.get(namespace, key).await?;
            if before.as_ref().map(rules::written) != now.as_ref().map(rules::written) {
                return Ok(now);
            }
        }
        Err(StorageError::Closed.into())
    }

    /// The store that it is in.
    pub(in crate::actors) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    pub(super) fn now(&self) -> Timestamp {
        self.env.now().wall
    }

    pub(super) async fn write(
        &self,
        namespace: &str,
        key: &str,
        value: &str,
        agent: &AgentName,
        origin: Option<Origin>,
        mode: Mode,
    ) -> Result<ContextEntry, ContextError> {
        let name = entries::entry(namespace, key)?;
        let origin = origin.or_else(|| self.is_untrusted.then(Origin::outside));
        if value.len() > MAX_VALUE {
            let (namespace, key) = (namespace.to_owned(), key.to_owned());
            return Err(ContextError::TooLarge { namespace, key, size: value.len() });
        }
        let default_ttl = self.default_ttls.get(namespace).copied();
        let mode = match mode {
            Mode::Set(ttl) => Mode::Set(ttl.or(default_ttl)),
            Mode::Compare(expected, ttl) => Mode::Compare(expected, ttl.or(default_ttl)),
            Mode::Extend(ttl) => Mode::Extend(ttl),
        };
        let mut remembered = self.written.lock().get(&name).copied();
        loop {
            let there = match remembered {
                Some(existing) => Some(existing),
                None => self.read(&name).await?.map(|(revision, entry)| Existing::of(revision, &entry)),
            };
            let (value, agent, origin) = (value.to_owned(), agent.clone(), origin.clone());
            let writing = Writing { value, agent, origin, now: self.now() };
            let entry = match rules::write(there, mode, writing) {
                Ok(entry) => entry,
                Err(Changed(_)) if remembered.take().is_some() => continue,
                Err(Changed(actual)) => {
                    let (namespace, key) = (namespace.to_owned(), key.to_owned());
                    return Err(ContextError::Changed { namespace, key, actual });
                }
            };
            if let Some(revision) = self.put(&name, &entry, there).await? {
                return Ok(entry.shown(namespace, key, revision));
            }
            remembered = None;
        }
    }

    pub(super) async fn read(&self, name: &Key) -> Result<Option<(u64, StoredEntry)>, ContextError> {
        let mut found = None;
        self.pass_on(name, |revision, entry| found = Some((revision, entry))).await?;
        Ok(found)
    }

    /// Passes on the entry of this name with its revision, if there is one.
    pub(super) async fn pass_on(
        &self,
        name: &Key,
        mut read: impl FnMut(u64, StoredEntry) + Send,
    ) -> Result<(), ContextError> {
        let mut failed = None;
        let mut decode = |entry: EntryRef<'_>| match StoredEntry::decode(name, entry.value) {
            Ok(stored) => read(entry.revision, stored),
            Err(error) => failed = Some(error),
        };
        match self.storage.get_here(name, &mut decode) {
            Some(read) => read?,
            None => {
                if let Some(entry) = self.storage.get(name).await? {
                    decode(EntryRef::from(&entry));
                }
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The new revision, or `None` if another writer was first.
    async fn put(&self, name: &Key, entry: &StoredEntry, there: Option<Existing>) -> Result<Option<u64>, ContextError> {
        if let Some(expires_at) = entry.expires_at
            && expiry_index::needs_row(there, self.now(), expires_at)
        {
            self.put_row(expires_at, name).await?;
        }
        let expected = there.map_or(Expected::Absent, |there| Expected::Revision(there.revision));
        let value = codec::encode_shared(entry);
        let put = Put { expected, durability: self.durability, ..Put::new(name.clone(), value) };
        match self.storage.put_if_revision(put).await {
            Ok(revision) => {
                let mut written = self.written.lock();
                written.insert(name.clone(), Existing::of(revision, entry));
                written.turn();
                drop(written);
                self.expiry_timer.is_due_at(entry.expires_at);
                Ok(Some(revision))
            }
            Err(StorageError::WrongRevision { .. }) => {
                self.written.lock().remove(name);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
