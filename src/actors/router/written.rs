//! What was written last for other boards.

use std::ops::Range;
use std::sync::Arc;

/// What was written last. A board says something about itself with each renewal of its lease, and its agents seldom change.
pub(super) struct Written {
    /// The versions of the directory and of the agents that are hosted.
    pub(super) versions: (u64, u64),
    pub(super) bytes: Arc<[u8]>,
    /// Where the agents are in the bytes.
    pub(super) agents: Range<usize>,
}
