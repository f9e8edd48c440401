//! A store that several hold: every call goes to the store itself.

use std::sync::Arc;

use super::{
    Append, Delete, Durability, Entry, EntryRef, Key, KeyPrefix, NewSession, Put, Record, Revision, Sequence,
    SessionId, SessionInfo, ShutdownPolicy, Storage, StorageError, StorageFuture, Watch,
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

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        (**self).streams(prefix, after, limit)
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

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        (**self).delete_if_revision(delete)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        (**self).scan(prefix, after, limit)
    }

    fn get_here(&self, key: &Key, read: &mut dyn FnMut(EntryRef<'_>)) -> Option<Result<(), StorageError>> {
        (**self).get_here(key, read)
    }

    fn scan_here(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
        read: &mut dyn FnMut(&[u8], EntryRef<'_>),
    ) -> Option<Result<usize, StorageError>> {
        (**self).scan_here(prefix, after, limit, read)
    }

    fn get_many(&self, keys: &[Key]) -> StorageFuture<Vec<Result<Option<Entry>, StorageError>>> {
        (**self).get_many(keys)
    }

    fn read_many(
        &self,
        streams: &[(Key, Sequence)],
        limit: usize,
    ) -> StorageFuture<Vec<Result<Vec<Record>, StorageError>>> {
        (**self).read_many(streams, limit)
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        (**self).watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        (**self).begin_session(new)
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        (**self).renew_session(id, about)
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        (**self).end_session(id, only_if_expired)
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        (**self).sessions()
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        (**self).forget_session(id)
    }

    fn is_shared(&self) -> bool {
        (**self).is_shared()
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
