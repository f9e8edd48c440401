//! What reaches clients and runs when streams are many or slow, processes several, and clients gone.

use std::pin::pin;
use std::time::Duration;

use axum::http::HeaderValue;
use callboard::Builder;
use callboard::env::Env;
use callboard::messages::Durability;
use callboard::prelude::*;
use callboard::runtime::Unfinished;
use callboard::storage::Sled;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{advance, timeout};

use crate::mcp::messages::{ACCEPT, message};
use crate::support::local::{Local, memory, text_of};

/// A board with an agent that asks a person, one that asks, notes something five times and asks again, and one that never ends.
fn builder() -> Builder {
    Callboard::builder()
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) })
        .agent("notes", |turn: Turn| async move {
            turn.people().ask("well?").await?;
            (0..5).for_each(|number| turn.notice(&number.to_string()));
            Ok(Command::output(turn.people().ask("and now?").await?))
        })
        .agent("waiter", |_: Turn| std::future::pending::<Result<Command, TurnError>>())
        .shutdown_grace(Duration::ZERO)
}

fn kinds(events: &str) -> Vec<&str> {
    events.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
}

async fn submit(board: &Callboard, agent: &str) -> String {
    let run = board.submit(Task::new("x").to(agent).durability(Durability::Sync)).await.unwrap();
    format!("/v1/delegations/{}", run.id())
}

/// In a time that a test waits for at most, virtual or not.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(600), future).await.expect("it has not ended")
}

#[tokio::test(start_paused = true)]
async fn a_hundred_event_streams_of_a_token_are_open_at_most() {
    let board = builder().start().await.unwrap();
    let local = Local::over(&board);
    let path = submit(&board, "waiter").await + "/events";
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(local.open(&path).await);
    }
    assert!(open.iter().all(|response| response.status().as_u16() == 200));
    let refused = local.open(&path).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &HeaderValue::from_static("1")));
    assert!(text_of(refused).await.contains("\"code\":\"overloaded\""));
    let other = Local::over(&board);
    assert_eq!(other.open(&path).await.status().as_u16(), 200, "another server");
    drop(open.pop());
    assert_eq!(local.open(&path).await.status().as_u16(), 200);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_events_sends_a_comment_every_fifteen_seconds() {
    let board = builder().start().await.unwrap();
    let (local, env) = (Local::over(&board), Env::repeatable(1));
    let path = submit(&board, "waiter").await + "/events";
    for path in [&*path, "/v1/agents/waiter/events", "/v1/tree/events"] {
        // From the first event that is at hand on: none follows.
        let mut chunks = local.open(path).await.into_body().into_data_stream();
        while chunks.next().now_or_never().is_some() {}
        let start = env.now().monotonic;
        for beat in 1..=3 {
            let chunk = soon(chunks.next()).await.unwrap().unwrap();
            let passed = env.now().monotonic - start;
            assert_eq!((&*chunk, passed.as_secs()), (&b":\n\n"[..], 15 * beat), "{path}");
        }
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegation_without_news_for_ten_minutes_is_stale() {
    let board = builder().env(Env::repeatable(1)).start().await.unwrap();
    let local = Local::over(&board);
    let (_, begun) = local.post("/v1/delegations", &[], &json!({ "to": "notes", "body": "x" })).await;
    assert_eq!(begun["is_stale"], false);
    let path = format!("/v1/delegations/{}", begun["request_id"].as_str().unwrap());
    let is_stale = async || local.get(&path).await.1["is_stale"].clone();
    let asked = board.people().next().await.unwrap();
    for (secs, expected) in [(599, false), (1, true)] {
        advance(Duration::from_secs(secs)).await;
        assert_eq!(is_stale().await, expected);
    }
    board.people().answer(asked.id(), 1, "ann").await.unwrap();
    let asked = soon(board.people().next_where(|pending| pending.id() != asked.id())).await.unwrap();
    assert_eq!(is_stale().await, false, "it has sent notices");
    advance(Duration::from_secs(600)).await;
    assert_eq!(is_stale().await, true);
    board.people().answer(asked.id(), 1, "ann").await.unwrap();
    soon(board.run(asked.run()).result()).await.unwrap();
    assert_eq!(is_stale().await, false, "it has ended");

    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let ask = async |method: &str, name: &str, params: Value| {
        let headers = [ACCEPT, ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", name)];
        let body = message(method, &params, &tasks).to_string();
        let answer = text_of(local.send(local.request("POST", "/mcp", &headers, &body)).await).await;
        serde_json::from_str::<Value>(&answer).unwrap()["result"].clone()
    };
    let waiter = json!({ "name": "agent_waiter", "arguments": { "task": "x" } });
    let task = ask("tools/call", "agent_waiter", waiter).await["taskId"].as_str().unwrap().to_owned();
    let shown = async || ask("tasks/get", &task, json!({ "taskId": task })).await["statusMessage"].clone();
    assert_eq!(shown().await, Value::Null);
    advance(Duration::from_secs(600)).await;
    assert_eq!(shown().await, "stale: there was no news of it for long; it may still end");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_another_process_works_on_is_followed_by_its_journal() {
    let store = memory();
    let working = builder().storage(store.clone()).start().await.unwrap();
    let path = submit(&working, "asker").await + "/events?modes=debug";
    let asked = working.people().next().await.unwrap();
    let looking = builder().storage(store).on_unfinished(Unfinished::Leave).start().await.unwrap();
    let local = Local::over(&looking);
    let mut events = local.open(&path).await.into_body().into_data_stream();
    let mut read = Vec::new();
    soon(async {
        while kinds(&String::from_utf8_lossy(&read)) != ["submitted", "asked"] {
            read.extend_from_slice(&events.next().await.unwrap().unwrap());
        }
    })
    .await;
    working.people().answer(asked.id(), 1, "ann").await.unwrap();
    soon(async {
        while let Some(bytes) = events.next().await {
            read.extend_from_slice(&bytes.unwrap());
        }
    })
    .await;
    assert_eq!(kinds(&String::from_utf8_lossy(&read)), ["submitted", "asked", "answered", "turn_ended"]);
    looking.shutdown().await;
    working.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_what_it_missed_and_continues_with_that_from_the_journal() {
    let board = builder().capacity(|it| it.watch_buffer(2)).start().await.unwrap();
    let local = Local::over(&board);
    let path = submit(&board, "notes").await + "/events?modes=debug";
    let asked = board.people().next().await.unwrap();
    let slow = local.open(&path).await;
    board.people().answer(asked.id(), 5, "ann").await.unwrap();
    soon(board.people().next_where(|pending| pending.id() != asked.id())).await.unwrap();
    // Before it looks into the journal.
    let read = timeout(Duration::from_millis(500), text_of(slow)).await.expect("it has not ended");
    assert_eq!(kinds(&read).last(), Some(&"missed"), "{read}");
    let seen = read.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
    let request = local.request("GET", &path, &[("Last-Event-ID", seen)], "");
    let mut rest = local.send(request).await.into_body().into_data_stream();
    let first = String::from_utf8(soon(rest.next()).await.unwrap().unwrap().to_vec()).unwrap();
    let next: u64 = seen.parse::<u64>().unwrap() + 1;
    assert!(first.contains(&format!("id: {next}\n")), "after {seen}: {first}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_decision_reaches_its_run_if_the_client_leaves() {
    let board = builder().start().await.unwrap();
    let local = Local::over(&board);
    submit(&board, "asker").await;
    let asked = board.people().next().await.unwrap();
    let path = format!("/v1/pending/{}", asked.id().to_string().replace('/', "%2F"));
    let response = json!({ "response": "answer", "value": 1 }).to_string();
    {
        let mut sent = pin!(local.send(local.request("POST", &path, &[], &response)));
        assert!(sent.as_mut().now_or_never().is_none(), "it was answered at once");
    }
    assert_eq!(soon(board.run(asked.run()).result()).await.unwrap().output, 1);
    board.shutdown().await;
}

#[tokio::test]
async fn an_idempotency_key_is_the_same_delegation_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let start = async || builder().storage(Sled::open(folder.path()).unwrap()).start().await.unwrap();
    let task = json!({ "to": "waiter", "body": "once" });
    let mut ids = Vec::new();
    for _ in 0..2 {
        let board = start().await;
        let local = Local::over(&board);
        let (status, created) = local.post("/v1/delegations", &[("Idempotency-Key", "k")], &task).await;
        assert_eq!(status, 202, "{created}");
        ids.push(created["request_id"].clone());
        let other = json!({ "to": "waiter", "body": "twice" });
        let (status, reused) = local.post("/v1/delegations", &[("Idempotency-Key", "k")], &other).await;
        assert_eq!((status, &reused["code"]), (422, &json!("idempotency-key-reused")));
        board.shutdown().await;
    }
    assert_eq!(ids[0], ids[1]);
}
