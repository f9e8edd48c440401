//! The breaker of a tool: a tool that repeatedly does not answer in time is not used for a while (SEMANTICS 3).

use std::time::Duration;

use callboard::supervision::runs::{Breaker, BreakerPolicy, BreakerTicket, Signal};
use parking_lot::Mutex;

/// The breaker of one tool. Only timeouts count against it: a tool that answers with an error is available.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<Breaker>);

impl Gate {
    /// Admits a use.
    ///
    /// # Errors
    /// After how long the tool may be worth another try.
    pub(crate) fn admit(&self, now: Duration) -> Result<Admitted<'_>, Duration> {
        let mut breaker = self.0.lock();
        breaker.check(&BreakerPolicy::default(), now)?;
        Ok(Admitted { gate: self, ticket: Some(breaker.admit()) })
    }

    fn record(&self, ticket: BreakerTicket, signal: Signal, now: Duration) {
        self.0.lock().record(&BreakerPolicy::default(), ticket, signal, now);
    }
}

/// An admitted use. If it is dropped, nothing is counted for the tool.
pub(crate) struct Admitted<'a> {
    gate: &'a Gate,
    ticket: Option<BreakerTicket>,
}

impl Admitted<'_> {
    /// Ends the use: counts whether the tool has answered, at this reading of the board's clock.
    pub(crate) fn end(mut self, has_answered: bool, now: Duration) {
        let signal = if has_answered { Signal::Success } else { Signal::Failure };
        if let Some(ticket) = self.ticket.take() {
            self.gate.record(ticket, signal, now);
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.record(ticket, Signal::Neutral, Duration::ZERO);
        }
    }
}
