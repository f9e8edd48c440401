//! The calls of a homeserver that the channel makes, and what can go wrong.

use std::fmt;
use std::time::Duration;

use callboard::messages::visible;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Method, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::MatrixError;
use super::rooms::Trouble;
use super::synced::Synced;
use super::token::AccessToken;
use crate::calls;

/// How long a call may take, beyond the time that it asks the server to wait.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of an answer: the events of all rooms are below.
const MAX_ANSWER: usize = 64 << 20;
/// The most events of a room in an answer.
const MAX_EVENTS: u32 = 50;
/// The most characters of a text of the server that are shown.
const MAX_SHOWN: usize = 200;
/// How long is waited where a server allows no more calls and does not say for how long.
const WAIT: Duration = Duration::from_secs(5);
/// The longest time that a server can have the channel wait.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Why a call has failed. No text of it contains the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// Too many calls: the next one is allowed after this time.
    Wait(Duration),
    /// The server refuses the call.
    Refused { status: u16, text: String },
    /// There was no answer, or it is none of a homeserver.
    Unreachable(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(time) => write!(f, "too many calls; the next one in {} ms", time.as_millis()),
            Self::Refused { status: 401, text } => {
                write!(f, "it does not know the access token ({text}): sign in again, and replace the token")
            }
            Self::Refused { status, text } => write!(f, "it refuses with {status}: {text}"),
            Self::Unreachable(text) => f.write_str(text),
        }
    }
}

impl CallError {
    /// The text of a refusal that concerns one room or event; everything else fails as before.
    pub(super) fn of_room(self) -> Result<String, Self> {
        match self {
            Self::Refused { status: 400 | 403 | 404 | 413, text } => Ok(text),
            error => Err(error),
        }
    }
}

/// What a server answers that refuses.
#[derive(Default, Deserialize)]
struct Refusal {
    errcode: String,
    #[serde(default)]
    error: String,
    retry_after_ms: Option<u64>,
}

/// A homeserver, with an account.
pub(super) struct Api {
    client: Client,
    base: Url,
    token: AccessToken,
}

impl Api {
    /// # Errors
    /// The address is none, or is not used without TLS; or TLS cannot be set up.
    pub(super) fn new(base: &str, token: AccessToken) -> Result<Self, MatrixError> {
        let base = address(base)?;
        let client = calls::client(&base).map_err(MatrixError::Tls)?;
        Ok(Self { client, base, token })
    }

    /// The id of the account.
    pub(super) async fn account(&self) -> Result<String, CallError> {
        let answer = self.call(Method::GET, &["account", "whoami"], None).await?;
        text(&answer, "user_id")
    }

    /// What is new since then, as soon as there is something; nothing new after this time.
    pub(super) async fn sync(&self, since: &str, wait: Duration, event_type: &str) -> Result<Synced, CallError> {
        let query = [("since", since.to_owned()), ("timeout", wait.as_millis().to_string())];
        self.synced(&query, wait, &filter(event_type, MAX_EVENTS)).await
    }

    /// Where the first call begins, and the rooms of the account.
    pub(super) async fn begin(&self, event_type: &str) -> Result<Synced, CallError> {
        self.synced(&[("timeout", "0".to_owned())], Duration::ZERO, &filter(event_type, 1)).await
    }

    async fn synced(&self, query: &[(&str, String)], wait: Duration, filter: &Value) -> Result<Synced, CallError> {
        let mut url = self.url(&["sync"]);
        for (name, value) in query {
            url.query_pairs_mut().append_pair(name, value);
        }
        url.query_pairs_mut().append_pair("filter", &filter.to_string());
        let answer = self.called(Method::GET, url, None, wait).await?;
        Synced::of(&answer).ok_or_else(|| not_of_matrix(200))
    }

    /// Joins a room, or stays in it; why that cannot be done.
    pub(super) async fn join(&self, room: &str) -> Result<Result<(), Trouble>, CallError> {
        let joined = self.call(Method::POST, &["rooms", room, "join"], Some(&json!({}))).await;
        joined.map(|_| Ok(())).or_else(|error| Ok(Err(Trouble::NotIn(error.of_room()?))))
    }

    /// Whether messages can be sent to a room that the account is in.
    pub(super) async fn look(&self, room: &str) -> Result<Result<(), Trouble>, CallError> {
        match self.call(Method::GET, &["rooms", room, "state", "m.room.encryption", ""], None).await {
            Ok(_) => Ok(Err(Trouble::Encrypted)),
            Err(CallError::Refused { status: 404, .. }) => Ok(Ok(())),
            Err(error) => Ok(Err(Trouble::NotIn(error.of_room()?))),
        }
    }

    /// Sends a message, and returns the id of its event: that of the first one that was sent with this transaction.
    pub(super) async fn send(&self, room: &str, transaction: &str, content: &Value) -> Result<String, CallError> {
        let path = ["rooms", room, "send", "m.room.message", transaction];
        text(&self.call(Method::PUT, &path, Some(content)).await?, "event_id")
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["_matrix", "client", "v3"]).extend(path);
        }
        url
    }

    async fn call(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Value, CallError> {
        self.called(method, self.url(path), body, Duration::ZERO).await
    }

    async fn called(&self, method: Method, url: Url, body: Option<&Value>, wait: Duration) -> Result<Value, CallError> {
        let mut request = self.client.request(method, url).header(AUTHORIZATION, self.bearer()?);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answered = async {
            let mut response = request.timeout(TIMEOUT + wait).send().await?;
            Ok((response.status().as_u16(), calls::read(&mut response, MAX_ANSWER).await?))
        };
        let (status, bytes) = answered.await.map_err(|error: reqwest::Error| self.unreachable(error))?;
        match status {
            200..=299 => serde_json::from_slice(&bytes).map_err(|_| not_of_matrix(status)),
            _ => Err(self.refusal(status, &bytes)),
        }
    }

    /// The header, which logs do not show.
    fn bearer(&self) -> Result<HeaderValue, CallError> {
        let value = HeaderValue::from_str(&format!("Bearer {}", self.token.expose()));
        let mut value = value.map_err(|_| CallError::Unreachable("the access token fits into no header".to_owned()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn refusal(&self, status: u16, bytes: &[u8]) -> CallError {
        let Ok(Refusal { errcode, error, retry_after_ms }) = serde_json::from_slice(bytes) else {
            return not_of_matrix(status);
        };
        if status == 429 || errcode == "M_LIMIT_EXCEEDED" {
            return CallError::Wait(retry_after_ms.map_or(WAIT, Duration::from_millis).min(MAX_WAIT));
        }
        let text = self.shown(&format!("{errcode}: {error}"));
        match status {
            400..=499 => CallError::Refused { status, text },
            _ => CallError::Unreachable(format!("it fails with {status}: {text}")),
        }
    }

    /// The error without the URL, and with its causes.
    fn unreachable(&self, error: reqwest::Error) -> CallError {
        CallError::Unreachable(self.shown(&calls::causes(error)))
    }

    /// A text that the server had a part in.
    fn shown(&self, text: &str) -> String {
        let text = self.token.masked(text);
        visible(&text.chars().take(MAX_SHOWN).collect::<String>())
    }
}

/// The events that the channel reads, and no others.
fn filter(event_type: &str, events: u32) -> Value {
    let types = json!(["m.room.message", "m.room.member", "m.room.encryption", format!("{event_type}.answer")]);
    let none = json!({ "types": [] });
    json!({
        "presence": none, "account_data": none,
        "room": {
            "timeline": { "types": types, "limit": events }, "state": { "types": ["m.room.encryption"] },
            "ephemeral": none, "account_data": none,
        },
    })
}

fn text(answer: &Value, key: &str) -> Result<String, CallError> {
    answer[key].as_str().map(str::to_owned).ok_or_else(|| not_of_matrix(200))
}

fn not_of_matrix(status: u16) -> CallError {
    CallError::Unreachable(format!("the answer (status {status}) is none of a homeserver of Matrix"))
}

/// # Errors
/// It is no address of a server, or the token would cross a network unencrypted.
pub(super) fn address(text: &str) -> Result<Url, MatrixError> {
    let url = calls::address(text, false).map_err(MatrixError::Address)?;
    if url.query().is_some() {
        return Err(MatrixError::Address("it has a query".to_owned()));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_crosses_no_network_unencrypted() {
        for (text, is_allowed) in [
            ("https://matrix.example.org", true),
            ("https://matrix.example.org/path/", true),
            ("http://127.0.0.1:8008", true),
            ("http://matrix.example.org", false),
            ("https://a:b@example.org", false),
            ("https://example.org?x", false),
            ("example.org", false),
        ] {
            assert_eq!(address(text).is_ok(), is_allowed, "{text}");
        }
    }

    #[test]
    fn ids_stay_one_part_of_a_path() {
        let api = Api::new("http://127.0.0.1/matrix/", AccessToken::new("secret-token").unwrap()).unwrap();
        let url = api.url(&["rooms", "!a/../b?c#d:e", "join"]);
        assert_eq!(url.path(), "/matrix/_matrix/client/v3/rooms/!a%2F..%2Fb%3Fc%23d:e/join");
    }

    #[test]
    fn a_server_that_limits_calls_has_them_wait() {
        let api = Api::new("http://127.0.0.1", AccessToken::new("secret-token").unwrap()).unwrap();
        let wait = |body: &[u8]| api.refusal(429, body);
        let limited = wait(br#"{"errcode":"M_LIMIT_EXCEEDED","error":"no","retry_after_ms":1500}"#);
        assert_eq!(limited, CallError::Wait(Duration::from_millis(1_500)));
        let forever = wait(br#"{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":18446744073709551615}"#);
        assert_eq!(forever, CallError::Wait(MAX_WAIT));
        assert_eq!(wait(br#"{"errcode":"M_LIMIT_EXCEEDED"}"#), CallError::Wait(WAIT));
    }
}
