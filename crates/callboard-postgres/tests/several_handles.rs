//! Two handles on one schema, as two boards have them: order, sessions, riders, and what each sees of the other.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use callboard::storage::{
    Append, Change, Delete, Durability, Expected, Key, NewSession, Put, Record, Rider, SessionId, Storage, StorageError,
};
use callboard_postgres::Postgres;
use futures::{FutureExt as _, StreamExt as _};
use support::Server;
use support::pooler::Pooler;

mod support;

fn key(name: &str) -> Key {
    Key::new(["context", name])
}

fn put(name: &str, value: &str) -> Put {
    Put::new(key(name), value.as_bytes().into())
}

fn append(expected: u64, session: Option<SessionId>, riders: Vec<Rider>) -> Append {
    Append { session, riders, ..Append::new(key("stream"), expected, [][..].into()) }
}

fn session(name: &str, lease: Duration) -> NewSession {
    NewSession { name: name.into(), about: b"about"[..].into(), lease }
}

async fn two() -> (Postgres, Postgres, String) {
    let server = Server::of_this_process();
    let schema = server.fresh_schema().await;
    let open = async || Postgres::connect_with(server.config(&schema)).await.unwrap();
    (open().await, open().await, schema)
}

async fn text(store: &Postgres, name: &str) -> Option<String> {
    let entry = store.get(&key(name)).await.unwrap();
    entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_handles_that_compare_and_write_neither_loses_a_write() {
    let (one, other, _) = two().await;
    let count = |store: Postgres| async move {
        let mut refused = 0;
        for _ in 0..100 {
            loop {
                let entry = store.get(&key("count")).await.unwrap();
                let counted =
                    entry.as_ref().map_or(0, |entry| String::from_utf8_lossy(&entry.value).parse::<u32>().unwrap());
                let expected = entry.map_or(Expected::Absent, |entry| Expected::Revision(entry.revision));
                match store.put_if_revision(Put { expected, ..put("count", &(counted + 1).to_string()) }).await {
                    Ok(_) => break,
                    Err(StorageError::WrongRevision { .. }) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        (store, refused)
    };
    let (one, _) = tokio::join!(tokio::spawn(count(one)), tokio::spawn(count(other)));
    assert_eq!(text(&one.unwrap().0, "count").await.as_deref(), Some("200"));
}

#[tokio::test]
async fn a_watch_shows_what_another_handle_writes_and_ends_with_the_newest() {
    let (one, other, _) = two().await;
    other.put_if_revision(put("before", "x")).await.unwrap();
    let mut watch = one.watch(&Key::new(["context"]).children());
    // Read after the watch began: what comes later is shown.
    assert_eq!(text(&one, "a").await, None);
    let revision = other.put_if_revision(put("a", "1")).await.unwrap();
    let Some(Change::Put(name, entry)) = watch.next().await else { panic!("the put is shown") };
    assert_eq!((name, &*entry.value, entry.revision), (key("a"), &b"1"[..], revision));
    other.delete_if_revision(Delete::new(key("a"), revision, Durability::Sync)).await.unwrap();
    assert_eq!(watch.next().await, Some(Change::Deleted(key("a"))));

    // Both write the same key at once.
    for round in 0..50_u32 {
        let value = round.to_string();
        let (mine, yours) =
            tokio::join!(one.put_if_revision(put("b", &value)), other.put_if_revision(put("b", &value)));
        mine.unwrap();
        yours.unwrap();
    }
    let last = other.put_if_revision(put("b", "last")).await.unwrap();
    let (mut seen, mut value) = (0, Vec::new());
    while seen < last {
        let Some(Change::Put(_, entry)) = watch.next().await else { panic!("only puts are made") };
        assert!(seen < entry.revision, "{} comes after {seen}", entry.revision);
        (seen, value) = (entry.revision, entry.value.to_vec());
    }
    assert_eq!(value, b"last");
    other.put_if_revision(Put::new(Key::new(["elsewhere"]), [][..].into())).await.unwrap();
    other.put_if_revision(put("end", "x")).await.unwrap();
    assert!(matches!(watch.next().await, Some(Change::Put(name, _)) if name == key("end")));
}

#[tokio::test]
async fn riders_are_written_with_their_append_or_not_at_all() {
    let (one, other, _) = two().await;
    other.put_if_revision(put("gone", "x")).await.unwrap();
    let mut watch = one.watch(&Key::new(["context"]).children());
    let riders = || {
        let written = Rider::put(key("written"), b"y"[..].into());
        vec![written, Rider::Delete { key: key("gone") }, Rider::Delete { key: key("never") }]
    };
    assert!(matches!(one.append(append(1, None, riders())).await, Err(StorageError::WrongSequence { .. })));
    assert_eq!((text(&one, "written").await, text(&one, "gone").await), (None, Some("x".to_owned())));
    // In one batch with others of the same keys, in the order of the calls.
    let before = other.put_if_revision(put("written", "before"));
    let appended = other.append(append(0, None, riders()));
    let after = other.put_if_revision(Put { expected: Expected::Absent, ..put("gone", "after") });
    let (before, appended, after) = tokio::join!(before, appended, after);
    assert_eq!((before.is_ok(), appended, after.is_ok()), (true, Ok(1), true));
    assert_eq!(
        (text(&one, "written").await.as_deref(), text(&one, "gone").await.as_deref()),
        (Some("y"), Some("after"))
    );
    one.append(append(1, None, riders())).await.unwrap();
    let (mut written, mut deleted) = (false, false);
    while !(written && deleted) {
        match watch.next().await.unwrap() {
            Change::Put(name, _) => written |= name == key("written"),
            Change::Deleted(name) => deleted |= name == key("gone"),
            Change::Missed(count) => panic!("{count} missed"),
        }
    }
}

#[tokio::test]
async fn a_session_that_was_ended_writes_nothing_any_more() {
    let (one, other, _) = two().await;
    let mine = one.begin_session(session("a\0b", Duration::from_secs(60))).await.unwrap();
    let taken = other.begin_session(session("a\0b", Duration::from_secs(60))).await;
    assert!(
        matches!(&taken, Err(StorageError::NameTaken { name, about, left }) if
        name == "a\0b" && **about == *b"about" && *left > Duration::from_secs(50)),
        "{taken:?}"
    );
    let yours = other.begin_session(session("other", Duration::from_secs(60))).await.unwrap();
    assert!(yours > mine);

    let revision = one.put_if_revision(Put { session: Some(mine), ..put("a", "1") }).await.unwrap();
    assert_eq!(one.append(append(0, Some(mine), Vec::new())).await, Ok(1));
    one.renew_session(mine, b"renewed"[..].into()).await.unwrap();
    let lives = other.end_session(mine, true).await;
    assert!(matches!(lives, Err(StorageError::SessionLives { left }) if left > Duration::from_secs(50)), "{lives:?}");
    other.end_session(mine, false).await.unwrap();
    other.end_session(mine, true).await.unwrap();

    let stopped = Err(mine.has_ended());
    // In one batch with writes that count.
    let rider = vec![Rider::put(key("rider"), [][..].into())];
    let refused = one.append(append(1, Some(mine), rider));
    let made = one.append(append(1, None, Vec::new()));
    let refused_put = one.put_if_revision(Put { session: Some(mine), ..put("a", "2") });
    let refused_delete =
        one.delete_if_revision(Delete { session: Some(mine), ..Delete::new(key("a"), revision, Durability::Sync) });
    let results = tokio::join!(refused, made, refused_put, refused_delete);
    assert_eq!(results, (stopped.clone(), Ok(2), stopped, Err(mine.has_ended())));
    assert_eq!(one.renew_session(mine, [][..].into()).await, Err(mine.has_ended()));
    assert_eq!((text(&other, "a").await.as_deref(), text(&other, "rider").await), (Some("1"), None));
    let unknown = SessionId(yours.0 + 1000);
    assert_eq!(one.append(append(2, Some(unknown), Vec::new())).await, Err(unknown.has_ended()));

    other.forget_session(yours).await.unwrap();
    let listed = other.sessions().await.unwrap();
    let shown: Vec<_> = listed.iter().map(|info| (info.id, &*info.name, &*info.about, info.left.is_zero())).collect();
    assert_eq!(shown, [(mine, "a\0b", &b"renewed"[..], true), (yours, "other", &b"about"[..], false)]);
    other.forget_session(mine).await.unwrap();
    assert_eq!(other.sessions().await.unwrap().len(), 1);
    assert!(other.begin_session(session("a\0b", Duration::from_secs(60))).await.unwrap() > yours);
}

#[tokio::test]
async fn a_session_whose_lease_ran_out_writes_until_it_is_ended() {
    let (one, other, _) = two().await;
    let mine = one.begin_session(session("a", Duration::from_millis(1))).await.unwrap();
    // The lease runs out by the server's clock.
    while other.sessions().await.unwrap()[0].left > Duration::ZERO {}
    assert_eq!(one.append(append(0, Some(mine), Vec::new())).await, Ok(1));
    assert!(other.begin_session(session("a", Duration::from_secs(60))).await.unwrap() > mine);
    other.end_session(mine, true).await.unwrap();
    assert_eq!(one.append(append(1, Some(mine), Vec::new())).await, Err(mine.has_ended()));
}

#[tokio::test]
async fn the_end_of_a_session_waits_for_its_batch_under_way() {
    let (one, other, schema) = two().await;
    let mine = one.begin_session(session("a", Duration::from_secs(60))).await.unwrap();
    assert_eq!(one.append(append(0, Some(mine), Vec::new())).await, Ok(1));
    let client = Server::of_this_process().client().await;
    client.batch_execute(&format!("BEGIN; SELECT FROM {schema}.streams FOR UPDATE")).await.unwrap();
    let appended = tokio::spawn(one.append(append(1, Some(mine), Vec::new())));
    let watching = Server::of_this_process().client().await;
    let waits = async |count: i64| {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while watching.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) < count {
            tokio::task::yield_now().await;
        }
    };
    waits(1).await;
    let mut ended = tokio::spawn(other.end_session(mine, false));
    waits(2).await;
    assert!((&mut ended).now_or_never().is_none());
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!((appended.await.unwrap(), ended.await.unwrap()), (Ok(2), Ok(())));
    assert_eq!(other.read(&key("stream"), 1, 9).await.unwrap().len(), 2);
    assert_eq!(one.append(append(2, Some(mine), Vec::new())).await, Err(mine.has_ended()));
}

#[tokio::test]
async fn the_longest_record_and_value_are_stored_and_longer_ones_refused() {
    let (one, other, _) = two().await;
    let longest: Arc<[u8]> = vec![0xa5; Record::MAX].into();
    assert_eq!(one.append(Append::new(key("stream"), 0, Arc::clone(&longest))).await, Ok(1));
    one.put_if_revision(Put::new(key("a"), Arc::clone(&longest))).await.unwrap();
    assert!(other.read(&key("stream"), 1, 1).await.unwrap()[0].payload == longest);
    assert!(other.get(&key("a")).await.unwrap().is_some_and(|entry| entry.value == longest));
    let longer: Arc<[u8]> = vec![0; Record::MAX + 1].into();
    let rider = Rider::put(key("b"), longer);
    assert!(matches!(one.append(append(1, None, vec![rider])).await, Err(StorageError::TooLarge { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_mixes_the_transactions_of_several_handles_changes_nothing() {
    let schema = Server::of_this_process().fresh_schema().await;
    let pooler = Pooler::start();
    let config = support::config_at(pooler.folder(), &schema);
    callboard_postgres::migrate(&config, &callboard_postgres::Migration::default()).await.unwrap();
    let writers = (0..4).map(|number| {
        let config = config.clone();
        tokio::spawn(async move {
            let store = Postgres::connect_with(config).await.unwrap();
            let mine = store.begin_session(session(&number.to_string(), Duration::from_secs(60))).await.unwrap();
            let stream = key(&number.to_string());
            for expected in 0..50 {
                let riders = vec![Rider::put(stream.clone(), expected.to_string().into_bytes().into())];
                let append =
                    Append { session: Some(mine), riders, ..Append::new(stream.clone(), expected, [][..].into()) };
                assert_eq!(store.append(append).await, Ok(expected + 1));
                assert_eq!(store.read(&stream, 0, usize::MAX).await.unwrap().len() as u64, expected + 1);
                assert_eq!(text(&store, &number.to_string()).await, Some(expected.to_string()));
            }
            store.end_session(mine, false).await.unwrap();
            store.close().await;
            assert!(matches!(store.put_if_revision(put("a", "x")).await, Err(StorageError::Stopped { .. })));
        })
    });
    for written in futures::future::join_all(writers).await {
        written.unwrap();
    }
}

#[tokio::test]
async fn rows_whose_names_are_not_those_of_keys_are_left_out_of_full_pages_and_found() {
    let (store, _, schema) = two().await;
    let client = Server::of_this_process().client().await;
    let mut odd = Vec::new();
    for family in ["listed", "mail", "open"] {
        let above = Key::new([family]);
        for number in 0..4_u8 {
            let good = above.child(&number.to_string());
            store.put_if_revision(Put::new(good.clone(), [number][..].into())).await.unwrap();
            store.append(Append::new(good.clone(), 0, [][..].into())).await.unwrap();
            // Two after the key, before the next one.
            odd.extend([0x01, 0xff].map(|last| [good.as_bytes(), &[last]].concat()));
        }
    }
    for name in &odd {
        let entry = format!("INSERT INTO {schema}.entries (key, revision, value) VALUES ($1, 1, '')");
        client.execute(&entry, &[name]).await.unwrap();
        client.execute(&format!("INSERT INTO {schema}.streams (stream, last) VALUES ($1, 1)"), &[name]).await.unwrap();
    }
    for family in ["listed", "mail", "open"] {
        let above = Key::new([family]);
        let all: Vec<Key> = (0..4).map(|number: u8| above.child(&number.to_string())).collect();
        for limit in 0..6 {
            for after in [None, Some(0), Some(2)] {
                let wanted = all.iter().skip(after.map_or(0, |after| after + 1)).take(limit);
                let wanted: Vec<&Key> = wanted.collect();
                let after = after.map(|after| &all[after]);
                let scanned = store.scan(&above.children(), after, limit).await.unwrap();
                assert_eq!(scanned.iter().map(|(key, _)| key).collect::<Vec<_>>(), wanted);
                let streams = store.streams(&above.children(), after, limit).await.unwrap();
                assert_eq!(streams.iter().collect::<Vec<_>>(), wanted);
            }
        }
    }
    let found: Vec<String> = store.unreadable_rows().await.unwrap().into_iter().map(|(name, _)| name).collect();
    let hex = |name: &Vec<u8>| name.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    let names: Vec<String> = odd.iter().map(hex).collect();
    assert_eq!(found, [names.clone(), names].concat(), "in both tables");
}
