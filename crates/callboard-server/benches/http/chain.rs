//! Chains of three agents that are submitted over HTTP: what they cost a server in a process of its own, on one worker and on two, beside the same
//! requests without a run, and beside bare handlers in the same process.

use std::time::Duration;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use callboard::prelude::*;
use callboard::runtime::Builder;
use serde_json::{Value, json};

use crate::measure::{cpu, median, one_thread, wall};
use crate::raw::{Connection, request};
use crate::report::Report;
use crate::server::{Serves, Spawned};

const ROUNDS: usize = 5;
/// How long one measurement takes.
const FOR: f64 = 0.25;

/// What clients do over and over.
#[derive(Clone, Copy)]
enum Work {
    /// Submit a chain, and read it until it has a result.
    Read,
    /// Submit a chain, and follow its events until they end.
    Follow,
    /// Submit a task with a key that was used, which begins no run, and read its run, which has ended.
    Known,
    /// A bare handler that completes a chain in the request that submits it.
    Completed,
    /// A bare handler that does nothing.
    Empty,
}

impl Work {
    const ALL: [Self; 5] = [Self::Read, Self::Follow, Self::Known, Self::Completed, Self::Empty];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "a chain, submitted and read",
            Self::Follow => "a chain, submitted and followed",
            Self::Known => "the same requests without a run",
            Self::Completed => "a chain, completed in a bare axum handler",
            Self::Empty => "a bare axum handler that does nothing",
        }
    }
}

/// Three agents that hand off with an update each, as in the benchmark `compare`.
pub(crate) fn agents() -> Builder {
    Callboard::builder()
        .agent("researcher", |turn: Turn| async move {
            let notes = format!("notes on {}", turn.task().body);
            Ok(Command::update("artifacts", json!({ "notes": notes })).with_output("72 of 100").goto("writer"))
        })
        .agent("writer", |_: Turn| async move {
            Ok(Command::update("artifacts", json!({ "text": "text.md" })).with_output("88 of 100").goto("editor"))
        })
        .agent("editor", |_: Turn| async move {
            Ok(Command::update("artifacts", json!({ "final": "final.md" })).with_output("done"))
        })
}

/// Handlers without callboard's server, and one that reports the processor time of the process.
pub(crate) fn bare(board: Callboard) -> Router {
    async fn complete(State(board): State<Callboard>, Json(body): Json<Value>) -> Json<Value> {
        let task = Task::new(body["body"].as_str().unwrap()).to(body["to"].as_str().unwrap());
        let result = board.complete(task).await.unwrap();
        Json(json!({ "request_id": result.run, "outcome": result.outcome.name(), "output": &*result.output }))
    }
    Router::new()
        .route("/chain", post(complete))
        .route("/nothing", get(|| async {}))
        .route("/cpu", get(|| async { cpu().to_string() }))
        .with_state(board)
}

/// What one piece of work takes.
struct Cost {
    /// Processor time of the server, in µs.
    cpu: f64,
    /// Pieces a second.
    rate: f64,
    /// Requests for a piece.
    requests: f64,
}

async fn processor_time(server: &Spawned) -> f64 {
    Connection::open(server.bare_port).await.send(&request("GET", "/cpu", "", "")).await.parse().unwrap()
}

/// Does one thing until it is time, and returns how often it was done, and with how many requests.
async fn repeat(mut connection: Connection, secret: String, number: usize, work: Work, until: f64) -> (f64, f64) {
    let token = format!("Authorization: Bearer {secret}\r\n");
    let body = json!({ "to": "researcher", "body": "the design" }).to_string();
    let of_delegation = |answer: &str, rest: &str| {
        let id = answer.split_once("\"request_id\":\"").unwrap().1.split_once('"').unwrap().0;
        request("GET", &format!("/v1/delegations/{id}{rest}"), &token, "")
    };
    let create = request("POST", "/v1/delegations", &token, &body);
    let keyed = request("POST", "/v1/delegations", &format!("{token}Idempotency-Key: {number}-{until}\r\n"), &body);
    let nothing = request("GET", "/nothing", "", "");
    let complete = request("POST", "/chain", "", &body);
    let (mut done, mut requests) = (0.0, 0.0);
    while wall() < until {
        match work {
            Work::Read | Work::Known => {
                let answer = connection.send(if matches!(work, Work::Read) { &create } else { &keyed }).await;
                let read = of_delegation(answer, "");
                requests += 1.0;
                loop {
                    requests += 1.0;
                    if !connection.send(&read).await.ends_with("\"result\":null}") {
                        break;
                    }
                }
            }
            Work::Follow => {
                let follow = of_delegation(connection.send(&create).await, "/events");
                connection.send(&follow).await;
                requests += 2.0;
            }
            Work::Completed => {
                connection.send(&complete).await;
                requests += 1.0;
            }
            Work::Empty => {
                connection.send(&nothing).await;
                requests += 1.0;
            }
        }
        done += 1.0;
    }
    (done, requests)
}

async fn measured(server: &Spawned, work: Work, connections: usize) -> Cost {
    let port = match work {
        Work::Read | Work::Follow | Work::Known => server.port,
        Work::Completed | Work::Empty => server.bare_port,
    };
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(Connection::open(port).await);
    }
    let (began, used) = (wall(), processor_time(server).await);
    let clients = opened.into_iter().enumerate().map(|(number, connection)| {
        tokio::spawn(repeat(connection, server.secrets[0].clone(), number, work, began + FOR))
    });
    let (mut done, mut requests) = (0.0, 0.0);
    for client in clients.collect::<Vec<_>>() {
        let (pieces, sent) = client.await.unwrap();
        (done, requests) = (done + pieces, requests + sent);
    }
    let took = wall() - began;
    Cost { cpu: (processor_time(server).await - used) / done * 1e6, rate: done / took, requests: requests / done }
}

/// Measures each work with so many connections, in rounds, and prints the medians.
fn compare(serves: Serves, works: &[Work], connections: &[usize]) {
    // The clients have one thread, so that one core at least is the server's.
    one_thread().block_on(async {
        let servers = [1, 2].map(|workers| (workers, Spawned::with(serves, workers)));
        let mut cases = Vec::new();
        for (workers, server) in &servers {
            for connections in connections {
                cases.extend(works.iter().map(|work| (*workers, server, *connections, *work, Vec::new())));
            }
        }
        for round in 0..=ROUNDS {
            for (_, server, connections, work, costs) in &mut cases {
                let cost = measured(server, *work, *connections).await;
                if round > 0 {
                    costs.push(cost);
                }
                // What is left of it ends.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        println!(
            "{:<44} {:>7} {:>11} {:>8} {:>10} {:>9} {:>8}",
            "case", "workers", "connections", "µs CPU", "µs", "a second", "requests"
        );
        for (workers, _, connections, work, costs) in cases {
            let of = |field: fn(&Cost) -> f64| median(costs.iter().map(field).collect());
            let (cpu, rate, requests) = (of(|it| it.cpu), of(|it| it.rate), of(|it| it.requests));
            let time = connections as f64 / rate * 1e6;
            println!(
                "{:<44} {workers:>7} {connections:>11} {cpu:>8.1} {time:>10.1} {rate:>9.0} {requests:>8.2}",
                work.name()
            );
        }
    });
}

pub(crate) fn in_memory(_: &mut Report) {
    compare(Serves::Chain, &Work::ALL, &[1, 8, 32]);
}

pub(crate) fn on_disk(_: &mut Report) {
    compare(Serves::DurableChain, &[Work::Read, Work::Follow, Work::Completed], &[32]);
}
