//! The context store: shared, namespaced memory that outlives runs (SEMANTICS 12).
//!
//! Writers are ordered by the storage's revisions: an operation reads, decides with the pure rules, and writes only if
//! nobody else has written meanwhile. So handles read and write without passing the actor; the actor sweeps, by an index of
//! what expires when.

mod access;
mod alarm;
mod entries;
mod error;
mod expiry;
mod rules;
mod store;
mod sweep;
mod sweeper;
mod watch;

pub use access::ContextAccess;
pub(super) use access::Writer;
pub use error::ContextError;
pub(super) use rules::within_host;
pub use rules::{EXTENSION, MAX_KEY, MAX_NAMESPACE, MAX_VALUE};
pub use store::ContextStore;
pub(crate) use sweeper::Sweeper;
pub use watch::ContextChange;
