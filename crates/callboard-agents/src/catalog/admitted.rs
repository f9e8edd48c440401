//! A call that the breakers of a model and of its provider have admitted.

use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::supervision::runs::{BreakerPolicy, BreakerTicket, Signal};

use super::registry::Listed;

/// A call that both breakers have let through. If it is dropped, the breakers count nothing; see [`Admitted::end`].
pub(super) struct Admitted {
    listed: Arc<Listed>,
    env: Env,
    policy: BreakerPolicy,
    tickets: Option<(BreakerTicket, BreakerTicket)>,
}

impl Admitted {
    /// Admits a call.
    ///
    /// # Errors
    /// The owner of the open breaker, and the time after which a call may be admitted.
    pub(super) fn new(
        listed: &Arc<Listed>,
        env: &Env,
        policy: BreakerPolicy,
    ) -> Result<Self, (&'static str, Duration)> {
        let now = env.now().monotonic;
        // Always locked in this order: the model's breaker, then its provider's.
        let (mut model, mut provider) = (listed.gate.breaker.lock(), listed.provider.breaker.lock());
        model.check(&policy, now).map_err(|wait| ("model", wait))?;
        provider.check(&policy, now).map_err(|wait| ("provider", wait))?;
        let tickets = Some((model.admit(), provider.admit()));
        Ok(Self { listed: Arc::clone(listed), env: env.clone(), policy, tickets })
    }

    /// Counts the end of the call.
    pub(super) fn end(&mut self, signal: Signal) {
        let Some((model, provider)) = self.tickets.take() else { return };
        let now = self.env.now().monotonic;
        self.listed.gate.breaker.lock().record(&self.policy, model, signal, now);
        self.listed.provider.breaker.lock().record(&self.policy, provider, signal, now);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.end(Signal::Neutral);
    }
}
