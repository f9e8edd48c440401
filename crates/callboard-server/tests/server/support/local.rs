//! Requests to the router without a connection, so that time can be paused.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::response::Response;
use callboard::env::Env;
use callboard::prelude::*;
use callboard::storage::Memory;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use serde_json::Value;
use tower::ServiceExt as _;

/// A router over a board, and the secret of a token.
pub(crate) struct Local {
    pub(crate) router: Router,
    pub(crate) secret: String,
}

/// A store that several boards have.
pub(crate) fn memory() -> Arc<Memory> {
    Arc::new(Memory::new(Env::system().clock()))
}

impl Local {
    /// With a token that has all scopes.
    pub(crate) fn over(board: &Callboard) -> Self {
        Self::with(board, Scope::ALL)
    }

    pub(crate) fn with(board: &Callboard, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self::of(board, TokenSpec::new("ci", scopes))
    }

    /// With a token that is described so.
    pub(crate) fn of(board: &Callboard, spec: TokenSpec) -> Self {
        Self::serving(board, spec, |server| server)
    }

    /// With an audit log.
    pub(crate) fn audited(board: &Callboard, scopes: impl IntoIterator<Item = Scope>, log: &Path) -> Self {
        Self::serving(board, TokenSpec::new("ci", scopes), |server| server.audit_file(log).unwrap())
    }

    fn serving(board: &Callboard, spec: TokenSpec, change: impl FnOnce(Server) -> Server) -> Self {
        let tokens = Tokens::new(Env::system());
        let secret = tokens.add(spec).unwrap();
        Self { router: change(Server::new(board.clone(), tokens)).router(), secret }
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).header("Host", "localhost");
        request = request.header("Authorization", format!("Bearer {}", self.secret));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.header("Content-Type", "application/json").body(Body::from(body.to_owned())).unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn open(&self, path: &str) -> Response {
        self.send(self.request("GET", path, &[], "")).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        json_of(self.open(path).await).await
    }

    /// Sends a request with a body, and returns the status, the entity tag and the body of the answer.
    pub(crate) async fn change(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> (u16, Option<String>, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.send(self.request(method, path, headers, &body)).await;
        let tag = response.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        if response.status().as_u16() == 204 {
            return (204, tag, Value::Null);
        }
        let (status, body) = json_of(response).await;
        (status, tag, body)
    }

    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
        json_of(self.send(self.request("POST", path, headers, &body.to_string())).await).await
    }
}

pub(crate) async fn text_of(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
}

async fn json_of(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, serde_json::from_str(&text_of(response).await).unwrap_or_default())
}
