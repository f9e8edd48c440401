//! Reads of single entries and of namespaces. Expired entries are absent.

use serde::de::DeserializeOwned;

use crate::messages::ContextEntry;
use crate::storage::{EntryRef, Key};

use super::entries::{self, StoredEntry};
use super::{ContextError, ContextStore};

const PAGE: usize = 256;

/// Room for so many entries is made before they are read.
const SHORT: usize = 32;

impl ContextStore {
    /// The entry, unless it has expired. Sees every acknowledged write.
    ///
    /// # Errors
    /// A bad name, or a failing store.
    pub async fn get(&self, namespace: &str, key: &str) -> Result<Option<ContextEntry>, ContextError> {
        let name = entries::entry(namespace, key)?;
        let mut found = None;
        self.pass_on(&name, |revision, entry| {
            if entry.expires_at.is_none() || entry.is_live(self.now()) {
                found = Some(entry.shown(namespace, key, revision));
            }
        })
        .await?;
        Ok(found)
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
            found.extend(self.scan(namespace, "", usize::MAX).await?);
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
        self.scan(namespace, prefix, limit).await
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

    /// The live entries of a namespace whose keys begin with `prefix`, in key order, at most so many.
    async fn scan(&self, namespace: &str, prefix: &str, limit: usize) -> Result<Vec<ContextEntry>, ContextError> {
        let name = entries::namespace_key(namespace)?;
        let within = name.children_beginning_with(prefix);
        let (mut found, mut after) = (Vec::new(), None);
        while found.len() < limit {
            let wanted = PAGE.min(limit - found.len());
            let (mut count, mut last, mut failed) = (0, None, None);
            found.reserve(wanted.min(SHORT));
            let mut add = |row: &[u8], entry: EntryRef<'_>| {
                count += 1;
                if count == wanted {
                    last = Some(Key::unchecked(row));
                }
                match StoredEntry::decode_at(row, entry.value) {
                    Ok(stored) if stored.expires_at.is_none() || stored.is_live(self.now()) => {
                        let rest = row.get(name.as_bytes().len()..);
                        let key = rest.and_then(Key::first_segment_of).unwrap_or_default();
                        found.push(stored.shown(namespace, key, entry.revision));
                    }
                    Ok(_) => {}
                    Err(error) => failed = failed.take().or(Some(error)),
                }
            };
            match self.storage.scan_here(&within, after.as_ref(), wanted, &mut add) {
                Some(read) => drop(read?),
                None => {
                    let page = self.storage.scan(&within, after.as_ref(), wanted).await?;
                    page.iter().for_each(|(row, entry)| add(row.as_bytes(), entry.into()));
                }
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
            after = last;
            if after.is_none() {
                break;
            }
        }
        Ok(found)
    }
}
