//! A server under load is killed again and again on one growing store: nothing that it acknowledged is lost, a request that is
//! repeated with its key is the same delegation, and event streams continue after the last event that their client has.
//!
//! The oracle is outside: the driver keeps what it was answered, effects go to files of their own, and the runtime is never asked
//! what it lost.

#![allow(clippy::disallowed_methods, reason = "it kills processes in real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;

use callboard::env::Env;
use callboard_server::{Server, Tokens};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::campaigns::{Campaign, cases};
use crate::charges::{self, Counted, TURNS};
use crate::support::client::{Client, Events};

const FOLDER: &str = "CALLBOARD_KILLED_SERVER";
/// How many clients delegate at the same time.
const CLIENTS: u64 = 8;

/// Not a test: what the killed processes run.
#[test]
fn the_server() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let tokens = Tokens::open(&folder.join("tokens/tokens.json"), Env::system()).unwrap();
        let secret = tokens.owner_secret().unwrap();
        let board = charges::builder(&folder).start().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("serves {} {secret}", listener.local_addr().unwrap().port());
        Server::new(board, tokens).serve(listener, std::future::pending()).await.unwrap();
    });
}

/// A server in a process of its own, which ends with its value.
struct Serving {
    process: Child,
    client: Client,
}

impl Serving {
    fn start(folder: &Path) -> Self {
        let mut process = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::the_server", "--nocapture", "--quiet"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find_map(|line| line.split_once("serves ").map(|(_, rest)| rest.to_owned())).unwrap();
        let (port, secret) = line.split_once(' ').unwrap();
        Self { process, client: Client { port: port.parse().unwrap(), secret: Some(secret.to_owned()) } }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// What clients know.
#[derive(Default)]
struct Known {
    next_key: u64,
    /// Keys of requests that were not answered.
    unanswered: Vec<String>,
    /// The delegation that each key was acknowledged as.
    acknowledged: BTreeMap<String, String>,
    /// The number of the last event of each delegation that is followed.
    followed: BTreeMap<String, u64>,
    /// Streams that were cut before their delegation had ended.
    cut: Vec<String>,
    wrong: Vec<String>,
}

impl Known {
    /// The key of the next request, one that was not answered before all others.
    fn key(&mut self) -> String {
        self.unanswered.pop().unwrap_or_else(|| {
            self.next_key += 1;
            format!("key-{}", self.next_key)
        })
    }

    fn acknowledge(&mut self, key: String, id: String) {
        let before = self.acknowledged.insert(key.clone(), id.clone());
        if before.as_ref().is_some_and(|before| *before != id) {
            self.wrong.push(format!("{key} was acknowledged as {before:?}, and then as {id}"));
        }
    }

    /// Takes the events that a stream had before it ended or was cut.
    fn read(&mut self, id: &str, events: &Events) {
        let last = self.followed.entry(id.to_owned()).or_default();
        for number in events.ids() {
            if number != *last + 1 {
                self.wrong.push(format!("event {number} of {id} follows event {last}"));
            }
            *last = number;
        }
        if !events.has_ended {
            self.cut.push(id.to_owned());
        }
    }
}

fn delegation() -> Value {
    json!({ "to": "a", "body": "work" })
}

/// Delegates, and follows what was acknowledged, until the server is gone. `acknowledged` is notified of each.
async fn delegate(client: &Client, known: &Mutex<Known>, acknowledged: &Notify) {
    loop {
        let (key, cut) = {
            let mut known = known.lock();
            (known.key(), known.cut.pop())
        };
        if let Some(id) = cut {
            follow(client, known, &id).await;
        }
        let answer = client.post_with("/v1/delegations", &[("Idempotency-Key", &key)], &delegation()).await;
        let id = match (answer.status, answer.is_whole) {
            (202, true) => answer.json()["request_id"].as_str().unwrap().to_owned(),
            // The connection was cut, or there is no server any more.
            (_, false) => return known.lock().unanswered.push(key),
            _ => return known.lock().wrong.push(format!("{answer:?}")),
        };
        known.lock().acknowledge(key, id.clone());
        acknowledged.notify_one();
        follow(client, known, &id).await;
    }
}

async fn follow(client: &Client, known: &Mutex<Known>, id: &str) {
    let last = known.lock().followed.get(id).copied().unwrap_or_default().to_string();
    let events = client.events(&format!("/v1/delegations/{id}/events?modes=debug"), &last).await;
    known.lock().read(id, &events);
}

/// Has everything end that was acknowledged, and returns the delegations of which a person was asked what became of an effect.
async fn finish(client: &Client, known: &Mutex<Known>) -> BTreeSet<String> {
    let mut asked = BTreeSet::new();
    let ids: Vec<String> = known.lock().acknowledged.values().cloned().collect();
    for id in ids {
        loop {
            let delegation = client.get(&format!("/v1/delegations/{id}")).await.json();
            if delegation["status"] == "complete" || delegation["status"] == "fail" {
                let turns = delegation["result"]["state"]["messages"].as_array().map_or(0, Vec::len);
                if (delegation["status"].as_str(), turns) != (Some("complete"), TURNS) {
                    known.lock().wrong.push(format!("it has not ended as it should: {delegation}"));
                }
                break;
            }
            for pending in delegation["pending"].as_array().unwrap() {
                // A person looks into the shop's own ledger, and answers that it was done.
                let path = format!("/v1/pending/{}", pending["id"].as_str().unwrap().replace('/', "%2F"));
                let answer = json!({ "response": "answer", "value": { "done": null } });
                assert_eq!(client.post(&path, &answer).await.status, 200, "{pending}");
                asked.insert(id.clone());
            }
            tokio::task::yield_now().await;
        }
        follow(client, known, &id).await;
    }
    asked
}

/// How many delegations there are, by the pages of the list.
async fn count(client: &Client) -> usize {
    let (mut count, mut page) = (0, String::new());
    loop {
        let listed = client.get(&format!("/v1/delegations?limit=200{page}")).await.json();
        count += listed["delegations"].as_array().unwrap().len();
        match listed["next"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => return count,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_killed_server_has_acknowledged_is_lost_or_done_twice() {
    let mut campaign = Campaign::begin("serve");
    let kills = cases(6) as usize;
    let folder = tempfile::tempdir().unwrap();
    let (known, acknowledged) = (Arc::new(Mutex::new(Known::default())), Notify::new());
    for _ in 0..kills {
        let mut serving = Serving::start(folder.path());
        let kill_after = 1 + campaign.below(100);
        let clients = (0..CLIENTS).map(|_| delegate(&serving.client, &known, &acknowledged));
        let killed = async {
            for _ in 0..kill_after {
                acknowledged.notified().await;
            }
            serving.process.kill().unwrap();
        };
        tokio::join!(futures::future::join_all(clients), killed);
    }
    let serving = Serving::start(folder.path());
    // What was not answered is asked again, and so is something that was.
    let before = known.lock().acknowledged.len();
    loop {
        let key = known.lock().unanswered.pop();
        let Some(key) = key.or_else(|| known.lock().acknowledged.keys().next_back().cloned()) else { break };
        let is_repeated = known.lock().acknowledged.contains_key(&key);
        let answer = serving.client.post_with("/v1/delegations", &[("Idempotency-Key", &key)], &delegation()).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        known.lock().acknowledge(key, answer.json()["request_id"].as_str().unwrap().to_owned());
        if is_repeated {
            break;
        }
    }
    let asked = finish(&serving.client, &known).await;
    let listed = count(&serving.client).await;
    let known = known.lock();
    assert!(known.wrong.is_empty(), "{} wrong: {:#?}", known.wrong.len(), &known.wrong[..known.wrong.len().min(5)]);
    let ids: BTreeSet<String> = known.acknowledged.values().cloned().collect();
    assert_eq!(ids.len(), known.acknowledged.len(), "each key is a delegation of its own");
    assert!(ids.len() > kills * 10, "too little load: {}", ids.len());
    assert_eq!(listed, ids.len(), "there are delegations that nobody asked for");
    let Counted { repeated, charges } = charges::check(folder.path(), &ids, &asked);
    campaign.count_many(kills as u64);
    let (late, streams) = (ids.len() - before, known.followed.len());
    campaign.end(format_args!(
        "{} delegations acknowledged, {late} of them when they were asked again; {streams} streams without a gap or a repetition; \
         {repeated} idempotent effects repeated; 0 of {charges} `once` effects repeated, {} asked about",
        ids.len(),
        asked.len()
    ));
}
