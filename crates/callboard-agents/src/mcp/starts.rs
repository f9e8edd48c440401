//! The limit of a server's starts.

use std::collections::VecDeque;
use std::time::Duration;

/// The most starts within this time.
const MAX: usize = 5;
const WITHIN: Duration = Duration::from_secs(60);

/// The last starts of a server.
#[derive(Debug, Default)]
pub(super) struct Starts(VecDeque<Duration>);

impl Starts {
    /// Counts another start; `now` is a reading of a monotonic clock.
    ///
    /// # Errors
    /// After too many starts: the time until the next one is allowed.
    pub(super) fn take(&mut self, now: Duration) -> Result<(), Duration> {
        while self.0.front().is_some_and(|start| now.saturating_sub(*start) >= WITHIN) {
            self.0.pop_front();
        }
        match self.0.front() {
            Some(first) if self.0.len() >= MAX => Err(WITHIN.saturating_sub(now.saturating_sub(*first))),
            Some(_) | None => {
                self.0.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_starts_in_a_minute_are_allowed_and_each_is_forgotten_after_one() {
        let (mut starts, at) = (Starts::default(), Duration::from_secs);
        for second in 0..5 {
            assert_eq!(starts.take(at(second)), Ok(()));
        }
        assert_eq!(starts.take(at(10)), Err(Duration::from_secs(50)));
        assert_eq!(starts.take(at(60)), Ok(()));
        assert_eq!(starts.take(at(60)), Err(Duration::from_secs(1)));
    }
}
