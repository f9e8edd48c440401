//! How many requests a token has sent in a minute, and how many deliveries a webhook has received.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::Timestamp;
use parking_lot::Mutex;

use crate::problem::{Problem, ProblemCode};
use crate::tokens::Caller;

/// The time in which requests are counted. It begins with the first one that is not in the time before.
const MINUTE: Duration = Duration::from_secs(60);

/// The requests of the tokens that have a limit, by the people whose they are or by their names, and the deliveries of webhooks.
#[derive(Clone, Default)]
pub(crate) struct Rates(Arc<Mutex<BTreeMap<Key, Window>>>);

type Key = (Counted, Arc<str>);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    Token,
    Webhook,
}

struct Window {
    began: Timestamp,
    requests: u32,
}

impl Rates {
    /// Counts a request, unless the token has sent too many.
    pub(crate) fn count(&self, caller: &Caller, now: Timestamp) -> Result<(), Problem> {
        let Some(limit) = caller.requests_a_minute() else { return Ok(()) };
        self.add((Counted::Token, Arc::clone(caller.by())), limit, now).map_err(|retry_after| {
            let detail = format!("the token {} may send {limit} requests a minute", caller.name);
            Problem { retry_after: Some(retry_after), ..Problem::new(ProblemCode::Overloaded, detail) }
        })
    }

    /// Counts a delivery, unless the webhook has received too many.
    pub(crate) fn count_webhook(&self, name: &str, limit: u32, now: Timestamp) -> Result<(), Problem> {
        self.add((Counted::Webhook, name.into()), limit, now).map_err(|retry_after| {
            let detail = format!("a webhook receives at most {limit} deliveries a minute");
            Problem { retry_after: Some(retry_after), ..Problem::new(ProblemCode::Overloaded, detail) }
        })
    }

    /// Adds one, or returns how long the minute still lasts.
    fn add(&self, key: Key, limit: u32, now: Timestamp) -> Result<(), Duration> {
        let mut windows = self.0.lock();
        let window = windows.entry(key).or_insert(Window { began: now, requests: 0 });
        // The wall clock may have been set back.
        if now < window.began || now.since(window.began) >= MINUTE {
            *window = Window { began: now, requests: 0 };
        }
        if window.requests < limit {
            window.requests += 1;
            return Ok(());
        }
        Err(MINUTE.saturating_sub(now.since(window.began)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::env::Env;

    use super::*;
    use crate::tokens::{TokenSpec, Tokens};

    #[test]
    fn requests_are_counted_in_minutes_and_what_is_left_of_one_is_reported() {
        let tokens = Tokens::new(Env::system());
        let secret = tokens.add(TokenSpec::new("ci", []).requests_a_minute(2)).unwrap();
        let caller = tokens.caller(&secret).unwrap().unwrap();
        let rates = Rates::default();
        let at = |secs: u64| rates.count(&caller, Timestamp::from_millis(secs * 1000));
        assert!(at(100).is_ok() && at(130).is_ok());
        let refused = at(140).unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (ProblemCode::Overloaded, Some(Duration::from_secs(20))));
        assert!(at(160).is_ok() && at(161).is_ok() && at(162).is_err());
        assert!(at(10).is_ok(), "the clock was set back");

        let [one, other] = ["phone", "laptop"].map(|name| {
            let mut caller = caller.clone();
            (caller.name, caller.person) = (name.into(), Some("ann".into()));
            caller
        });
        let at = |caller: &Caller| rates.count(caller, Timestamp::from_millis(1000)).is_ok();
        assert_eq!([at(&one), at(&other), at(&one), at(&other)], [true, true, false, false], "both are of one person");
    }
}
