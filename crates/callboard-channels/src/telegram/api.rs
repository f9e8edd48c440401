//! The five methods of the Bot API that the channel calls, and what can go wrong.

use std::fmt;
use std::time::Duration;

use callboard::messages::visible;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::TelegramError;
use super::token::BotToken;
use crate::calls;

/// How long a call may take, beyond the time that it asks the server to wait.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of an answer: a hundred updates are far below.
const MAX_ANSWER: usize = 8 << 20;
/// The most characters of a text of the server that are shown.
const MAX_SHOWN: usize = 200;
/// The longest time that a server can have the channel wait.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Why a call has failed. No text of it contains the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// Too many calls: the next one is allowed after this time.
    Wait(Duration),
    /// The server refuses the call.
    Refused { code: u16, text: String },
    /// There was no answer, or it is none of the Bot API.
    Unreachable(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(time) => write!(f, "too many calls; the next one in {} s", time.as_secs()),
            Self::Refused { code, text } => write!(f, "it refuses with {code}: {text}"),
            Self::Unreachable(text) => f.write_str(text),
        }
    }
}

/// What the server answers.
#[derive(Deserialize)]
struct Answer {
    ok: bool,
    result: Option<Value>,
    error_code: Option<u16>,
    description: Option<String>,
    parameters: Option<Parameters>,
}

#[derive(Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
}

/// A user of Telegram, such as the bot.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Account {
    pub(super) id: i64,
    pub(super) username: Option<String>,
}

impl Account {
    /// Its name with an @ in front, or its number.
    pub(super) fn name(&self) -> String {
        self.username.as_deref().map_or_else(|| self.id.to_string(), |name| format!("@{}", visible(name)))
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Chat {
    pub(super) id: i64,
}

/// A click on a button.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Click {
    pub(super) id: String,
    pub(super) from: Account,
    pub(super) message: Option<ClickedMessage>,
    pub(super) data: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ClickedMessage {
    pub(super) message_id: i64,
    pub(super) chat: Chat,
}

/// A message that somebody has written.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Written {
    pub(super) from: Option<Account>,
    pub(super) message_id: i64,
    pub(super) chat: Chat,
    pub(super) text: Option<String>,
    pub(super) reply_to_message: Option<ClickedMessage>,
}

/// What happened at the bot. An update that is neither a click nor a message is skipped.
#[derive(Clone, Debug, Default)]
pub(super) struct Update {
    pub(super) id: i64,
    pub(super) click: Option<Click>,
    pub(super) written: Option<Written>,
}

impl Update {
    /// `None` without an id. What cannot be read is left out, so that it is not received again.
    fn of(value: &Value) -> Option<Self> {
        let part = |key: &str| value.get(key).cloned().unwrap_or_default();
        Some(Self {
            id: value.get("update_id")?.as_i64()?,
            click: serde_json::from_value(part("callback_query")).ok(),
            written: serde_json::from_value(part("message")).ok(),
        })
    }
}

/// A server that speaks the Bot API.
pub(super) struct Api {
    client: Client,
    base: Url,
    token: BotToken,
}

impl Api {
    /// # Errors
    /// The address is none, or is not used without TLS; or TLS cannot be set up.
    pub(super) fn new(base: &str, token: BotToken) -> Result<Self, TelegramError> {
        let base = address(base)?;
        let client = calls::client(&base).map_err(TelegramError::Tls)?;
        Ok(Self { client, base, token })
    }

    pub(super) async fn bot(&self) -> Result<Account, CallError> {
        self.call("getMe", &json!({}), Duration::ZERO).await
    }

    /// What happened since `offset`, as soon as there is something; nothing after this time.
    pub(super) async fn updates(&self, offset: i64, wait: Duration) -> Result<Vec<Update>, CallError> {
        let allowed = ["callback_query", "message"];
        let body = json!({ "offset": offset, "timeout": wait.as_secs(), "allowed_updates": allowed });
        let updates: Vec<Value> = self.call("getUpdates", &body, wait).await?;
        Ok(updates.iter().filter_map(Update::of).collect())
    }

    /// Sends a message, and returns its id.
    pub(super) async fn send(&self, chat: i64, text: &str, more: Value) -> Result<i64, CallError> {
        #[derive(Deserialize)]
        struct Sent {
            message_id: i64,
        }
        let body =
            with(more, json!({ "chat_id": chat, "text": text, "link_preview_options": { "is_disabled": true } }));
        Ok(self.call::<Sent>("sendMessage", &body, Duration::ZERO).await?.message_id)
    }

    /// Replaces the text of a message, and removes its buttons.
    pub(super) async fn close(&self, chat: i64, message: i64, text: &str) -> Result<(), CallError> {
        let body = json!({
            "chat_id": chat, "message_id": message, "text": text, "link_preview_options": { "is_disabled": true },
            "reply_markup": { "inline_keyboard": [] },
        });
        self.call::<Value>("editMessageText", &body, Duration::ZERO).await.map(drop)
    }

    /// Tells who has clicked what came of it.
    pub(super) async fn tell(&self, click: &str, text: &str) -> Result<(), CallError> {
        let body = json!({ "callback_query_id": click, "text": text, "show_alert": true });
        self.call::<Value>("answerCallbackQuery", &body, Duration::ZERO).await.map(drop)
    }

    async fn call<T: DeserializeOwned>(&self, method: &str, body: &Value, wait: Duration) -> Result<T, CallError> {
        let mut url = self.base.clone();
        let path = format!("{}/bot{}/{method}", url.path().trim_end_matches('/'), self.token.expose());
        url.set_path(&path);
        let request = self.client.post(url).header("content-type", "application/json").body(body.to_string());
        let answered = async {
            let mut response = request.timeout(TIMEOUT + wait).send().await?;
            Ok((response.status().as_u16(), calls::read(&mut response, MAX_ANSWER).await?))
        };
        let (status, bytes) = answered.await.map_err(|error: reqwest::Error| self.unreachable(error))?;
        let no_answer = || CallError::Unreachable(format!("the answer (status {status}) is none of the Bot API"));
        let Answer { ok, result, error_code, description, parameters } =
            serde_json::from_slice(&bytes).map_err(|_| no_answer())?;
        if ok {
            return serde_json::from_value(result.unwrap_or_default()).map_err(|_| no_answer());
        }
        if let Some(secs) = parameters.and_then(|parameters| parameters.retry_after) {
            return Err(CallError::Wait(Duration::from_secs(secs).min(MAX_WAIT)));
        }
        let text = self.shown(&description.unwrap_or_default());
        match error_code.unwrap_or(status) {
            code @ 500.. => Err(CallError::Unreachable(format!("it fails with {code}: {text}"))),
            code => Err(CallError::Refused { code, text }),
        }
    }

    /// The error without the URL, which contains the token, and with its causes.
    fn unreachable(&self, error: reqwest::Error) -> CallError {
        CallError::Unreachable(self.shown(&calls::causes(error)))
    }

    /// A text that the server had a part in.
    fn shown(&self, text: &str) -> String {
        let text = self.token.masked(text);
        visible(&text.chars().take(MAX_SHOWN).collect::<String>())
    }
}

/// Both objects as one.
fn with(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

/// # Errors
/// It is no address of a server, or the token would cross a network unencrypted.
pub(super) fn address(text: &str) -> Result<Url, TelegramError> {
    let url = calls::address(text, false).map_err(TelegramError::Address)?;
    if url.query().is_some() {
        return Err(TelegramError::Address("it has a query".to_owned()));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_crosses_no_network_unencrypted() {
        for (text, is_allowed) in [
            ("https://api.telegram.org", true),
            ("http://127.0.0.1:8081", true),
            ("http://[::1]:8081/bots", true),
            ("http://bots.example.org", false),
            ("ftp://127.0.0.1", false),
            ("https://a:b@example.org", false),
            ("https://example.org?x", false),
            ("example.org", false),
        ] {
            assert_eq!(address(text).is_ok(), is_allowed, "{text}");
        }
    }

    #[test]
    fn an_update_that_cannot_be_read_has_an_id_and_nothing_else() {
        let update = Update::of(&json!({ "update_id": 7, "callback_query": { "id": 1 }, "message": [] })).unwrap();
        assert!(update.id == 7 && update.click.is_none() && update.written.is_none());
        assert!(Update::of(&json!({ "message": {} })).is_none());
    }
}
