//! The calls of a homeserver that the channel makes, and what can go wrong.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use callboard::messages::visible;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Url};
use ruma_identifiers_validation::{ID_MAX_BYTES, room_id, user_id};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::MatrixError;
use super::rooms::Trouble;
use super::synced::{CREATE, ENCRYPTION, JOIN_RULES, MEMBER, MESSAGE, POWER_LEVELS, Page, Synced, TOMBSTONE};
use super::token::AccessToken;
use crate::calls;

/// How long a call may take, beyond the time that it asks the server to wait.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of an answer with events: those of all rooms, or of one page, are below.
const MAX_EVENT_BYTES: usize = 64 << 20;
/// The most bytes of any other answer.
const MAX_ANSWER: usize = 1 << 20;
/// The most events of a room in an answer of `/sync`.
const MAX_EVENTS: u32 = 50;
/// The most events in a page of the history of a room.
const MAX_PAGE: u32 = 100;
/// The rule of rooms that nobody enters uninvited.
const INVITE: &str = "invite";
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

/// What is read, and nothing else.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) rooms: &'a BTreeSet<String>,
    /// The types of events beside those that every room has.
    pub(super) types: &'a [String],
}

impl Scope<'_> {
    /// The types of events that are read.
    fn types(&self) -> Value {
        let all = [MESSAGE, MEMBER, ENCRYPTION, TOMBSTONE, POWER_LEVELS, JOIN_RULES];
        all.into_iter().chain(self.types.iter().map(String::as_str)).collect()
    }

    /// The filter of `/sync`, with so many events of a room.
    fn filter(&self, events: u32) -> Value {
        let none = json!({ "types": [] });
        json!({
            "presence": none, "account_data": none,
            "room": {
                "rooms": self.rooms, "timeline": { "types": self.types(), "limit": events },
                "state": { "types": [ENCRYPTION, TOMBSTONE, POWER_LEVELS, JOIN_RULES] },
                "ephemeral": none, "account_data": none,
            },
        })
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
        // It is shown, and the server may have put anything there.
        let is_account = |id: &String| user_id::validate(id).is_ok() && self.token.masked(id) == *id;
        text(&answer, "user_id").filter(is_account).ok_or_else(|| not_of_matrix(200))
    }

    /// What is new since then, as soon as there is something; nothing new after this time.
    pub(super) async fn sync(&self, since: &str, wait: Duration, scope: Scope<'_>) -> Result<Synced, CallError> {
        let filter = scope.filter(MAX_EVENTS).to_string();
        self.synced(&[("since", since), ("timeout", &wait.as_millis().to_string()), ("filter", &filter)], wait).await
    }

    /// Where the first call begins, and the newest event of each room.
    pub(super) async fn begin(&self, scope: Scope<'_>) -> Result<Synced, CallError> {
        self.synced(&[("timeout", "0"), ("filter", &scope.filter(1).to_string())], Duration::ZERO).await
    }

    async fn synced(&self, query: &[(&str, &str)], wait: Duration) -> Result<Synced, CallError> {
        let answer = self.events(&["sync"], query, wait).await?;
        Synced::of(&answer).ok_or_else(|| not_of_matrix(200))
    }

    /// The newest events of a room before a place, back to the place `to`.
    pub(super) async fn page(
        &self,
        room: &str,
        (before, to): (&str, Option<&str>),
        scope: Scope<'_>,
    ) -> Result<Page, CallError> {
        let (filter, limit) = (json!({ "types": scope.types() }).to_string(), MAX_PAGE.to_string());
        let mut query = vec![("dir", "b"), ("from", before), ("limit", &limit), ("filter", &filter)];
        query.extend(to.map(|to| ("to", to)));
        let answer = self.events(&["rooms", room, "messages"], &query, Duration::ZERO).await?;
        Page::of(&answer).ok_or_else(|| not_of_matrix(200))
    }

    /// An answer with events.
    async fn events(&self, path: &[&str], query: &[(&str, &str)], wait: Duration) -> Result<Vec<u8>, CallError> {
        let mut url = self.url(path);
        url.query_pairs_mut().extend_pairs(query);
        self.called(self.client.get(url).timeout(TIMEOUT + wait), MAX_EVENT_BYTES).await
    }

    /// Joins a room, or stays in it; why that cannot be done.
    pub(super) async fn join(&self, room: &str) -> Result<Result<(), Trouble>, CallError> {
        let joined = self.request(Method::POST, &["rooms", room, "join"], Some(&json!({}))).await;
        joined.map(|_| Ok(())).or_else(|error| Ok(Err(Trouble::NotIn(error.of_room()?))))
    }

    /// Whether messages can be sent to a room that the account is in; of a private one also whether nobody enters it uninvited.
    pub(super) async fn look(&self, room: &str, is_private: bool) -> Result<Result<(), Trouble>, CallError> {
        match self.state(room, (ENCRYPTION, "")).await {
            Ok(Some(_)) => return Ok(Err(Trouble::Encrypted)),
            Ok(None) => {}
            Err(error) => return Ok(Err(Trouble::NotIn(error.of_room()?))),
        }
        let replaced = self.state(room, (TOMBSTONE, "")).await?;
        let by = replaced.and_then(|content| text(&content, "replacement_room"));
        if let Some(by) = by.filter(|by| room_id::validate(by).is_ok()) {
            return Ok(Err(Trouble::Replaced(by)));
        }
        if !is_private {
            return Ok(Ok(()));
        }
        let rules = self.state(room, (JOIN_RULES, "")).await?;
        let rule = rules.and_then(|content| text(&content, "join_rule")).unwrap_or_default();
        if rule != INVITE {
            return Ok(Err(Trouble::Open(self.shown(&rule))));
        }
        let account = self.account().await?;
        let (powers, created) = (self.state(room, (POWER_LEVELS, "")).await?, self.state(room, (CREATE, "")).await?);
        let may_send = powers.is_none_or(|powers| may_send(&powers, &created.unwrap_or_default(), &account));
        Ok(if may_send { Ok(()) } else { Err(Trouble::Mute) })
    }

    /// The content of a part of the state of a room, by its type and key; `None` if it is not set.
    pub(super) async fn state(&self, room: &str, (kind, key): (&str, &str)) -> Result<Option<Value>, CallError> {
        match self.request(Method::GET, &["rooms", room, "state", kind, key], None).await {
            Ok(bytes) => Ok(Some(parsed(&bytes))),
            Err(CallError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets a part of the state of a room, by its type and key.
    pub(super) async fn set_state(
        &self,
        room: &str,
        (kind, key): (&str, &str),
        content: &Value,
    ) -> Result<(), CallError> {
        self.call(Method::PUT, &["rooms", room, "state", kind, key], Some(content)).await.map(drop)
    }

    /// Sends an event of a type, and returns its id: that of the first one that was sent with this transaction.
    pub(super) async fn send(
        &self,
        (room, kind): (&str, &str),
        transaction: &str,
        content: &Value,
    ) -> Result<String, CallError> {
        let path = ["rooms", room, "send", kind, transaction];
        let event = text(&self.call(Method::PUT, &path, Some(content)).await?, "event_id");
        event.filter(|id| (1..=ID_MAX_BYTES).contains(&id.len())).ok_or_else(|| not_of_matrix(200))
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["_matrix", "client", "v3"]).extend(path);
        }
        url
    }

    async fn call(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Value, CallError> {
        Ok(parsed(&self.request(method, path, body).await?))
    }

    async fn request(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Vec<u8>, CallError> {
        let mut request = self.client.request(method, self.url(path)).timeout(TIMEOUT);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        self.called(request, MAX_ANSWER).await
    }

    /// An answer of so many bytes at most.
    async fn called(&self, request: RequestBuilder, most: usize) -> Result<Vec<u8>, CallError> {
        let request = request.header(AUTHORIZATION, self.bearer()?);
        let answered = async {
            let mut response = request.send().await?;
            Ok((response.status().as_u16(), calls::read(&mut response, most).await?))
        };
        let (status, bytes) = answered.await.map_err(|error: reqwest::Error| self.unreachable(error))?;
        match status {
            200..=299 if bytes.len() <= most => Ok(bytes),
            200..=299 => Err(CallError::Unreachable(format!("its answer has more than {most} bytes"))),
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

/// Whether the power levels of a room let an account send messages. Where those who have created a room may do everything, and are not named
/// (from version 12 of rooms on), an account that is not named may be one of them.
fn may_send(powers: &Value, created: &Value, account: &str) -> bool {
    let level = |value: &Value| value.as_i64();
    let own = level(&powers["users"][account]).or(level(&powers["users_default"])).unwrap_or_default();
    let needed = level(&powers["events"][MESSAGE]).or(level(&powers["events_default"])).unwrap_or_default();
    let version = created["room_version"].as_str().unwrap_or("1");
    let may_have_created =
        version.parse().is_ok_and(|version: u32| version >= 12) && powers["users"][account].is_null();
    own >= needed || may_have_created
}

/// An answer as JSON; `null` if it is none.
fn parsed(answer: &[u8]) -> Value {
    serde_json::from_slice(answer).unwrap_or_default()
}

fn text(answer: &Value, key: &str) -> Option<String> {
    answer[key].as_str().map(str::to_owned)
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
    fn power_levels_say_who_may_send() {
        let may = |powers: Value, version: &str| may_send(&powers, &json!({ "room_version": version }), "@bot:b");
        for (powers, expected) in [
            (json!({}), true),
            (json!({ "events_default": 50 }), false),
            (json!({ "events_default": 50, "users_default": 50 }), true),
            (json!({ "events_default": 50, "users": { "@bot:b": 50 } }), true),
            (json!({ "events_default": 50, "events": { "m.room.message": 0 } }), true),
            (json!({ "users": { "@bot:b": -1 } }), false),
        ] {
            assert_eq!(may(powers.clone(), "11"), expected, "{powers}");
        }
        assert!(may(json!({ "events_default": 50 }), "12"), "it may have created the room");
        assert!(!may(json!({ "events_default": 50, "users": { "@bot:b": 0 } }), "12"));
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
