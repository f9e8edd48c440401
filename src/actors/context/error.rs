use crate::messages::{AgentName, NameError};
use crate::storage::StorageError;

use super::rules::MAX_VALUE;

/// Why an operation on a [`ContextStore`](super::ContextStore) or a [`ContextAccess`](super::ContextAccess) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A namespace or key is too long or breaks another rule for names; the [`NameError`] quotes it and states the
    /// rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A value over the limit; nothing was written.
    #[error("the value of {namespace}/{key} has {size} bytes; at most {MAX_VALUE} are allowed")]
    TooLarge {
        /// The namespace of the refused entry; for an agent's `run`, its stored name `run:<run id>`.
        namespace: String,
        /// The key of the refused entry.
        key: String,
        /// The size of the value in bytes.
        size: usize,
    },
    /// The agent was not granted the namespace, or the namespace is reserved, as another agent's memory and another
    /// run's namespace are.
    #[error(
        "agent {agent} has no grant for namespace {namespace:?}; it is granted by `namespaces` under [agent.context] in the \
         agent's file, or by AgentSpec::namespaces"
    )]
    NotGranted {
        /// The agent that asked for it.
        agent: AgentName,
        /// The namespace as the agent wrote it.
        namespace: String,
    },
    /// The entry was written by another writer meanwhile.
    #[error("{namespace}/{key} is at revision {actual:?}")]
    Changed {
        /// The namespace of the entry; for an agent's `run`, its stored name `run:<run id>`.
        namespace: String,
        /// The key of the entry; nothing was written.
        key: String,
        /// The current revision; `None` when there is no entry.
        actual: Option<u64>,
    },
    /// The value is not JSON of the expected shape.
    #[error("{namespace}/{key} does not hold the expected JSON: {detail}")]
    BadJson {
        /// The namespace of the entry; for an agent's `run`, its stored name `run:<run id>`.
        namespace: String,
        /// The key of the entry that was read.
        key: String,
        /// The error of the JSON parser: what does not fit, with line and column.
        detail: String,
    },
    /// The store failed, or holds an entry that cannot be decoded ([`StorageError::Corrupt`]).
    #[error(transparent)]
    Storage(#[from] StorageError),
}
