//! What a request is refused with: problem details (RFC 9457) with a stable code.

use std::fmt;
use std::time::Duration;

use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use callboard::actors::ContextError;
use callboard::messages::Refusal;
use callboard::runtime::{AgentError, RunError, WorkflowStoreError};
use callboard::storage::StorageError;
use callboard::{AnswerError, ForkError, OverwriteError, SubmitError};
use serde_json::{Map, Value, json};

use crate::tokens::{TokenError, without_secrets};

/// After what time a client tries again where it is not known when there is room.
const SOON: Duration = Duration::from_secs(1);

/// Why a request was refused or failed. As a response it is `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of problem, which also decides the status.
    pub code: ProblemCode,
    /// What was wrong with this request, and what to do, in words.
    pub detail: String,
    /// After what time the same request may succeed; `None` if time does not help, or how much is not known.
    pub retry_after: Option<Duration>,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $status:ident, $code:literal;)*) => {
        /// The kind of a [`Problem`]. docs/http.md lists them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum ProblemCode {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl ProblemCode {
            /// All codes, in the order of their statuses.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the text of the code, as in the field `code` of a response.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),* }
            }

            /// Returns the status of a response with it.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),* }
            }
        }
    };
}

codes! {
    /// The body, the path, the query or a header is malformed.
    BadRequest = BAD_REQUEST, "bad-request";
    /// The request has no token, or one that is unknown, expired or revoked.
    Unauthenticated = UNAUTHORIZED, "unauthenticated";
    /// The token does not have the scope that the route needs, or what it asks for belongs to another token.
    MissingScope = FORBIDDEN, "missing-scope";
    /// The token was not granted the namespace of the shared context.
    NotGranted = FORBIDDEN, "not-granted";
    /// The header `Host` or `Origin` names something else than this server, or a request with a session of a browser is not from a page of it.
    ForeignOrigin = FORBIDDEN, "foreign-origin";
    /// Decisions are not accepted over HTTP, because programs of agents could send them: they are made at the terminal of the server.
    DecisionsRefused = FORBIDDEN, "decisions-refused";
    /// The path, the delegation, the agent or what waits does not exist.
    NotFound = NOT_FOUND, "not-found";
    /// The path exists, and has another method.
    MethodNotAllowed = METHOD_NOT_ALLOWED, "method-not-allowed";
    /// The client takes none of the media types that the answer may have.
    NotAcceptable = NOT_ACCEPTABLE, "not-acceptable";
    /// The body did not arrive in time.
    RequestTimeout = REQUEST_TIMEOUT, "request-timeout";
    /// It was decided or answered before, has ended, or belongs to another process.
    Conflict = CONFLICT, "conflict";
    /// It is not what the header `If-Match` or `If-None-Match` needs it to be: it has changed.
    PreconditionFailed = PRECONDITION_FAILED, "precondition-failed";
    /// The body is larger than the server reads.
    TooLarge = PAYLOAD_TOO_LARGE, "too-large";
    /// The body is not `application/json`.
    UnsupportedMediaType = UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type";
    /// The request is well formed, and the board refuses what it asks for.
    Refused = UNPROCESSABLE_ENTITY, "refused";
    /// No agent has the name, role or capability that the task is for.
    UnknownAgent = UNPROCESSABLE_ENTITY, "unknown-agent";
    /// The idempotency key was used for another request.
    KeyReused = UNPROCESSABLE_ENTITY, "idempotency-key-reused";
    /// The board or the agent has more work than it takes, or the token has too many event streams.
    Overloaded = TOO_MANY_REQUESTS, "overloaded";
    /// The server has failed. Its log has the cause.
    Internal = INTERNAL_SERVER_ERROR, "internal";
    /// The board shuts down or has stopped, its store fails, the tokens cannot be read, or it is not known whether the request was carried out.
    Unavailable = SERVICE_UNAVAILABLE, "unavailable";
}

impl Problem {
    /// Creates a problem with a detail for the caller. One that is `Overloaded` may be gone after a second.
    #[must_use]
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let retry_after = (code == ProblemCode::Overloaded).then_some(SOON);
        Self { code, detail: without_secrets(&detail.into()), retry_after }
    }

    /// What is asked for may be there in a moment.
    pub(crate) fn recovering() -> Self {
        let why = "the board still reads the runs that it found at its start";
        Self { retry_after: Some(SOON), ..Self::new(ProblemCode::Unavailable, why) }
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::new(ProblemCode::NotFound, what)
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::BadRequest, detail)
    }

    /// A failure of the server. The cause is logged.
    pub(crate) fn internal(cause: &dyn fmt::Display) -> Self {
        tracing::error!(%cause, "a request failed");
        Self::new(ProblemCode::Internal, "the server has failed; its log has the cause")
    }

    /// A failure to read the tokens. The cause is logged, since it may name files of the machine.
    pub(crate) fn of_tokens(error: &TokenError) -> Self {
        tracing::error!(%error, "a request was refused, because the tokens cannot be read");
        Self::new(ProblemCode::Unavailable, "the tokens cannot be read; the log of the server has the cause")
    }

    /// A failure of the store. The cause is logged, since it may name files of the machine.
    pub(crate) fn of_store(error: &StorageError) -> Self {
        tracing::error!(%error, "a request failed in the store");
        let detail = match error {
            StorageError::Stopped { .. } => {
                "the board's lease on its store has ended, or the store has stopped, and the board ends: ask again once another board has its \
                 runs, or it was started again; the log of the server has the cause"
            }
            _ => "the store cannot be read or written; the log of the server has the cause",
        };
        Self::new(ProblemCode::Unavailable, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.response_with(Map::new())
    }
}

impl Problem {
    /// The response, with further members.
    pub(crate) fn response_with(self, members: Map<String, Value>) -> Response {
        let status = self.code.status();
        let mut body = json!({
            "type": format!("urn:callboard:problem:{}", self.code.as_str()),
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "code": self.code.as_str(),
            "detail": self.detail,
        });
        if let Some(body) = body.as_object_mut() {
            body.extend(members);
        }
        let mut response = (status, body.to_string()).into_response();
        response.extensions_mut().insert(self.code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        response
    }
}

/// The same problem with the methods that a path has.
pub(crate) fn method_not_allowed(path: &str, allowed: &str) -> Response {
    let detail = format!("{} has the methods {allowed}", callboard::messages::visible(path));
    let mut response = Problem::new(ProblemCode::MethodNotAllowed, detail).into_response();
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (code, retry_after) = match &refusal {
            Refusal::Overloaded { retry_after, .. } | Refusal::BreakerOpen { retry_after, .. } => {
                (ProblemCode::Overloaded, Some(*retry_after))
            }
            Refusal::ShuttingDown => (ProblemCode::Unavailable, None),
            Refusal::UnknownAgent { .. } => (ProblemCode::UnknownAgent, None),
            _ => (ProblemCode::Refused, None),
        };
        Self { code, detail: refusal.to_string(), retry_after }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Refused(refusal) => refusal.into(),
            SubmitError::Storage(error) => Self::of_store(&error),
            SubmitError::Unacknowledged(_) => Self::new(ProblemCode::Unavailable, error.to_string()),
            SubmitError::NoTarget { agents } => {
                let agents: Vec<&str> = agents.iter().take(20).map(|agent| agent.as_str()).collect();
                let detail = format!("`to` is missing, and there are several agents: {}", agents.join(", "));
                Self::new(ProblemCode::Refused, detail)
            }
            SubmitError::NoAgents => Self::new(ProblemCode::Refused, "the board has no agents"),
            error => Self::new(ProblemCode::Refused, error.to_string()),
        }
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        let code = match &error {
            RunError::Unknown(_) => ProblemCode::NotFound,
            RunError::Trimmed(_) | RunError::NotHere(_) => ProblemCode::Conflict,
            RunError::Quarantined { run, why } => {
                tracing::error!(%run, why, "a request is about a run that is quarantined");
                let detail = format!("delegation {run} is quarantined; the log of the server has the cause");
                return Self::new(ProblemCode::Conflict, detail);
            }
            RunError::NotRequester(_) => ProblemCode::MissingScope,
            RunError::OverLimit(_) => ProblemCode::BadRequest,
            RunError::Storage(error) | RunError::StoreStopped { error, .. } => return Self::of_store(error),
            RunError::Stopped(_) => ProblemCode::Unavailable,
            _ => return Self::internal(&error),
        };
        Self::new(code, error.to_string())
    }
}

impl From<ForkError> for Problem {
    fn from(error: ForkError) -> Self {
        let code = match error {
            ForkError::Unknown(_) | ForkError::NoLetter(_) => ProblemCode::NotFound,
            ForkError::Trimmed | ForkError::NotHere(_) => ProblemCode::Conflict,
            ForkError::Refused(refusal) => return refusal.into(),
            ForkError::Submit(error) => return (*error).into(),
            ForkError::Storage(error) => return Self::of_store(&error),
            ForkError::Unacknowledged(_) => ProblemCode::Unavailable,
            _ => ProblemCode::Refused,
        };
        Self::new(code, error.to_string())
    }
}

impl From<WorkflowStoreError> for Problem {
    fn from(error: WorkflowStoreError) -> Self {
        match error {
            WorkflowStoreError::Storage(error) => Self::of_store(&error),
            WorkflowStoreError::Name(error) => Self::bad(error.to_string()),
            error => Self::internal(&error),
        }
    }
}

impl From<ContextError> for Problem {
    fn from(error: ContextError) -> Self {
        match error {
            ContextError::Name(_) => Self::bad(error.to_string()),
            ContextError::TooLarge { .. } => Self::new(ProblemCode::Refused, error.to_string()),
            ContextError::Changed { .. } => {
                Self::new(ProblemCode::PreconditionFailed, "the entry has changed, or is there already; read it again")
            }
            ContextError::Storage(error) => Self::of_store(&error),
            error => Self::internal(&error),
        }
    }
}

impl From<OverwriteError> for Problem {
    fn from(error: OverwriteError) -> Self {
        let code = match &error {
            OverwriteError::Unknown => ProblemCode::NotFound,
            OverwriteError::NotEnded | OverwriteError::NoConflict => ProblemCode::Conflict,
            OverwriteError::Unacknowledged(_) => ProblemCode::Unavailable,
            OverwriteError::Storage(error) => return Self::of_store(error),
            // What does not fit, is too large, or cannot continue.
            _ => ProblemCode::Refused,
        };
        Self::new(code, error.to_string())
    }
}

impl From<AgentError> for Problem {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Unknown { .. } => Self::not_found(error.to_string()),
            _ => Self::new(ProblemCode::Refused, error.to_string()),
        }
    }
}

impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        let code = match &error {
            AnswerError::NotOpen(_) => ProblemCode::NotFound,
            AnswerError::AlreadyDecided { .. }
            | AnswerError::Answered(_)
            | AnswerError::Expired { .. }
            | AnswerError::HasApproved { .. } => ProblemCode::Conflict,
            AnswerError::NotInGroup { .. } | AnswerError::OfRequester { .. } => ProblemCode::DecisionsRefused,
            AnswerError::Storage(error) => return Self::of_store(error),
            AnswerError::Unacknowledged(_) | AnswerError::NotHere(_) | AnswerError::NotHosted { .. } => {
                ProblemCode::Unavailable
            }
            AnswerError::Panicked(_) => return Self::internal(&error),
            _ => ProblemCode::Refused,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/http.md");
    const SECTIONS: &str = include_str!("../../../docs/problems.md");

    #[test]
    fn the_page_lists_each_code_with_its_status() {
        for code in ProblemCode::ALL {
            let row = format!("| `{}` | {} |", code.as_str(), code.status().as_u16());
            assert!(PAGE.contains(&row), "docs/http.md has no row {row}");
            let section = format!("\n## {}\n\n**{}.** ", code.as_str(), code.status().as_u16());
            assert!(SECTIONS.contains(&section), "docs/problems.md has no section {section}");
        }
    }
}
