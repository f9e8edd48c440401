//! The context store: shared, namespaced memory that outlives runs (SEMANTICS 12).
//!
//! Writers are ordered by the storage's revisions: an operation reads, decides with the pure rules, and writes only if
//! nobody else has written meanwhile. So handles read and write without passing the actor. The actor deletes what has expired, by
//! an index of what expires when.
//!
//! - `rules`: what an operation makes of an entry; pure. `access`: the namespaces that an agent may use.
//! - `store`: the handle, and writes. `reads`, `watch`: reads, and streams of changes. `entries`: how entries are stored.
//! - `expire`, `expiry_index`: deletes what has expired. `expiry_timer`, `actor`: when that is done. `error`: what can go wrong.

mod access;
mod actor;
mod entries;
mod error;
mod expire;
mod expiry_index;
mod expiry_timer;
mod reads;
mod rules;
mod store;
mod watch;

pub use access::ContextAccess;
pub(super) use access::Writer;
pub(crate) use actor::ContextActor;
pub use error::ContextError;
pub(crate) use rules::MAX_NAMESPACE;
pub(super) use rules::within_host;
pub use store::ContextStore;
pub use watch::ContextChange;
