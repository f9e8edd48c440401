//! What a turn that begins ahead of a commit shares with its run.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// Whether the commit with which a turn began is acknowledged. Shared by the turn and its run.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    state: AtomicU8,
    changed: Notify,
}

const JOURNALED: u8 = 1;
const LOST: u8 = 2;

impl Beginning {
    /// The commit failed, or was never made: the turn did not begin.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) == LOST
    }

    /// Waits for the acknowledgement; `false` if there will be none.
    pub(crate) async fn is_journaled(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            match self.state.load(Ordering::Acquire) {
                JOURNALED => return true,
                LOST => return false,
                _ => changed.await,
            }
        }
    }

    /// The commit is acknowledged.
    pub(super) fn acknowledge(&self) {
        self.set(JOURNALED);
    }

    /// The commit will not be acknowledged; `false` if it was.
    pub(super) fn lose(&self) -> bool {
        let is_lost = self.state.load(Ordering::Acquire) != JOURNALED;
        if is_lost {
            self.set(LOST);
        }
        is_lost
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.changed.notify_waiters();
    }
}
