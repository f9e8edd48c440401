//! The cookie of a session.

use std::time::Duration;

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};

/// The name over HTTP, and over HTTPS, where the prefix has browsers refuse one that another host has set.
const NAMES: [&str; 2] = ["callboard-session", "__Host-callboard-session"];

/// The secret in the cookie of the session; `None` if there is none, or more than one, of which another host may have set one.
pub(super) fn secret(headers: &HeaderMap, is_secure: bool) -> Option<&str> {
    let name = NAMES[usize::from(is_secure)];
    let pairs = headers.get_all(COOKIE).iter().filter_map(|cookie| cookie.to_str().ok()).flat_map(|it| it.split(';'));
    let mut values = pairs.filter_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='));
    let (value, None) = (values.next()?, values.next()) else { return None };
    Some(value).filter(|value| !value.is_empty())
}

/// The header that sets the cookie, to be kept for this time.
pub(super) fn set(secret: &str, is_secure: bool, kept: Duration) -> Option<HeaderValue> {
    let (name, secure) = (NAMES[usize::from(is_secure)], if is_secure { "; Secure" } else { "" });
    let seconds = kept.as_secs();
    let cookie = format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&cookie).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn one_cookie_of_the_exact_name_counts() {
        let of = |cookies: &[&str], is_secure| {
            let mut headers = HeaderMap::new();
            for cookie in cookies {
                headers.append(COOKIE, cookie.parse().unwrap());
            }
            secret(&headers, is_secure).map(str::to_owned)
        };
        assert_eq!(of(&["a=1; callboard-session=x; b=2"], false).as_deref(), Some("x"));
        assert_eq!(of(&["a=1", "callboard-session=x"], false).as_deref(), Some("x"));
        assert_eq!(of(&["__Host-callboard-session=x"], true).as_deref(), Some("x"));
        for cookies in [
            &[][..],
            &["callboard-session=x; callboard-session=y"],
            &["callboard-session=x", "callboard-session=x"],
            &["callboard-session="],
            &["xcallboard-session=x"],
            &["callboard-sessionx=x"],
            &["Callboard-Session=x"],
        ] {
            assert_eq!(of(cookies, false), None, "{cookies:?}");
        }
        assert_eq!(of(&["callboard-session=x"], true), None, "it may be set by another host");
    }

    #[test]
    fn a_cookie_is_of_one_host_and_no_script_reads_it() {
        let kept = Duration::from_secs(60);
        let plain = set("x", false, kept).unwrap();
        assert_eq!(plain, "callboard-session=x; Path=/; Max-Age=60; HttpOnly; SameSite=Strict");
        let secure = set("x", true, kept).unwrap();
        assert_eq!(secure, "__Host-callboard-session=x; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure");
    }
}
