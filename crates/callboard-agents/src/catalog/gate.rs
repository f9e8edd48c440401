//! The gate of a model or a provider: a breaker and a rate.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{BoardShare, ShareReading};
use callboard::supervision::runs::{Breaker, BreakerState};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::rate::Spending;

pub(super) struct Gate {
    pub(super) breaker: Arc<Mutex<Breaker>>,
    rate_limit: Option<Arc<RateLimit>>,
}

/// A rate in requests per minute, as providers count them: a burst, and then one request after the other as capacity is regained. A board
/// has its part of both.
struct RateLimit {
    requests_per_minute: NonZeroU32,
    /// The share that was spent of, and what is left; `None` before the first request.
    spending: Mutex<Option<(BoardShare, Spending)>>,
    /// Held by the caller that waits for the next free request; the semaphore is fair, so others follow in order.
    first: Semaphore,
}

impl Gate {
    pub(super) fn new(requests_per_minute: Option<NonZeroU32>) -> Self {
        let rate_limit = requests_per_minute.map(|requests_per_minute| {
            Arc::new(RateLimit { requests_per_minute, spending: Mutex::default(), first: Semaphore::new(1) })
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
    pub(super) async fn acquire(&self, share: &BoardShare) {
        let Some(rate_limit) = &self.rate_limit else { return };
        // The semaphore is never closed.
        let _first = rate_limit.first.acquire().await;
        while let Err((reading, wait)) = rate_limit.spend(share) {
            // With other boards, it may be allowed sooner.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = share.changed(&reading) => {}
            }
        }
    }
}

impl RateLimit {
    fn spend(&self, share: &BoardShare) -> Result<(), (ShareReading, Duration)> {
        let mut spending = self.spending.lock();
        let reading = share.read();
        let (_, spending) = match &mut *spending {
            Some(spending) if spending.0.is_clone_of(share) => spending,
            other => other.insert((share.clone(), Spending::new(reading))),
        };
        spending.spend(self.requests_per_minute, reading).map_err(|wait| (reading, wait))
    }
}
