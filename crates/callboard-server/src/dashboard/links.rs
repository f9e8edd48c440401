//! Links to sign in: each is used once, and within a few minutes. They are in memory, by the hashes of their secrets.

use std::time::Duration;

use callboard::messages::Timestamp;
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;

use crate::tokens::{TokenError, TokenRef, hash, new_secret};

/// How long a link can be used.
pub(super) const LIFETIME: Duration = Duration::from_secs(300);
/// The most links at a time. One more takes the place of the oldest.
const MAX_LINKS: usize = 64;

/// The links that were not used yet, the oldest first.
#[derive(Default)]
pub(super) struct Links(Mutex<Vec<Link>>);

struct Link {
    hash: [u8; 32],
    /// Whose session it begins.
    token: TokenRef,
    made_at: Timestamp,
}

impl Link {
    fn is_valid(&self, now: Timestamp) -> bool {
        // A clock that was set back makes no link longer.
        self.made_at <= now && now < self.made_at + LIFETIME
    }
}

impl Links {
    /// Makes a link, and returns its secret.
    pub(super) fn make(&self, token: TokenRef, now: Timestamp) -> Result<String, TokenError> {
        let secret = new_secret()?;
        let mut links = self.0.lock();
        links.retain(|link| link.is_valid(now));
        if links.len() == MAX_LINKS {
            links.remove(0);
        }
        links.push(Link { hash: hash(&secret), token, made_at: now });
        Ok(secret)
    }

    /// Uses the link with this secret up. All hashes are compared, each in constant time.
    pub(super) fn take(&self, secret: &str, now: Timestamp) -> Option<TokenRef> {
        let (hash, mut links) = (hash(secret), self.0.lock());
        let mut found = None;
        for (index, link) in links.iter().enumerate() {
            if bool::from(link.hash.ct_eq(&hash)) {
                found = Some(index);
            }
        }
        let link = links.remove(found?);
        link.is_valid(now).then_some(link.token)
    }

    /// Ends all links, and returns how many there were.
    pub(super) fn end_all(&self, now: Timestamp) -> usize {
        let mut links = self.0.lock();
        links.retain(|link| link.is_valid(now));
        std::mem::take(&mut *links).len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::tokens::Caller;

    #[test]
    fn a_link_is_used_once_and_in_time() {
        let (links, begin) = (Links::default(), Timestamp::from_millis(1_000));
        let token = || Caller::owner().token();
        let secret = links.make(token(), begin).unwrap();
        let first = if secret.starts_with('a') { "b" } else { "a" };
        assert_eq!(links.take(&format!("{first}{}", &secret[1..]), begin), None, "it is another one");
        assert_eq!(links.take(&secret, begin + LIFETIME.saturating_sub(Duration::from_millis(1))), Some(token()));
        assert_eq!(links.take(&secret, begin), None, "it was used");
        let late = links.make(token(), begin).unwrap();
        assert_eq!(links.take(&late, begin + LIFETIME), None);
        let early = links.make(token(), begin).unwrap();
        assert_eq!(links.take(&early, Timestamp::from_millis(999)), None, "the clock was set back");
    }

    #[test]
    fn links_are_bounded_and_end_together() {
        let (links, now) = (Links::default(), Timestamp::from_millis(1_000));
        let secrets: Vec<String> = (0..=MAX_LINKS).map(|_| links.make(Caller::owner().token(), now).unwrap()).collect();
        assert_eq!(links.take(&secrets[0], now), None, "the oldest has made room");
        assert!(links.take(&secrets[1], now).is_some());
        assert_eq!(links.end_all(now), MAX_LINKS - 1);
        assert_eq!(links.take(&secrets[2], now), None);
    }
}
