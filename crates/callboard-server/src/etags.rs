//! Entity tags: the number that a thing has with each change, so that two who change it notice each other.

use axum::Json;
use axum::http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::problem::Problem;

/// What a request needs a thing to be before it changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// Anything, also absent.
    Any,
    Absent,
    /// With this number.
    Number(u64),
}

impl Needed {
    /// `If-Match: "NUMBER"`, `If-None-Match: *`, or neither.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let value = |name: HeaderName| {
            let mut values = headers.get_all(&name).iter();
            match (values.next(), values.next()) {
                (None, _) => Ok(None),
                (Some(value), None) => Ok(Some(value.to_str().unwrap_or_default().trim())),
                (Some(_), Some(_)) => Err(Problem::bad(format!("the header {name} is there twice"))),
            }
        };
        match (value(IF_MATCH)?, value(IF_NONE_MATCH)?) {
            (None, None) => Ok(Self::Any),
            (None, Some("*")) => Ok(Self::Absent),
            (Some(tag), None) => {
                let number =
                    tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|tag| tag.parse().ok());
                let needed = "the header If-Match is the `ETag` of an answer, such as \"7\"";
                number.map(Self::Number).ok_or_else(|| Problem::bad(needed))
            }
            _ => Err(Problem::bad("there is either `If-Match`, or `If-None-Match: *`")),
        }
    }
}

/// An answer with the number of what it shows.
pub(crate) fn tagged(number: u64, shown: Value) -> Response {
    ([(ETAG, format!("\"{number}\""))], Json(shown)).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn what_is_needed_is_read_from_one_header() {
        let read = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            Needed::read(&headers).ok()
        };
        assert_eq!(read(&[]), Some(Needed::Any));
        assert_eq!(read(&[("if-none-match", "*")]), Some(Needed::Absent));
        assert_eq!(read(&[("if-match", "\"7\"")]), Some(Needed::Number(7)));
        for wrong in ["7", "*", "\"x\"", "\"7", "W/\"7\"", "\"7\", \"8\"", "", "\"-1\""] {
            assert_eq!(read(&[("if-match", wrong)]), None, "{wrong}");
        }
        assert_eq!(read(&[("if-none-match", "\"7\"")]), None);
        assert_eq!(read(&[("if-match", "\"7\""), ("if-none-match", "*")]), None);
        assert_eq!(read(&[("if-match", "\"7\""), ("if-match", "\"7\"")]), None);
    }
}
