//! The rules of every store, with the files open in the process that calls, and in another one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use callboard::messages::Durability;
use callboard::storage::{
    Append, Delivery, DeliveryId, Entry, Fence, Key, KeyPrefix, Put, Record, Revision, Sequence, Storage,
    StorageFuture, Watch,
};
use callboard::testing::conformance::Subject;
use callboard_shared_store::SharedStore;

callboard::storage_conformance! {
    on_disk here: {
        let folder = tempfile::tempdir().unwrap();
        Subject::new(move |clock| {
            let store = SharedStore::open_with_clock(folder.path(), clock).unwrap();
            async move { Arc::new(store) as _ }
        })
    }
}

callboard::storage_conformance! {
    on_disk elsewhere: {
        let folder = tempfile::tempdir().unwrap();
        Subject::new(move |clock| {
            let holder = SharedStore::open_with_clock(folder.path(), Arc::clone(&clock)).unwrap();
            let client = SharedStore::open_with_clock(folder.path(), clock).unwrap();
            assert!(holder.is_here() && !client.is_here());
            async move { Arc::new(Elsewhere { client, _holder: holder }) as _ }
        })
    }
}

callboard::storage_conformance! {
    killed killed: |folder| async move { Arc::new(SharedStore::open(folder).unwrap()) as _ }
}

/// A store whose files another handle has open, which is dropped after it.
#[derive(Debug)]
struct Elsewhere {
    client: SharedStore,
    _holder: SharedStore,
}

impl Storage for Elsewhere {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        self.client.append(append)
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.client.read(stream, from, limit)
    }

    fn streams(&self, prefix: &KeyPrefix) -> StorageFuture<Vec<Key>> {
        self.client.streams(prefix)
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.client.purge(stream, up_to)
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.client.get(key)
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        self.client.put_if_revision(put)
    }

    fn delete_if_revision(&self, key: &Key, revision: Revision, durability: Durability) -> StorageFuture<()> {
        self.client.delete_if_revision(key, revision, durability)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.client.scan(prefix, after, limit)
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.client.watch(prefix)
    }

    fn claim(&self, stream: &Key, owner: &str, ttl_secs: u64) -> StorageFuture<Fence> {
        self.client.claim(stream, owner, ttl_secs)
    }

    fn renew(&self, stream: &Key, fence: Fence, ttl_secs: u64) -> StorageFuture<()> {
        self.client.renew(stream, fence, ttl_secs)
    }

    fn release(&self, stream: &Key, fence: Fence) -> StorageFuture<()> {
        self.client.release(stream, fence)
    }

    fn enqueue(&self, queue: &Key, dedupe_id: &str, payload: Arc<[u8]>, durability: Durability) -> StorageFuture<()> {
        self.client.enqueue(queue, dedupe_id, payload, durability)
    }

    fn next(&self, queue: &Key, lease_secs: u64) -> StorageFuture<Option<Delivery>> {
        self.client.next(queue, lease_secs)
    }

    fn extend(&self, delivery: &DeliveryId, lease_secs: u64) -> StorageFuture<()> {
        self.client.extend(delivery, lease_secs)
    }

    fn ack(&self, delivery: &DeliveryId) -> StorageFuture<()> {
        self.client.ack(delivery)
    }

    fn nack(&self, delivery: &DeliveryId, delay_secs: u64) -> StorageFuture<()> {
        self.client.nack(delivery, delay_secs)
    }
}
