//! Disks of the database that are full (ENOSPC): writes fail with a reason, or wait, and are made once when there is space again.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use callboard::storage::{Append, Key, Storage as _, StorageError};
use callboard_postgres::Postgres;
use support::Server;
use support::disk::Small;

#[path = "../../../tests/common/skipping.rs"]
mod skipping;
mod support;

/// What is removed to make space, in bytes.
const FILLER: usize = 6 << 20;

fn stream() -> Key {
    Key::new(["test", "stream"])
}

/// Bytes that do not get shorter when they are compressed.
fn payload() -> Arc<[u8]> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(100_000).collect()
}

/// A server with a small disk that has a file to be removed.
fn server(small: Small, settings: &[&str]) -> Server {
    let server = Server::start_on(small, settings);
    std::fs::write(server.on_disk(small, "filler"), vec![1; FILLER]).unwrap();
    server
}

/// Writes until a write fails: how many were made, and the error.
async fn fill(store: &Postgres, payload: &Arc<[u8]>) -> (u64, StorageError) {
    let mut written = 0;
    loop {
        match store.append(Append::new(stream(), written, Arc::clone(payload))).await {
            Ok(sequence) => written = sequence,
            Err(error) => return (written, error),
        }
        assert!(written < 1_000, "the disk has no end");
    }
}

#[tokio::test]
async fn writes_fail_while_the_disk_of_the_tables_is_full_and_are_made_when_it_has_space() {
    if let Some(why) = Small::why_not() {
        return skipping::skip(&why);
    }
    let server = server(Small::Data, &["autovacuum=off"]);
    let config = server.config(&server.fresh_schema().await).patience(Duration::from_millis(100));
    let store = Postgres::connect_with(config.clone()).await.unwrap();
    let payload = payload();
    let (written, error) = fill(&store, &payload).await;
    let StorageError::Unavailable { detail } = &error else { panic!("{error}") };
    assert!(written > 10 && detail.contains("No space left on device"), "{written}: {detail}");
    assert!(store.append(Append::new(stream(), written, Arc::clone(&payload))).await.is_err());
    assert_eq!(store.read(&stream(), 1, usize::MAX).await.unwrap().len() as u64, written);

    std::fs::remove_file(server.on_disk(Small::Data, "filler")).unwrap();
    assert_eq!(store.append(Append::new(stream(), written, Arc::clone(&payload))).await, Ok(written + 1));
    let again = Postgres::connect_with(config).await.unwrap();
    let records = again.read(&stream(), 1, usize::MAX).await.unwrap();
    assert_eq!(records.len() as u64, written + 1);
    assert!(records.iter().all(|record| record.payload == payload));
}

/// A server that cannot write its log crashes, and may not start before there is space.
#[tokio::test]
async fn a_write_that_the_log_has_no_space_for_is_made_once_after_the_crash_of_the_server() {
    if let Some(why) = Small::why_not() {
        return skipping::skip(&why);
    }
    let server = server(Small::Log, &["autovacuum=off", "checkpoint_timeout=1h", "max_wal_size=1GB"]);
    // Whatever ends it, it is started again.
    std::fs::write(server.folder.join("keep"), []).unwrap();
    let config = server.config(&server.fresh_schema().await);
    let store = Postgres::connect_with(config.clone().patience(Duration::from_millis(100))).await.unwrap();
    let patient = Postgres::connect_with(config.patience(Duration::from_secs(300))).await.unwrap();
    let payload = payload();
    let (written, error) = fill(&store, &payload).await;
    assert!(written > 10 && matches!(error, StorageError::Unavailable { .. }), "{written}: {error}");

    std::fs::remove_file(server.on_disk(Small::Log, "filler")).unwrap();
    // The one that failed may have been made or not.
    let there = patient.read(&stream(), 1, usize::MAX).await.unwrap().len() as u64;
    assert!((written..=written + 1).contains(&there), "{written} were acknowledged, and {there} are there");
    assert!(server.has_logged("No space left on device"), "the server has crashed for another reason");
    assert_eq!(patient.append(Append::new(stream(), there, Arc::clone(&payload))).await, Ok(there + 1));
    let records = patient.read(&stream(), 1, usize::MAX).await.unwrap();
    assert_eq!(records.len() as u64, there + 1);
    assert!(records.iter().all(|record| record.payload == payload));
}
