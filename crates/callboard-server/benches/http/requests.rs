//! What submitting a task and reading its result costs, beside a bare axum handler that does the same, and how soon a task is
//! acknowledged while agents think.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use callboard::env::Env;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::client::Client;
use crate::measure::{cpu, each, interleaved, two_workers, wall};
use crate::report::{Line, Report, Target};

const ROUNDS: usize = 9;

type Clock = fn() -> f64;

fn builder() -> Builder {
    Callboard::builder().agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
}

/// The bare handlers: submit a task, and read its result if it has one.
fn bare(board: Callboard) -> Router {
    async fn submit(State(board): State<Callboard>, Json(body): Json<Value>) -> Json<Value> {
        let task = Task::new(body["body"].as_str().unwrap()).to("echo");
        Json(json!({ "request_id": board.submit(task).await.unwrap().id() }))
    }
    async fn result(State(board): State<Callboard>, Path(id): Path<String>) -> Json<Value> {
        let fold = board.run(id.parse().unwrap()).read().await.unwrap();
        let result = fold.result().map(|result| json!({ "output": &*result.output, "outcome": result.outcome.name() }));
        Json(json!({ "result": result }))
    }
    Router::new().route("/submit", post(submit)).route("/result/{id}", get(result)).with_state(board)
}

/// Serves both over loopback, and compares them.
fn compare(report: &mut Report, builder: Builder, count: usize, names: [&'static str; 2]) {
    let runtime = two_workers();
    let (mut ours, mut bare) = runtime.block_on(async {
        let board = builder.start().await.unwrap();
        let tokens = Tokens::new(Env::system());
        let secret = tokens.add(TokenSpec::new("bench", Scope::ALL)).unwrap();
        let listen = async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            (listener, port)
        };
        let ((listener, port), (bare_listener, bare_port)) = (listen().await, listen().await);
        let (server, bare) = (Server::new(board.clone(), tokens), bare(board));
        tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
        tokio::spawn(async move { axum::serve(bare_listener, bare).await });
        (Client::connect(port, &secret).await, Client::connect(bare_port, &secret).await)
    });
    let body = json!({ "to": "echo", "body": "work" });
    for (name, (unit, clock)) in names.into_iter().zip([("µs CPU", cpu as Clock), ("µs", wall)]) {
        let [value, reference] = interleaved(
            ROUNDS,
            [
                &mut || pairs(&runtime, clock, count, &mut ours, ["/v1/delegations", "/v1/delegations/"], &body),
                &mut || pairs(&runtime, clock, count, &mut bare, ["/submit", "/result/"], &body),
            ],
        );
        report.add(Line {
            name,
            value: value * 1e6,
            unit,
            reference: Some(("a bare axum handler", reference * 1e6)),
            target: Target::RatioAtMost(1.5, None),
        });
    }
}

/// What the client reads of an answer: its own work is not what is compared.
#[derive(Deserialize)]
struct Answer {
    request_id: Option<String>,
    result: Option<IgnoredAny>,
}

/// The time of a task that is submitted, and whose result is read until it is there, in seconds.
fn pairs(
    runtime: &Runtime,
    clock: Clock,
    count: usize,
    client: &mut Client,
    [submit, result]: [&str; 2],
    body: &Value,
) -> f64 {
    each(clock, count, || {
        runtime.block_on(async {
            for _ in 0..count {
                let (_, Answer { request_id, .. }) = client.post(submit, body).await;
                let path = format!("{result}{}", request_id.unwrap());
                while client.get::<Answer>(&path).await.1.result.is_none() {}
            }
        });
    })
}

pub(crate) fn in_memory(report: &mut Report) {
    compare(report, builder(), 2_000, ["submit and result, in memory", "the same, wall time"]);
}

pub(crate) fn on_disk(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let store = Sled::open(folder.path().join("store")).unwrap();
    compare(report, builder().storage(store), 200, ["submit and result, on disk", "the same on disk, wall time"]);
}

/// The time after which nearly all were answered, of times in seconds: the 99th of a hundred.
pub(crate) fn p99(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// How soon a delegation is acknowledged while 1,000 agents think.
pub(crate) fn acknowledgement(report: &mut Report) {
    const AGENTS: usize = 1_000;
    let runtime = two_workers();
    let times = runtime.block_on(async {
        let thinking = Arc::new(tokio::sync::Semaphore::new(0));
        let mut builder = Callboard::builder().pool(AGENTS);
        for number in 0..AGENTS {
            let thinking = Arc::clone(&thinking);
            builder = builder.agent(&format!("agent-{number}"), move |_: Turn| {
                let thinking = Arc::clone(&thinking);
                async move {
                    thinking.add_permits(1);
                    // A model that thinks: what it receives comes in pieces.
                    loop {
                        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    }
                    #[allow(unreachable_code, reason = "names the type")]
                    Ok(Command::output(()))
                }
            });
        }
        let folder = tempfile::tempdir().unwrap();
        let store = Sled::open(folder.path().join("store")).unwrap();
        let board = builder.storage(store).start().await.unwrap();
        for number in 0..AGENTS {
            board.submit(Task::new("think").to(&format!("agent-{number}"))).await.unwrap();
        }
        let _all = thinking.acquire_many(AGENTS as u32).await.unwrap();
        let tokens = Tokens::new(Env::system());
        let secret = tokens.add(TokenSpec::new("bench", Scope::ALL)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server::new(board, tokens);
        tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
        let clients = (0..8).map(|client| {
            let secret = secret.clone();
            tokio::spawn(async move {
                let mut connection = Client::connect(port, &secret).await;
                let mut times = Vec::new();
                for number in 0..250 {
                    let to = format!("agent-{}", (client * 250 + number) % AGENTS);
                    let began = wall();
                    let (status, answer): (_, Value) =
                        connection.post("/v1/delegations", &json!({ "to": to, "body": "x" })).await;
                    assert_eq!(status.as_u16(), 202, "{answer}");
                    times.push(wall() - began);
                }
                times
            })
        });
        let times = futures::future::join_all(clients).await;
        times.into_iter().flat_map(Result::unwrap).collect::<Vec<f64>>()
    });
    report.add(Line {
        name: "acknowledged, 1,000 agents think, p99, synced",
        value: p99(times) * 1e3,
        unit: "ms",
        reference: None,
        target: Target::AtMost(50.0, None),
    });
}
