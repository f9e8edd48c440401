//! The circuit breaker of one agent (SEMANTICS 3). Pure: the time is an argument.

use std::time::Duration;

use crate::env::{Mutant, Now};
use crate::messages::Timestamp;

/// When a breaker opens and for how long. [`Builder::breaker`](crate::Builder::breaker) sets it for all agents of a
/// board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// How many consecutive failures open the breaker; 0 counts as 1. The default is 3.
    pub threshold: u32,
    /// How long it stays open the first time; doubles with each failed probe. The default is 30 seconds.
    pub cooldown: Duration,
    /// The longest that it stays open, however many probes have failed. The default is 10 minutes.
    pub max_cooldown: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { threshold: 3, cooldown: Duration::from_secs(30), max_cooldown: Duration::from_secs(600) }
    }
}

/// Which turns a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Lets everything through.
    Closed,
    /// Lets nothing through until its cooldown has passed.
    Open,
    /// Has let one probe through and waits for it.
    HalfOpen,
}

/// What is known of a breaker (SEMANTICS 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerStatus {
    /// The state. It is still [`BreakerState::Open`] when the cooldown has passed, until a probe is admitted.
    pub state: BreakerState,
    /// Turns that have failed in a row. While the breaker is open, turns that were admitted before it opened add to
    /// them.
    pub failures: u32,
    /// When a turn failed last; `None` if none has since a turn succeeded.
    pub last_failure: Option<Timestamp>,
    /// When it opened last; `None` while it is closed.
    pub opened_at: Option<Timestamp>,
}

/// Given to an admitted turn; comes back with how the turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerTicket {
    /// How often the breaker had opened when the turn was admitted.
    epoch: u32,
    probe: bool,
}

/// How an admitted turn ended, as far as a breaker cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It returned a command.
    Success,
    /// It failed for good by errors, panics or timeouts.
    Failure,
    /// It was cancelled, suspended, refused, or failed terminally: neutral.
    Neutral,
}

/// Counts an agent's failures and decides whether it gets new turns.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    failures: u32,
    last_failure: Option<Duration>,
    opened_at: Option<Duration>,
    cooldowns: u32,
    epoch: u32,
    probing: bool,
}

impl Breaker {
    /// Whether a turn may be admitted now; if not, after how long it may be worth asking again.
    ///
    /// # Errors
    /// The time until a probe may go through.
    pub fn check(&self, policy: &BreakerPolicy, now: Duration) -> Result<(), Duration> {
        let Some(opened_at) = self.opened_at else { return Ok(()) };
        let waited = now.saturating_sub(opened_at);
        let cooldown = self.cooldown(policy);
        if waited < cooldown {
            Err(cooldown - waited)
        } else if self.probing {
            Err(policy.cooldown)
        } else {
            Ok(())
        }
    }

    /// Takes the place of an admitted turn; call only after [`Breaker::check`] under the same lock.
    #[must_use]
    pub fn admit(&mut self) -> BreakerTicket {
        let probe = self.opened_at.is_some();
        self.probing |= probe;
        BreakerTicket { epoch: self.epoch, probe }
    }

    /// Returns whether the breaker is closed, so that it lets everything through.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.opened_at.is_none()
    }

    /// Whether the ticket is that of the probe that is under way.
    #[must_use]
    pub fn is_probed_by(&self, ticket: BreakerTicket) -> bool {
        ticket.probe && ticket.epoch == self.epoch && self.probing
    }

    /// Takes back the probe of a turn that waits for something else than its agent, such as a person; another turn may be the
    /// probe now. The ticket that the turn has from then on neither closes nor opens it while it is open.
    #[must_use]
    pub fn give_back(&mut self, ticket: BreakerTicket) -> BreakerTicket {
        if !self.is_probed_by(ticket) {
            return ticket;
        }
        self.probing = false;
        BreakerTicket { epoch: self.epoch.wrapping_sub(1), probe: false }
    }

    /// When a turn failed last, as a reading of the monotonic clock; `None` if it has not failed since it was last
    /// closed.
    #[must_use]
    pub fn last_failure(&self) -> Option<Duration> {
        self.last_failure
    }

    /// Counts how an admitted turn ended, with the ticket that [`Breaker::admit`] returned for it: a failure may open
    /// the breaker, the success of its probe closes it.
    pub fn record(&mut self, policy: &BreakerPolicy, ticket: BreakerTicket, signal: Signal, now: Duration) {
        let is_current = ticket.epoch == self.epoch;
        if ticket.probe && is_current {
            self.probing = false;
        }
        match signal {
            Signal::Neutral => {}
            Signal::Failure if Mutant::BreakerNeverOpens.is_injected() => {}
            // A turn that was admitted before the breaker opened does not close it. While the breaker is closed, a success of any
            // turn resets the count of consecutive failures.
            Signal::Success if is_current || self.is_closed() => *self = Self { epoch: self.epoch, ..Self::default() },
            Signal::Success => {}
            Signal::Failure => {
                self.last_failure = Some(now);
                self.failures = self.failures.saturating_add(1);
                let probe_failed = ticket.probe && is_current;
                if probe_failed {
                    self.cooldowns += 1;
                }
                if probe_failed || (self.opened_at.is_none() && self.failures >= policy.threshold) {
                    self.opened_at = Some(now);
                    self.epoch += 1;
                }
            }
        }
    }

    /// Returns the state. The time does not change it: an open breaker whose cooldown has passed stays open until a
    /// probe is admitted.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        match (self.opened_at, self.probing) {
            (None, _) => BreakerState::Closed,
            (Some(_), false) => BreakerState::Open,
            (Some(_), true) => BreakerState::HalfOpen,
        }
    }

    /// Returns the number of failures since a success last reset it to 0.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the state, the failures and their times; `now` converts readings of the monotonic clock to wall time.
    #[must_use]
    pub fn status(&self, now: Now) -> BreakerStatus {
        let wall = |moment: Duration| {
            let ago = now.monotonic.saturating_sub(moment).as_millis();
            Timestamp::from_millis(now.wall.as_millis().saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX)))
        };
        BreakerStatus {
            state: self.state(),
            failures: self.failures,
            last_failure: self.last_failure.map(wall),
            opened_at: self.opened_at.map(wall),
        }
    }

    fn cooldown(&self, policy: &BreakerPolicy) -> Duration {
        policy.cooldown.saturating_mul(1_u32.checked_shl(self.cooldowns).unwrap_or(u32::MAX)).min(policy.max_cooldown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerPolicy =
        BreakerPolicy { threshold: 3, cooldown: Duration::from_secs(30), max_cooldown: Duration::from_secs(100) };

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn opened_at_zero() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            let ticket = breaker.admit();
            breaker.record(&POLICY, ticket, Signal::Failure, at(0));
        }
        breaker
    }

    #[test]
    fn three_failures_in_a_row_open_and_a_success_between_resets() {
        let mut breaker = Breaker::default();
        for signal in
            [Signal::Failure, Signal::Failure, Signal::Success, Signal::Failure, Signal::Neutral, Signal::Failure]
        {
            let ticket = breaker.admit();
            breaker.record(&POLICY, ticket, signal, at(0));
        }
        assert_eq!((breaker.state(), breaker.failures()), (BreakerState::Closed, 2));
        let ticket = breaker.admit();
        breaker.record(&POLICY, ticket, Signal::Failure, at(0));
        assert_eq!(breaker.check(&POLICY, at(1)), Err(at(29)));
    }

    #[test]
    fn half_open_admits_one_probe_whose_end_decides() {
        let mut breaker = opened_at_zero();
        assert_eq!(breaker.check(&POLICY, at(30)), Ok(()));
        let probe = breaker.admit();
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert_eq!(breaker.check(&POLICY, at(30)), Err(at(30)), "one is under way");
        breaker.record(&POLICY, probe, Signal::Failure, at(31));
        assert_eq!(breaker.check(&POLICY, at(31)), Err(at(60)), "the cooldown doubles");
        let probe = breaker.admit();
        breaker.record(&POLICY, probe, Signal::Failure, at(91));
        assert_eq!(breaker.check(&POLICY, at(91)), Err(at(100)), "up to its bound");
        let probe = breaker.admit();
        breaker.record(&POLICY, probe, Signal::Success, at(200));
        assert_eq!((breaker.state(), breaker.failures()), (BreakerState::Closed, 0));
    }

    #[test]
    fn a_probe_with_a_neutral_end_is_released() {
        let mut breaker = opened_at_zero();
        let probe = breaker.admit();
        breaker.record(&POLICY, probe, Signal::Neutral, at(31));
        assert_eq!(breaker.check(&POLICY, at(31)), Ok(()));
    }

    #[test]
    fn any_success_ends_a_row_of_failures_once_it_is_closed_again() {
        let mut breaker = Breaker::default();
        let early = breaker.admit();
        for _ in 0..3 {
            let ticket = breaker.admit();
            breaker.record(&POLICY, ticket, Signal::Failure, at(0));
        }
        let probe = breaker.admit();
        breaker.record(&POLICY, probe, Signal::Success, at(30));
        let ticket = breaker.admit();
        breaker.record(&POLICY, ticket, Signal::Failure, at(31));
        assert_eq!((breaker.failures(), breaker.last_failure()), (1, Some(at(31))));
        breaker.record(&POLICY, early, Signal::Success, at(32));
        assert_eq!((breaker.failures(), breaker.last_failure()), (0, None));
    }

    #[test]
    fn turns_admitted_before_it_opened_do_not_close_it() {
        let mut breaker = Breaker::default();
        let early = breaker.admit();
        for _ in 0..3 {
            let ticket = breaker.admit();
            breaker.record(&POLICY, ticket, Signal::Failure, at(0));
        }
        breaker.record(&POLICY, early, Signal::Success, at(1));
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.record(&POLICY, early, Signal::Failure, at(5));
        assert_eq!(breaker.check(&POLICY, at(5)), Err(at(25)), "nor hold it open for longer");
    }
}
