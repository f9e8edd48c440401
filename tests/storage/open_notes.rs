//! A start finds every unfinished run: the note that a run is open is handed to the store before the run's first record,
//! so that no crash can keep the record and lose the note. It reads no run that has ended, and an inbox only as many as it
//! needs.

use std::sync::Arc;

use callboard::prelude::*;
use callboard::storage::{
    Append, Delivery, DeliveryId, Durability, Entry, Fence, Key, KeyPrefix, Memory, Put, Record, Revision, Sequence,
    Storage, StorageFuture, Watch,
};
use parking_lot::Mutex;

/// Notes which writes were handed over, in order, and which streams were read.
#[derive(Debug, Default)]
struct Ordered {
    inside: Memory,
    writes: Mutex<Vec<String>>,
    reads: Mutex<Vec<Key>>,
}

impl Storage for Ordered {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        self.writes.lock().push(append.stream.segments()[0].clone());
        self.inside.append(append)
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        self.writes.lock().push(put.key.segments()[0].clone());
        self.inside.put_if_revision(put)
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.reads.lock().push(stream.clone());
        self.inside.read(stream, from, limit)
    }

    fn streams(&self, prefix: &KeyPrefix) -> StorageFuture<Vec<Key>> {
        self.inside.streams(prefix)
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.inside.purge(stream, up_to)
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.inside.get(key)
    }

    fn delete_if_revision(&self, key: &Key, revision: Revision, durability: Durability) -> StorageFuture<()> {
        self.inside.delete_if_revision(key, revision, durability)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.inside.scan(prefix, after, limit)
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.inside.watch(prefix)
    }

    fn claim(&self, stream: &Key, owner: &str, ttl_secs: u64) -> StorageFuture<Fence> {
        self.inside.claim(stream, owner, ttl_secs)
    }

    fn renew(&self, stream: &Key, fence: Fence, ttl_secs: u64) -> StorageFuture<()> {
        self.inside.renew(stream, fence, ttl_secs)
    }

    fn release(&self, stream: &Key, fence: Fence) -> StorageFuture<()> {
        self.inside.release(stream, fence)
    }

    fn enqueue(&self, queue: &Key, dedupe_id: &str, payload: Arc<[u8]>, durability: Durability) -> StorageFuture<()> {
        self.inside.enqueue(queue, dedupe_id, payload, durability)
    }

    fn next(&self, queue: &Key, lease_secs: u64) -> StorageFuture<Option<Delivery>> {
        self.inside.next(queue, lease_secs)
    }

    fn extend(&self, delivery: &DeliveryId, lease_secs: u64) -> StorageFuture<()> {
        self.inside.extend(delivery, lease_secs)
    }

    fn ack(&self, delivery: &DeliveryId) -> StorageFuture<()> {
        self.inside.ack(delivery)
    }

    fn nack(&self, delivery: &DeliveryId, delay_secs: u64) -> StorageFuture<()> {
        self.inside.nack(delivery, delay_secs)
    }
}

#[tokio::test(start_paused = true)]
async fn the_note_is_handed_over_before_the_first_record() {
    let store = Arc::new(Ordered::default());
    let board = Callboard::builder()
        .storage(store.clone())
        .durability(Durability::Sync)
        .agent("greeter", |_: Turn| async move { Ok(Command::output("hello")) })
        .start()
        .await
        .unwrap();
    board.submit(Task::new("greet")).await.unwrap().result().await.unwrap();
    board.shutdown().await;
    assert_eq!(store.writes.lock()[..2], ["open", "run"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_reads_no_run_that_has_ended_and_an_inbox_only_as_many_as_it_needs() {
    const RUNS: usize = 20;
    let store = Arc::new(Ordered::default());
    let start = async || {
        let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "fix").await?)) };
        let board = Callboard::builder()
            .storage(store.clone())
            .durability(Durability::Sync)
            .capacity(|capacity| capacity.inbox(3));
        let board = board.agent("lead", lead).agent("coder", |_: Turn| async { Ok(Command::new()) });
        board.agent("idle", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap()
    };
    let board = start().await;
    for _ in 0..RUNS {
        board.submit(Task::new("fix").to("lead")).await.unwrap().result().await.unwrap();
        // The store's clock, which is the system's.
        let now = callboard::env::Env::system().now().wall;
        while callboard::env::Env::system().now().wall == now {
            std::hint::spin_loop();
        }
    }
    board.shutdown().await;
    store.reads.lock().clear();

    let board = start().await;
    board.recovered().await;
    assert_eq!(*store.reads.lock(), [], "at the start");
    assert_eq!(board.agents().inbox("lead").await.unwrap().len(), 3);
    assert!((2..=3).contains(&store.reads.lock().len()), "{} runs were read", store.reads.lock().len());
    assert_eq!(board.agents().inbox("idle").await.unwrap(), []);
    assert_eq!(store.reads.lock().len(), RUNS, "each of them once");
    board.agents().inbox("idle").await.unwrap();
    assert_eq!(store.reads.lock().len(), RUNS);
    board.shutdown().await;
}
