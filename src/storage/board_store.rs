//! The store of one board, which the board releases when it shuts down: handles of the board that remain do not keep others
//! from opening the store.

use std::sync::{Arc, OnceLock};

use futures::stream::StreamExt as _;
use parking_lot::RwLock;

use super::{
    Append, Delete, Durability, Entry, EntryRef, Key, KeyPrefix, NewSession, Put, Record, Revision, Sequence,
    SessionId, SessionInfo, ShutdownPolicy, Storage, StorageError, StorageFuture, Watch,
};

/// Passes every call on, until the board has released its store.
#[derive(Debug)]
pub(crate) struct BoardStore {
    held: RwLock<Held>,
    /// The board's session, once it has one: its writes count as long as that lasts.
    session: OnceLock<SessionId>,
    default_durability: Durability,
    is_shared: bool,
}

enum Held {
    /// The board works.
    Open(Arc<dyn Storage>),
    /// The board has stopped, and the store may have other holders; reads ask whether it has.
    Shared(Box<dyn Fn() -> Option<Arc<dyn Storage>> + Send + Sync>),
    /// The board has stopped, and it was the only one that had the store.
    Closed,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(store) => store.fmt(f),
            Self::Shared(_) => f.write_str("Shared"),
            Self::Closed => f.write_str("Closed"),
        }
    }
}

impl BoardStore {
    pub(crate) fn new(store: Arc<dyn Storage>) -> Self {
        Self {
            default_durability: store.default_durability(),
            is_shared: store.is_shared(),
            held: RwLock::new(Held::Open(store)),
            session: OnceLock::new(),
        }
    }

    /// Has every write from here on name the board's session.
    pub(crate) fn work_in(&self, session: SessionId) {
        let _ = self.session.set(session);
    }

    fn session(&self) -> Option<SessionId> {
        self.session.get().copied()
    }

    /// Releases a store that keeps others out as long as it is open: when this returns, another board can open it unless
    /// it has another holder. Releasing again changes nothing.
    pub(crate) async fn release_store(&self) {
        let closing = {
            let mut held = self.held.write();
            let Held::Open(store) = &*held else { return };
            // Not those of the share that is dropped.
            let released = match (**store).shutdown_policy() {
                ShutdownPolicy::KeepOpen => return,
                ShutdownPolicy::CloseShared(reopen) => Held::Shared(reopen),
                ShutdownPolicy::Close => Held::Closed,
            };
            std::mem::replace(&mut *held, released)
        };
        // Closing a store may wait for its disk.
        if crate::env::Env::can_start_thread() {
            let _ = tokio::task::spawn_blocking(move || drop(closing)).await;
        }
    }

    /// Whether the board has released a store without other holders.
    pub(crate) fn is_closed(&self) -> bool {
        match &*self.held.read() {
            Held::Open(_) => false,
            Held::Shared(reopen) => reopen().is_none(),
            Held::Closed => true,
        }
    }

    /// No call is under way while the store is released, so none keeps it open.
    fn call<T: Send + 'static>(&self, call: impl FnOnce(&dyn Storage) -> StorageFuture<T>) -> StorageFuture<T> {
        match &*self.held.read() {
            Held::Open(store) => call(&**store),
            Held::Shared(reopen) => match reopen() {
                Some(store) => call(&*store),
                None => Box::pin(std::future::ready(Err(StorageError::Closed))),
            },
            Held::Closed => Box::pin(std::future::ready(Err(StorageError::Closed))),
        }
    }

    /// As [`BoardStore::call`], for what is read at once. A board that has stopped reads by calls that wait.
    fn call_here<T>(&self, call: impl FnOnce(&dyn Storage) -> Option<T>) -> Option<T> {
        match &*self.held.read() {
            Held::Open(store) => call(&**store),
            Held::Shared(_) | Held::Closed => None,
        }
    }
}

impl Storage for BoardStore {
    fn default_durability(&self) -> Durability {
        self.default_durability
    }

    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        let append = Append { session: self.session(), ..append };
        self.call(|store| store.append(append))
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.call(|store| store.read(stream, from, limit))
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        self.call(|store| store.streams(prefix, after, limit))
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.call(|store| store.purge(stream, up_to))
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.call(|store| store.get(key))
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        let put = Put { session: self.session(), ..put };
        self.call(|store| store.put_if_revision(put))
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        let delete = Delete { session: self.session(), ..delete };
        self.call(|store| store.delete_if_revision(delete))
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.call(|store| store.scan(prefix, after, limit))
    }

    fn get_here(&self, key: &Key, read: &mut dyn FnMut(EntryRef<'_>)) -> Option<Result<(), StorageError>> {
        self.call_here(|store| store.get_here(key, read))
    }

    fn scan_here(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
        read: &mut dyn FnMut(&[u8], EntryRef<'_>),
    ) -> Option<Result<usize, StorageError>> {
        self.call_here(|store| store.scan_here(prefix, after, limit, read))
    }

    fn get_many(&self, keys: &[Key]) -> StorageFuture<Vec<Result<Option<Entry>, StorageError>>> {
        self.call(|store| store.get_many(keys))
    }

    fn read_many(
        &self,
        streams: &[(Key, Sequence)],
        limit: usize,
    ) -> StorageFuture<Vec<Result<Vec<Record>, StorageError>>> {
        self.call(|store| store.read_many(streams, limit))
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        let nothing = || futures::stream::empty().boxed();
        match &*self.held.read() {
            Held::Open(store) => store.watch(prefix),
            Held::Shared(reopen) => reopen().map_or_else(nothing, |store| store.watch(prefix)),
            Held::Closed => nothing(),
        }
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        self.call(|store| store.begin_session(new))
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        self.call(|store| store.renew_session(id, about))
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        self.call(|store| store.end_session(id, only_if_expired))
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        self.call(|store| store.sessions())
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.call(|store| store.forget_session(id))
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn shutdown_policy(&self) -> ShutdownPolicy {
        ShutdownPolicy::KeepOpen
    }
}
