//! Ten times the work that a board can do, over HTTP: what is too much is refused with a time to try again, what is acknowledged ends,
//! other routes answer, and memory does not grow. How soon they answer is what `benches/http` measures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callboard::prelude::*;
use callboard_server::Scope;
use parking_lot::Mutex;
use serde_json::json;

use crate::campaigns::{Campaign, seconds};
use crate::support::client::Client;
use crate::support::service::Service;

const CLIENTS: usize = 32;
/// How many runs the board has room for, and how long each takes: 160 a second.
const ROOM: usize = 8;
const WORK: Duration = Duration::from_millis(50);
/// What memory may differ by between the middle and the end.
const NOISE_KB: u64 = 6 * 1_024;

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Delegates without a pause, and returns how many of which answers there were, or the first that is wrong.
async fn push(client: &Client, campaign: &Mutex<Campaign>, time: Duration) -> BTreeMap<u16, u64> {
    let mut statuses = BTreeMap::new();
    while campaign.lock().elapsed() < time && !campaign.lock().has_failed() {
        let answer = client.post("/v1/delegations", &json!({ "to": "worker", "body": "x" })).await;
        *statuses.entry(answer.status).or_default() += 1;
        let is_right = match answer.status {
            202 => answer.header("location").is_some(),
            429 | 503 => answer.header("retry-after").is_some() && answer.code() == "overloaded",
            _ => false,
        };
        campaign.lock().count(if is_right { Ok(()) } else { Err(format!("{answer:?}")) });
    }
    statuses
}

/// Reads what has to be readable under any load, and what memory the process has.
async fn control(client: &Client, campaign: &Mutex<Campaign>, time: Duration) -> Vec<u64> {
    let mut resident = Vec::new();
    while campaign.lock().elapsed() < time && !campaign.lock().has_failed() {
        for path in ["/v1/health", "/v1/agents", "/v1/pending", "/v1/tree", "/v1/delegations?limit=10"] {
            let answer = client.get(path).await;
            campaign.lock().count(if answer.status == 200 { Ok(()) } else { Err(format!("{path}: {answer:?}")) });
        }
        resident.push(resident_kb());
    }
    resident
}

fn median(part: &[u64]) -> u64 {
    let mut part = part.to_vec();
    part.sort_unstable();
    part.get(part.len() / 2).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_times_the_load_is_refused_with_a_time_and_what_is_acknowledged_ends() {
    let (campaign, time) = (Mutex::new(Campaign::begin("overload-http")), seconds(3));
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    let worker = move |_: Turn| {
        let done = Arc::clone(&counted);
        async move {
            tokio::time::sleep(WORK).await;
            done.fetch_add(1, Ordering::SeqCst);
            Ok(Command::new())
        }
    };
    let service =
        Service::of(Callboard::builder().agent("worker", worker).capacity(|it| it.runs_in_flight(ROOM))).await;
    let client = service.client("ci", Scope::ALL);
    let pushing = futures::future::join_all((0..CLIENTS).map(|_| push(&client, &campaign, time)));
    let (answers, resident) = tokio::join!(pushing, control(&client, &campaign, time));
    let mut statuses = BTreeMap::<u16, u64>::new();
    for (status, count) in answers.into_iter().flatten() {
        *statuses.entry(status).or_default() += count;
    }
    let mut campaign = campaign.into_inner();
    for run in service.board.runs_at_work() {
        let ended = run.result().await.map(drop).map_err(|error| error.to_string());
        campaign.count(ended);
    }
    let (acknowledged, ended) = (statuses.get(&202).copied().unwrap_or_default(), done.load(Ordering::SeqCst));
    let sent: u64 = statuses.values().sum();
    let check = |is_right: bool, why: String| if is_right { Ok(()) } else { Err(why) };
    campaign.count(check(acknowledged == ended, format!("{acknowledged} were acknowledged, and {ended} have ended")));
    campaign.count(check(sent > 2 * acknowledged, format!("it was no overload: {statuses:?}")));
    let (middle, end) = (resident.len() / 2, resident.len() * 9 / 10);
    let (middle, end) = (median(&resident[middle..end]), median(&resident[end..]));
    campaign.count(check(
        end <= middle + NOISE_KB,
        format!("memory grows: {middle} KB in the middle, {end} KB at the end"),
    ));
    service.end().await;
    campaign.end(format_args!(
        "{sent} requests in {time:?}, answers by status {statuses:?}; {middle} KB resident in the second half, {end} KB at the end"
    ));
}
