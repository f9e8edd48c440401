//! Reads of single entries and of namespaces. Expired entries are absent.

use serde::de::DeserializeOwned;

use crate::messages::ContextEntry;
use crate::storage::KeyPrefix;

use super::entries::{self, StoredEntry, key_of};
use super::{ContextError, ContextStore};

const PAGE: usize = 256;

impl ContextStore {
    /// The entry, unless it has expired. Sees every acknowledged write.
    ///
    /// # Errors
    /// A bad name, or a failing store.
    pub async fn get(&self, namespace: &str, key: &str) -> Result<Option<ContextEntry>, ContextError> {
        let name = entries::entry(namespace, key)?;
        Ok(self
            .read(&name)
            .await?
            .filter(|(_, entry)| entry.expires_at.is_none() || entry.is_live(self.now()))
            .map(|(revision, entry)| entry.shown(namespace, key, revision)))
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
        self.get(namespace, key).await?.map(Self::structured).transpose()
    }

    /// The value of an entry that is JSON.
    pub(super) fn structured<T: DeserializeOwned>(entry: ContextEntry) -> Result<T, ContextError> {
        let ContextEntry { namespace, key, value, .. } = entry;
        serde_json::from_str(&value).map_err(|error| ContextError::BadJson {
            namespace,
            key,
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
        let mut found = Vec::new();
        for namespace in namespaces {
            found.extend(self.scan(namespace, &entries::in_namespace(namespace, "")?, usize::MAX).await?);
        }
        found.sort_by_key(|entry| std::cmp::Reverse((entry.updated_at, entry.revision)));
        found.dedup_by(|a, b| (&a.namespace, &a.key) == (&b.namespace, &b.key));
        found.truncate(limit);
        Ok(found)
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
        self.scan(namespace, &entries::in_namespace(namespace, prefix)?, limit).await
    }

    /// The namespaces that have entries, in order of their names, at most so many and after `after`; also those whose entries have
    /// expired and are not deleted yet. It reads one entry of each.
    ///
    /// ```
    /// use callboard::prelude::*;
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let board = Callboard::builder().start().await?;
    /// let (context, writer) = (board.context(), AgentName::new("writer").unwrap());
    /// for (namespace, key) in [("plans", "a"), ("plans", "b"), ("notes", "a")] {
    ///     context.set(namespace, key, "text", &writer, None).await.unwrap();
    /// }
    /// assert_eq!(context.namespaces(None, 10).await.unwrap(), ["notes", "plans"]);
    /// assert_eq!(context.namespaces(Some("notes"), 10).await.unwrap(), ["plans"]);
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// A failing store.
    pub async fn namespaces(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, ContextError> {
        let (mut found, mut place) = (Vec::<String>::new(), after.map(entries::after_namespace));
        while found.len() < limit {
            let page = self.storage.scan(&entries::everywhere(), place.as_ref(), 1).await?;
            let Some((name, _)) = page.first() else { break };
            let namespace = entries::namespace_of(name);
            if found.last() == Some(&namespace) {
                place = Some(name.clone());
            } else {
                place = Some(entries::after_namespace(&namespace));
                found.push(namespace);
            }
        }
        Ok(found)
    }

    async fn scan(&self, namespace: &str, prefix: &KeyPrefix, limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        let (mut found, mut after) = (Vec::new(), None);
        while found.len() < limit {
            let wanted = PAGE.min(limit - found.len());
            let page = self.storage.scan(prefix, after.as_ref(), wanted).await?;
            let now = self.now();
            found.reserve(page.len());
            for (name, entry) in &page {
                let stored = StoredEntry::decode(name, entry)?;
                if stored.is_live(now) {
                    found.push(stored.shown(namespace, key_of(name), entry.revision));
                }
            }
            match page.last() {
                Some((name, _)) if page.len() == wanted => after = Some(name.clone()),
                _ => break,
            }
        }
        Ok(found)
    }
}
