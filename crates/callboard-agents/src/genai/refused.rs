//! The errors of calls, by kind and as text.

use std::error::Error as StdError;
use std::time::Duration;

use ::genai::webc::{Error as WebError, StreamTimeout};
use ::genai::{BoxError, Error};
use callboard_text::visible;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::model::{MAX_CALLS, MAX_REPLY, ModelError, ModelErrorKind};

use super::GenaiModel;

/// Builds the errors of a model, without its key.
pub(super) struct ErrorBuilder {
    pub(super) model: GenaiModel,
}

/// The longest message of a provider that is shown, in characters.
const MAX_MESSAGE: usize = 300;

impl ErrorBuilder {
    pub(super) fn name(&self) -> &str {
        &self.model.name
    }

    /// An error of `genai`. `has_begun` is true if the answer had begun.
    pub(super) fn error(&self, error: Error, has_begun: bool) -> ModelError {
        match error {
            Error::HttpError { status, body, headers, .. } => self.status(status, &body, &headers),
            Error::WebStream { error, .. } => self.transport(error, has_begun),
            Error::WebModelCall { webc_error, .. } | Error::WebAdapterCall { webc_error, .. } => {
                self.web(webc_error, has_begun)
            }
            Error::ChatResponse { body, .. } => self.reported_in_the_stream(&body, has_begun),
            Error::StreamParse { serde_error, .. } => self.malformed(&serde_error.to_string()),
            Error::SerdeJson(error) => self.malformed(&error.to_string()),
            Error::JsonValueExt(error) => self.malformed(&error.to_string()),
            Error::InvalidJsonResponseElement { info } => self.malformed(info),
            Error::NoChatResponse { .. } => self.malformed("there is no answer in it"),
            Error::RequiresApiKey { .. } | Error::NoAuthResolver { .. } | Error::NoAuthData { .. } => {
                self.refused("wants a key", "")
            }
            // The remaining errors are about the request, before anything was sent.
            other => self.because(ModelErrorKind::Rejected, "cannot be asked this", &other.to_string()),
        }
    }

    /// The connection was closed normally before the answer was complete.
    pub(super) fn ended_early(&self, has_begun: bool) -> ModelError {
        if has_begun {
            self.because(ModelErrorKind::CutOff, "broke off: its answer ended without saying that it was complete", "")
        } else {
            let hint = "is there a server of its kind at this address?";
            self.because(ModelErrorKind::Unavailable, "ended its answer before it had said anything", hint)
        }
    }

    /// The longest silence.
    pub(super) fn patience(&self, has_begun: bool) -> Duration {
        if has_begun { self.model.timeouts.piece } else { self.model.timeouts.begin }
    }

    /// Nothing was received for that long, though the connection may be open.
    pub(super) fn silent(&self, has_begun: bool) -> ModelError {
        let time = self.patience(has_begun).as_secs_f64();
        if has_begun {
            self.broken(true, &format!("has said nothing for {time} s"), "")
        } else {
            self.because(ModelErrorKind::Unavailable, &format!("has not begun to answer within {time} s"), "")
        }
    }

    pub(super) fn too_long(&self) -> ModelError {
        self.malformed(&format!("it has more than {} MiB or {MAX_CALLS} calls", MAX_REPLY >> 20))
    }

    fn transport(&self, error: BoxError, has_begun: bool) -> ModelError {
        let error = match error.downcast::<Error>() {
            Ok(error) => return self.error(*error, has_begun),
            Err(error) => error,
        };
        let error = match error.downcast::<reqwest::Error>() {
            Ok(error) => return self.connection(*error, has_begun),
            Err(error) => error,
        };
        if error.is::<std::string::FromUtf8Error>() {
            return self.malformed("it is not UTF-8");
        }
        match error.downcast_ref::<StreamTimeout>() {
            Some(StreamTimeout::Headers) => self.silent(false),
            Some(StreamTimeout::Read) => {
                let text = format!("has said nothing for {} s", self.model.timeouts.piece.as_secs_f64());
                self.broken(has_begun, &text, "")
            }
            None => self.broken(has_begun, "broke off", &innermost(&*error)),
        }
    }

    fn web(&self, error: WebError, has_begun: bool) -> ModelError {
        match error {
            WebError::ResponseFailedStatus { status, body, headers } => self.status(status, &body, &headers),
            WebError::ResponseFailedNotJson { .. } => self.malformed("it is not JSON"),
            WebError::ResponseFailedInvalidJson { cause, .. } => self.malformed(&cause),
            WebError::JsonValueExt(error) => self.malformed(&error.to_string()),
            WebError::Reqwest(error) => self.connection(error, has_begun),
        }
    }

    fn connection(&self, error: reqwest::Error, has_begun: bool) -> ModelError {
        // The error's own text would contain the address.
        let error = error.without_url();
        let why = innermost(&error);
        if error.is_connect() {
            let why = if error.is_timeout() { "it took too long".to_owned() } else { why };
            self.because(ModelErrorKind::NotSent, "is not reached", &why)
        } else if error.is_builder() {
            self.because(ModelErrorKind::Rejected, "cannot be asked this", &why)
        } else {
            self.broken(has_begun, "broke off", &why)
        }
    }

    /// A failure of the provider, if the answer had not begun.
    fn broken(&self, has_begun: bool, what: &str, why: &str) -> ModelError {
        let kind = if has_begun { ModelErrorKind::CutOff } else { ModelErrorKind::Unavailable };
        self.because(kind, what, why)
    }

    fn status(&self, status: StatusCode, body: &str, headers: &HeaderMap) -> ModelError {
        let message = message(body);
        let kind = match status.as_u16() {
            402 => return self.unpaid(&status.to_string(), &message),
            400 | 403 | 429 if is_about_payment(body) => return self.unpaid(&status.to_string(), &message),
            429 => ModelErrorKind::RateLimited(retry_after(headers)),
            // 529 is Anthropic's status for an overload.
            408 | 500..=599 => ModelErrorKind::Unavailable,
            401 | 403 => return self.refused(&format!("takes no request with our key ({status})"), &message),
            _ => ModelErrorKind::Rejected,
        };
        let what = match kind {
            ModelErrorKind::RateLimited(Some(wait)) => {
                format!("limits the rate of requests, and asks for a wait of {} s ({status})", wait.as_secs_f64())
            }
            ModelErrorKind::RateLimited(None) => format!("limits the rate of requests ({status})"),
            ModelErrorKind::Unavailable => format!("has failed ({status})"),
            ModelErrorKind::NotSent
            | ModelErrorKind::CutOff
            | ModelErrorKind::Malformed
            | ModelErrorKind::Rejected
            | ModelErrorKind::Unauthorised
            | ModelErrorKind::Unpaid => format!("refuses the request ({status})"),
        };
        let error = self.because(kind, &what, &message);
        // The request was refused before it was processed.
        let is_free = error.is_free || [502, 503, 529].contains(&status.as_u16());
        ModelError { is_free, ..error }
    }

    /// An error within a stream, where there is no status.
    fn reported_in_the_stream(&self, body: &Value, has_begun: bool) -> ModelError {
        let error = body.get("error").unwrap_or(body);
        let word = ["type", "code", "status"].into_iter().find_map(|key| error.get(key)?.as_str()).unwrap_or_default();
        let message = message(&body.to_string());
        if has_begun {
            return self.because(ModelErrorKind::CutOff, &format!("broke off ({word})"), &message);
        }
        let kind = match word {
            _ if is_about_payment(&body.to_string()) => return self.unpaid(word, &message),
            "authentication_error"
            | "permission_error"
            | "invalid_api_key"
            | "UNAUTHENTICATED"
            | "PERMISSION_DENIED" => {
                return self.refused(&format!("takes no request with our key ({word})"), &message);
            }
            "rate_limit_error" | "rate_limit_exceeded" | "RESOURCE_EXHAUSTED" => ModelErrorKind::RateLimited(None),
            "invalid_request_error" | "not_found_error" | "request_too_large" | "INVALID_ARGUMENT" | "NOT_FOUND" => {
                ModelErrorKind::Rejected
            }
            _ => ModelErrorKind::Unavailable,
        };
        self.because(kind, &format!("has answered with an error ({word})"), &message)
    }

    fn malformed(&self, why: &str) -> ModelError {
        self.because(ModelErrorKind::Malformed, "has sent what cannot be read", why)
    }

    fn refused(&self, what: &str, why: &str) -> ModelError {
        let what = match &self.model.key_variable {
            Some(variable) => format!("{what}: look at {variable}"),
            None => format!("{what}: name the variable that has its key"),
        };
        self.because(ModelErrorKind::Unauthorised, &what, why)
    }

    fn unpaid(&self, word: &str, why: &str) -> ModelError {
        self.because(
            ModelErrorKind::Unpaid,
            &format!("wants payment, or the quota of the account is used up ({word})"),
            why,
        )
    }

    fn because(&self, kind: ModelErrorKind, what: &str, why: &str) -> ModelError {
        let whose = match &self.model.address {
            Some(address) => format!("{} at {}", self.model.provider.name(), address.shown()),
            None => self.model.provider.name().to_string(),
        };
        let text = if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") };
        // The key is removed before the text is cut: a part of a key is a secret too.
        let text = match &self.model.key {
            Some(key) => key.taken_out_of(&text),
            None => text,
        };
        let text = format!("{whose} {text}");
        ModelError::new(kind, shortened(&text))
    }
}

/// Whether an error is about the account's money and not about the rate of its requests, which may have the same status: OpenAI answers
/// 429 for both, and Anthropic 400 for an empty balance. The words are those of the error's code, or of its message.
fn is_about_payment(body: &str) -> bool {
    const WORDS: [&str; 7] = [
        "insufficient_quota",
        "insufficient_balance",
        "Insufficient Balance",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit balance is too low",
    ];
    WORDS.iter().any(|word| body.contains(word))
}

/// The message in a provider's error body, if the body has the usual form.
fn message(body: &str) -> String {
    let parsed = serde_json::from_str::<Value>(body).ok();
    let reported = parsed.as_ref().and_then(|body| {
        let at = |path: &str| body.pointer(path).and_then(Value::as_str);
        at("/error/message").or_else(|| at("/message")).or_else(|| at("/error"))
    });
    reported.unwrap_or(body).trim().to_owned()
}

/// As one line, fit to be shown, and cut.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        None => visible(text),
        Some((end, _)) => format!("{}…", visible(&text[..end])),
    }
}

/// The time to wait that the provider sends in seconds. Dates are ignored: no provider sends one.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|millis| millis / 1_000.0).or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The innermost cause: the outer errors only repeat that something failed.
fn innermost(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
