//! What handlers read of requests: parameters of the path, and the body.

use axum::body::{self, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use callboard_documents::json;
use futures::StreamExt as _;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;
use tokio::time::timeout;

use crate::arriving::{Arriving, ArrivingBody};
use crate::limits::HttpLimits;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::Caller;

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

/// A parameter of a path, decoded; empty where there is none.
pub(crate) async fn parameter<S: Send + Sync>(parts: &mut Parts, state: &S, wanted: &str) -> Result<String, Problem> {
    // A router that this one is mounted in may have parameters too.
    let found = RawPathParams::from_request_parts(parts, state).await;
    let found = found.map_err(|_| Problem::bad("the path is no text in UTF-8"))?;
    Ok(found.iter().filter(|(name, _)| *name == wanted).last().map(|(_, value)| value.to_owned()).unwrap_or_default())
}

/// Reads a body that is a JSON object, in which no key is repeated, bounded in size and time. An empty body is an empty object.
pub(crate) async fn read(request: Request) -> Result<Value, Problem> {
    let (parts, body) = request.into_parts();
    let extensions = &parts.extensions;
    let limits = extensions.get::<HttpLimits>().copied().unwrap_or_default();
    let arriving = extensions.get::<Arriving>().zip(extensions.get::<Caller>());
    let arriving = arriving.map(|(arriving, caller)| arriving.of(caller, limits.body_bytes));
    let Ok(bytes) = timeout(limits.body_time, collected(body, limits.body_bytes, arriving)).await else {
        let detail = format!("the body did not arrive within {} s", limits.body_time.as_secs());
        return Err(Problem::new(ProblemCode::RequestTimeout, detail));
    };
    let bytes = bytes?;
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    check_media_type(&parts.headers)?;
    let value = json::parse(&bytes).map_err(|error| Problem::bad(format!("the body is no JSON: {error}")))?;
    // A struct would also be read from a list of its fields.
    if value.is_object() { Ok(value) } else { Err(Problem::bad("the body is to be a JSON object")) }
}

/// The whole body, if it has at most so many bytes.
async fn collected(body: body::Body, most: usize, mut arriving: Option<ArrivingBody>) -> Result<Vec<u8>, Problem> {
    let too_large = || Problem::new(ProblemCode::TooLarge, format!("the body has more than {most} bytes"));
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let (mut bytes, mut chunks) = (Vec::new(), body.into_data_stream());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Problem::bad("the body was cut off"))?;
        if bytes.len() + chunk.len() > most {
            return Err(too_large());
        }
        if let Some(arriving) = &mut arriving {
            arriving.add(chunk.len())?;
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Refuses a body that is no JSON by its headers, or not as it is: compressed, or in another encoding than UTF-8.
fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let media_type =
        types.next().filter(|_| types.next().is_none()).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let mut parts = media_type.split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|it| it.eq_ignore_ascii_case("application/json"));
    let is_utf_8 = parts.filter_map(|parameter| parameter.split_once('=')).all(|(name, value)| {
        !name.eq_ignore_ascii_case("charset") || value.trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    if is_json && is_utf_8 && encodings.all(|encoding| encoding == "identity") {
        return Ok(());
    }
    let detail = "the body is to be JSON in UTF-8, with the header `Content-Type: application/json` and without `Content-Encoding`";
    Err(Problem::new(ProblemCode::UnsupportedMediaType, detail))
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

/// A body with the reason of a change, for the audit log.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Because {
    #[serde(default)]
    pub(crate) reason: String,
}

/// A body without keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}
