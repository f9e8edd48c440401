//! The shared context: every rule of SEMANTICS 12, through the board's handle and through what a turn is given.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{ContextChange, ContextError, ContextStore};
use callboard::env::Env;
use callboard::messages::{AgentName, ContextEntry, Durability};
use callboard::prelude::*;
use callboard::storage::{Expected, Key, KeyPrefix, Memory, Put, Sled, Storage};
use callboard::testing::conformance::ManualClock;
use futures::{FutureExt, StreamExt};
use serde_json::json;

use crate::common::{Shaky, World, assert_nothing_left, finish, found, quiet};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A world without a board, and the context in its store.
fn world() -> (World, ContextStore) {
    let world = World::new();
    let context = context_of(&world);
    (world, context)
}

fn context_of(world: &World) -> ContextStore {
    let storage = Arc::clone(&world.storage);
    ContextStore::new(storage, world.env.clone(), Durability::Memory, ContextStore::usual_ttls())
}

fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

fn keys(entries: &[ContextEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn set_replaces_value_agent_and_expiry_together_and_keeps_the_birthday() {
    let (World { env, .. }, context) = world();
    let (ann, bob) = (agent("ann"), agent("bob"));
    let first = context.set("notes", "a", "one", &ann, Some(MINUTE)).await.unwrap();
    let start = env.now().wall;
    assert_eq!((first.created_at, first.updated_at, first.expires_at), (start, start, Some(start + MINUTE)));
    tokio::time::advance(MINUTE / 2).await;
    let second = context.set("notes", "a", "two", &bob, None).await.unwrap();
    assert_eq!((second.value.as_str(), &second.agent, second.expires_at), ("two", &bob, None));
    assert_eq!((second.created_at, second.updated_at), (start, start + MINUTE / 2));
    assert!(second.revision > first.revision);
    tokio::time::advance(DAY * 1000).await;
    assert_eq!(context.get("notes", "a").await.unwrap(), Some(second), "no time to live means for ever");
}

#[tokio::test(start_paused = true)]
async fn expired_is_absent_for_every_operation() {
    let (World { env, .. }, context) = world();
    let ann = agent("ann");
    let old = context.set("notes", "a", "1", &ann, Some(MINUTE)).await.unwrap();
    tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
    assert!(context.get("notes", "a").await.unwrap().is_some(), "it lives until its last moment");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(context.get("notes", "a").await.unwrap(), None);
    assert_eq!(context.get_structured::<u32>("notes", "a").await.unwrap(), None);
    assert_eq!(context.recall("notes", "a").await.unwrap(), None);
    assert_eq!(context.query("notes", 10).await.unwrap(), []);
    assert_eq!(context.query_by_prefix("notes", "", 10).await.unwrap(), []);
    assert_eq!(context.search(&["notes"], 10).await.unwrap(), []);
    assert!(!context.touch("notes", "a", MINUTE).await.unwrap());
    let changed = context.compare_and_set("notes", "a", Some(old.revision), "2", &ann, None).await.unwrap_err();
    assert!(matches!(changed, ContextError::Changed { actual: None, .. }), "{changed:?}");
    assert!(!context.delete("notes", "a").await.unwrap());
    context.set("notes", "a", "1", &ann, Some(MINUTE)).await.unwrap();
    tokio::time::advance(MINUTE).await;
    let reborn = context.set("notes", "a", "3", &ann, None).await.unwrap();
    assert_eq!(reborn.created_at, env.now().wall, "a new life has a new birthday");
    context.delete("notes", "a").await.unwrap();
    context.set("notes", "a", "1", &ann, Some(MINUTE)).await.unwrap();
    tokio::time::advance(MINUTE).await;
    context.compare_and_set("notes", "a", None, "4", &ann, None).await.unwrap();
    assert_eq!(context.get_structured::<u32>("notes", "a").await.unwrap(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn touch_and_recall_move_the_expiry_and_nothing_else() {
    let (World { env, .. }, context) = world();
    let set = context.set("notes", "a", "x", &agent("ann"), Some(MINUTE)).await.unwrap();
    tokio::time::advance(MINUTE / 2).await;
    assert!(context.touch("notes", "a", MINUTE).await.unwrap());
    let touched = context.get("notes", "a").await.unwrap().unwrap();
    let expected =
        ContextEntry { expires_at: Some(env.now().wall + MINUTE), revision: touched.revision, ..set.clone() };
    assert_eq!(touched, expected);
    let recalled = context.recall("notes", "a").await.unwrap().unwrap();
    assert_eq!(recalled.expires_at, Some(env.now().wall + ContextStore::EXTENSION));
    assert_eq!((recalled.updated_at, ContextStore::EXTENSION), (set.updated_at, DAY * 90));
    let lasting = context.set("notes", "b", "x", &agent("ann"), None).await.unwrap();
    assert!(context.touch("notes", "b", MINUTE).await.unwrap());
    assert_eq!(context.recall("notes", "b").await.unwrap(), Some(lasting), "nothing adds an expiry");
    assert!(!context.touch("notes", "absent", MINUTE).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_extension_writes_the_value_and_never_shortens() {
    let (World { env, .. }, context) = world();
    let (ann, start) = (agent("ann"), env.now().wall);
    let new = context.set_with_extension("notes", "new", "x", &ann, MINUTE).await.unwrap();
    assert_eq!(new.expires_at, Some(start + MINUTE));
    context.set("notes", "long", "x", &ann, Some(DAY)).await.unwrap();
    let long = context.set_with_extension("notes", "long", "y", &ann, MINUTE).await.unwrap();
    assert_eq!((long.value.as_str(), long.expires_at), ("y", Some(start + DAY)));
    context.set("notes", "lasting", "x", &ann, None).await.unwrap();
    let lasting = context.set_with_extension("notes", "lasting", "y", &ann, MINUTE).await.unwrap();
    assert_eq!((lasting.value.as_str(), lasting.expires_at), ("y", None));
    tokio::time::advance(MINUTE / 2).await;
    let later = context.set_with_extension("notes", "new", "z", &ann, MINUTE).await.unwrap();
    assert_eq!(later.expires_at, Some(env.now().wall + MINUTE));
}

#[tokio::test(start_paused = true)]
async fn some_namespaces_have_a_time_to_live_of_their_own() {
    let (World { env, .. }, context) = world();
    let (ann, start) = (agent("ann"), env.now().wall);
    for (namespace, ttl) in [("performance", DAY), ("security", DAY * 7), ("pm_learnings", DAY * 30)] {
        let entry = context.set(namespace, "a", "x", &ann, None).await.unwrap();
        assert_eq!(entry.expires_at, Some(start + ttl), "{namespace}");
        let entry = context.set(namespace, "a", "x", &ann, Some(MINUTE)).await.unwrap();
        assert_eq!(entry.expires_at, Some(start + MINUTE), "what the writer says counts");
    }
    let board = Callboard::builder()
        .env(env.clone())
        .namespace_ttl("drafts", Some(MINUTE))
        .namespace_ttl("performance", None)
        .start()
        .await
        .unwrap();
    let drafts = board.context().set("drafts", "a", "x", &ann, None).await.unwrap();
    assert_eq!(drafts.expires_at, Some(env.now().wall + MINUTE));
    let performance = board.context().set("performance", "a", "x", &ann, None).await.unwrap();
    assert_eq!(performance.expires_at, None);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn less_than_a_millisecond_is_rounded_up() {
    let (World { env, .. }, context) = world();
    let entry = context.set("notes", "a", "x", &agent("ann"), Some(Duration::from_nanos(1))).await.unwrap();
    assert_eq!(entry.expires_at, Some(env.now().wall + Duration::from_millis(1)));
    assert!(context.get("notes", "a").await.unwrap().is_some(), "an entry with a time to live lives");
    let huge = context.set("notes", "b", "x", &agent("ann"), Some(Duration::MAX)).await.unwrap();
    assert!(huge.expires_at.is_some_and(|at| at > env.now().wall));
}

#[tokio::test(start_paused = true)]
async fn a_query_gives_the_newest_first_and_ties_go_by_revision() {
    let (_, context) = world();
    let ann = agent("ann");
    for key in ["a", "b", "c"] {
        context.set("notes", key, "x", &ann, None).await.unwrap();
    }
    assert_eq!(keys(&context.query("notes", 10).await.unwrap()), ["c", "b", "a"]);
    tokio::time::advance(MINUTE).await;
    context.set("notes", "b", "y", &ann, None).await.unwrap();
    context.set("other", "z", "y", &ann, None).await.unwrap();
    assert_eq!(keys(&context.query("notes", 10).await.unwrap()), ["b", "c", "a"]);
    assert_eq!(keys(&context.query("notes", 2).await.unwrap()), ["b", "c"]);
    assert_eq!(context.query("notes", 0).await.unwrap(), []);
    let merged = context.search(&["notes", "other", "notes", "empty"], 3).await.unwrap();
    assert_eq!(keys(&merged), ["z", "b", "c"], "merged, each entry once");
    tokio::time::advance(MINUTE).await;
    context.touch("notes", "a", MINUTE).await.unwrap();
    assert_eq!(keys(&context.query("notes", 1).await.unwrap()), ["b"], "a touch is not news");
}

#[tokio::test(start_paused = true)]
async fn a_prefix_is_taken_literally() {
    let (_, context) = world();
    let ann = agent("ann");
    let all = ["a", "a%b", "a*b", "a.b", "a/b", "a\\b", "a_b", "ab", "ab/c", "b", "ä", "äb"];
    for key in all {
        context.set("notes", key, "x", &ann, None).await.unwrap();
    }
    for prefix in ["", "a", "a%", "a*", "a.", "a/", "a\\", "a_", "ab", "ab/", "ä", "%", "*", "zz"] {
        let found = context.query_by_prefix("notes", prefix, 100).await.unwrap();
        let mut expected: Vec<&str> = all.into_iter().filter(|key| key.starts_with(prefix)).collect();
        expected.sort_unstable();
        assert_eq!(keys(&found), expected, "prefix {prefix:?}");
    }
    assert_eq!(keys(&context.query_by_prefix("notes", "a", 2).await.unwrap()), ["a", "a%b"]);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_concurrent_increments_all_count() {
    let (_, context) = world();
    let increments = (0..100).map(|_| {
        let context = context.clone();
        tokio::spawn(async move {
            loop {
                let there = context.get("notes", "n").await.unwrap();
                let n: u32 = there.as_ref().map_or(0, |entry| entry.value.parse().unwrap());
                tokio::task::yield_now().await;
                let (expected, next) = (there.map(|entry| entry.revision), (n + 1).to_string());
                match context.compare_and_set("notes", "n", expected, &next, &agent("ann"), None).await {
                    Ok(_) => return,
                    Err(ContextError::Changed { actual, .. }) => assert_ne!(actual, expected),
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    futures::future::join_all(increments.collect::<Vec<_>>()).await.into_iter().for_each(|done| done.unwrap());
    assert_eq!(context.get_structured::<u32>("notes", "n").await.unwrap(), Some(100));
}

#[tokio::test(start_paused = true)]
async fn what_another_process_wrote_meanwhile_is_neither_missed_nor_overwritten() {
    let (world, context) = world();
    let (env, other) = (&world.env, context_of(&world));
    let ann = agent("ann");
    let first = context.set("notes", "a", "1", &ann, None).await.unwrap();
    let second = other.set("notes", "a", "2", &ann, None).await.unwrap();
    let late = context.compare_and_set("notes", "a", Some(first.revision), "3", &ann, None).await.unwrap_err();
    assert!(matches!(late, ContextError::Changed { actual, .. } if actual == Some(second.revision)), "{late:?}");
    context.compare_and_set("notes", "a", Some(second.revision), "3", &ann, None).await.unwrap();
    other.set_with_extension("notes", "a", "4", &ann, MINUTE).await.unwrap();
    let fourth = other.compare_and_set("notes", "a", None, "5", &ann, None).await.unwrap_err();
    let ContextError::Changed { actual: Some(fourth), .. } = fourth else { panic!("{fourth:?}") };
    context.compare_and_set("notes", "a", Some(fourth), "5", &ann, None).await.unwrap();
    assert!(other.delete("notes", "a").await.unwrap());
    tokio::time::advance(MINUTE).await;
    let reborn = context.set("notes", "a", "6", &ann, None).await.unwrap();
    assert_eq!(reborn.created_at, env.now().wall, "a new life has a new birthday");
    assert_eq!(other.get("notes", "a").await.unwrap(), Some(reborn));
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_not_the_expected_json_is_a_typed_error() {
    let (_, context) = world();
    context.set("notes", "a", "not json", &agent("ann"), None).await.unwrap();
    let error = context.get_structured::<u32>("notes", "a").await.unwrap_err();
    let ContextError::BadJson { namespace, key, .. } = &error else { panic!("{error:?}") };
    assert_eq!((namespace.as_str(), key.as_str()), ("notes", "a"));
    assert_eq!(context.get("notes", "a").await.unwrap().unwrap().value, "not json");
}

#[tokio::test(start_paused = true)]
async fn exactly_the_limits_fit_and_one_more_is_an_error_that_writes_nothing() {
    let (World { storage, .. }, context) = world();
    assert_eq!((ContextStore::MAX_NAMESPACE, ContextStore::MAX_KEY, ContextStore::MAX_VALUE), (64, 128, 64 * 1024));
    let ann = agent("ann");
    let (namespace, key, value) = ("ä".repeat(64), "ß".repeat(128), "x".repeat(ContextStore::MAX_VALUE));
    let entry = context.set(&namespace, &key, &value, &ann, None).await.unwrap();
    assert_eq!(context.get(&namespace, &key).await.unwrap(), Some(entry), "limits of names count characters");
    let too_long = [
        ("ä".repeat(65), key.clone(), value.clone()),
        (namespace.clone(), "ß".repeat(129), value.clone()),
        (namespace.clone(), key.clone(), "x".repeat(ContextStore::MAX_VALUE + 1)),
        (namespace.clone(), "other".into(), "ä".repeat(ContextStore::MAX_VALUE / 2) + "x"),
        (String::new(), key.clone(), "x".into()),
        (namespace.clone(), String::new(), "x".into()),
    ];
    let everything: KeyPrefix = Key::new(["context"]).children();
    let before = storage.scan(&everything, None, 100).await.unwrap();
    for (namespace, key, value) in &too_long {
        let refused = [
            context.set(namespace, key, value, &ann, None).await.unwrap_err(),
            context.set_with_extension(namespace, key, value, &ann, MINUTE).await.unwrap_err(),
            context.compare_and_set(namespace, key, None, value, &ann, None).await.unwrap_err(),
        ];
        for refused in refused {
            match &refused {
                ContextError::TooLarge { size, .. } => assert_eq!(*size, ContextStore::MAX_VALUE + 1, "{refused}"),
                ContextError::Name(_) => assert!(value.len() <= ContextStore::MAX_VALUE, "{refused}"),
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!(storage.scan(&everything, None, 100).await.unwrap(), before);
    let longest = agent(&"a".repeat(57));
    let memory = format!("memory:{longest}");
    context.set(&memory, "module:x", "x", &longest, None).await.unwrap();
    AgentName::new(&"a".repeat(58)).unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn hostile_names_never_see_each_others_keys() {
    let (_, context) = world();
    let ann = agent("ann");
    let pairs = [
        ("x", "a/b"),
        ("x/a", "b"),
        ("x/a/b", "c"),
        ("x", "a"),
        ("xa", "b"),
        ("x:a", "b"),
        ("x", ":a:b"),
        ("x\\", "a"),
        ("x%", "a"),
        ("context", "x"),
        ("memory:a", "b"),
        ("memory", "a:b"),
        ("x\u{ff}", "a"),
        ("é", "a"),
        ("é", "é"),
        ("é", "e\u{301}"),
    ];
    for (namespace, key) in pairs {
        context.set(namespace, key, &format!("{namespace}|{key}"), &ann, None).await.unwrap();
    }
    for (namespace, key) in pairs {
        let value = context.get(namespace, key).await.unwrap().unwrap().value;
        assert_eq!(value, format!("{namespace}|{key}"));
        let found = context.query(namespace, 100).await.unwrap();
        assert!(found.iter().all(|entry| entry.namespace == namespace), "{namespace:?} {found:?}");
        let owned = pairs.iter().filter(|(owner, _)| *owner == namespace).count();
        assert_eq!(found.len(), owned, "{namespace:?}");
        assert_eq!(context.query_by_prefix(namespace, "", 100).await.unwrap().len(), owned);
    }
    for (namespace, key) in [("a\0b", "c"), ("a", "b\0c"), ("a", "b\nc"), (" a", "b"), ("a", "b ")] {
        let refused = context.set(namespace, key, "x", &ann, None).await;
        assert!(matches!(refused, Err(ContextError::Name(_))), "{namespace:?} {key:?}: {refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expiry_deletes_what_has_expired_and_nothing_else() {
    let (World { storage, .. }, context) = world();
    let ann = agent("ann");
    for n in 0..300 {
        let ttl = [Some(MINUTE), Some(DAY), None][n % 3];
        context.set("notes", &format!("{n:03}"), "x", &ann, ttl).await.unwrap();
    }
    assert_eq!(context.expire().await.unwrap(), 0);
    tokio::time::advance(MINUTE).await;
    context.set("notes", "000", "again", &ann, None).await.unwrap();
    assert_eq!(context.expire().await.unwrap(), 99);
    let everything = Key::new(["context"]).children();
    assert_eq!(storage.scan(&everything, None, 1000).await.unwrap().len(), 201, "they are gone from the store");
    assert_eq!(context.get("notes", "000").await.unwrap().unwrap().value, "again");
    assert_eq!(context.expire().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_board_deletes_expired_entries_by_itself() {
    let board = World::new().builder().retention(|retention| retention.every(MINUTE)).start().await.unwrap();
    board.context().set("notes", "a", "x", &agent("ann"), Some(MINUTE / 2)).await.unwrap();
    let mut changes = board.context().watch("notes").unwrap();
    assert_eq!(changes.next().await, Some(ContextChange::Deleted { key: "a".into() }));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_expiry_reaches_those_who_watch_when_it_happens() {
    let world = World::new();
    let start = || world.builder().retention(|retention| retention.every(DAY)).start();
    let env = &world.env;
    let (board, ann, begun) = (start().await.unwrap(), agent("ann"), env.now().wall);
    board.context().set("notes", "of before", "x", &ann, Some(MINUTE)).await.unwrap();
    board.shutdown().await;
    let board = start().await.unwrap();
    let context = board.context();
    context.set("other", "unwatched", "x", &ann, Some(MINUTE / 2)).await.unwrap();
    let mut changes = context.watch("notes").unwrap();
    for (key, ttl) in [("late", 9 * MINUTE), ("extended", 2 * MINUTE), ("shortened", DAY), ("kept", 2 * MINUTE)] {
        context.set("notes", key, "x", &ann, Some(ttl)).await.unwrap();
    }
    context.touch("notes", "extended", 4 * MINUTE).await.unwrap();
    context.set("notes", "shortened", "y", &ann, Some(3 * MINUTE)).await.unwrap();
    context.set("notes", "kept", "y", &ann, None).await.unwrap();
    let mut expired = Vec::new();
    while expired.len() < 5 {
        match changes.next().await.unwrap() {
            ContextChange::Set(_) => {}
            ContextChange::Deleted { key } => {
                expired.push((key, env.now().wall.since(begun)));
                if expired.len() == 1 {
                    // Sooner than what the actor waits for.
                    context.set("notes", "sooner", "x", &ann, Some(MINUTE / 2)).await.unwrap();
                }
            }
            ContextChange::Missed(count) => panic!("{count} are lost"),
        }
    }
    let expected = [("of before", 60), ("sooner", 90), ("shortened", 180), ("extended", 240), ("late", 540)];
    assert_eq!(expired, expected.map(|(key, secs)| (key.to_owned(), Duration::from_secs(secs))));
    assert_eq!(context.get("notes", "kept").await.unwrap().unwrap().value, "y");
    drop(changes);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_a_change_of_the_entry_and_not_with_a_new_expiry() {
    let (_, context) = world();
    let ann = agent("ann");
    let mut there = Box::pin(context.changed("notes", "a", None));
    assert!((&mut there).now_or_never().is_none());
    context.set("notes", "b", "x", &ann, None).await.unwrap();
    context.set("other", "a", "x", &ann, None).await.unwrap();
    assert!((&mut there).now_or_never().is_none());
    let set = context.set("notes", "a", "one", &ann, Some(MINUTE)).await.unwrap();
    assert_eq!(there.await.unwrap().as_ref(), Some(&set));
    let mut other = Box::pin(context.changed("notes", "a", Some(set.revision)));
    assert!((&mut other).now_or_never().is_none());
    assert!(context.touch("notes", "a", 2 * MINUTE).await.unwrap());
    assert!((&mut other).now_or_never().is_none(), "only its expiry is another one");
    tokio::time::advance(Duration::from_millis(1)).await;
    let again = context.set("notes", "a", "one", &ann, Some(MINUTE)).await.unwrap();
    assert_eq!(other.await.unwrap().as_ref(), Some(&again), "it was written, with the same text");
    assert_eq!(context.changed("notes", "a", Some(set.revision)).await.unwrap(), Some(again.clone()));
    let mut gone = Box::pin(context.changed("notes", "a", Some(again.revision)));
    assert!((&mut gone).now_or_never().is_none());
    context.delete("notes", "a").await.unwrap();
    assert_eq!(gone.await.unwrap(), None);
    assert_eq!(context.changed("notes", "a", Some(again.revision)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_a_change_holds_neither_permit_nor_slot_and_inherits_the_taint() {
    let both = |turn: Turn| async move {
        match &*turn.task().body {
            "wait" => {
                let foreign = turn.context().changed("memory:other", "k", None).await.unwrap_err().to_string();
                let own = turn.context().changed("plans", "k", None).await.unwrap().unwrap().value;
                Ok(Command::output(json!([foreign.contains("has no grant"), own, turn.is_tainted()])))
            }
            _ => {
                turn.taint("a page");
                turn.context().set("plans", "k", "v", None).await.unwrap();
                Ok(Command::new())
            }
        }
    };
    let spec = AgentSpec::new("both", both).namespaces(["plans"]);
    let board = World::new().builder().pool(1).with(spec).start().await.unwrap();
    board.context().set("memory:other", "k", "secret", &agent("other"), None).await.unwrap();
    let waiting = board.submit(Task::new("wait").to("both")).await.unwrap();
    quiet().await;
    let load = board.load();
    assert_eq!((load.free_permits, load.runs), (1, 1), "{load:?}");
    finish(&board, Task::new("write").to("both")).await;
    assert_eq!(waiting.result().await.unwrap().output, json!([true, "v", true]));
    assert_nothing_left(&board, 1).await;
    board.shutdown().await;
}

/// A copy of an entry under another key that the index does not have, as an older version wrote it.
async fn smuggle(storage: &dyn Storage, key: &str, copy: &str) {
    let entry = storage.get(&Key::new(["context", "notes", key])).await.unwrap().unwrap();
    let (key, durability) = (Key::new(["context", "notes", copy]), Durability::Sync);
    let put = Put { expected: Expected::Absent, durability, ..Put::new(key, entry.value) };
    storage.put_if_revision(put).await.unwrap();
}

#[tokio::test]
async fn an_expiry_reads_by_an_index_that_is_built_once_in_older_stores_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn Storage>; 2] = [Arc::new(Memory::default()), Arc::new(Sled::open(folder.path()).unwrap())];
    for storage in stores {
        let (clock, ann) = (Arc::new(ManualClock::new()), agent("ann"));
        let open = || {
            let env = Env::new(Arc::clone(&clock), 1);
            ContextStore::new(Arc::clone(&storage), env, Durability::Sync, ContextStore::usual_ttls())
        };
        let context = open();
        for key in ["a", "b"] {
            context.set("notes", key, "x", &ann, Some(MINUTE)).await.unwrap();
        }
        // Before the first expiry the store counts as one that an older version has written.
        smuggle(&*storage, "a", "old").await;
        assert_eq!(context.expire().await, Ok(0));
        smuggle(&*storage, "a", "unindexed").await;
        assert!(context.touch("notes", "b", 10 * MINUTE).await.unwrap());
        clock.advance(MINUTE);
        assert_eq!(context.expire().await, Ok(2), "a, and the old one");
        let context = open();
        assert_eq!(context.expire().await, Ok(0), "what is not in the index is not read");
        let left = storage.scan(&Key::new(["context"]).children(), None, 9).await.unwrap();
        assert_eq!(left.len(), 2, "the unindexed one, and the one that lasts");
        assert!(context.get("notes", "b").await.unwrap().is_some(), "it was extended");
        clock.advance(10 * MINUTE);
        assert_eq!(context.expire().await, Ok(1), "its row has moved with it");
        context.index().await.unwrap();
        assert_eq!(context.expire().await, Ok(1), "an index that lacks something is built again");
        for left in ["context", "context-expiry"] {
            assert_eq!(storage.scan(&Key::new([left]).children(), None, 9).await.unwrap(), [], "{left}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_again_while_it_is_swept_stays() {
    let env = Env::repeatable(7);
    let storage: Arc<dyn Storage> = Arc::new(Shaky::new(&env, 0));
    let open = || ContextStore::new(Arc::clone(&storage), env.clone(), Durability::Memory, BTreeMap::new());
    let (context, other, ann) = (open(), open(), agent("ann"));
    let keys: Vec<String> = (0..60).map(|number| format!("{number:02}")).collect();
    for key in &keys {
        context.set("notes", key, "old", &ann, Some(DAY)).await.unwrap();
    }
    tokio::time::advance(2 * DAY).await;
    let expiry = async { context.expire().await.unwrap() };
    let writes = async {
        for key in keys.iter().rev() {
            other.set("notes", key, "new", &ann, Some(DAY)).await.unwrap();
        }
    };
    let (deleted, ()) = futures::join!(expiry, writes);
    assert!((1..60).contains(&deleted), "they meet in the middle: {deleted}");
    for key in &keys {
        assert_eq!(other.get("notes", key).await.unwrap().unwrap().value, "new", "{key}");
    }
    tokio::time::advance(2 * DAY).await;
    assert_eq!(context.expire().await, Ok(60), "each has a row for its new life");
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_writes_and_deletions_of_its_namespace() {
    let (_, context) = world();
    let ann = agent("ann");
    context.set("notes", "before", "x", &ann, None).await.unwrap();
    let mut changes = context.watch("notes").unwrap();
    let written = context.set("notes", "a", "x", &ann, None).await.unwrap();
    context.set("notes/a", "b", "x", &ann, None).await.unwrap();
    context.set("other", "a", "x", &ann, None).await.unwrap();
    context.delete("notes", "a").await.unwrap();
    assert_eq!(changes.next().await, Some(ContextChange::Set(Box::new(written))));
    assert_eq!(changes.next().await, Some(ContextChange::Deleted { key: "a".into() }));
    assert_eq!(changes.next().now_or_never(), None);
    for n in 0..1000 {
        context.set("notes", &n.to_string(), "x", &ann, None).await.unwrap();
    }
    let (mut seen, mut missed) = (0, 0);
    while let Some(Some(change)) = changes.next().now_or_never() {
        match change {
            ContextChange::Set(_) => seen += 1,
            ContextChange::Missed(count) => missed += count,
            ContextChange::Deleted { key } => panic!("{key} was deleted"),
        }
    }
    assert!(missed > 0, "a slow watcher is notified");
    assert_eq!(seen + missed, 1000);
}

#[tokio::test(start_paused = true)]
async fn an_agent_sees_what_it_was_granted_and_its_own_memory() {
    let board = Callboard::builder()
        .with(
            AgentSpec::new("scout", |turn: Turn| async move {
                let context = turn.context();
                context.set("notes", "a", "x", None).await?;
                assert_eq!(context.memory(), "memory:scout");
                context.set(&context.memory(), "module:parser", "fast", None).await?;
                let mut refused = Vec::new();
                for namespace in ["other", "notes/a", "memory:writer", "memory:", "memory", "run"] {
                    refused.push(context.set(namespace, "a", "x", None).await.unwrap_err());
                    refused.push(context.set_with_extension(namespace, "a", "x").await.unwrap_err());
                    refused.push(context.compare_and_set(namespace, "a", None, "x", None).await.unwrap_err());
                    refused.push(context.get(namespace, "a").await.unwrap_err());
                    refused.push(context.get_structured::<u32>(namespace, "a").await.unwrap_err());
                    refused.push(context.query(namespace, 1).await.unwrap_err());
                    refused.push(context.query_by_prefix(namespace, "", 1).await.unwrap_err());
                    refused.push(context.search(&["notes", namespace], 1).await.unwrap_err());
                    refused.push(context.recall(namespace, "a").await.unwrap_err());
                    refused.push(context.touch(namespace, "a", MINUTE).await.unwrap_err());
                    refused.push(context.delete(namespace, "a").await.unwrap_err());
                    refused.extend(context.watch(namespace).err());
                }
                assert_eq!(refused.len(), 6 * 12);
                let is_grant = |error: &ContextError| matches!(error, ContextError::NotGranted { .. });
                assert!(refused.iter().all(is_grant), "{refused:?}");
                Ok(Command::output("done").goto("writer"))
            })
            .namespaces(["notes", "memory:writer"]),
        )
        .with(
            AgentSpec::new("writer", |turn: Turn| async move {
                let context = turn.context();
                context.set("anything", "a", "x", None).await?;
                let refused = context.get("memory:scout", "module:parser").await.unwrap_err();
                assert!(matches!(refused, ContextError::NotGranted { .. }));
                Ok(Command::output("done"))
            })
            .namespaces(["anything"]),
        )
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("look").to("scout")).await.unwrap();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    board.shutdown().await;
}

/// Writes and reads what all agents of its run share, and tries what others have.
async fn shares(turn: Turn) -> Result<Command, TurnError> {
    let (context, task) = (turn.context(), turn.task().body.to_string());
    let own = turn.id().run.namespace();
    assert_eq!(context.of_run().as_deref(), Some(&*own));
    for namespace in ["notes", "performance", "memory:other", &format!("run:{task}"), "run:"] {
        let refused = context.set(namespace, "a", "x", None).await.unwrap_err();
        assert!(matches!(refused, ContextError::NotGranted { .. }), "{namespace}: {refused}");
        assert!(refused.to_string().contains("[agent.context]"), "{refused}");
        let searched = context.search(&["run", namespace], 9).await.map(drop);
        let watched = context.watch(namespace).map(drop);
        for refused in [searched, watched] {
            assert!(matches!(refused, Err(ContextError::NotGranted { .. })), "{namespace}: {refused:?}");
        }
    }
    context.set(&context.memory(), turn.agent().as_str(), "mine", None).await?;
    let before = context.get_structured::<u32>("run", "count").await?;
    let entry = context.set("run", "count", &(before.unwrap_or(0) + 1).to_string(), None).await?;
    assert_eq!((&*entry.namespace, context.get(&own, "count").await?), (&*own, Some(entry.clone())));
    let found = context.search(&["run", &context.memory()], 9).await?;
    assert_eq!(found.len(), 2, "its own memory has what it wrote, and the run's namespace what all wrote: {found:?}");
    let next = (turn.agent().as_str() == "first").then_some("second");
    let command = Command::output(before);
    Ok(next.into_iter().fold(command, Command::goto))
}

#[tokio::test(start_paused = true)]
async fn without_a_list_an_agent_sees_its_own_memory_and_what_its_run_shares() {
    let board = World::new()
        .builder()
        .retention(|retention| retention.runs(DAY))
        .agent("first", shares)
        .agent("second", shares)
        .start()
        .await
        .unwrap();
    let context = board.context();
    context.set("notes", "a", "of the board", &agent("ann"), None).await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..2 {
        let other = runs.last().map_or("none".to_owned(), ToString::to_string);
        let run = board.submit(Task::new(&other).to("first")).await.unwrap();
        assert_eq!(run.result().await.unwrap().output, json!(1), "the second one continues what the first one began");
        assert_eq!(context.get(&run.id().namespace(), "count").await.unwrap().unwrap().value, "2");
        runs.push(run.id());
    }
    tokio::time::sleep(DAY + 5 * MINUTE).await;
    for run in runs {
        assert_eq!(context.query(&run.namespace(), 9).await.unwrap(), [], "it is removed with its run");
    }
    assert_eq!(context.query("memory:first", 9).await.unwrap().len(), 1);
    assert_eq!(context.query("notes", 9).await.unwrap().len(), 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_waits_for_what_another_writes_by_watching_its_namespace() {
    let board = Callboard::builder()
        .with(
            AgentSpec::new("reader", |turn: Turn| async move {
                let context = turn.context();
                let mut found = context.watch("findings")?;
                let mut memory = context.watch(&context.memory())?;
                context.set(&context.memory(), "module:parser", "is watched", None).await?;
                let Some(ContextChange::Set(mine)) = memory.next().await else { panic!("it was written") };
                let Some(ContextChange::Set(theirs)) = found.next().await else { panic!("it was written") };
                Ok(Command::output(json!([mine.key, theirs.value])))
            })
            .namespaces(["findings"]),
        )
        .with(
            AgentSpec::new("writer", |turn: Turn| async move {
                turn.context().set("other", "a", "not granted", None).await?;
                turn.context().set("findings", "a", "found", None).await?;
                Ok(Command::output("done"))
            })
            .namespaces(["findings", "other"]),
        )
        .start()
        .await
        .unwrap();
    let reader = board.submit(Task::new("wait").to("reader")).await.unwrap();
    found(async || board.context().get("memory:reader", "module:parser").await.unwrap()).await;
    let writer = board.submit(Task::new("write").to("writer")).await.unwrap();
    assert_eq!(writer.result().await.unwrap().outcome, Outcome::Finished);
    assert_eq!(reader.result().await.unwrap().output, json!(["module:parser", "found"]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_writes_bears_its_agent_and_where_it_comes_from() {
    let board = Callboard::builder()
        .agent("lead", |turn: Turn| async move { Ok(Command::output(turn.delegate("scout", "look").await?)) })
        .with(
            AgentSpec::new("scout", |turn: Turn| async move {
                let context = turn.context();
                let entry = context.set("notes", "a", "1", None).await?;
                context.compare_and_set("notes", "a", Some(entry.revision), "2", None).await?;
                context.set_with_extension("notes", "b", "3").await?;
                Ok(Command::output("done"))
            })
            .namespaces(["notes"]),
        )
        .start()
        .await
        .unwrap();
    let by_hand = board.context().set("notes", "c", "x", &agent("ann"), None).await.unwrap();
    assert_eq!(by_hand.origin, None);
    let run = board.submit(Task::new("look").to("lead")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!("done"));
    for (key, value) in [("a", "2"), ("b", "3")] {
        let entry = board.context().get("notes", key).await.unwrap().unwrap();
        let origin = entry.origin.unwrap();
        assert_eq!((entry.agent.as_str(), entry.value.as_str(), origin.run), ("scout", value, run.id()));
        assert_eq!(origin.chain.to_string(), "lead → scout");
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn entries_outlive_the_board_on_its_store() {
    let world = World::new();
    let start = || world.builder().start();
    let first = start().await.unwrap();
    let entry = first.context().set("notes", "a", "x", &agent("ann"), Some(DAY)).await.unwrap();
    first.shutdown().await;
    let second = start().await.unwrap();
    assert_eq!(second.context().get("notes", "a").await.unwrap(), Some(entry));
    second.shutdown().await;
}
