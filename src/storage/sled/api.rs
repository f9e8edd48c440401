//! The implementation of `Storage`: reads and short writes are served on the caller's thread, other writes go to the writer.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::ready;
use tokio::sync::oneshot;

use super::overlay::Stored;
use super::reads::Reading;
use super::write_state::Applied;
use super::writes::{Change, Reply, Request, Write};
use super::{Open, Shared, Sled};
use crate::storage::{
    Append, Delete, Entry, EntryRef, Key, KeyPrefix, NewSession, Put, Record, Revision, Sequence, SessionId,
    SessionInfo, ShutdownPolicy, Storage, StorageError, StorageFuture, Watch, limits,
};

impl Sled {
    /// Sends a request to the writer: now if the queue has a permit, else as soon as the future acquires one.
    fn submit<T: Send + 'static>(&self, write: impl FnOnce(Reply<T>) -> Write) -> StorageFuture<T> {
        let (reply, answer) = oneshot::channel();
        let (write, now) = (write(reply), self.clock.now().wall);
        let shared = Arc::clone(&self.shared);
        if let Ok(permit) = Arc::clone(&shared.permits).try_acquire_owned() {
            // If the writer has ended, the reply is dropped with the request, and the answer is the reason.
            let _ = shared.requests.send(Request { write, now, permit: Some(permit) });
            return answered(shared, answer).boxed();
        }
        async move {
            let permit = Arc::clone(&shared.permits).acquire_owned().await.ok();
            let _ = shared.requests.send(Request { write, now, permit });
            answered(shared, answer).await
        }
        .boxed()
    }

    fn change(&self, allowed: Result<(), StorageError>, change: impl FnOnce() -> Change) -> StorageFuture<u64> {
        if let Err(error) = allowed {
            return ready(Err(error)).boxed();
        }
        match self.shared.apply_here(change(), self.clock.now().wall) {
            Ok(Applied::Now(answer)) => ready(answer).boxed(),
            Ok(Applied::Soon(answer)) => answered(Arc::clone(&self.shared), answer).boxed(),
            Err(change) => self.submit(|reply| Write::Change(change, reply)),
        }
    }

    /// Has a session of an earlier process that had the store open count again, unless it is known: for stores that several
    /// processes share. The id is one that this store has given out.
    ///
    /// # Errors
    /// [`StorageError::Stopped`] if the session has ended.
    #[doc(hidden)]
    pub fn resume_session(&self, id: SessionId, session: NewSession) -> StorageFuture<()> {
        self.change_only(Change::ResumeSession(id, session, self.clock.now().monotonic))
    }

    fn change_only(&self, change: Change) -> StorageFuture<()> {
        self.change(Ok(()), || change).map(|done| done.map(drop)).boxed()
    }

    fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reading<'_>) -> Result<T, StorageError>,
    ) -> StorageFuture<T> {
        ready(self.read_here(read)).boxed()
    }

    fn read_here<T>(&self, read: impl FnOnce(&Reading<'_>) -> Result<T, StorageError>) -> Result<T, StorageError> {
        match &*self.shared.open.read() {
            Some(Open { db, .. }) => {
                let stored = Stored { tree: db, overlay: &self.shared.overlay };
                read(&Reading { stored, payloads: &self.payloads })
            }
            None => Err(self.shared.why_stopped()),
        }
    }
}

/// The writer's answer; if it ends without one, the reason.
async fn answered<T>(
    shared: Arc<Shared>,
    answer: oneshot::Receiver<Result<T, StorageError>>,
) -> Result<T, StorageError> {
    answer.await.unwrap_or_else(|_| Err(shared.why_stopped()))
}

impl Storage for Sled {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        self.change(limits::check_append(&append), || Change::Append(append))
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.reading(|reading| reading.records(stream, from, limit))
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        self.reading(|reading| reading.streams(prefix, after, limit))
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.change_only(Change::Purge { stream: stream.clone(), up_to })
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.reading(|reading| reading.get(key, &*self.clock))
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        self.change(limits::check_put(&put), || Change::Put(put))
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        self.change_only(Change::Delete(delete))
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.reading(|reading| reading.scan(prefix, after, limit, &*self.clock))
    }

    fn get_here(&self, key: &Key, read: &mut dyn FnMut(EntryRef<'_>)) -> Option<Result<(), StorageError>> {
        Some(self.read_here(|reading| reading.get_here(key, &*self.clock, read)))
    }

    fn scan_here(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
        read: &mut dyn FnMut(&[u8], EntryRef<'_>),
    ) -> Option<Result<usize, StorageError>> {
        Some(self.read_here(|reading| reading.scan_here(prefix, after, limit, &*self.clock, read)))
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.shared.watchers.watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        let begin = Change::BeginSession(new, self.clock.now().monotonic);
        self.change(Ok(()), || begin).map(|id| id.map(SessionId)).boxed()
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        self.change_only(Change::RenewSession(id, about, self.clock.now().monotonic))
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        self.change_only(Change::EndSession { id, only_if_expired, now: self.clock.now().monotonic })
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        let now = self.clock.now().monotonic;
        ready(self.shared.sessions(now)).boxed()
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.change_only(Change::ForgetSession(id))
    }

    /// Another process, or another board of this one, is to open the folder.
    fn shutdown_policy(&self) -> ShutdownPolicy {
        ShutdownPolicy::Close
    }
}
