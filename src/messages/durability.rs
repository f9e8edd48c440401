//! When a write is acknowledged.

use serde::{Deserialize, Serialize};

/// How far a write must have got before it is acknowledged (SEMANTICS 10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Held by the storage handle, outside the supervision tree: survives a crashed actor, not a crashed process.
    Memory,
    /// On its way to disk: a sync of it begins within the interval of the store, which is the time that a crash of the machine or
    /// the process may lose. `Sled` has 100 ms, unless `Sled::buffered_within` sets another.
    Buffered,
    /// On disk, synced, together with every write that was acknowledged before it.
    #[default]
    Sync,
}
