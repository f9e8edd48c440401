//! The clocks of the machine and of tokio.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::messages::Timestamp;

use super::{Clock, Now};

/// The machine's clocks. With the feature `testing`, the time that a paused tokio runtime has skipped is added, as for its
/// timers.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: std::time::Instant,
    wall: WallTime,
    #[cfg(any(test, feature = "testing"))]
    timers: tokio::time::Instant,
}

impl Default for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clocks")]
    fn default() -> Self {
        Self {
            started: std::time::Instant::now(),
            wall: WallTime::default(),
            #[cfg(any(test, feature = "testing"))]
            timers: tokio::time::Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clocks")]
    fn now(&self) -> Now {
        let monotonic = self.started.elapsed();
        let wall = self.wall.at(monotonic, || {
            let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            (wall, self.started.elapsed())
        });
        #[cfg(any(test, feature = "testing"))]
        let (monotonic, wall) = {
            let skipped = self.timers.elapsed().saturating_sub(monotonic);
            (monotonic.saturating_add(skipped), wall + skipped)
        };
        Now { monotonic, wall }
    }
}

/// The wall time that belongs to a monotonic one. Both clocks advance alike until the machine's wall clock is set, so it is read once
/// in [`WallTime::HELD`] and not each time: several readings fall into one turn, and each clock that is read is a twentieth of its time.
#[derive(Debug, Default)]
struct WallTime {
    /// The wall time less the monotonic time, in nanoseconds.
    offset: AtomicU64,
    /// The monotonic time from which on the wall clock is read again, in nanoseconds. Written after `offset`.
    read_again_at: AtomicU64,
}

impl WallTime {
    /// How late a wall clock that was set is noticed: as fine as a [`Timestamp`].
    const HELD: Duration = Duration::from_millis(1);

    /// The longest reading that counts for later ones: of a thread that was interrupted between its two clocks they do not belong together.
    const LONGEST_READING: Duration = Duration::from_micros(20);

    /// The wall time at a monotonic time. `read` returns the wall time, and the monotonic time after it was read.
    fn at(&self, monotonic: Duration, read: impl FnOnce() -> (Duration, Duration)) -> Timestamp {
        // Nanoseconds in 64 bits last for 584 years.
        let now = monotonic.as_nanos() as u64;
        let wall = if now < self.read_again_at.load(Ordering::Acquire) {
            self.offset.load(Ordering::Relaxed).wrapping_add(now)
        } else {
            let (wall, after) = read();
            let wall = wall.as_nanos() as u64;
            if after.saturating_sub(monotonic) <= Self::LONGEST_READING {
                self.offset.store(wall.wrapping_sub(now), Ordering::Relaxed);
                self.read_again_at.store(now + Self::HELD.as_nanos() as u64, Ordering::Release);
            }
            wall
        };
        Timestamp::from_millis(wall / 1_000_000)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// The wall time at a monotonic time in microseconds, where the wall clock is `ahead` of it and takes some microseconds to be read; and
    /// whether it was read.
    fn at(time: &WallTime, micros: u64, ahead: Duration, takes: u64) -> (Timestamp, bool) {
        let (now, is_read) = (Duration::from_micros(micros), Cell::new(false));
        let read = || {
            is_read.set(true);
            (ahead + now, now + Duration::from_micros(takes))
        };
        (time.at(now, read), is_read.get())
    }

    fn millis(hours: u32, millis: u64) -> Timestamp {
        Timestamp::from_millis((HOUR * hours).as_millis() as u64 + millis)
    }

    #[test]
    fn the_wall_clock_is_read_once_in_a_millisecond_and_followed_when_it_was_set() {
        let time = WallTime::default();
        assert_eq!(at(&time, 7_900, HOUR, 1), (millis(1, 7), true));
        assert_eq!(at(&time, 8_100, HOUR, 1), (millis(1, 8), false), "it advances between two readings");
        assert_eq!(at(&time, 8_899, HOUR * 5, 1), (millis(1, 8), false));
        assert_eq!(at(&time, 8_900, HOUR * 5, 1), (millis(5, 8), true), "it was set forward");
        assert_eq!(at(&time, 9_900, HOUR * 2, 1), (millis(2, 9), true), "and back");
        assert_eq!(at(&time, 9_901, HOUR * 2, 1), (millis(2, 9), false));
    }

    #[test]
    fn a_reading_that_was_interrupted_does_not_count_for_later_ones() {
        let time = WallTime::default();
        assert_eq!(at(&time, 1_000, HOUR * 9, 21), (millis(9, 1), true));
        assert_eq!(at(&time, 1_001, HOUR, 20), (millis(1, 1), true));
        assert_eq!(at(&time, 1_002, HOUR * 9, 20), (millis(1, 1), false));
    }

    #[test]
    fn a_reading_of_an_earlier_moment_is_of_that_moment() {
        let time = WallTime::default();
        at(&time, 5_000, HOUR, 1);
        assert_eq!(at(&time, 3_000, HOUR, 1), (millis(1, 3), false), "of a thread that has read its clock before");
    }
}
