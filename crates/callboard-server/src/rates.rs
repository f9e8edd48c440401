//! How many requests a token has sent in a minute, how many deliveries a webhook has received, and how many of an address are arriving.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::Timestamp;
use parking_lot::Mutex;

use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Holder};

/// The time in which requests are counted. It begins with the first one that is not in the time before.
const MINUTE: Duration = Duration::from_secs(60);

/// How many deliveries of an address may be unsigned in a minute. Further ones are answered as `overloaded`.
const MAX_UNSIGNED: u32 = 60;

/// How many addresses are counted apart; further ones share one count.
const MAX_ADDRESSES: usize = 4096;

/// How long to wait until a delivery of the same address has arrived.
const ARRIVES: Duration = Duration::from_secs(1);

/// What is counted.
#[derive(Clone, Default)]
pub(crate) struct Rates {
    /// The requests of the tokens that have a limit, by the people whose they are or by their names, and the deliveries of webhooks.
    windows: Arc<Mutex<BTreeMap<Counted, Window>>>,
    /// How many deliveries of an address are arriving, so that nobody knows yet whether they are signed.
    arriving: Arc<Mutex<BTreeMap<Option<IpAddr>, usize>>>,
    /// The unsigned deliveries of addresses in the minute of each.
    unsigned: Arc<Mutex<BTreeMap<Option<IpAddr>, Window>>>,
}

/// An unsigned delivery that was counted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unsigned {
    /// The first of the minute that now begins for this count: [`Rates::end_unsigned`] ends it.
    First(Option<IpAddr>),
    Further,
    /// One too many, and how long the minute lasts.
    TooMany(Duration),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    Requests(Holder),
    Deliveries(Arc<str>),
}

/// A delivery that is arriving.
pub(crate) struct Arriving {
    rates: Rates,
    address: Option<IpAddr>,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut arriving = self.rates.arriving.lock();
        let rest = arriving.remove(&self.address).unwrap_or_default().saturating_sub(1);
        if rest > 0 {
            arriving.insert(self.address, rest);
        }
    }
}

struct Window {
    began: Timestamp,
    requests: u32,
}

impl Rates {
    /// Counts a request, unless the token has sent too many.
    pub(crate) fn count(&self, caller: &Caller, now: Timestamp) -> Result<(), Problem> {
        let Some(limit) = caller.requests_a_minute() else { return Ok(()) };
        self.add(Counted::Requests(caller.holder()), limit, now).map_err(|retry_after| {
            let detail = format!("the token {} may send {limit} requests a minute", caller.name);
            Problem { retry_after: Some(retry_after), ..Problem::new(ProblemCode::Overloaded, detail) }
        })
    }

    /// Counts a delivery, unless the webhook has received too many.
    pub(crate) fn count_webhook(&self, name: &str, limit: u32, now: Timestamp) -> Result<(), Problem> {
        self.add(Counted::Deliveries(name.into()), limit, now).map_err(|retry_after| {
            let detail = format!("a webhook receives at most {limit} deliveries a minute");
            Problem { retry_after: Some(retry_after), ..Problem::new(ProblemCode::Overloaded, detail) }
        })
    }

    /// Admits a delivery of an address, unless too many of it are arriving. Those without an address have one count.
    pub(crate) fn arrive(&self, address: Option<IpAddr>, most: usize) -> Result<Arriving, Problem> {
        let address = address.map(counted);
        let mut arriving = self.arriving.lock();
        let count = arriving.entry(address).or_default();
        if *count >= most {
            let detail = format!("at most {most} deliveries of an address arrive at the same time");
            return Err(Problem { retry_after: Some(ARRIVES), ..Problem::new(ProblemCode::Overloaded, detail) });
        }
        *count += 1;
        Ok(Arriving { rates: self.clone(), address })
    }

    /// Counts a delivery of an address that is not signed. Those that are signed are taken all the same: many senders may have one address.
    pub(crate) fn count_unsigned(&self, address: Option<IpAddr>, now: Timestamp) -> Unsigned {
        let (mut key, mut unsigned) = (address.map(counted), self.unsigned.lock());
        if unsigned.len() >= MAX_ADDRESSES && !unsigned.contains_key(&key) {
            key = None;
        }
        let window = unsigned.entry(key).or_insert(Window { began: now, requests: 0 });
        window.requests = window.requests.saturating_add(1);
        match window.requests {
            1 => Unsigned::First(key),
            ..=MAX_UNSIGNED => Unsigned::Further,
            _ => Unsigned::TooMany(MINUTE.saturating_sub(now.since(window.began)).max(ARRIVES)),
        }
    }

    /// Ends the minute of a count, and returns how many there were beyond the first.
    pub(crate) async fn end_unsigned(&self, counted: Option<IpAddr>) -> u32 {
        tokio::time::sleep(MINUTE).await;
        self.unsigned.lock().remove(&counted).map_or(0, |window| window.requests.saturating_sub(1))
    }

    /// Adds one, or returns how long the minute still lasts.
    fn add(&self, key: Counted, limit: u32, now: Timestamp) -> Result<(), Duration> {
        let mut windows = self.windows.lock();
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

/// What an address counts as: whoever has one of IPv6 usually has all of its network of 64 bits.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
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
        let mut namesake = one;
        (namesake.name, namesake.person) = ("ann".into(), None);
        assert!(at(&namesake), "a token with the name of a person is another holder");
    }

    #[tokio::test(start_paused = true)]
    async fn unsigned_deliveries_are_counted_by_their_address_and_minute() {
        let (rates, now) = (Rates::default(), Timestamp::from_millis(60_000));
        let count = |address: &str| rates.count_unsigned(address.parse().ok(), now);
        let one = "192.0.2.1".parse().ok();
        assert_eq!(count("192.0.2.1"), Unsigned::First(one));
        assert!((2..=60).all(|_| count("::ffff:192.0.2.1") == Unsigned::Further));
        assert_eq!(count("192.0.2.1"), Unsigned::TooMany(Duration::from_secs(60)));
        assert_eq!(rates.count_unsigned(one, now + Duration::from_secs(90)), Unsigned::TooMany(ARRIVES));
        for network in 1..MAX_ADDRESSES {
            assert!(matches!(count(&format!("2001:db8:0:{network:x}::1")), Unsigned::First(Some(_))));
        }
        assert_eq!(count("198.51.100.1"), Unsigned::First(None), "there is no room for one more");
        assert_eq!(count("198.51.100.2"), Unsigned::Further);
        let ended = [rates.end_unsigned(one).await, rates.end_unsigned(one).await, rates.end_unsigned(None).await];
        assert_eq!(ended, [61, 0, 1]);
        assert_eq!(count("192.0.2.1"), Unsigned::First(one));
    }

    #[test]
    fn deliveries_of_an_address_are_counted_while_they_arrive() {
        let rates = Rates::default();
        let arrive = |address: &str| rates.arrive(address.parse().ok(), 2);
        let held = [arrive("192.0.2.1").unwrap(), arrive("::ffff:192.0.2.1").unwrap()];
        let problem = arrive("192.0.2.1").err().unwrap();
        assert_eq!((problem.code, problem.retry_after), (ProblemCode::Overloaded, Some(Duration::from_secs(1))));
        let network = [arrive("2001:db8::1").unwrap(), arrive("2001:db8::ffff:1").unwrap()];
        assert!(arrive("2001:db8::2").is_err(), "its network is one sender");
        assert!(arrive("192.0.2.2").is_ok() && arrive("2001:db8:0:1::1").is_ok() && arrive("none").is_ok());
        drop(held);
        assert!(arrive("192.0.2.1").is_ok());
        drop(network);
        assert!(rates.arriving.lock().is_empty(), "nothing is kept of those that have arrived");
    }
}
