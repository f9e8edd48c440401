//! A store in memory that counts what is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callboard::storage::{
    Append, Delivery, DeliveryId, Durability, Entry, Fence, Key, KeyPrefix, Memory, Put, Record, Revision, Sequence,
    Storage, StorageFuture, Watch,
};

#[derive(Debug, Default)]
pub(crate) struct Counted {
    inside: Memory,
    reads: AtomicUsize,
}

impl Counted {
    /// How many reads of records, values and lists there were since the last time.
    pub(crate) fn reads(&self) -> usize {
        self.reads.swap(0, Ordering::Relaxed)
    }

    fn read_of(&self) -> &Memory {
        self.reads.fetch_add(1, Ordering::Relaxed);
        &self.inside
    }
}

impl Storage for Counted {
    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.read_of().read(stream, from, limit)
    }

    fn streams(&self, prefix: &KeyPrefix) -> StorageFuture<Vec<Key>> {
        self.read_of().streams(prefix)
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.read_of().get(key)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.read_of().scan(prefix, after, limit)
    }

    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        self.inside.append(append)
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.inside.purge(stream, up_to)
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        self.inside.put_if_revision(put)
    }

    fn delete_if_revision(&self, key: &Key, revision: Revision, durability: Durability) -> StorageFuture<()> {
        self.inside.delete_if_revision(key, revision, durability)
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
