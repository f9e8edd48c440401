//! Ten times the load that the server can take: what is refused, how soon other routes answer, and what memory does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::Client;
use crate::measure::{two_workers, wall};
use crate::report::{Line, Report, Target};
use crate::requests::p99;
use crate::server::Spawned;

/// How long the load is on: `CALLBOARD_SECONDS`, or so many seconds.
const SECONDS: u64 = 20;
/// How many clients delegate at the same time.
const CLIENTS: usize = 64;
/// How much more is asked than can be done.
const TIMES: f64 = 10.0;

/// What was done, shared by the clients.
#[derive(Default)]
struct Counts {
    is_over: AtomicBool,
    sent: AtomicU64,
    statuses: Mutex<BTreeMap<u16, u64>>,
    control: Mutex<Vec<f64>>,
}

pub(crate) fn overload(report: &mut Report) {
    let seconds = std::env::var("CALLBOARD_SECONDS").map_or(SECONDS, |seconds| seconds.parse().unwrap());
    two_workers().block_on(async {
        let server = Spawned::start();
        let capacity = capacity(&server).await;
        let counts = Arc::new(Counts::default());
        let began = wall();
        let rate = capacity * TIMES / CLIENTS as f64;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let (counts, client) = (Arc::clone(&counts), Client::connect(server.port, &server.secrets[0]).await);
            tasks.spawn(push(counts, client, began, rate));
        }
        tasks.spawn(control(Arc::clone(&counts), Client::connect(server.port, &server.secrets[1]).await));
        let mut memory = Vec::new();
        while wall() - began < seconds as f64 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            memory.push(server.resident());
        }
        counts.is_over.store(true, Ordering::SeqCst);
        while tasks.join_next().await.is_some() {}
        let sent = counts.sent.load(Ordering::SeqCst) as f64 / seconds as f64;
        println!(
            "{sent:.0} delegations a second for {seconds} s, of a server that can take {capacity:.0}; answers by status {:?}",
            counts.statuses.lock()
        );
        report.add(Line {
            name: "other routes under ten times the load, p99",
            value: p99(std::mem::take(&mut counts.control.lock())) * 1e3,
            unit: "ms",
            reference: None,
            target: Target::AtMost(100.0, None),
        });
        let part = |from: usize, to: usize| {
            let part = &memory[memory.len() * from / 10..memory.len() * to / 10];
            part.iter().sum::<f64>() / part.len() as f64 / 1024.0 / 1024.0
        };
        report.add(Line {
            name: "the server's memory at the end",
            value: part(8, 10),
            unit: "MiB",
            reference: Some(("in the middle", part(4, 6))),
            target: Target::Within(0.1),
        });
    });
}

/// How many delegations a second the server takes from clients that wait for each.
async fn capacity(server: &Spawned) -> f64 {
    const FOR: f64 = 3.0;
    let began = wall();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut client = Client::connect(server.port, &server.secrets[0]).await;
        clients.spawn(async move {
            let mut ended = 0;
            while wall() - began < FOR {
                let (_, answer): (_, Value) =
                    client.post("/v1/delegations", &json!({ "to": "worker", "body": "x" })).await;
                let path = format!("/v1/delegations/{}", answer["request_id"].as_str().unwrap());
                while client.get::<Value>(&path).await.1["result"].is_null() {
                    tokio::time::sleep(Duration::from_millis(4)).await;
                }
                ended += 1;
            }
            f64::from(ended)
        });
    }
    let mut ended = 0.0;
    while let Some(of_client) = clients.join_next().await {
        ended += of_client.unwrap();
    }
    ended / (wall() - began)
}

/// Delegates so many tasks a second, whatever the answers are.
async fn push(counts: Arc<Counts>, mut client: Client, began: f64, rate: f64) {
    let mut pushed = 0.0;
    while !counts.is_over.load(Ordering::SeqCst) {
        if pushed > (wall() - began) * rate {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        }
        let (status, _): (_, Value) = client.post("/v1/delegations", &json!({ "to": "worker", "body": "x" })).await;
        pushed += 1.0;
        counts.sent.fetch_add(1, Ordering::SeqCst);
        *counts.statuses.lock().entry(status.as_u16()).or_default() += 1;
    }
}

/// Reads what has to be readable under any load.
async fn control(counts: Arc<Counts>, mut client: Client) {
    while !counts.is_over.load(Ordering::SeqCst) {
        for path in ["/v1/health", "/v1/agents", "/v1/pending", "/v1/tree", "/v1/delegations?limit=10"] {
            let began = wall();
            let (status, answer): (_, Value) = client.get(path).await;
            assert!(status.is_success(), "{path}: {answer}");
            counts.control.lock().push(wall() - began);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
