//! The clocks of the machine and of tokio.

use crate::messages::Timestamp;

use super::{Clock, Now};

/// The machine's clocks. With the feature `testing`, the time that a paused tokio runtime has skipped is added, as for its
/// timers.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: std::time::Instant,
    #[cfg(any(test, feature = "testing"))]
    timers: tokio::time::Instant,
}

impl Default for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clocks")]
    fn default() -> Self {
        Self {
            started: std::time::Instant::now(),
            #[cfg(any(test, feature = "testing"))]
            timers: tokio::time::Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clocks")]
    fn now(&self) -> Now {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let (monotonic, wall) = (self.started.elapsed(), Timestamp::from_millis(wall.as_millis() as u64));
        #[cfg(any(test, feature = "testing"))]
        let (monotonic, wall) = {
            let skipped = self.timers.elapsed().saturating_sub(monotonic);
            (monotonic.saturating_add(skipped), wall + skipped)
        };
        Now { monotonic, wall }
    }
}

/// A clock that follows tokio's time from a fixed date on.
#[derive(Debug)]
pub(super) struct TokioClock {
    started: tokio::time::Instant,
}

impl TokioClock {
    /// 2026-01-01 00:00:00 UTC.
    pub(super) const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
}

impl Default for TokioClock {
    #[allow(clippy::disallowed_methods, reason = "tokio's time is the repeatable clock")]
    fn default() -> Self {
        Self { started: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Now {
        let monotonic = self.started.elapsed();
        Now { monotonic, wall: Self::START + monotonic }
    }
}

/// A seed that differs from process to process, derived from the random keys of the standard library's hasher.
pub(super) fn os_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
