//! A standby that takes over: with a synchronous one nothing acknowledged is lost; with another, no board continues as if nothing were.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use callboard::storage::{Append, Change, Key, NewSession, Put, SessionId, Storage as _, StorageError};
use callboard_postgres::{Postgres, PostgresConfig};
use futures::StreamExt as _;
use support::{Server, writing};

mod support;

fn key(name: &str) -> Key {
    Key::new(["context", name])
}

fn append(stream: &str, expected: u64, session: Option<SessionId>) -> Append {
    Append { session, ..Append::new(key(stream), expected, expected.to_string().into_bytes().into()) }
}

fn session(name: &str) -> NewSession {
    NewSession { name: name.into(), about: [][..].into(), lease: Duration::from_secs(600) }
}

/// The settings of a store that finds whichever of two servers takes writes.
fn config_of_both(servers: [&Server; 2], schema: &str) -> PostgresConfig {
    let hosts = servers.map(|server| server.folder.display().to_string().replace('/', "%2F")).join(",");
    let url = format!("postgres://postgres@{hosts}/postgres?target_session_attrs=read-write");
    let config = PostgresConfig::from_url(&url).and_then(|config| config.schema(schema)).unwrap();
    config.patience(Duration::from_secs(300))
}

async fn promote(standby: &Server) {
    let promoted = standby.client().await.query_one("SELECT pg_promote(true, 300)", &[]).await.unwrap();
    assert!(promoted.get::<_, bool>(0));
}

/// Asks until the answer is true.
async fn until(client: &tokio_postgres::Client, question: &str) {
    while !client.query_one(question, &[]).await.unwrap().get::<_, bool>(0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_a_synchronous_standby_takes_over_is_there_once() {
    let primary = Server::start(&[]);
    let schema = primary.fresh_schema().await;
    let standby = primary.standby("second");
    let client = primary.client().await;
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'second'").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until(&client, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'").await;

    let config = config_of_both([&primary, &standby], &schema);
    let store = Arc::new(Postgres::connect_with(config.clone()).await.unwrap());
    const RECORDS: u64 = 100;
    let (begun, mut is_begun) = tokio::sync::mpsc::channel(8);
    let writer = tokio::spawn(async move {
        writing::write(&store, RECORDS, move |_, record| {
            if record == RECORDS / 4 {
                begun.try_send(()).unwrap();
            }
        })
        .await;
    });
    is_begun.recv().await.unwrap();
    primary.end();
    promote(&standby).await;
    writer.await.unwrap();
    writing::check(&Postgres::connect_with(config).await.unwrap(), RECORDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_when_a_standby_takes_over_that_may_lack_what_was_acknowledged() {
    let primary = Server::start(&[]);
    let schema = primary.fresh_schema().await;
    let standby = primary.standby("second");
    let config = config_of_both([&primary, &standby], &schema);
    let store = Postgres::connect_with(config.clone()).await.unwrap();
    let other = Postgres::connect_with(config.clone()).await.unwrap();
    let mine = store.begin_session(session("a")).await.unwrap();
    assert_eq!(store.append(append("stream", 0, Some(mine))).await, Ok(1));
    let mut watch = other.watch(&key("value").children());
    assert_eq!(other.get(&key("value")).await, Ok(None));
    let put = Put::new(key("value"), b"kept"[..].into());
    let kept = store.put_if_revision(put).await.unwrap();
    assert!(matches!(watch.next().await, Some(Change::Put(_, entry)) if entry.revision == kept));

    // The standby has this, and nothing of what comes after.
    let (client, second) = (primary.client().await, standby.client().await);
    let position = client.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap().get::<_, String>(0);
    until(&second, &format!("SELECT pg_last_wal_replay_lsn() >= '{position}'")).await;
    second.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.unwrap();
    second.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until(&client, "SELECT count(*) = 0 FROM pg_stat_replication").await;
    assert_eq!(store.append(append("stream", 1, Some(mine))).await, Ok(2));
    let mut lost = Vec::new();
    for number in 0..100 {
        lost.push(store.put_if_revision(Put::new(key(&number.to_string()), b"lost"[..].into())).await.unwrap());
    }
    let lost_session = other.begin_session(session("b")).await.unwrap();

    primary.end();
    promote(&standby).await;
    // Not even what would fit what is there.
    assert_eq!(store.append(append("stream", 1, Some(mine))).await, Err(mine.has_ended()));
    let ended = store.renew_session(mine, [][..].into()).await;
    assert!(matches!(&ended, Err(StorageError::Stopped { detail }) if detail.contains("timeline")), "{ended:?}");
    let session_of_none = other.append(append("stream", 1, Some(lost_session))).await;
    assert_eq!(session_of_none, Err(lost_session.has_ended()));
    assert!(store.sessions().await.unwrap().iter().all(|info| info.left.is_zero()));
    assert_eq!(store.end_session(mine, true).await, Ok(()));
    assert_eq!(store.read(&key("stream"), 1, 9).await.unwrap().len(), 1);
    assert_eq!(watch.next().await, Some(Change::Missed(1)));

    let next = store.begin_session(session("a")).await.unwrap();
    assert!(next > mine && next > lost_session);
    assert_eq!(store.append(append("stream", 1, Some(next))).await, Ok(2));
    let newest = lost.iter().max().unwrap();
    for handle in [&store, &other, &Postgres::connect_with(config).await.unwrap()] {
        let revision = handle.put_if_revision(Put::new(key("value"), b"new"[..].into())).await.unwrap();
        assert!(revision > *newest, "{revision} was given out before: {newest}");
    }
}
