//! Watches of what other handles write: at once by notices of the server, and also where these do not arrive.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::time::Duration;

use callboard::storage::{Change, Delete, Durability, Expected, Key, Put, Revision, Rider, Storage as _, Watch};
use callboard_postgres::{Postgres, PostgresConfig};
use futures::StreamExt as _;
use futures::future::join_all;
use support::Server;
use support::pooler::Pooler;
use support::proxy::Proxy;

mod support;

const NEVER: Duration = Duration::from_secs(3600);

fn letter(board: &str, reference: u32) -> Key {
    Key::new(["mail", board, &format!("{reference:04}")])
}

fn put(key: Key) -> Put {
    Put { expected: Expected::Absent, ..Put::new(key, b"letter"[..].into()) }
}

async fn open(config: &PostgresConfig) -> Postgres {
    Postgres::connect_with(config.clone()).await.unwrap()
}

/// What is written after this is shown: a read waits until the watch has begun.
async fn mail_of(store: &Postgres, board: &str) -> Watch {
    let watch = store.watch(&Key::new(["mail", board]).children());
    store.get(&Key::new(["mail", board])).await.unwrap();
    watch
}

async fn next_put(watch: &mut Watch) -> (Key, Revision) {
    match watch.next().await {
        Some(Change::Put(key, entry)) => (key, entry.revision),
        other => panic!("a put is shown, not {other:?}"),
    }
}

/// Each letter is seen before the next is sent, so that no look of another cause can find them all.
async fn each_arrives(sender: &Postgres, watch: &mut Watch, board: &str, references: std::ops::Range<u32>) {
    for reference in references {
        let revision = sender.put_if_revision(put(letter(board, reference))).await.unwrap();
        assert_eq!(next_put(watch).await, (letter(board, reference), revision));
    }
}

#[tokio::test]
async fn letters_of_another_handle_arrive_without_a_poll() {
    let config = Server::of_this_process().fresh().await.poll_every(NEVER);
    let (receiver, sender) = (open(&config).await, open(&config).await);
    let mut watch = mail_of(&receiver, "b").await;
    sender.put_if_revision(put(letter("c", 0))).await.unwrap();
    each_arrives(&sender, &mut watch, "b", 0..20).await;

    // As a rider. The end of a letter is not shown.
    let rider = Rider::put(letter("b", 20), [][..].into());
    let append = callboard::storage::Append::new(Key::new(["stream"]), 0, [][..].into());
    sender.append(callboard::storage::Append { riders: vec![rider], ..append }).await.unwrap();
    let (key, revision) = next_put(&mut watch).await;
    assert_eq!(key, letter("b", 20));
    sender.delete_if_revision(Delete::new(key, revision, Durability::Sync)).await.unwrap();

    // One more watch of the same handle, of another place.
    let mut context = receiver.watch(&Key::new(["context"]).children());
    let written = Key::new(["context", "a"]);
    assert_eq!(receiver.get(&written).await, Ok(None));
    for _ in 0..3 {
        sender.put_if_revision(Put::new(written.clone(), [][..].into())).await.unwrap();
        assert_eq!(next_put(&mut context).await.0, written);
    }
    each_arrives(&sender, &mut watch, "b", 21..24).await;
}

#[tokio::test]
async fn many_letters_at_once_are_one_notice() {
    let server = Server::of_this_process();
    let schema = server.fresh_schema().await;
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), &server.folder);
    let receiver = open(&server.config(&schema).poll_every(NEVER)).await;
    let sender = open(&support::config_at(folder.path(), &schema)).await;
    let mut watch = mail_of(&receiver, "b").await;
    let held = Key::new(["held"]);
    sender.put_if_revision(Put::new(held.clone(), [][..].into())).await.unwrap();
    each_arrives(&sender, &mut watch, "b", 0..2).await;

    let client = server.client().await;
    client.batch_execute(&format!("BEGIN; SELECT FROM {schema}.entries FOR UPDATE")).await.unwrap();
    let first = tokio::spawn(sender.put_if_revision(Put::new(held, [][..].into())));
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%.write(%'";
    let watching = server.client().await;
    while watching.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    proxy.count("pg_notify(");
    let letters = (100..500).map(|reference| sender.put_if_revision(put(letter("b", reference)))).collect::<Vec<_>>();
    client.batch_execute("COMMIT").await.unwrap();
    first.await.unwrap().unwrap();
    let revisions: Vec<Revision> = join_all(letters).await.into_iter().map(Result::unwrap).collect();
    // The watch holds 256: it misses some, unless this thread takes them as fast as they come.
    let mut shown = BTreeSet::new();
    while shown.len() < 400 {
        match watch.next().await.unwrap() {
            Change::Put(_, entry) => assert!(shown.insert(entry.revision), "{} is shown twice", entry.revision),
            Change::Missed(lost) => {
                assert_eq!(shown.len() + lost as usize, 400);
                break;
            }
            Change::Deleted(key) => panic!("{key} is not deleted"),
        }
    }
    assert!(shown.iter().eq(revisions.iter().take(shown.len())));
    sender.close().await;
    assert_eq!(proxy.count("pg_notify("), 1);
}

#[tokio::test]
async fn a_connection_for_notices_that_breaks_is_opened_again_and_nothing_is_missed() {
    let server = Server::of_this_process();
    let config = server.fresh().await.poll_every(NEVER);
    let (receiver, sender) = (open(&config).await, open(&config).await);
    let mut watch = mail_of(&receiver, "b").await;
    each_arrives(&sender, &mut watch, "b", 0..3).await;
    let client = server.client().await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE query LIKE '%pg_visible_in_snapshot%' AND pid <> pg_backend_pid()";
    for round in 1..=5 {
        assert!(client.query_one(cut, &[]).await.unwrap().get::<_, i64>(0) > 0);
        each_arrives(&sender, &mut watch, "b", round * 10..round * 10 + 3).await;
    }
}

#[tokio::test]
async fn what_is_written_while_a_handle_has_no_connection_is_shown_in_order_when_it_has_one() {
    let server = Server::of_this_process();
    let schema = server.fresh_schema().await;
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), &server.folder);
    let receiver = open(&support::config_at(folder.path(), &schema).poll_every(NEVER)).await;
    let sender = open(&server.config(&schema)).await;
    let mut watch = mail_of(&receiver, "b").await;
    each_arrives(&sender, &mut watch, "b", 0..3).await;
    proxy.set_open(false);
    for reference in 3..6 {
        sender.put_if_revision(put(letter("b", reference))).await.unwrap();
    }
    proxy.set_open(true);
    for reference in 3..6 {
        assert_eq!(next_put(&mut watch).await.0, letter("b", reference));
    }
    each_arrives(&sender, &mut watch, "b", 6..9).await;
}

#[tokio::test]
async fn behind_a_pooler_letters_are_found_by_the_poll_and_nothing_listens() {
    let schema = Server::of_this_process().fresh_schema().await;
    let pooler = Pooler::start();
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(folder.path(), pooler.folder());
    let config = support::config_at(folder.path(), &schema).poll_every(Duration::from_millis(5));
    let (receiver, sender) = (open(&config).await, open(&config).await);
    let mut watch = mail_of(&receiver, "b").await;
    each_arrives(&sender, &mut watch, "b", 0..10).await;
    assert_eq!(proxy.count("LISTEN callboard"), 0);
}
