//! The addresses for which the server takes no mail for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;

/// How often a mail is tried that the server does not take yet: over hours, with the usual delays.
const MAX_TRIES: u32 = 50;

/// The addresses that are tried again later. Times are those of a clock that is never set.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<String, Wait>);

struct Wait {
    until: Duration,
    delay: Duration,
    tries: u32,
}

impl Waiting {
    /// Whether a mail may be sent to the address now.
    pub(super) fn is_ready(&self, address: &str, now: Duration) -> bool {
        self.0.get(address).is_none_or(|wait| wait.until <= now)
    }

    /// Notes that a mail was not taken yet; whether it is to be tried again.
    pub(super) fn wait(&mut self, address: &str, [least, greatest]: [Duration; 2], now: Duration) -> bool {
        let first = Wait { until: now, delay: least, tries: 0 };
        let wait = self.0.entry(address.to_owned()).or_insert(first);
        wait.tries += 1;
        if wait.tries >= MAX_TRIES {
            self.0.remove(address);
            return false;
        }
        wait.until = now + wait.delay;
        wait.delay = (wait.delay * 2).min(greatest);
        true
    }

    /// Notes what came of a mail: the next one need not wait.
    pub(super) fn end(&mut self, address: &str) {
        self.0.remove(address);
    }

    /// Waits until one of them may be tried again, if any.
    pub(super) async fn over(&self, now: Duration) {
        match self.0.values().map(|wait| wait.until).filter(|until| *until > now).min() {
            Some(until) => sleep(until.saturating_sub(now)).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_longer_each_time_and_is_given_up_in_the_end() {
        let (mut waiting, mut now) = (Waiting::default(), Duration::ZERO);
        let delays = [Duration::from_secs(1), Duration::from_secs(4)];
        for seconds in [1, 2, 4, 4] {
            assert!(waiting.wait("ann", delays, now) && !waiting.is_ready("ann", now));
            assert!(waiting.is_ready("bob", now));
            now += Duration::from_secs(seconds);
            assert!(waiting.is_ready("ann", now));
        }
        assert_eq!((5..100).take_while(|_| waiting.wait("ann", delays, now)).count(), 45);
        assert!(waiting.is_ready("ann", now));
    }
}
