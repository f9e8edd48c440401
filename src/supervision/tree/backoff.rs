//! The wait before a restart.

use std::time::Duration;

/// The wait before a restart: none before the first of a series, then doubling from `base` up to `cap`.
///
/// A series is what is in the child's restart window. Part of each wait is random, so that children that fell together
/// do not restart in step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RestartBackoff {
    /// The wait before the second restart.
    pub base: Duration,
    /// The longest wait.
    pub cap: Duration,
    /// The part of each wait that is random, from 0 (none of it) to 1 (all of it).
    pub jitter: f64,
}

impl RestartBackoff {
    /// Creates a backoff without waits: every restart is made at once.
    #[must_use]
    pub const fn none() -> Self {
        Self { base: Duration::ZERO, cap: Duration::ZERO, jitter: 0.0 }
    }

    /// Creates a backoff with the same wait, without jitter, before every restart but the first.
    #[must_use]
    pub const fn fixed(wait: Duration) -> Self {
        Self { base: wait, cap: wait, jitter: 0.0 }
    }

    /// Returns the wait before restart number `attempt` (from 1) of a series. `random` is any random number.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        let share = random as f64 / u64::MAX as f64;
        self.longest(attempt).mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * share)
    }

    fn longest(&self, attempt: u32) -> Duration {
        let Some(doublings) = attempt.checked_sub(2) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The most that the first `restarts` restarts of a series wait in total.
    pub(super) fn total(&self, restarts: u32) -> Duration {
        /// The waits are equal from this restart on.
        const GROWN: u32 = 34;
        let equal = self.longest(GROWN).saturating_mul(restarts.saturating_sub(GROWN));
        (1..=restarts.min(GROWN)).map(|attempt| self.longest(attempt)).fold(equal, Duration::saturating_add)
    }
}

/// 0, then 100 ms doubling up to 10 s, a quarter of it random.
impl Default for RestartBackoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(100), cap: Duration::from_secs(10), jitter: 0.25 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_the_second_restart_up_to_the_cap() {
        let waits =
            |attempt| RestartBackoff { jitter: 0.0, ..RestartBackoff::default() }.delay(attempt, u64::MAX).as_millis();
        assert_eq!(
            [0, 1, 2, 3, 4, 8, 9, 40, u32::MAX].map(waits),
            [0, 0, 100, 200, 400, 6_400, 10_000, 10_000, 10_000]
        );
    }

    #[test]
    fn the_total_is_the_sum_of_the_longest_waits() {
        let backoff = RestartBackoff { base: Duration::from_nanos(1), cap: Duration::from_secs(5), jitter: 1.0 };
        for restarts in 0..50 {
            let sum: Duration = (1..=restarts).map(|attempt| backoff.delay(attempt, 0)).sum();
            assert_eq!(backoff.total(restarts), sum);
        }
        assert_eq!(RestartBackoff::default().total(5), Duration::from_millis(1_500));
        assert_eq!(RestartBackoff::fixed(Duration::MAX).total(u32::MAX), Duration::MAX);
    }

    #[test]
    fn jitter_only_shortens_and_by_no_more_than_its_share() {
        let backoff = RestartBackoff::default();
        assert_eq!(backoff.delay(2, 0), Duration::from_millis(100));
        assert_eq!(backoff.delay(2, u64::MAX), Duration::from_millis(75));
        assert_eq!(RestartBackoff::none().delay(9, 7), Duration::ZERO);
        assert_eq!(RestartBackoff::fixed(Duration::from_secs(3)).delay(9, 7), Duration::from_secs(3));
    }
}
