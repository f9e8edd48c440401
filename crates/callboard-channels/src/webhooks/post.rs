//! One signed request to a receiver, and what can go wrong.

use std::fmt;
use std::time::Duration;

use callboard::messages::{Timestamp, visible};
use callboard_signatures::sign;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};

use super::config::Webhook;
use super::error::WebhooksError;
use super::secret::WebhookSecret;
use crate::calls;

/// How much of an answer is read. Nothing of it is used.
const MAX_ANSWER: usize = 64 * 1024;
/// The most characters of an error that are shown.
const MAX_SHOWN: usize = 200;
/// The longest time that a receiver can have the channel wait.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// A message with its id, which is the same whenever it is sent again.
pub(super) struct Delivery<'a> {
    pub(super) id: &'a str,
    pub(super) body: &'a str,
}

/// Why a message was not taken. No text of it has the address or the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PostError {
    /// Too many messages: the next one is taken after this time.
    Wait(Duration),
    /// The receiver refuses this message, and would refuse it again.
    Refused(u16),
    /// The receiver cannot be reached, or fails.
    Unreachable(String),
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(time) => write!(f, "too many messages; the next one in {} s", time.as_secs()),
            Self::Refused(status) => write!(f, "it refuses the message with the status {status}"),
            Self::Unreachable(why) => f.write_str(why),
        }
    }
}

/// Where the messages of a webhook are sent to.
pub(super) struct Receiver {
    client: Client,
    url: Url,
    secret: WebhookSecret,
    timeout: Duration,
}

impl Receiver {
    /// # Errors
    /// The address is none, or is not used without TLS; or TLS cannot be set up.
    pub(super) fn new(webhook: &Webhook, timeout: Duration) -> Result<Self, WebhooksError> {
        let url = calls::address(&webhook.url, webhook.without_tls)
            .map_err(|why| WebhooksError::Address { name: webhook.name.to_string(), why })?;
        let client = calls::client(&url).map_err(WebhooksError::Tls)?;
        Ok(Self { client, url, secret: webhook.secret.clone(), timeout })
    }

    /// Sends a message, signed at this time.
    pub(super) async fn post(&self, delivery: Delivery<'_>, now: Timestamp) -> Result<(), PostError> {
        let Delivery { id, body } = delivery;
        let at = now.as_millis() / 1_000;
        let signature = sign(self.secret.expose(), id, at, body.as_bytes());
        let signature = signature.map_err(|why| PostError::Unreachable(why.to_owned()))?;
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", at.to_string())
            .header("webhook-signature", signature)
            .body(body.to_owned())
            .timeout(self.timeout);
        let answered = async {
            let mut response = request.send().await?;
            calls::read(&mut response, MAX_ANSWER).await?;
            Ok((response.status(), response.headers().clone()))
        };
        let (status, headers) = answered.await.map_err(|error| self.unreachable(error))?;
        taken(status, &headers)
    }

    fn unreachable(&self, error: reqwest::Error) -> PostError {
        let text = self.secret.masked(&calls::causes(error));
        PostError::Unreachable(visible(&text.chars().take(MAX_SHOWN).collect::<String>()))
    }
}

/// What a status means.
fn taken(status: StatusCode, headers: &HeaderMap) -> Result<(), PostError> {
    let wait = headers.get(RETRY_AFTER).and_then(|secs| secs.to_str().ok()?.parse().ok());
    match (status, wait) {
        _ if status.is_success() => Ok(()),
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(secs)) => {
            Err(PostError::Wait(Duration::from_secs(secs).min(MAX_WAIT)))
        }
        (StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY, _) => {
            Err(PostError::Refused(status.as_u16()))
        }
        _ => Err(PostError::Unreachable(format!("it answers with the status {}", status.as_u16()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_success_a_refusal_a_time_to_wait_or_a_failure() {
        let mut headers = HeaderMap::new();
        let of = |status, headers: &HeaderMap| taken(StatusCode::from_u16(status).unwrap(), headers);
        assert!(of(200, &headers).is_ok() && of(204, &headers).is_ok());
        for status in [400, 413, 422] {
            assert_eq!(of(status, &headers), Err(PostError::Refused(status)));
        }
        for status in [302, 401, 404, 410, 429, 500, 503] {
            assert!(matches!(of(status, &headers), Err(PostError::Unreachable(_))), "{status}");
        }
        headers.insert(RETRY_AFTER, "100000".parse().unwrap());
        assert_eq!(of(429, &headers), Err(PostError::Wait(MAX_WAIT)));
        assert!(matches!(of(500, &headers), Err(PostError::Unreachable(_))));
    }
}
