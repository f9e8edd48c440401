use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use serde::de::DeserializeOwned;

use crate::actors::taint::TurnTaint;
use crate::messages::{AgentName, Chain, ContextEntry, Origin, RunId};
use crate::storage::StorageError;

use super::rules::{EXTENSION, Grant, Mode};
use super::{ContextChange, ContextError, ContextStore};

/// The shared context as one agent sees it: its own memory, and the namespaces that it was granted, or without a list that of
/// its run, which is called `run` (SEMANTICS 12). What it writes bears its name and the turn's origin; reading what was written by an agent that had read untrusted input taints the
/// turn ([`Turn::is_tainted`](crate::actors::Turn)).
#[derive(Clone, Debug)]
pub struct ContextAccess {
    store: ContextStore,
    agent: AgentName,
    namespaces: Option<Arc<[Arc<str>]>>,
    writer: Option<Writer>,
}

/// The turn that has the access.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) run: RunId,
    pub(crate) chain: Chain,
    pub(crate) taint: Arc<TurnTaint>,
    /// How many waits for changes are open.
    pub(crate) waits: Arc<AtomicUsize>,
}

impl Writer {
    fn origin(&self) -> Origin {
        Origin { run: self.run, chain: self.chain.clone(), is_tainted: self.taint.taints_writes() }
    }
}

/// Counts a wait for as long as it lives.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn begin(writer: &Writer) -> Self {
        writer.waits.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&writer.waits))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ContextAccess {
    pub(crate) fn new(
        store: ContextStore,
        agent: AgentName,
        namespaces: Option<Arc<[Arc<str>]>>,
        writer: Option<Writer>,
    ) -> Self {
        Self { store, agent, namespaces, writer }
    }

    /// What an agent may do that has these namespaces beside its memory, all of them with `None`. What it writes is stamped with
    /// no turn; it is for tests of tools, which have no turn.
    #[must_use]
    pub fn outside_turns(store: ContextStore, agent: AgentName, namespaces: Option<Arc<[Arc<str>]>>) -> Self {
        Self::new(store, agent, namespaces, None)
    }

    /// The namespace of this agent's own memory.
    #[must_use]
    pub fn memory(&self) -> String {
        format!("memory:{}", self.agent)
    }

    /// The namespace of this agent's run; `None` outside of runs. `"run"` means the same.
    #[must_use]
    pub fn of_run(&self) -> Option<String> {
        self.writer.as_ref().map(|writer| writer.run.namespace())
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
        let entry = self.store.get(&self.granted(namespace)?, key).await?;
        self.read(&entry);
        Ok(entry)
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
        self.get(namespace, key).await?.map(ContextStore::structured).transpose()
    }

    /// As [`ContextStore::query`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn query(&self, namespace: &str, limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        let entries = self.store.query(&self.granted(namespace)?, limit).await?;
        self.read(&entries);
        Ok(entries)
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
        let entries = self.store.query_by_prefix(&self.granted(namespace)?, prefix, limit).await?;
        self.read(&entries);
        Ok(entries)
    }

    /// As [`ContextStore::search`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn search(&self, namespaces: &[&str], limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        let granted = namespaces.iter().map(|namespace| self.granted(namespace)).collect::<Result<Vec<_>, _>>()?;
        let entries = self.store.search(&granted.iter().map(|name| &**name).collect::<Vec<_>>(), limit).await?;
        self.read(&entries);
        Ok(entries)
    }

    /// As [`ContextStore::recall`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn recall(&self, namespace: &str, key: &str) -> Result<Option<ContextEntry>, ContextError> {
        let granted = self.granted(namespace)?;
        self.committed().await?;
        let entry = self.store.recall(&granted, key).await?;
        self.read(&entry);
        Ok(entry)
    }

    /// As [`ContextStore::touch`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn touch(
        &self,
        namespace: &str,
        key: &str,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<bool, ContextError> {
        let granted = self.granted(namespace)?;
        self.committed().await?;
        self.store.touch(&granted, key, ttl).await
    }

    /// As [`ContextStore::delete`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn delete(&self, namespace: &str, key: &str) -> Result<bool, ContextError> {
        let granted = self.granted(namespace)?;
        self.committed().await?;
        self.store.delete(&granted, key).await
    }

    /// As [`ContextStore::watch`].
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub fn watch(&self, namespace: &str) -> Result<BoxStream<'static, ContextChange>, ContextError> {
        let changes = self.store.watch(&self.granted(namespace)?)?;
        let this = self.clone();
        Ok(changes
            .inspect(move |change| match change {
                ContextChange::Set(entry) => this.read([&**entry]),
                ContextChange::Deleted { .. } | ContextChange::Missed(_) => {}
            })
            .boxed())
    }

    /// As [`ContextStore::changed`]. While a turn waits, it holds neither permit nor slot.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |turn: Turn| async move {
    ///         let found = turn.context().changed("run", "finding", None);
    ///         let (entry, _) = futures::join!(found, turn.delegate("scout", "look around"));
    ///         Ok(Command::output(entry?.map(|entry| entry.value)))
    ///     })
    ///     .agent("scout", |turn: Turn| async move {
    ///         turn.context().set("run", "finding", "a door", None).await?;
    ///         Ok(Command::new())
    ///     })
    ///     .pool(1)
    ///     .start()
    ///     .await?;
    /// assert_eq!(board.submit(Task::new("look").to("lead")).await?.result().await?.output, "a door");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ContextError::NotGranted`], and as there.
    pub async fn changed(
        &self,
        namespace: &str,
        key: &str,
        seen: Option<u64>,
    ) -> Result<Option<ContextEntry>, ContextError> {
        let granted = self.granted(namespace)?;
        let _waiting = self.writer.as_ref().map(Waiting::begin);
        let entry = self.store.changed(&granted, key, seen).await?;
        self.read(&entry);
        Ok(entry)
    }

    /// Whether the turn waits for a change.
    pub(in crate::actors) fn is_waiting(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.waits.load(Ordering::Relaxed) > 0)
    }

    async fn write(&self, namespace: &str, key: &str, value: &str, mode: Mode) -> Result<ContextEntry, ContextError> {
        let (namespace, origin) = (self.granted(namespace)?, self.writer.as_ref().map(Writer::origin));
        self.committed().await?;
        self.store.write(&namespace, key, value, &self.agent, origin, mode).await
    }

    /// Waits until the turn may act outside.
    async fn committed(&self) -> Result<(), ContextError> {
        let Some(Writer { taint, .. }) = &self.writer else { return Ok(()) };
        if taint.is_committed().await {
            return Ok(());
        }
        let detail = "the turn did not begin: the record that starts it was not written".to_owned();
        Err(StorageError::Unavailable { detail }.into())
    }

    /// Taints the turn if one of the entries is tainted.
    fn read<'e>(&self, entries: impl IntoIterator<Item = &'e ContextEntry>) {
        let Some(Writer { taint, .. }) = &self.writer else { return };
        if let Some(ContextEntry { namespace, key, .. }) = entries.into_iter().find(|entry| entry.is_untrusted()) {
            taint.set(&format!("the context entry {key} in {namespace}"));
        }
    }

    /// The namespace for a name that the agent uses.
    fn granted<'n>(&self, namespace: &'n str) -> Result<Cow<'n, str>, ContextError> {
        let run = self.writer.as_ref().map(|writer| writer.run);
        let grant = Grant { agent: &self.agent, namespaces: self.namespaces.as_deref(), run };
        grant
            .resolve(namespace)
            .ok_or_else(|| ContextError::NotGranted { agent: self.agent.clone(), namespace: namespace.to_owned() })
    }
}
