//! How many restarts are too many.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::env::Mutant;

/// How many restarts are too many: more than `max` of them within `within`.
///
/// The window has to be longer than `max` restarts wait (see [`RestartBackoff`](super::RestartBackoff)): a child that crashes as soon as
/// it is started would never be over it, and be restarted for ever. A supervisor refuses an intensity like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Intensity {
    /// Restarts that are still fine. With 0, the first crash is too many.
    pub max: u32,
    /// The window in which they are counted.
    pub within: Duration,
}

impl Intensity {
    /// `max` restarts in `within`.
    #[must_use]
    pub const fn new(max: u32, within: Duration) -> Self {
        Self { max, within }
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
        write!(f, "{} in {:?}", self.max, self.within)
    }
}

/// The restarts of late, by monotonic time. One incident is one entry, however many children it restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    times: VecDeque<Duration>,
}

impl Window {
    /// Enters an incident at `now` and returns whether the restarts are still within `intensity`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use callboard::supervision::tree::{Intensity, Window};
    ///
    /// let (mut window, intensity) = (Window::default(), Intensity::new(1, Duration::from_secs(60)));
    /// assert!(window.admit(Duration::from_secs(1), intensity));
    /// assert!(!window.admit(Duration::from_secs(2), intensity));
    /// assert!(window.admit(Duration::from_secs(63), intensity));
    /// ```
    pub fn admit(&mut self, now: Duration, intensity: Intensity) -> bool {
        self.times.extend((!Mutant::RestartUncounted.is_injected()).then_some(now));
        self.times.retain(|&time| time.saturating_add(intensity.within) >= now);
        self.times.len() <= intensity.max as usize
    }

    /// Incidents that were in the window at the last [`admit`](Self::admit), that one included.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// Forgets all incidents.
    pub fn clear(&mut self) {
        self.times.clear();
    }
}
