//! The gate of a model or a provider: a breaker and a rate.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::supervision::runs::{Breaker, BreakerState};
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub(super) struct Gate {
    pub(super) breaker: Arc<Mutex<Breaker>>,
    rate_limit: Option<Arc<RateLimit>>,
}

/// A rate in requests per minute, as providers count them: a burst, and then one request after the other as capacity is regained.
struct RateLimit {
    requests_per_minute: NonZeroU32,
    limiter: RateLimiter<NotKeyed, InMemoryState, EnvClock, NoOpMiddleware<Duration>>,
    /// Held by the caller that waits for the next free request; the semaphore is fair, so others follow in order.
    first: Semaphore,
    clock: EnvClock,
}

#[derive(Clone)]
struct EnvClock(Arc<dyn callboard::env::Clock>);

impl Clock for EnvClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.now().monotonic
    }
}

impl Gate {
    pub(super) fn new(env: &Env, requests_per_minute: Option<NonZeroU32>) -> Self {
        let clock = EnvClock(env.clock());
        let rate_limit = requests_per_minute.map(|requests_per_minute| {
            Arc::new(RateLimit {
                requests_per_minute,
                limiter: RateLimiter::direct_with_clock(Quota::per_minute(requests_per_minute), clock.clone()),
                first: Semaphore::new(1),
                clock,
            })
        });
        Self { breaker: Arc::default(), rate_limit }
    }

    /// This gate as the replacement of another: used requests still count if the rate is the same, and the breaker is kept if
    /// `is_known`.
    pub(super) fn after(self: &Arc<Self>, before: &Arc<Self>, is_known: bool) -> Arc<Self> {
        let has_same_rate = self.rate() == before.rate();
        if has_same_rate && is_known {
            return Arc::clone(before);
        }
        let breaker = if is_known { &before.breaker } else { &self.breaker };
        let rate_limit = if has_same_rate { &before.rate_limit } else { &self.rate_limit };
        Arc::new(Self { breaker: Arc::clone(breaker), rate_limit: rate_limit.clone() })
    }

    fn rate(&self) -> Option<NonZeroU32> {
        self.rate_limit.as_ref().map(|rate_limit| rate_limit.requests_per_minute)
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.lock().state()
    }

    /// Waits until a request is allowed, and counts it. A caller that stops waiting counts none.
    pub(super) async fn acquire(&self) {
        let Some(rate_limit) = &self.rate_limit else { return };
        // The semaphore is never closed.
        let _first = rate_limit.first.acquire().await;
        while let Err(full) = rate_limit.limiter.check() {
            tokio::time::sleep(full.wait_time_from(rate_limit.clock.now())).await;
        }
    }
}
