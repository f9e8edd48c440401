//! What handlers read of requests: parameters of the path, and the body.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use callboard_documents::json;
use serde::de::{Deserialize as _, DeserializeOwned, Deserializer};
use serde_json::Value;
use tokio::time::timeout;

use crate::limits::HttpLimits;
use crate::problem::{Problem, ProblemCode};

/// The most bytes of a body that are read by default.
pub(crate) const MAX_BODY: usize = 1024 * 1024;

/// The parameter `id` of a path, decoded.
pub(crate) struct Id(pub(crate) String);

/// The parameter `name` of a path, decoded.
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        parameter(parts, state, "id").await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        parameter(parts, state, "name").await.map(Self)
    }
}

/// The parameters `namespace` and `key` of a path, decoded; the key is empty where there is none.
pub(crate) struct EntryPath {
    pub(crate) namespace: String,
    pub(crate) key: String,
}

impl<S: Send + Sync> FromRequestParts<S> for EntryPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let namespace = parameter(parts, state, "namespace").await?;
        Ok(Self { namespace, key: parameter(parts, state, "key").await? })
    }
}

async fn parameter<S: Send + Sync>(parts: &mut Parts, state: &S, wanted: &str) -> Result<String, Problem> {
    // A router that this one is mounted in may have parameters too.
    let found = RawPathParams::from_request_parts(parts, state).await;
    let found = found.map_err(|_| Problem::bad("the path is no text in UTF-8"))?;
    Ok(found.iter().filter(|(name, _)| *name == wanted).last().map(|(_, value)| value.to_owned()).unwrap_or_default())
}

/// Reads a body that is a JSON object, in which no key is repeated, bounded in size and time. An empty body is an empty object.
pub(crate) async fn read(request: Request) -> Result<Value, Problem> {
    let content_type = request.headers().get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default().to_owned());
    let limits = request.extensions().get::<HttpLimits>().copied().unwrap_or_default();
    let Ok(bytes) = timeout(limits.body_time, Bytes::from_request(request, &())).await else {
        let detail = format!("the body did not arrive within {} s", limits.body_time.as_secs());
        return Err(Problem::new(ProblemCode::RequestTimeout, detail));
    };
    let bytes = bytes.map_err(|rejected| {
        if rejected.status() == StatusCode::PAYLOAD_TOO_LARGE {
            Problem::new(ProblemCode::TooLarge, format!("the body has more than {} bytes", limits.body_bytes))
        } else {
            Problem::bad("the body was cut off")
        }
    })?;
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let media_type = content_type.as_deref().and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let detail = "the body is to be JSON, with the header `Content-Type: application/json`";
        return Err(Problem::new(ProblemCode::UnsupportedMediaType, detail));
    }
    let value = json::parse(&bytes).map_err(|error| Problem::bad(format!("the body is no JSON: {error}")))?;
    // A struct would also be read from a list of its fields.
    if value.is_object() { Ok(value) } else { Err(Problem::bad("the body is to be a JSON object")) }
}

/// A JSON body of this shape, in which no key is unknown.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let value = read(request).await?;
        serde_json::from_value(value).map(Self).map_err(|error| Problem::bad(format!("the body: {error}")))
    }
}

/// A value that is there, also if it is null.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
