//! What a board does with its store when it shuts down.

use std::fmt;
use std::sync::Arc;

use super::Storage;

/// What a board that has shut down does with its store; [`Storage::shutdown_policy`] returns it.
#[derive(Default)]
pub enum ShutdownPolicy {
    /// It can be opened several times, so the board's handles continue to read it.
    #[default]
    KeepOpen,
    /// It can be opened once at a time, and closes when it is dropped: the board drops it.
    Close,
    /// As `Close`, of a store with other holders: the board drops its share, and its handles read as long as another holder has
    /// one. The function returns the store that long.
    CloseShared(Box<dyn Fn() -> Option<Arc<dyn Storage>> + Send + Sync>),
}

impl fmt::Debug for ShutdownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeepOpen => "KeepOpen",
            Self::Close => "Close",
            Self::CloseShared(_) => "CloseShared",
        })
    }
}
