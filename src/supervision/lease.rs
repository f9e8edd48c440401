//! The lease of a board on its store, measured by the board itself. A board that cannot renew it starts nothing new once two thirds are
//! over, and ends its turns at the end: from then on another board may have its runs.

use std::time::Duration;

use tokio::sync::watch;

use crate::env::Env;
use crate::storage::StorageError;

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

    /// Why it has ended, for people; `None` if that is not known to this board. `pause` is how long the process did not run at most, and
    /// `trouble` why the last renewal has failed.
    pub(crate) fn why_over(&self, pause: Duration, trouble: Option<&StorageError>) -> Option<String> {
        let (length, age) = (self.length.as_secs(), self.age());
        if !self.is_shared {
            None
        } else if pause >= self.length {
            Some(format!(
                "its process did not run for {} s, as one that is suspended, so its lease of {length} s on the store has ended",
                pause.as_secs()
            ))
        } else if age >= self.length {
            let trouble = trouble.map(|error| format!(" ({error})")).unwrap_or_default();
            Some(format!(
                "the store has answered no renewal for {} s{trouble}, so its lease of {length} s on the store has ended",
                age.as_secs()
            ))
        } else {
            None
        }
    }

    fn age(&self) -> Duration {
        self.env.now().monotonic.saturating_sub(*self.renewed_at.borrow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_end_that_the_board_has_seen_has_its_cause() {
        let lease = Lease::new(Env::repeatable(1), Duration::from_secs(15), true);
        let (none, paused) = (Duration::ZERO, Duration::from_secs(16));
        assert_eq!(lease.why_over(none, None), None);
        let suspended = lease.why_over(paused, None).unwrap_or_default();
        assert!(suspended.contains("did not run for 16 s") && suspended.contains("its lease of 15 s"), "{suspended}");
        tokio::time::sleep(Duration::from_secs(20)).await;
        let trouble = StorageError::Unavailable { detail: "no route".to_owned() };
        let away = lease.why_over(none, Some(&trouble)).unwrap_or_default();
        assert!(away.contains("no renewal for 20 s (the store did not answer: no route)"), "{away}");
        let own = Lease::new(Env::repeatable(1), Duration::from_secs(15), false);
        assert_eq!(own.why_over(paused, None), None, "it never runs out");
    }
}
