use futures::StreamExt;
use futures::future::ready;
use futures::stream::BoxStream;

use crate::messages::{ContextEntry, NameError};
use crate::storage::{Change, Storage};

use super::entries::{self, StoredEntry, key_of};

/// A change that [`ContextStore::watch`](super::ContextStore::watch) reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextChange {
    /// An entry was written, or [`ContextStore::touch`](super::ContextStore::touch) moved its expiry. It holds the
    /// entry as it is after the change.
    Set(Box<ContextEntry>),
    /// An entry was deleted, or has expired.
    Deleted {
        /// The key of the entry, in the namespace that is watched.
        key: String,
    },
    /// The watcher fell behind and lost this many changes.
    Missed(u64),
}

impl ContextChange {
    /// Whether it may be a change to the entry with this key.
    pub(super) fn may_concern(&self, key: &str) -> bool {
        match self {
            Self::Set(entry) => entry.key == key,
            Self::Deleted { key: deleted } => deleted == key,
            Self::Missed(_) => true,
        }
    }

    /// The event for watchers of the namespace; `None` for an entry that does not decode.
    fn of(namespace: &str, change: Change) -> Option<Self> {
        match change {
            Change::Put(name, entry) => {
                let stored = StoredEntry::decode(&name, &entry.value).ok()?;
                Some(Self::Set(Box::new(stored.shown(namespace, key_of(&name), entry.revision))))
            }
            Change::Deleted(name) => Some(Self::Deleted { key: key_of(&name) }),
            Change::Missed(count) => Some(Self::Missed(count)),
        }
    }
}

pub(super) fn watch(storage: &dyn Storage, namespace: &str) -> Result<BoxStream<'static, ContextChange>, NameError> {
    let changes = storage.watch(&entries::in_namespace(namespace, "")?);
    let namespace = namespace.to_owned();
    Ok(changes.filter_map(move |change| ready(ContextChange::of(&namespace, change))).boxed())
}
