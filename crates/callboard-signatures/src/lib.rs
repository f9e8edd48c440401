//! The signatures of webhooks: Standard Webhooks (version 1 of <https://www.standardwebhooks.com>) and GitHub. Pure.
//!
//! Both are an HMAC with SHA-256. That of Standard Webhooks covers the id and the time of a delivery, that of GitHub the body alone. Whether
//! an id was received before is left to the caller.
//!
//! ```
//! use callboard_signatures::{Scheme, secret_of, sign};
//! use http::HeaderMap;
//! let (secret, now) = (secret_of([7; 32]), 1_767_225_600);
//! let mut headers = HeaderMap::new();
//! headers.insert("webhook-id", "msg_1".parse()?);
//! headers.insert("webhook-timestamp", now.to_string().parse()?);
//! headers.insert("webhook-signature", sign(&secret, "msg_1", now, b"{}")?.parse()?);
//! assert_eq!(Scheme::Standard.check(&secret, &headers, b"{}", now).as_deref(), Ok("msg_1"));
//! assert!(Scheme::Standard.check(&secret, &headers, b"[]", now).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// How far the time of a delivery may be from the clock, in seconds.
pub const MAX_APART: u64 = 5 * 60;
/// The longest id of a delivery, in characters.
const MAX_ID: usize = 128;
/// The most signatures of one delivery: a sender whose secret changes signs with both.
const MAX_SIGNATURES: usize = 8;
/// What secrets of Standard Webhooks begin with.
const PREFIX: &str = "whsec_";
/// The sizes of a secret, in bytes.
const SECRET: std::ops::RangeInclusive<usize> = 24..=64;

const OTHER_FORM: &str = "the secret that is kept has another form";

/// How deliveries are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    Standard,
    /// GitHub: `X-GitHub-Delivery` and `X-Hub-Signature-256`.
    Github,
}

impl Scheme {
    /// Its name in definitions of webhooks.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Github => "github",
        }
    }

    /// Checks a secret that a person has from the sender.
    ///
    /// # Errors
    /// What is wrong with it; the secret is not repeated.
    pub fn check_secret(self, secret: &str) -> Result<(), String> {
        let is_sound = self.key(secret).is_some_and(|key| SECRET.contains(&key.len()));
        let (least, most) = (SECRET.start(), SECRET.end());
        match self {
            _ if is_sound => Ok(()),
            Self::Standard => Err(format!("the secret is `{PREFIX}` and {least} to {most} bytes in base64")),
            Self::Github => Err(format!("the secret has {least} to {most} ASCII characters")),
        }
    }

    /// The key of a secret.
    fn key(self, secret: &str) -> Option<Vec<u8>> {
        match self {
            Self::Standard => STANDARD.decode(secret.strip_prefix(PREFIX)?).ok(),
            Self::Github => {
                let is_text = secret.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
                is_text.then(|| secret.as_bytes().to_vec())
            }
        }
    }

    /// Checks the signature of a delivery, in constant time, and returns the id of the delivery. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// Why it is refused, for the log.
    pub fn check(self, secret: &str, headers: &HeaderMap, body: &[u8], now: u64) -> Result<String, &'static str> {
        let key = self.key(secret).ok_or(OTHER_FORM)?;
        match self {
            Self::Standard => {
                let id = id(headers, "webhook-id")?;
                let at = only(headers, "webhook-timestamp").ok_or("there is not one header webhook-timestamp")?;
                let is_number = !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_digit());
                let secs: u64 = at.parse().ok().filter(|_| is_number).ok_or("webhook-timestamp is no time")?;
                if secs.abs_diff(now) > MAX_APART {
                    return Err("webhook-timestamp is more than 5 minutes from the clock");
                }
                let signatures =
                    only(headers, "webhook-signature").ok_or("there is not one header webhook-signature")?;
                let mac = standard(&key, &id, at, body)?;
                let mut given = signatures.split(' ').take(MAX_SIGNATURES).filter_map(|it| it.strip_prefix("v1,"));
                let is_of = |given: &str| STANDARD.decode(given).is_ok_and(|it| mac.clone().verify_slice(&it).is_ok());
                if given.any(is_of) { Ok(id) } else { Err("webhook-signature has no signature of this delivery") }
            }
            Self::Github => {
                let id = id(headers, "x-github-delivery")?;
                let given = only(headers, "x-hub-signature-256").and_then(|it| digest(it.strip_prefix("sha256=")?));
                let given = given.ok_or("there is not one header X-Hub-Signature-256 with sha256= and 64 digits")?;
                let is_signed = mac(&key, &[body])?.verify_slice(&given).is_ok();
                if is_signed { Ok(id) } else { Err("X-Hub-Signature-256 is not the signature of this body") }
            }
        }
    }
}

/// Signs a delivery by Standard Webhooks, at this time in seconds since 1970: the value of the header `webhook-signature`.
///
/// # Errors
/// The secret is none.
pub fn sign(secret: &str, id: &str, at: u64, body: &[u8]) -> Result<String, &'static str> {
    let key = Scheme::Standard.key(secret).ok_or(OTHER_FORM)?;
    Ok(format!("v1,{}", STANDARD.encode(standard(&key, id, &at.to_string(), body)?.finalize().into_bytes())))
}

/// What Standard Webhooks sign.
fn standard(key: &[u8], id: &str, at: &str, body: &[u8]) -> Result<Hmac<Sha256>, &'static str> {
    mac(key, &[id.as_bytes(), b".", at.as_bytes(), b".", body])
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Result<Hmac<Sha256>, &'static str> {
    let mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_| "the secret has no bytes")?;
    Ok(parts.iter().fold(mac, |mac, part| mac.chain_update(part)))
}

/// A new secret, for both schemes.
#[must_use]
pub fn secret_of(random: [u8; 32]) -> String {
    format!("{PREFIX}{}", STANDARD.encode(random))
}

/// The value of a header that is there once.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    value.to_str().ok()
}

fn id(headers: &HeaderMap, name: &str) -> Result<String, &'static str> {
    let id = only(headers, name).unwrap_or_default();
    let is_id = (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    if is_id { Ok(id.to_owned()) } else { Err("the delivery has no id of 1 to 128 visible characters") }
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (number, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * number..2 * number + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use http::HeaderName;

    use super::*;

    fn headers(of: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    /// The example of the documentation of Standard Webhooks.
    #[test]
    fn the_example_of_standard_webhooks_is_accepted() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let headers = headers(&[
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1a,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ]);
        let body = br#"{"test": 2432232314}"#;
        let at = |secs: u64| Scheme::Standard.check(secret, &headers, body, secs);
        assert_eq!(at(1_614_265_330).as_deref(), Ok("msg_p5jXN8AQM9LWM0D4loKWxJek"));
        assert!(at(1_614_265_630).is_ok() && at(1_614_265_030).is_ok());
        assert!(at(1_614_265_631).is_err() && at(1_614_265_029).is_err());
        let made = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(made.as_deref(), Ok("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    /// The example of the documentation of GitHub.
    #[test]
    fn the_example_of_github_is_accepted() {
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let headers = headers(&[("X-Hub-Signature-256", signature), ("X-GitHub-Delivery", "72d3162e")]);
        let check = |body: &[u8]| Scheme::Github.check("It's a Secret to Everybody", &headers, body, 0);
        assert_eq!(check(b"Hello, World!").as_deref(), Ok("72d3162e"));
        assert!(check(b"Hello, World").is_err());
    }

    #[test]
    fn a_secret_is_long_enough_and_of_its_form() {
        let made = secret_of([7; 32]);
        assert!(Scheme::Standard.check_secret(&made).is_ok() && Scheme::Github.check_secret(&made).is_ok());
        for wrong in ["", "whsec_", "whsec_x", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ="] {
            assert!(Scheme::Standard.check_secret(wrong).is_err(), "{wrong}");
        }
        assert!(Scheme::Github.check_secret("short").is_err() && Scheme::Github.check_secret(&"é".repeat(20)).is_err());
    }
}
