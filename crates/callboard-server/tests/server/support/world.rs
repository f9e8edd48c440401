//! Servers over one store, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use callboard::env::{Clock, Env, Now};
use callboard::messages::Timestamp;
use callboard::prelude::*;
use callboard::storage::Memory;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::ServiceExt as _;

/// A world whose virtual time begins at a date.
struct Dated {
    env: Env,
    from: Timestamp,
}

impl Clock for Dated {
    fn now(&self) -> Now {
        let monotonic = self.env.now().monotonic;
        Now { monotonic, wall: self.from + monotonic }
    }
}

/// 2026-03-28 00:00:00 UTC, the day before clocks are changed in Berlin.
pub(crate) const BEFORE_SUMMER: Timestamp = Timestamp::from_millis(1_774_656_000_000);

/// What servers share: the clock, the store, and the tokens.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) store: Arc<Memory>,
    pub(crate) tokens: Tokens,
    pub(crate) secret: String,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Dated { env: Env::repeatable(1), from: BEFORE_SUMMER };
        let env = Env::new(clock, 1);
        let tokens = Tokens::new(env.clone());
        let secret = tokens.add(TokenSpec::new("ann", Scope::ALL)).unwrap();
        Self { store: Arc::new(Memory::new(env.clock())), env, tokens, secret }
    }

    pub(crate) async fn serve(&self) -> Service {
        self.serve_with(100).await
    }

    /// A server over a board of its own, with room for this many runs.
    pub(crate) async fn serve_with(&self, room: usize) -> Service {
        let slow = |turn: Turn| async move {
            sleep(Duration::from_secs(90)).await;
            Ok(Command::output(turn.input_json().clone()))
        };
        let board = Callboard::builder()
            .env(self.env.clone())
            .storage(Arc::clone(&self.store))
            // Runs of the durability of a store in memory end with their board.
            .durability(Durability::Sync)
            .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
            .agent("slow", slow)
            .capacity(|it| it.runs_in_flight(room))
            .shutdown_grace(Duration::ZERO)
            .start()
            .await
            .unwrap();
        let server = Server::new(board.clone(), self.tokens.clone());
        let (stop, stopped) = oneshot::channel();
        let (router, firing) = (server.router(), server.clone());
        let firing = tokio::spawn(async move { firing.fire_schedules(async { stopped.await.unwrap() }).await });
        tokio::task::yield_now().await;
        Service { board, router, secret: self.secret.clone(), stop, firing }
    }

    /// The runs of the store, by when they were submitted.
    pub(crate) async fn runs(&self, service: &Service) -> Vec<(String, Value)> {
        let (_, page) = service.get("/v1/runs").await;
        let text = |run: &Value| run["submitted_at"].as_str().unwrap()[5..19].to_owned();
        page["delegations"].as_array().unwrap().iter().rev().map(|run| (text(run), run.clone())).collect()
    }

    /// When the runs were submitted, and their states.
    pub(crate) async fn states(&self, service: &Service) -> Vec<(String, String)> {
        let runs = self.runs(service).await;
        runs.into_iter().map(|(at, run)| (at, run["state"].as_str().unwrap().to_owned())).collect()
    }

    pub(crate) async fn times(&self, service: &Service) -> Vec<String> {
        self.runs(service).await.into_iter().map(|(at, _)| at).collect()
    }
}

pub(crate) struct Service {
    pub(crate) board: Callboard,
    pub(crate) router: Router,
    pub(crate) secret: String,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) firing: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn send_as(&self, secret: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("Host", "localhost");
        let request = request.header("Authorization", format!("Bearer {secret}"));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(request.header("Content-Type", "application/json").body(Body::from(body)).unwrap()).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send_as(&self.secret, "GET", path, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send_as(&self.secret, "POST", path, body).await
    }

    /// Creates a schedule with the name `daily`.
    pub(crate) async fn create(&self, definition: &Value) -> Value {
        let mut body = json!({ "name": "daily", "task": { "to": "echo", "body": "report" } });
        body.as_object_mut().unwrap().extend(definition.as_object().unwrap().clone());
        let (status, created) = self.post("/v1/schedules", &body).await;
        assert_eq!(status, 201, "{created}");
        created
    }

    pub(crate) async fn shown(&self) -> Value {
        self.get("/v1/schedules/daily").await.1
    }

    pub(crate) async fn end(self) {
        self.stop.send(()).unwrap();
        self.firing.await.unwrap();
        self.board.shutdown().await;
    }
}
