use crate::messages::{AgentName, NameError};
use crate::storage::StorageError;

use super::rules::MAX_VALUE;

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
        /// The namespace.
        namespace: String,
        /// The key in it.
        key: String,
        /// The size in bytes.
        size: usize,
    },
    /// The agent was not granted the namespace.
    #[error(
        "agent {agent} has no grant for namespace {namespace:?}; it is granted by `namespaces` under [agent.context] in the \
         agent's file, or by AgentSpec::namespaces"
    )]
    NotGranted {
        /// The agent that asked for it.
        agent: AgentName,
        /// The namespace that it asked for.
        namespace: String,
    },
    /// The entry was written by another writer meanwhile.
    #[error("{namespace}/{key} is at revision {actual:?}")]
    Changed {
        /// The namespace.
        namespace: String,
        /// The key in it.
        key: String,
        /// The current revision; `None` when there is no entry.
        actual: Option<u64>,
    },
    /// The value is not JSON of the expected shape.
    #[error("{namespace}/{key} does not hold the expected JSON: {detail}")]
    BadJson {
        /// The namespace.
        namespace: String,
        /// The key in it.
        key: String,
        /// What does not fit.
        detail: String,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
