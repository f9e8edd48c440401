//! Boards whose clock is wrong: leases, sessions and expiry are by the server's clock.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use callboard::env::Env;
use callboard::storage::{Append, Change, Key, NewSession, Put, Storage, StorageError};
use callboard_postgres::Postgres;
use futures::StreamExt as _;
use support::Server;
use support::proxy::Proxy;

mod support;

/// Names the folder of the socket and the schema, in the process with the wrong clock.
const WRONG: &str = "CALLBOARD_TEST_WRONG_CLOCK";
const LEASE: Duration = Duration::from_secs(40);

fn session(name: &str, lease: Duration) -> NewSession {
    NewSession { name: name.into(), about: [][..].into(), lease }
}

async fn left(store: &Postgres, name: &str) -> Duration {
    store.sessions().await.unwrap().iter().find(|info| &*info.name == name).unwrap().left
}

async fn lives(store: &Postgres, name: &str) {
    let left = left(store, name).await;
    assert!(left > Duration::ZERO && left <= LEASE, "{left:?}");
    let taken = store.begin_session(session(name, LEASE)).await;
    assert!(matches!(taken, Err(StorageError::NameTaken { .. })), "{taken:?}");
}

/// What the process with the wrong clock does until it has its letter.
async fn with_wrong_clock(folder: &str, schema: &str) {
    let client = support::connect(&format!("postgres://postgres@/postgres?host={folder}")).await;
    let millis = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let server = client.query_one(millis, &[]).await.unwrap().get::<_, i64>(0) as u64;
    let off = server.abs_diff(Env::system().now().wall.as_millis());
    assert!((60_000..120_000).contains(&off), "the clock is off by {off} ms");

    let store = Postgres::connect_with(support::config_at(Path::new(folder), schema)).await.unwrap();
    let mut watch = store.watch(&Key::new(["mail", "wrong"]).children());
    assert_eq!(store.get(&Key::new(["mail", "wrong", "1"])).await, Ok(None));
    let mine = store.begin_session(session("wrong", LEASE)).await.unwrap();
    lives(&store, "wrong").await;
    let written = Append { session: Some(mine), ..Append::new(Key::new(["stream"]), 0, [][..].into()) };
    assert_eq!(store.append(written).await, Ok(1));
    let put = Put { ttl_secs: Some(40), ..Put::new(Key::new(["context", "a"]), [][..].into()) };
    store.put_if_revision(put).await.unwrap();
    assert!(store.get(&Key::new(["context", "a"])).await.unwrap().is_some());
    store.renew_session(mine, [][..].into()).await.unwrap();
    println!("\nready");
    assert!(matches!(watch.next().await, Some(Change::Put(..))));
    store.renew_session(mine, [][..].into()).await.unwrap();
    lives(&store, "wrong").await;
    println!("\nseen");
}

async fn a_wrong_clock_changes_nothing(test: &str, offset: &str) {
    if let Ok(told) = std::env::var(WRONG) {
        let (folder, schema) = told.split_once('\n').unwrap();
        return with_wrong_clock(folder, schema).await;
    }
    let server = Server::of_this_process();
    let schema = server.fresh_schema().await;
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), &server.folder);
    let mut child = Command::new(support::program("faketime"))
        .args(["-f", offset])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--quiet"])
        .env(WRONG, format!("{}\n{schema}", folder.path().display()))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut await_line = |awaited: &str| {
        assert!(lines.by_ref().any(|line| line.unwrap() == awaited), "the process ended before it wrote {awaited:?}");
    };
    tokio::task::block_in_place(|| await_line("ready"));

    let store = Postgres::connect_with(server.config(&schema)).await.unwrap();
    lives(&store, "wrong").await;
    let wrong = store.sessions().await.unwrap()[0].id;
    assert!(matches!(store.end_session(wrong, true).await, Err(StorageError::SessionLives { .. })));
    assert!(store.get(&Key::new(["context", "a"])).await.unwrap().is_some());
    // While a lease of 1 s runs out, the other process does next to nothing.
    proxy.count("pg_current_snapshot");
    let clock = Env::system();
    let begun = clock.now().monotonic;
    store.begin_session(session("short", Duration::from_secs(1))).await.unwrap();
    while left(&store, "short").await > Duration::ZERO {}
    let (looks, seconds) = (proxy.count("pg_current_snapshot"), (clock.now().monotonic - begun).as_secs());
    assert!(looks as u64 <= 20 + 3 * seconds, "{looks} looks in {seconds} s");
    store.put_if_revision(Put::new(Key::new(["mail", "wrong", "1"]), [][..].into())).await.unwrap();
    tokio::task::block_in_place(|| await_line("seen"));
    assert!(child.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_board_whose_clock_is_ahead_keeps_its_lease_and_sees_those_of_others() {
    a_wrong_clock_changes_nothing("a_board_whose_clock_is_ahead_keeps_its_lease_and_sees_those_of_others", "+90s")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_board_whose_clock_is_behind_keeps_its_lease_and_sees_those_of_others() {
    a_wrong_clock_changes_nothing("a_board_whose_clock_is_behind_keeps_its_lease_and_sees_those_of_others", "-90s")
        .await;
}
