//! Connections that break, and servers that crash: each write is made once, or its caller gets an error that says that this is not known.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use callboard::storage::{Append, Expected, Key, Put, Rider, Storage, StorageError};
use callboard_postgres::{Postgres, PostgresConfig};
use futures::future::try_join_all;
use parking_lot::Mutex;
use support::Server;
use support::pooler::Pooler;
use support::proxy::{Cut, Proxy};
use support::{waits, writing};

mod support;

fn key(name: &str) -> Key {
    Key::new(["test", name])
}

fn append(stream: &str, expected: u64) -> Append {
    Append::new(key(stream), expected, format!("{expected}").into_bytes().into())
}

/// A proxy, and the settings of a store that goes through it to a new schema.
async fn through_proxy() -> (Proxy, PostgresConfig, String, tempfile::TempDir) {
    let server = Server::of_this_process();
    let folder = tempfile::tempdir().unwrap();
    let schema = server.fresh_schema().await;
    let config = support::config_at(folder.path(), &schema);
    (Proxy::start(folder.path(), &server.folder), config, schema, folder)
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_made_once() {
    let (proxy, config, _, _folder) = through_proxy().await;
    let store = Postgres::connect_with(config).await.unwrap();
    let mut revision = store.put_if_revision(Put::new(key("value"), [][..].into())).await.unwrap();
    for round in 0..12 {
        proxy.cut_next([Cut::Answer, Cut::Statement, Cut::Unanswered][round as usize % 3]);
        let rider = Rider::put(key(&format!("rider {round}")), [][..].into());
        let appended = store.append(Append { riders: vec![rider], ..append("a", round) });
        let put = Put { expected: Expected::Revision(revision), ..Put::new(key("value"), [][..].into()) };
        // The second one is refused if the first is made twice.
        let (appended, put) = tokio::join!(appended, store.put_if_revision(put));
        assert_eq!(appended, Ok(round + 1));
        revision = put.unwrap();
        assert!(proxy.has_cut());
    }
    assert_eq!(store.read(&key("a"), 1, 99).await.unwrap().len(), 12);
    assert_eq!(store.scan(&Key::new(["test"]).children(), None, 99).await.unwrap().len(), 13);
}

#[tokio::test]
async fn a_batch_that_still_runs_when_its_connection_breaks_is_not_made_again() {
    let (proxy, config, schema, _folder) = through_proxy().await;
    let store = Postgres::connect_with(config).await.unwrap();
    assert_eq!(store.append(append("a", 0)).await, Ok(1));

    let client = Server::of_this_process().client().await;
    client.batch_execute(&format!("BEGIN; SELECT 1 FROM {schema}.streams FOR UPDATE")).await.unwrap();
    proxy.cut_next(Cut::Unanswered);
    let appended = tokio::spawn(store.append(append("a", 1)));
    // The first attempt waits for the row of the stream, the second for the first.
    waits(&Server::of_this_process().client().await, 2).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(appended.await.unwrap(), Ok(2));
    assert_eq!(store.read(&key("a"), 1, 99).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_write_fails_when_the_patience_is_over_and_the_next_one_is_made_when_the_server_is_back() {
    let (proxy, config, _, _folder) = through_proxy().await;
    let store = Postgres::connect_with(config.patience(Duration::from_millis(100))).await.unwrap();
    assert_eq!(store.append(append("a", 0)).await, Ok(1));
    proxy.set_open(false);
    assert!(matches!(store.append(append("a", 1)).await, Err(StorageError::Unavailable { .. })));
    assert!(matches!(store.read(&key("a"), 1, 99).await, Err(StorageError::Unavailable { .. })));
    proxy.set_open(true);
    let appended = loop {
        match store.append(append("a", 1)).await {
            Err(StorageError::Unavailable { .. }) => {}
            appended => break appended,
        }
    };
    assert_eq!(appended, Ok(2));
    assert_eq!(store.read(&key("a"), 1, 99).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_the_server_crashes_is_there_once() {
    let config = Server::of_this_process().fresh().await;
    let store = Arc::new(Postgres::connect_with(config.clone()).await.unwrap());
    const RECORDS: u64 = 400;
    writing::write(&store, RECORDS, |stream, record| {
        if [(0, RECORDS / 4), (1, RECORDS / 2)].contains(&(stream, record)) {
            Server::of_this_process().crash();
        }
    })
    .await;
    writing::check(&Postgres::connect_with(config).await.unwrap(), RECORDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_a_pooler_is_restarted_is_there_once() {
    let schema = Server::of_this_process().fresh_schema().await;
    let pooler = Arc::new(Mutex::new(Pooler::start()));
    let config = support::config_at(pooler.lock().folder(), &schema).patience(Duration::from_secs(300));
    let store = Arc::new(Postgres::connect_with(config).await.unwrap());
    const RECORDS: u64 = 200;
    let restarted = Arc::clone(&pooler);
    writing::write(&store, RECORDS, move |stream, record| {
        if [(0, RECORDS / 4), (1, RECORDS / 2)].contains(&(stream, record)) {
            restarted.lock().restart();
        }
    })
    .await;
    writing::check(&store, RECORDS).await;
}

/// The server's files cannot grow beyond a size: what is written is refused as on a full disk.
#[tokio::test]
async fn writes_fail_while_the_disk_is_full_and_are_made_when_it_has_space() {
    let server = Server::start(&["autovacuum=off"]);
    // A write that fails is tried for that long; so is a connection, which may take a while on a busy machine.
    let config = server.config(&server.fresh_schema().await).patience(Duration::from_secs(1));
    let store = Postgres::connect_with(config.clone()).await.unwrap();
    let payload: Arc<[u8]> = random(100_000).into();
    let large = |expected| Append::new(key("a"), expected, Arc::clone(&payload));
    assert_eq!(store.append(large(0)).await, Ok(1));

    server.limit_files(Some(4 << 20)).await;
    let mut written = 1;
    let error = loop {
        match store.append(large(written)).await {
            Ok(sequence) => written = sequence,
            Err(error) => break error,
        }
        assert!(written < 100, "nothing limits the files");
    };
    let StorageError::Unavailable { detail } = &error else { panic!("{error}") };
    assert!(detail.contains("could not extend file"), "{detail}");
    assert!(store.append(large(written)).await.is_err());
    assert_eq!(store.read(&key("a"), 1, usize::MAX).await.unwrap().len() as u64, written);

    server.limit_files(None).await;
    assert_eq!(store.append(large(written)).await, Ok(written + 1));
    let again = Postgres::connect_with(config).await.unwrap();
    let records = again.read(&key("a"), 1, usize::MAX).await.unwrap();
    assert_eq!(records.len() as u64, written + 1);
    assert!(records.iter().all(|record| record.payload == payload));
}

/// Bytes that do not get shorter when they are compressed.
fn random(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[tokio::test]
async fn writes_that_wait_for_each_other_are_both_made() {
    let server = Server::of_this_process();
    let schema = server.fresh_schema().await;
    let config = server.config(&schema);
    let stores = try_join_all([0, 1].map(|_| Postgres::connect_with(config.clone()))).await.unwrap();
    let all =
        try_join_all(["a", "b", "wait"].map(|name| stores[0].put_if_revision(Put::new(key(name), [][..].into()))));
    all.await.unwrap();
    let with = |stream: &str, keys: [&str; 3]| {
        let riders = keys.map(|name| Rider::put(key(name), stream.as_bytes().into())).to_vec();
        Append { riders, ..append(stream, 0) }
    };
    // The first has `a` and waits, the second has `b` and waits for `a`; then the first wants `b`.
    let client = server.client().await;
    client
        .batch_execute(&format!(
            "BEGIN; SELECT FROM {schema}.entries WHERE position('wait'::bytea IN key) > 0 FOR UPDATE"
        ))
        .await
        .unwrap();
    let watching = server.client().await;
    let first = tokio::spawn(stores[0].append(with("first", ["a", "wait", "b"])));
    waits(&watching, 1).await;
    let second = tokio::spawn(stores[1].append(with("second", ["b", "a", "c"])));
    waits(&watching, 2).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(1), Ok(1)));
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    while watching.query_one(deadlocks, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}
