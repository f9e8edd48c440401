//! The context store (SEMANTICS 12), as its owner and as an agent sees it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use callboard::actors::context::{ContextChange, ContextError, ContextStore};
use callboard::messages::AgentName;
use callboard::prelude::*;
use common::{World, builder, finish, quiet, secs};
use futures::{FutureExt, StreamExt};
use serde_json::json;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn ann() -> AgentName {
    AgentName::new("ann").unwrap()
}

async fn board() -> Callboard {
    builder().agent("worker", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap()
}

async fn keys(context: &ContextStore, namespace: &str) -> Vec<String> {
    context.query(namespace, 100).await.unwrap().into_iter().map(|entry| entry.key).collect()
}

#[tokio::test(start_paused = true)]
async fn set_replaces_value_agent_and_expiry_together_and_keeps_the_birthday() {
    let board = board().await;
    let context = board.context();
    let first = context.set("code", "auth", "one", &ann(), Some(secs(100))).await.unwrap();
    assert_eq!(first.expires_at, Some(first.created_at + secs(100)));
    tokio::time::sleep(secs(10)).await;
    let bob = AgentName::new("bob").unwrap();
    let second = context.set("code", "auth", "two", &bob, None).await.unwrap();
    assert_eq!((&*second.value, &second.agent, second.expires_at), ("two", &bob, None));
    assert_eq!((second.created_at, second.updated_at), (first.created_at, first.created_at + secs(10)));
    assert!(second.revision > first.revision);
    assert_eq!(context.get("code", "auth").await.unwrap(), Some(second));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_entry_is_absent_everywhere() {
    let board = board().await;
    let context = board.context();
    let born = context.set("code", "auth", "1", &ann(), Some(secs(10))).await.unwrap();
    context.set("code", "kept", "1", &ann(), None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(9_999)).await;
    assert!(context.get("code", "auth").await.unwrap().is_some());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(context.get("code", "auth").await.unwrap(), None);
    assert_eq!(context.get_structured::<u32>("code", "auth").await.unwrap(), None);
    assert_eq!(keys(context, "code").await, ["kept"]);
    assert_eq!(context.query_by_prefix("code", "au", 10).await.unwrap(), []);
    assert!(!context.touch("code", "auth", secs(10)).await.unwrap());
    assert_eq!(context.recall("code", "auth").await.unwrap(), None);
    let stale = context.compare_and_set("code", "auth", Some(born.revision), "2", &ann(), None).await.unwrap_err();
    assert!(matches!(stale, ContextError::Changed { actual: None, .. }), "{stale}");
    let reborn = context.set("code", "auth", "2", &ann(), None).await.unwrap();
    assert_eq!(reborn.created_at, born.created_at + secs(10));
    context.set("code", "gone", "1", &ann(), Some(secs(1))).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert!(!context.delete("code", "gone").await.unwrap());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn namespaces_have_usual_times_to_live() {
    let board = board().await;
    for (namespace, ttl) in [("performance", 1), ("security", 7), ("pm_learnings", 30)] {
        let entry = board.context().set(namespace, "k", "v", &ann(), None).await.unwrap();
        assert_eq!(entry.expires_at, Some(entry.created_at + DAY * ttl), "{namespace}");
        let entry = board.context().set(namespace, "k", "v", &ann(), Some(secs(5))).await.unwrap();
        assert_eq!(entry.expires_at, Some(entry.updated_at + secs(5)), "said otherwise");
    }
    assert_eq!(board.context().set("other", "k", "v", &ann(), None).await.unwrap().expires_at, None);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_extension_and_a_touch_only_move_an_expiry_later() {
    let worker = |_: Turn| async { Ok(Command::new()) };
    let board = builder().agent("worker", worker).sweep_every(DAY).start().await.unwrap();
    let context = board.context();
    let first = context.set("code", "k", "one", &ann(), Some(DAY * 100)).await.unwrap();
    let kept = context.set_with_extension("code", "k", "two", &ann(), DAY * 90).await.unwrap();
    assert_eq!((&*kept.value, kept.expires_at), ("two", first.expires_at));
    tokio::time::sleep(DAY * 20).await;
    let later = context.set_with_extension("code", "k", "three", &ann(), DAY * 90).await.unwrap();
    assert_eq!(later.expires_at, Some(first.created_at + DAY * 110));
    assert!(context.touch("code", "k", DAY).await.unwrap());
    assert_eq!(context.get("code", "k").await.unwrap().unwrap().expires_at, later.expires_at, "not earlier");
    tokio::time::sleep(DAY * 50).await;
    let recalled = context.recall("code", "k").await.unwrap().unwrap();
    assert_eq!(recalled.expires_at, Some(first.created_at + DAY * 160));
    assert_eq!(recalled.updated_at, later.updated_at, "a touch is no update");
    context.set("code", "lasting", "v", &ann(), None).await.unwrap();
    assert!(context.touch("code", "lasting", DAY).await.unwrap());
    let lasting = context.set_with_extension("code", "lasting", "w", &ann(), DAY).await.unwrap();
    assert_eq!((lasting.expires_at, &*lasting.value), (None, "w"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn structured_values_are_read_or_refused_by_type() {
    let board = board().await;
    let context = board.context();
    context.set("code", "list", "[1, 2]", &ann(), None).await.unwrap();
    assert_eq!(context.get_structured::<Vec<u32>>("code", "list").await.unwrap(), Some(vec![1, 2]));
    let wrong = context.get_structured::<String>("code", "list").await.unwrap_err();
    assert!(matches!(wrong, ContextError::BadJson { .. }), "{wrong}");
    context.set("code", "text", "not json", &ann(), None).await.unwrap();
    assert!(matches!(context.get_structured::<u32>("code", "text").await, Err(ContextError::BadJson { .. })));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn queries_are_newest_first_and_ties_go_by_revision() {
    let board = board().await;
    let context = board.context();
    for key in ["b", "a", "c"] {
        context.set("one", key, "v", &ann(), None).await.unwrap();
    }
    tokio::time::sleep(secs(1)).await;
    context.set("two", "d", "v", &ann(), None).await.unwrap();
    context.set("one", "b", "w", &ann(), None).await.unwrap();
    assert_eq!(keys(context, "one").await, ["b", "c", "a"]);
    let merged = context.search(&["one", "two", "one"], 3).await.unwrap();
    assert_eq!(merged.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["b", "d", "c"]);
    assert_eq!(context.query("one", 1).await.unwrap().len(), 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn names_and_values_over_their_limits_are_errors_and_never_cut() {
    let board = board().await;
    let context = board.context();
    let (namespace, key, value) = ("n".repeat(64), "ä".repeat(128), "v".repeat(64 << 10));
    context.set(&namespace, &key, &value, &ann(), None).await.unwrap();
    assert_eq!(context.get(&namespace, &key).await.unwrap().unwrap().value, value);
    let longer = |text: &str| format!("{text}x");
    for (namespace, key, value) in [
        (longer(&namespace), key.clone(), value.clone()),
        (namespace.clone(), longer(&key), value.clone()),
        (namespace.clone(), key.clone(), longer(&value)),
        (String::new(), key.clone(), value.clone()),
        (namespace.clone(), String::new(), value.clone()),
    ] {
        assert!(context.set(&namespace, &key, &value, &ann(), None).await.is_err());
    }
    assert_eq!(context.query(&namespace, 10).await.unwrap().len(), 1);
    let longest = AgentName::new(&"a".repeat(57)).unwrap();
    context.set(&format!("memory:{longest}"), "module:x", "v", &longest, None).await.unwrap();
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn hostile_names_never_meet() {
    const NAMES: [&str; 14] =
        ["x", "a", "x/a", "a/b", "b", "x/a/b", "%", "_", "x%", "*", "x*", "\u{1f980}", "..", "memory:x"];
    let board = board().await;
    let context = board.context();
    for namespace in NAMES {
        for key in NAMES {
            context.set(namespace, key, &format!("{namespace}|{key}"), &ann(), None).await.unwrap();
        }
    }
    for namespace in NAMES {
        assert_eq!(keys(context, namespace).await.len(), NAMES.len());
        for key in NAMES {
            let entry = context.get(namespace, key).await.unwrap().unwrap();
            assert_eq!(entry.value, format!("{namespace}|{key}"));
            let begins = context.query_by_prefix(namespace, key, 100).await.unwrap();
            let mut expected: Vec<&str> = NAMES.into_iter().filter(|name| name.starts_with(key)).collect();
            expected.sort_unstable();
            assert_eq!(begins.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), expected, "{namespace} {key}");
        }
    }
    assert!(context.delete("x", "a/b").await.unwrap());
    assert!(context.get("x/a", "b").await.unwrap().is_some());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_writers_that_saw_the_same_revision_one_wins_each_round() {
    let board = board().await;
    let rounds = (0..100).map(|writer| {
        let context = board.context().clone();
        tokio::spawn(async move {
            let mut lost = 0;
            loop {
                let there = context.get("code", "count").await.unwrap();
                let (revision, count) =
                    there.map_or((None, 0), |entry| (Some(entry.revision), entry.value.parse().unwrap()));
                tokio::time::sleep(Duration::from_millis(writer % 7)).await;
                let next = (count + 1_u32).to_string();
                match context.compare_and_set("code", "count", revision, &next, &ann(), None).await {
                    Ok(_) => return lost,
                    Err(ContextError::Changed { .. }) => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let lost: u32 = futures::future::join_all(rounds).await.into_iter().map(Result::unwrap).sum();
    assert!(lost > 0, "they raced");
    assert_eq!(board.context().get("code", "count").await.unwrap().unwrap().value, "100", "no write was lost");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_changes_of_its_namespace_and_how_many_it_missed() {
    let board = board().await;
    let context = board.context();
    let mut watch = context.watch("code").unwrap();
    context.set("other", "k", "v", &ann(), None).await.unwrap();
    let set = context.set("code", "k", "v", &ann(), None).await.unwrap();
    context.delete("code", "k").await.unwrap();
    assert_eq!(watch.next().await.unwrap(), ContextChange::Set(Box::new(set)));
    assert_eq!(watch.next().await.unwrap(), ContextChange::Deleted { key: "k".into() });
    assert!(watch.next().now_or_never().is_none());
    for n in 0..300 {
        context.set("code", &n.to_string(), "v", &ann(), None).await.unwrap();
    }
    let mut heard = 0;
    while let Some(Some(change)) = watch.next().now_or_never() {
        heard += match change {
            ContextChange::Missed(count) => count,
            ContextChange::Set(_) | ContextChange::Deleted { .. } => 1,
        };
    }
    assert_eq!(heard, 300, "heard or counted");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_is_swept_by_hand_and_by_itself() {
    let board = board().await;
    let context = board.context();
    for n in 0..600 {
        context.set("code", &n.to_string(), "v", &ann(), (n % 2 == 0).then_some(secs(10))).await.unwrap();
    }
    tokio::time::sleep(secs(10)).await;
    context.set("code", "0", "reborn", &ann(), None).await.unwrap();
    assert_eq!(context.sweep().await.unwrap(), 299);
    assert_eq!(context.sweep().await.unwrap(), 0);
    assert_eq!(keys(context, "code").await.len(), 100);
    assert_eq!(context.get("code", "0").await.unwrap().unwrap().value, "reborn");
    let mut watch = context.watch("code").unwrap();
    context.set("code", "brief", "v", &ann(), Some(secs(1))).await.unwrap();
    watch.next().await.unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(watch.next().await.unwrap(), ContextChange::Deleted { key: "brief".into() });
    assert!(started.elapsed() <= secs(61), "the sweeper comes once a minute");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_sees_what_it_was_granted_and_its_own_memory_only() {
    let board = builder()
        .with(
            AgentSpec::new("reader", |turn: Turn| async move {
                let context = turn.context();
                let mut seen = Vec::new();
                for namespace in ["code", "secrets", "memory:reader", "memory:other", "memory:"] {
                    seen.push(match context.get(namespace, "k").await {
                        Ok(entry) => json!(entry.map(|entry| entry.value)),
                        Err(ContextError::NotGranted { .. }) => json!("not granted"),
                        Err(error) => json!(error.to_string()),
                    });
                }
                let refused = [
                    context.set("secrets", "k", "v", None).await.is_err(),
                    context.set_with_extension("secrets", "k", "v").await.is_err(),
                    context.compare_and_set("secrets", "k", None, "v", None).await.is_err(),
                    context.query("secrets", 1).await.is_err(),
                    context.query_by_prefix("secrets", "", 1).await.is_err(),
                    context.search(&["code", "secrets"], 1).await.is_err(),
                    context.recall("secrets", "k").await.is_err(),
                    context.touch("secrets", "k", DAY).await.is_err(),
                    context.delete("secrets", "k").await.is_err(),
                    context.get_structured::<u32>("secrets", "k").await.is_err(),
                ];
                Ok(Command::output(json!([seen, refused])))
            })
            .namespaces(["code", "memory:other"]),
        )
        .start()
        .await
        .unwrap();
    for namespace in ["code", "secrets", "memory:reader", "memory:other"] {
        board.context().set(namespace, "k", namespace, &ann(), None).await.unwrap();
    }
    let output = finish(&board, Task::new("x")).await.output;
    assert_eq!(output[0], json!(["code", "not granted", "memory:reader", "not granted", "not granted"]));
    assert_eq!(output[1], json!(vec![true; 10]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_writes_bears_its_agent_run_and_chain() {
    let board = builder()
        .agent("lead", |turn: Turn| async move {
            turn.delegate("helper", "remember").await?;
            Ok(Command::new())
        })
        .agent("helper", |turn: Turn| async move {
            turn.context().set(&turn.context().memory(), "module:auth", "it is old", None).await?;
            Ok(Command::new())
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    run.result().await.unwrap();
    let entry = board.context().get("memory:helper", "module:auth").await.unwrap().unwrap();
    assert_eq!((entry.agent.as_str(), &*entry.value), ("helper", "it is old"));
    let origin = entry.origin.unwrap();
    assert_eq!((origin.run, origin.chain.to_string()), (run.id(), "lead → helper".to_owned()));
    board.shutdown().await;
}

#[test]
fn the_context_outlives_its_process() {
    let world = World::new();
    let board = async |builder: callboard::runtime::Builder| {
        builder.agent("worker", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap()
    };
    world.process(async |builder| {
        let board = board(builder).await;
        board.context().set("code", "kept", "v", &ann(), Some(secs(100))).await.unwrap();
        board.context().set("code", "brief", "v", &ann(), Some(secs(10))).await.unwrap();
        quiet().await;
    });
    world.process(async |_| tokio::time::sleep(secs(50)).await);
    world.process(async |builder| {
        let board = board(builder).await;
        assert_eq!(keys(board.context(), "code").await, ["kept"]);
        tokio::time::sleep(secs(50)).await;
        assert_eq!(keys(board.context(), "code").await, [""; 0]);
    });
}
