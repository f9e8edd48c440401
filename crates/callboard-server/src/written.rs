//! Responses with JSON that are written in one piece.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem::Problem;

/// The room for a response at first: most delegations have less.
const ROOM: usize = 2048;

/// A value as the body of a response, in JSON. axum's `Json` writes the same more slowly: into a buffer with room for 128 bytes, each of whose many small writes is
/// checked twice.
pub(crate) struct Written<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Written<T> {
    fn into_response(self) -> Response {
        let mut body = Vec::with_capacity(ROOM);
        match serde_json::to_writer(&mut body, &self.0) {
            Ok(()) => ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response(),
            Err(error) => Problem::internal(&error).into_response(),
        }
    }
}
