//! Everything that comes from outside: clock, random numbers, ids and fault points.
//!
//! The runtime asks the world only through one [`Env`], so a test or a simulation replaces the world by replacing this
//! value. Storage is passed beside it. Timers are tokio's, so a paused tokio runtime moves them together with the clock.

mod clocks;
mod faults;
pub(crate) mod later_build;
mod mutants;
mod reading;
pub(crate) mod simulated;
mod threads;

use std::num::NonZero;
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use crate::messages::{RunId, Timestamp};

pub(crate) use clocks::SystemClock;
use clocks::{TokioClock, os_seed};
pub use faults::{Fault, Faults};
pub(crate) use faults::{happen, happen_slowly};
pub(crate) use mutants::Mutant;
pub(crate) use reading::Random;
pub use reading::{Clock, Now};

/// The world as the runtime sees it. Cloning is cheap; clones share the same clock and random sequence.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<Random>,
    faults: Option<Arc<dyn Faults>>,
    has_threads: bool,
    /// Nothing has to be repeatable, so ids may depend on the thread.
    is_system: bool,
}

impl Env {
    /// The real world: system clock and a random seed from the operating system.
    #[must_use]
    pub fn system() -> Self {
        Self { is_system: true, ..Self::new(SystemClock::default(), os_seed()) }
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

    /// A world with a clock of your own, or with that of another world ([`Env::clock`]).
    #[must_use]
    pub fn new(clock: impl Clock, seed: u64) -> Self {
        Self {
            clock: Arc::new(clock),
            random: Arc::new(Random::new(seed)),
            faults: None,
            has_threads: true,
            is_system: false,
        }
    }

    /// Returns the same world with a fault plan, which is asked each time execution passes a fault point.
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

    /// The number of cores, if it may have an effect: a repeatable world has none.
    pub(crate) fn cores(&self) -> Option<usize> {
        self.is_system.then(|| std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    /// The number of this thread among those that have asked, from 0, if it may have an effect.
    pub(crate) fn thread(&self) -> Option<usize> {
        self.is_system.then(threads::number)
    }

    /// Whether agents that block a thread get one.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.has_threads
    }

    /// Returns the monotonic and the wall time of the clock.
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

    /// Returns a new time-ordered id (UUID version 7), made from the clock's wall time and random numbers of this
    /// world. As the id of a run it is of cell 0 ([`RunId::cell`]).
    #[must_use]
    pub fn id(&self) -> uuid::Uuid {
        self.id_at(self.now().wall).0
    }

    /// As [`Env::id`], made with a reading of the clock.
    pub(crate) fn id_at(&self, now: Timestamp) -> RunId {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.random().to_le_bytes());
        bytes[8..].copy_from_slice(&self.random().to_le_bytes()[..2]);
        RunId::new(now.as_millis(), bytes)
    }

    /// A hasher for maps that are iterated, or dropped with their values: their order follows from the seed, and is unknown
    /// outside.
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
            // Boxed to keep the futures of all actors small.
            Some(fault) => Box::pin(happen_slowly(fault)).await,
        }
    }

    /// Returns whether [`Env::with_faults`] has set a fault plan.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.faults.is_some()
    }

    /// Passes a fault point with a message; returns how many times it is to be delivered: once, without a fault.
    pub(crate) async fn message_point(&self, point: &'static str, subject: &str) -> Result<usize, String> {
        let Some(fault) = self.fault_at(point, subject) else { return Ok(1) };
        let times = fault.deliveries();
        Box::pin(happen_slowly(fault)).await?;
        Ok(times)
    }

    /// The fault that is planned for this passing of a point, for code that carries it out itself.
    pub(crate) fn fault_at(&self, point: &'static str, subject: &str) -> Option<Fault> {
        self.faults.as_ref()?.at(point, subject)
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("now", &self.now()).field("faults", &self.faults.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_world() {
        let (a, b) = (Env::repeatable(7), Env::repeatable(7));
        assert_eq!((a.id(), a.random()), (b.id(), b.random()));
        assert_ne!(a.id(), a.id());
        assert!((0..100).all(|_| RunId(a.id()).cell() == 0));
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(a.now().monotonic, Duration::from_secs(90));
        assert_eq!(a.now().wall, TokioClock::START + Duration::from_secs(90));
    }
}
