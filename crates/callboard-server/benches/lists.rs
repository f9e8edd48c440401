//! What pages and statuses cost with few and with many delegations in the store: `cargo bench -p callboard-server`, or with
//! numbers of delegations as arguments. The first part is in memory; the second is on disk, in another life of the board.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

use std::path::Path;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use callboard::env::Env;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use futures::StreamExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// How many runs are under way at once while the store is filled.
const WIDTH: usize = 1_000;
/// One run in so many fails, and waits in the inbox.
const FAILING: usize = 100;
/// How often each request is sent; the median is printed.
const ROUNDS: usize = 101;

struct Client {
    router: Router,
    secret: String,
}

impl Client {
    fn new(board: &Callboard) -> Self {
        let tokens = Tokens::new(Env::system());
        let secret = tokens.add(TokenSpec::new("bench", Scope::ALL)).unwrap();
        Self { router: Server::new(board.clone(), tokens).router(), secret }
    }

    async fn get(&self, path: &str) -> Value {
        let request = Request::builder().uri(path).header("Host", "localhost");
        let request = request.header("Authorization", format!("Bearer {}", self.secret)).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        serde_json::from_slice(&to_bytes(response.into_body(), usize::MAX).await.unwrap()).unwrap()
    }

    async fn time(&self, path: &str) -> Duration {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            self.get(path).await;
            times.push(began.elapsed());
        }
        times.sort();
        times[ROUNDS / 2]
    }
}

fn builder() -> Builder {
    Callboard::builder()
        .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .agent("fails", |_: Turn| async { Err::<Command, _>(TurnError::terminal("the service is down")) })
        .retention(|it| it.memory_runs(4_000_000))
}

async fn fill(board: &Callboard, count: usize, durability: Durability) {
    let runs = futures::stream::iter(0..count).map(|number| async move {
        let agent = if number % FAILING == 0 { "fails" } else { "echo" };
        board.submit(Task::new("x").to(agent).durability(durability)).await.unwrap().result().await.unwrap();
    });
    runs.buffer_unordered(WIDTH).for_each(|()| std::future::ready(())).await;
}

async fn requests(board: &Callboard, count: usize, place: &str) {
    let client = Client::new(board);
    let first = client.get("/v1/delegations?limit=50").await;
    let middle = board.ended_runs(None, count / 2).await.unwrap().pop().unwrap();
    let middle = format!("{}_{}", middle.submitted_at.as_millis(), middle.run);
    let id = first["delegations"][25]["request_id"].as_str().unwrap();
    for (name, path) in [
        ("the first page of 50", "/v1/delegations?limit=50".to_owned()),
        ("a page of 50 in the middle", format!("/v1/delegations?limit=50&page={middle}")),
        ("a page of another state, with none", "/v1/delegations?state=cancelled".to_owned()),
        ("the first page of 50 of the inbox", "/v1/inbox".to_owned()),
        ("one delegation", format!("/v1/delegations/{id}")),
    ] {
        println!("{count:>9} {place:<9} {name:<36} {:>9.3} ms", client.time(&path).await.as_secs_f64() * 1e3);
    }
}

async fn on_disk(count: usize, folder: &Path) {
    let board = builder().storage(Sled::open(folder).unwrap()).start().await.unwrap();
    fill(&board, count, Durability::Buffered).await;
    board.shutdown().await;
    let began = Instant::now();
    let store = loop {
        match Sled::open(folder) {
            Ok(store) => break store,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let opened = began.elapsed();
    let board = builder().storage(store).start().await.unwrap();
    board.recovered().await;
    Client::new(&board).get("/v1/ready").await;
    let ready = began.elapsed();
    println!("{count:>9} on disk   ready {:.3} s, of which opening {:.3} s", ready.as_secs_f64(), opened.as_secs_f64());
    requests(&board, count, "on disk").await;
    board.shutdown().await;
}

#[tokio::main]
async fn main() {
    let counts: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let counts = if counts.is_empty() { vec![1_000, 100_000, 1_000_000] } else { counts };
    for count in &counts {
        let board = builder().start().await.unwrap();
        fill(&board, *count, Durability::Memory).await;
        requests(&board, *count, "in memory").await;
        board.shutdown().await;
    }
    for count in counts {
        let folder = tempfile::tempdir().unwrap();
        on_disk(count, folder.path()).await;
    }
}
