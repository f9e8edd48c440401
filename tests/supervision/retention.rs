//! What becomes of runs that ended long ago: they are deleted, many at once, and by one of several boards.

use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::RunId;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::storage::{
    Append, Entry, Expected, Journal, Key, KeyPrefix, Memory, Put, Record, Revision, Sequence, StorageFuture, Watch,
};
use futures::FutureExt;

use crate::passing::pass_on;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// A store that several boards share, in which a purge takes a second.
#[derive(Debug)]
struct Slow {
    inside: Memory,
}

impl Storage for Slow {
    pass_on!(inside: append, read, streams, get, put_if_revision, delete_if_revision, scan, watch, sessions);

    fn is_shared(&self) -> bool {
        true
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        let purged = self.inside.purge(stream, up_to);
        tokio::time::sleep(Duration::from_secs(1)).then(|()| purged).boxed()
    }
}

fn store(env: &Env) -> Arc<Slow> {
    Arc::new(Slow { inside: Memory::new(env.clock()) })
}

/// A board that keeps runs for an hour, with an agent that leaves a value in the context of its run.
fn board(env: &Env, store: &Arc<Slow>) -> Builder {
    Callboard::builder()
        .env(env.clone())
        .storage(Arc::clone(store))
        .retention(|retention| retention.runs(HOUR).every(MINUTE))
        .agent("writer", |turn: Turn| async move {
            turn.context().set("run", "draft", "text", None).await?;
            Ok(Command::output("written"))
        })
}

async fn runs(store: &Arc<Slow>) -> usize {
    Journal::new(Arc::clone(store) as _).runs().await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn runs_that_ended_long_ago_are_deleted_many_at_once_with_all_that_is_kept_beside_them() {
    let env = Env::repeatable(1);
    let store = store(&env);
    let board = board(&env, &store).start().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..100 {
        let run = board.submit(Task::new("write")).await.unwrap();
        run.result().await.unwrap();
        ids.push(run.id());
    }
    tokio::time::sleep(HOUR - MINUTE).await;
    assert_eq!(runs(&store).await, 100);
    // A minute until they are old, one until it is looked for them, and four seconds: one by one they would take a hundred.
    tokio::time::sleep(2 * MINUTE + Duration::from_secs(10)).await;
    assert_eq!(runs(&store).await, 0);
    let left = store.scan(&Key::new([]).children(), None, usize::MAX).await.unwrap();
    let names_a_run = |key: &&Key| {
        let segments = key.segments();
        let is_of = |id: &RunId| segments.contains(&id.namespace()) || segments.contains(&id.0.as_simple().to_string());
        ids.iter().any(is_of)
    };
    let left: Vec<&Key> = left.iter().map(|(key, _)| key).filter(names_a_run).collect();
    assert_eq!(left, Vec::<&Key>::new());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn of_several_boards_on_one_store_one_deletes_old_runs_at_a_time() {
    let env = Env::repeatable(1);
    let store = store(&env);
    let board = board(&env, &store).start().await.unwrap();
    board.submit(Task::new("write")).await.unwrap().result().await.unwrap();
    // Another board has taken it over for two hours.
    let held = Put::new(Key::new(["duty", "forgetting"]), Arc::default());
    store.put_if_revision(Put { expected: Expected::Absent, ttl_secs: Some(7200), ..held }).await.unwrap();
    tokio::time::sleep(HOUR + 30 * MINUTE).await;
    assert_eq!(runs(&store).await, 1);
    tokio::time::sleep(HOUR).await;
    assert_eq!(runs(&store).await, 0);
    board.shutdown().await;
}
