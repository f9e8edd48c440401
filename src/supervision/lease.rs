//! The lease of a board on its store, measured by the board itself. A board that cannot renew it starts nothing new once two thirds are
//! over, and ends its turns at the end: from then on another board may have its runs.

use std::time::Duration;

use tokio::sync::watch;

use crate::env::Env;

/// The lease of a board. Where no other process can have a board on the store, it does not run out.
#[derive(Debug)]
pub(crate) struct Lease {
    env: Env,
    length: Duration,
    is_shared: bool,
    /// When the renewal that succeeded last was begun, by the monotonic clock.
    renewed_at: watch::Sender<Duration>,
}

impl Lease {
    /// A lease that begins now.
    pub(crate) fn new(env: Env, length: Duration, is_shared: bool) -> Self {
        let renewed_at = watch::Sender::new(env.now().monotonic);
        Self { env, length, is_shared, renewed_at }
    }

    /// A renewal succeeded that was begun at this time.
    pub(crate) fn renew(&self, begun_at: Duration) {
        self.renewed_at.send_if_modified(|renewed_at| {
            let is_later = begun_at > *renewed_at;
            *renewed_at = begun_at.max(*renewed_at);
            is_later
        });
    }

    /// When to renew it again: after a third of it, and more often once half of it is over.
    pub(crate) fn renew_in(&self) -> Duration {
        if self.age() < self.length / 2 { self.length / 3 } else { self.length / 12 }
    }

    /// Whether something new may begin, such as a turn or a step.
    pub(crate) fn allows_work(&self) -> bool {
        !self.is_shared || self.age() < self.length * 2 / 3
    }

    /// Whether turns must have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_shared && self.age() >= self.length
    }

    /// Waits until something new may begin.
    pub(crate) async fn allowed(&self) {
        let mut renewed_at = self.renewed_at.subscribe();
        while !self.allows_work() {
            if renewed_at.changed().await.is_err() {
                return;
            }
        }
    }

    fn age(&self) -> Duration {
        self.env.now().monotonic.saturating_sub(*self.renewed_at.borrow())
    }
}
