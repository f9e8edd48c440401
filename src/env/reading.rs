//! Readings of a clock, and random numbers: the inputs of rules from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::messages::Timestamp;

/// Monotonic and wall time of one reading of a [`Clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since the clock was made; never goes back. Deadlines and backoff use it.
    pub monotonic: Duration,
    /// Wall-clock time. Expiry dates and journal entries use it.
    pub wall: Timestamp,
}

/// The source of time of an [`Env`](super::Env): reads monotonic and wall time together.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current reading. Its monotonic time is never less than that of an earlier one.
    fn now(&self) -> Now;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Now {
        (**self).now()
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
