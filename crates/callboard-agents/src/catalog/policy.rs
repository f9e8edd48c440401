//! How often and how long models are tried.

use std::time::Duration;

use callboard::messages::Backoff;
use callboard::supervision::runs::BreakerPolicy;

/// How often and how long a model is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallPolicy {
    /// How often the same model is asked again, if it had said nothing and may do better (2).
    pub retries: u32,
    /// The waits in between, if the provider does not say (0.5 s, doubling to 8 s).
    pub backoff: Backoff,
    /// The longest wait that a provider may ask for (30 s); if it wants more, the next model is asked.
    pub patience: Duration,
    /// When a model or a provider is left alone, and for how long.
    pub breaker: BreakerPolicy,
}

impl Default for CallPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            backoff: Backoff { first: Duration::from_millis(500), max: Duration::from_secs(8) },
            patience: Duration::from_secs(30),
            breaker: BreakerPolicy::default(),
        }
    }
}
