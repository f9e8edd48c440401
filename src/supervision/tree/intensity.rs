//! The limit of restarts, and the window in which they are counted.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::env::Mutant;

/// How many restarts are too many: more than `max` of them within `period`.
///
/// The window has to be longer than `max` restarts wait (see [`RestartBackoff`](super::RestartBackoff)): a child that crashes as soon as
/// it is started would never be over it, and be restarted for ever. A supervisor refuses an intensity like that. Only the
/// backoff is counted there, not the time that starts and stops take: a child that fails slowly, for example by its start
/// timeout, may still be restarted for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Intensity {
    /// Restarts that are still fine. With 0, the first crash is too many.
    pub max: u32,
    /// The length of the window: a restart counts until it is older than this.
    pub period: Duration,
}

impl Intensity {
    /// Creates an intensity that allows `max` restarts within `period`.
    #[must_use]
    pub const fn new(max: u32, period: Duration) -> Self {
        Self { max, period }
    }
}

/// 5 restarts in 60 seconds.
impl Default for Intensity {
    fn default() -> Self {
        Self::new(5, Duration::from_secs(60))
    }
}

impl fmt::Display for Intensity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.max, self.period)
    }
}

/// The recent restarts, by monotonic time. One incident is one entry, however many children it restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    times: VecDeque<Duration>,
}

impl Window {
    /// Adds an incident at `now` and returns whether the restarts are still within `intensity`.
    pub(super) fn add_restart(&mut self, now: Duration, intensity: Intensity) -> bool {
        self.times.extend((!Mutant::RestartUncounted.is_injected()).then_some(now));
        self.times.retain(|&time| time.saturating_add(intensity.period) >= now);
        self.times.len() <= intensity.max as usize
    }

    /// Incidents that were in the window at the last [`add_restart`](Self::add_restart), that one included.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// Forgets all incidents.
    pub(super) fn clear(&mut self) {
        self.times.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn an_intensity_has_a_text() {
        assert_eq!(Intensity::default().to_string(), "5 in 60s");
    }

    #[test]
    fn a_restart_counts_until_it_is_older_than_the_period() {
        let (mut window, intensity) = (Window::default(), Intensity::new(1, secs(60)));
        assert!(window.add_restart(secs(1), intensity));
        assert!(!window.add_restart(secs(2), intensity));
        assert!(window.add_restart(secs(63), intensity));
        assert_eq!(window.count(), 1);
    }

    #[test]
    fn a_restart_that_is_exactly_one_period_old_still_counts() {
        let (mut window, intensity) = (Window::default(), Intensity::new(1, secs(60)));
        assert!(window.add_restart(secs(1), intensity));
        assert!(!window.add_restart(secs(61), intensity));
    }

    #[test]
    fn a_window_that_was_cleared_counts_from_zero() {
        let (mut window, once) = (Window::default(), Intensity::new(1, secs(60)));
        assert!(window.add_restart(Duration::ZERO, once) && !window.add_restart(Duration::ZERO, once));
        window.clear();
        assert_eq!(window.count(), 0);
        assert!(window.add_restart(Duration::ZERO, once));
    }
}
