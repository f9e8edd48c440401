//! A custom storage: it wraps another one, and counts and times the calls of a board.
//!
//! Run it with `cargo run --example custom_storage`, and the conformance suite on it with
//! `cargo test --example custom_storage`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::prelude::*;
use callboard::storage::{
    Append, Delete, Entry, Key, KeyPrefix, NewSession, Put, Record, Revision, Sequence, SessionId, SessionInfo,
    StorageFuture, Watch,
};
use parking_lot::Mutex;

/// Counts and times the calls to the inner store.
#[derive(Debug)]
struct Counting<S> {
    inside: S,
    env: Env,
    calls: Arc<Mutex<BTreeMap<&'static str, Calls>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    count: u32,
    time: Duration,
}

impl<S: Storage> Counting<S> {
    fn new(inside: S, env: Env) -> Self {
        Self { inside, env, calls: Arc::default() }
    }

    fn count<T: Send + 'static>(&self, name: &'static str, call: StorageFuture<T>) -> StorageFuture<T> {
        let (env, calls) = (self.env.clone(), Arc::clone(&self.calls));
        let began = env.now().monotonic;
        Box::pin(async move {
            let result = call.await;
            let mut calls = calls.lock();
            let calls = calls.entry(name).or_default();
            calls.count += 1;
            calls.time += env.now().monotonic.saturating_sub(began);
            result
        })
    }
}

impl<S: Storage> Storage for Counting<S> {
    fn default_durability(&self) -> Durability {
        self.inside.default_durability()
    }

    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        self.count("append", self.inside.append(append))
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.count("read", self.inside.read(stream, from, limit))
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        self.count("streams", self.inside.streams(prefix, after, limit))
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.count("purge", self.inside.purge(stream, up_to))
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.count("get", self.inside.get(key))
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        self.count("put_if_revision", self.inside.put_if_revision(put))
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        self.count("delete_if_revision", self.inside.delete_if_revision(delete))
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.count("scan", self.inside.scan(prefix, after, limit))
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.inside.watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        self.count("begin_session", self.inside.begin_session(new))
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        self.count("renew_session", self.inside.renew_session(id, about))
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        self.count("end_session", self.inside.end_session(id, only_if_expired))
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        self.count("sessions", self.inside.sessions())
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.count("forget_session", self.inside.forget_session(id))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = Env::system();
    let store = Arc::new(Counting::new(Memory::new(env.clock()), env.clone()));
    let board = Callboard::builder()
        .env(env)
        .storage(store.clone())
        .agent("researcher", |turn: Turn| async move {
            turn.context().set("run", "topic", &turn.task().body, None).await?;
            Ok(Command::output("notes are in the context").goto("writer"))
        })
        .agent("writer", |turn: Turn| async move {
            let topic = turn.context().get("run", "topic").await?.map(|entry| entry.value).unwrap_or_default();
            Ok(Command::output(format!("A text about {topic}.")))
        })
        .start()
        .await?;
    let run = board.submit(Task::new("tides").to("researcher")).await?;
    println!("{}\n", run.result().await?);
    board.shutdown().await;

    println!("What two turns, a handoff and a note asked of the store:\n");
    for (name, Calls { count, time }) in &*store.calls.lock() {
        let (calls, each) = (if *count == 1 { "call" } else { "calls" }, time.as_secs_f64() * 1e6 / f64::from(*count));
        println!("  {name:<20}{count:>4} {calls:<5} {each:>8.1} µs each");
    }
    println!("\nThe same store passes what every store has to: cargo test --example custom_storage");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use callboard::testing::conformance::Subject;

    callboard::storage_conformance! {
        in_memory counting: Subject::new(|clock| async {
            Arc::new(Counting::new(Memory::new(clock), Env::system())) as _
        })
    }
}
