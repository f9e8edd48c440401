//! Everything that comes from outside: clock, random numbers, ids and fault points.
//!
//! The runtime asks the world only through one [`Env`], so a test or a simulation replaces the world by replacing this
//! value. Storage is passed beside it. Timers are tokio's, so a paused tokio runtime moves them together with the clock.

mod bugs;
mod faults;
#[cfg(feature = "testing")]
mod planted;
#[cfg(not(feature = "testing"))]
#[path = "unplanted.rs"]
mod planted;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod simulated;
pub(crate) mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use crate::messages::Timestamp;

pub use bugs::Bug;
pub use faults::{Fault, Faults};
pub(crate) use faults::{happen, happen_slowly};
pub(crate) use planted::is_planted;

/// One reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since the clock was made; never goes back. Deadlines and backoff use it.
    pub monotonic: Duration,
    /// Wall-clock time. Expiry dates and journal entries use it.
    pub wall: Timestamp,
}

/// Reads monotonic and wall time together.
pub trait Clock: Send + Sync + 'static {
    /// The current reading.
    fn now(&self) -> Now;
}

/// The world as the runtime sees it. Cloning is cheap; clones share the same clock and random sequence.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<Random>,
    faults: Option<Arc<dyn Faults>>,
    has_threads: bool,
}

impl Env {
    /// The real world: system clock and a random seed from the operating system.
    #[must_use]
    pub fn system() -> Self {
        Self::new(SystemClock::default(), os_seed())
    }

    /// A repeatable world: the clock follows tokio's time, which a paused runtime controls, and starts at a fixed date;
    /// random numbers and ids follow from `seed`.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    #[must_use]
    pub fn repeatable(seed: u64) -> Self {
        Self::new(TokioClock::default(), seed)
    }

    /// A world of your own.
    #[must_use]
    pub fn new(clock: impl Clock, seed: u64) -> Self {
        Self { clock: Arc::new(clock), random: Arc::new(Random::new(seed)), faults: None, has_threads: true }
    }

    /// The same world with a fault plan.
    #[must_use]
    pub fn with_faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// The same world with one thread: agents that block theirs are run like others, and hold everything up.
    #[must_use]
    pub fn without_threads(mut self) -> Self {
        self.has_threads = false;
        self
    }

    /// Whether agents that block a thread get one.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.has_threads
    }

    /// The current reading of the clock.
    #[must_use]
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// The clock itself, for stores that expire entries.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The next random number (not for secrets).
    #[must_use]
    pub fn random(&self) -> u64 {
        self.random.next()
    }

    /// A new time-ordered id (UUID version 7).
    #[must_use]
    pub fn id(&self) -> uuid::Uuid {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.random().to_le_bytes());
        bytes[8..].copy_from_slice(&self.random().to_le_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(self.now().wall.as_millis(), &bytes).into_uuid()
    }

    /// For maps that are walked, or dropped with what they hold: their order follows from the seed, and nobody outside knows
    /// it.
    pub(crate) fn hasher(&self) -> SeedableRandomState {
        SeedableRandomState::with_seed(self.random(), SharedSeed::global_fixed())
    }

    /// Passes a fault point. Without a plan this is one branch.
    ///
    /// # Errors
    /// The text of the planned error.
    ///
    /// # Panics
    /// When the plan says so.
    pub fn fault_point(&self, point: &'static str) -> Result<(), String> {
        self.fault_at(point, "").map_or(Ok(()), happen)
    }

    /// Passes a fault point where the code can wait.
    ///
    /// # Errors
    /// The text of the planned error.
    ///
    /// # Panics
    /// When the plan says so.
    pub async fn slow_fault_point(&self, point: &'static str) -> Result<(), String> {
        self.slow_fault_point_of(point, "").await
    }

    /// As [`Env::slow_fault_point`], and says whose point it is.
    ///
    /// # Errors
    /// The text of the planned error.
    ///
    /// # Panics
    /// When the plan says so.
    pub async fn slow_fault_point_of(&self, point: &'static str, subject: &str) -> Result<(), String> {
        match self.fault_at(point, subject) {
            None => Ok(()),
            // Boxed, because every actor's future has room for this one.
            Some(fault) => Box::pin(happen_slowly(fault)).await,
        }
    }

    /// Whether there is a fault plan.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.faults.is_some()
    }

    /// Passes a fault point with a message, and says how many times it is to be handed over: once, if nothing is planned.
    pub(crate) async fn message_point(&self, point: &'static str, subject: &str) -> Result<usize, String> {
        let Some(fault) = self.fault_at(point, subject) else { return Ok(1) };
        let times = fault.deliveries();
        Box::pin(happen_slowly(fault)).await?;
        Ok(times)
    }

    /// What is planned for this passing of a point, for code that sees to it itself.
    pub(crate) fn fault_at(&self, point: &'static str, subject: &str) -> Option<Fault> {
        self.faults.as_ref()?.at(point, subject)
    }
}

/// Random numbers that follow from a seed (splitmix64).
pub(crate) struct Random(AtomicU64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(crate) fn next(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("now", &self.now()).field("faults", &self.faults.is_some()).finish()
    }
}

/// The machine's clocks. With the feature `testing` they are moved by what a paused tokio runtime has skipped, as its timers
/// are.
#[derive(Debug)]
pub struct SystemClock {
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
struct TokioClock {
    started: tokio::time::Instant,
}

impl TokioClock {
    /// 2026-01-01 00:00:00 UTC.
    const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
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

/// A seed that differs from process to process, taken from the hasher keys that the standard library draws.
fn os_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_world() {
        let (a, b) = (Env::repeatable(7), Env::repeatable(7));
        assert_eq!((a.id(), a.random()), (b.id(), b.random()));
        assert_ne!(a.id(), a.id());
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(a.now().monotonic, Duration::from_secs(90));
        assert_eq!(a.now().wall, TokioClock::START + Duration::from_secs(90));
    }
}
