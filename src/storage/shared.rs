//! A store that several hold: every call goes to the store itself.

use std::sync::Arc;

use super::{
    Append, Delivery, DeliveryId, Durability, Entry, Fence, Key, KeyPrefix, Put, Record, Revision, Sequence,
    ShutdownPolicy, Storage, StorageFuture, Watch,
};

/// Passes every call on to the shared store. Only [`Storage::shutdown_policy`] differs: `Close` becomes `CloseShared`,
/// so that a board that shuts down does not close the store of the other holders.
impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn default_durability(&self) -> Durability {
        (**self).default_durability()
    }

    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        (**self).append(append)
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        (**self).read(stream, from, limit)
    }

    fn streams(&self, prefix: &KeyPrefix) -> StorageFuture<Vec<Key>> {
        (**self).streams(prefix)
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        (**self).purge(stream, up_to)
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        (**self).get(key)
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        (**self).put_if_revision(put)
    }

    fn delete_if_revision(&self, key: &Key, revision: Revision, durability: Durability) -> StorageFuture<()> {
        (**self).delete_if_revision(key, revision, durability)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        (**self).scan(prefix, after, limit)
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        (**self).watch(prefix)
    }

    fn claim(&self, stream: &Key, owner: &str, ttl_secs: u64) -> StorageFuture<Fence> {
        (**self).claim(stream, owner, ttl_secs)
    }

    fn renew(&self, stream: &Key, fence: Fence, ttl_secs: u64) -> StorageFuture<()> {
        (**self).renew(stream, fence, ttl_secs)
    }

    fn release(&self, stream: &Key, fence: Fence) -> StorageFuture<()> {
        (**self).release(stream, fence)
    }

    fn enqueue(&self, queue: &Key, dedupe_id: &str, payload: Arc<[u8]>, durability: Durability) -> StorageFuture<()> {
        (**self).enqueue(queue, dedupe_id, payload, durability)
    }

    fn next(&self, queue: &Key, lease_secs: u64) -> StorageFuture<Option<Delivery>> {
        (**self).next(queue, lease_secs)
    }

    fn extend(&self, delivery: &DeliveryId, lease_secs: u64) -> StorageFuture<()> {
        (**self).extend(delivery, lease_secs)
    }

    fn ack(&self, delivery: &DeliveryId) -> StorageFuture<()> {
        (**self).ack(delivery)
    }

    fn nack(&self, delivery: &DeliveryId, delay_secs: u64) -> StorageFuture<()> {
        (**self).nack(delivery, delay_secs)
    }

    fn shutdown_policy(&self) -> ShutdownPolicy {
        match (**self).shutdown_policy() {
            ShutdownPolicy::KeepOpen => ShutdownPolicy::KeepOpen,
            ShutdownPolicy::CloseShared(reopen) => ShutdownPolicy::CloseShared(reopen),
            ShutdownPolicy::Close => {
                let shared = Self::downgrade(self);
                ShutdownPolicy::CloseShared(Box::new(move || Some(Arc::new(shared.upgrade()?) as Arc<dyn Storage>)))
            }
        }
    }
}
