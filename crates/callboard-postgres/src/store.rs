//! The store: calls become messages to the lane, or questions of a reader.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard::storage::{
    Append, Delete, Entry, Key, KeyPrefix, NewSession, Put, Record, Revision, Sequence, SessionId, SessionInfo,
    Storage, StorageError, StorageFuture, Watch, check_append, check_put,
};
use futures::FutureExt as _;
use futures::future::ready;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::batch::Waiting;
use crate::lane::{Message, unavailable};
use crate::link::stopped;
use crate::operation::{Operation, from_server, to_server};
use crate::readers::{Page, Readers};
use crate::reading;
use crate::{ConnectError, PostgresConfig, thread};

/// The bound of the queue of writes, in units of [`UNIT`] bytes: 128 MiB, or 16,384 small writes.
const QUEUE: u32 = 131_072;
const UNIT: usize = 1024;
const LEAST_UNITS: u32 = 8;

/// A store in PostgreSQL, which several handles in several processes on several machines use at the same time.
///
/// - Every acknowledged write is on the server's disk, whatever its [`Durability`](callboard::messages::Durability): writes that are under way at the same time are made
///   by one transaction, so the others would save next to nothing.
/// - A crash of the process leaves a beginning of what it issued through one handle, in that order.
/// - Times are those of the server's clock.
/// - A connection that breaks is opened again. A write whose answer was lost is repeated if, and only if, it was not made. Calls wait
///   for that up to [`PostgresConfig::patience`], and then fail with [`StorageError::Unavailable`]; what they asked for may have been
///   done, or not.
/// - A watch shows the writes of its own handle under every prefix, each of them; those of other handles only under the keys
///   `["context"]` and, but for deletions, `["mail"]`, some milliseconds later, as the newest value of each key.
/// - When a standby was promoted, or a backup restored, acknowledged writes may be lost. All sessions have ended then, and no revision is
///   given out again.
/// - Expired values are removed from time to time by every handle.
/// - A row whose name is not that of a key is left out by everybody who reads, and reported once by each handle ([`Postgres::unreadable_rows`]).
///
/// It works through PgBouncer in transaction mode: it uses no named statements and no state of a session. `LISTEN` does not work there: what
/// other handles write is then found by a poll.
///
/// ```no_run
/// use callboard::storage::{Key, Storage as _};
/// use callboard_postgres::Postgres;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = Postgres::connect("postgres://callboard@db.example.com/callboard").await?;
/// let entry = store.get(&Key::new(["greeting"])).await?;
/// # drop(entry);
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Postgres {
    config: Arc<PostgresConfig>,
    messages: mpsc::UnboundedSender<Message>,
    permits: Arc<Semaphore>,
    readers: Arc<Readers>,
    runtime: Handle,
}

impl Postgres {
    /// Connects to the database of a URL, see [`PostgresConfig::from_url`].
    ///
    /// # Errors
    /// [`ConnectError`]; none of them has a password in it.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_with(PostgresConfig::from_url(url)?).await
    }

    /// As [`Postgres::connect`], with settings. The connections have a thread of their own, until the last handle is dropped and what
    /// was issued is written.
    ///
    /// # Errors
    /// As [`Postgres::connect`].
    pub async fn connect_with(config: PostgresConfig) -> Result<Self, ConnectError> {
        let config = Arc::new(config);
        let thread::Started { messages, readers, runtime } = thread::start(Arc::clone(&config)).await?;
        Ok(Self { config, messages, permits: Arc::new(Semaphore::new(QUEUE as usize)), readers, runtime })
    }

    /// Closes the store: what was issued is written, and later calls fail with [`StorageError::Stopped`]. Closing again is fine.
    pub async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.messages.send(Message::Close(reply)).is_ok() {
            // If the lane has ended, the store was closed.
            let _ = closed.await;
        }
    }

    /// The rows whose names are not those of keys, which no board has written and all leave out: each by its name as SQL has it, with what to do,
    /// for people. Reads the names of all values and streams.
    ///
    /// # Errors
    /// [`StorageError::Unavailable`] or [`StorageError::Stopped`].
    pub async fn unreadable_rows(&self) -> Result<Vec<(String, String)>, StorageError> {
        self.ask(|readers| Box::pin(async move { readers.unreadable().await })).await
    }

    /// Puts a write into the queue.
    fn issue(&self, operation: Operation) -> StorageFuture<u64> {
        let units = u32::try_from(operation.bytes() / UNIT).unwrap_or(QUEUE).clamp(LEAST_UNITS, QUEUE);
        let permits = Arc::clone(&self.permits);
        match Arc::clone(&permits).try_acquire_many_owned(units) {
            Ok(permit) => enqueue(&self.messages, operation, permit),
            Err(TryAcquireError::NoPermits) => {
                let messages = self.messages.clone();
                Box::pin(async move {
                    let permit = permits.acquire_many_owned(units).await.map_err(|_| stopped())?;
                    enqueue(&messages, operation, permit).await
                })
            }
            Err(TryAcquireError::Closed) => ready(Err(stopped())).boxed(),
        }
    }

    /// Asks a reader, on the store's own thread.
    fn ask<T: Send + 'static>(&self, asking: impl FnOnce(Arc<Readers>) -> StorageFuture<T>) -> StorageFuture<T> {
        let asked = self.runtime.spawn(asking(Arc::clone(&self.readers)));
        Box::pin(async move { asked.await.unwrap_or_else(|_| Err(stopped())) })
    }
}

fn enqueue(
    messages: &mpsc::UnboundedSender<Message>,
    operation: Operation,
    permit: OwnedSemaphorePermit,
) -> StorageFuture<u64> {
    let (answer, answered) = oneshot::channel();
    // If the lane has ended, the answer is dropped with the message.
    let _ = messages.send(Message::Write(Waiting { operation, answer, permit }));
    Box::pin(async move { answered.await.unwrap_or_else(|_| Err(stopped())) })
}

impl Storage for Postgres {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        match check_append(&append) {
            Ok(()) => self.issue(Operation::Append(append)),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        let (stream, limit) = (stream.clone(), to_server(limit as u64));
        self.ask(move |readers| Box::pin(async move { readers.read(&stream, from, limit).await }))
    }

    fn read_many(
        &self,
        streams: &[(Key, Sequence)],
        limit: usize,
    ) -> StorageFuture<Vec<Result<Vec<Record>, StorageError>>> {
        let (streams, limit) = (streams.to_vec(), to_server(limit as u64));
        self.ask(move |readers| Box::pin(async move { readers.read_many(&streams, limit).await }))
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        let page = Page { table: "streams", prefix: prefix.clone(), after: after.cloned(), limit };
        self.ask(move |readers| {
            Box::pin(async move { readers.page(page, |statements| &statements.streams, &[], |key, _| Ok(key)).await })
        })
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        let purged = self.issue(Operation::Purge { stream: stream.clone(), up_to });
        Box::pin(async move { purged.await.map(drop) })
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        let key = key.clone();
        self.ask(move |readers| Box::pin(async move { readers.get(&key).await }))
    }

    fn get_many(&self, keys: &[Key]) -> StorageFuture<Vec<Result<Option<Entry>, StorageError>>> {
        let keys = keys.to_vec();
        self.ask(move |readers| Box::pin(async move { readers.get_many(&keys).await }))
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        match check_put(&put) {
            Ok(()) => self.issue(Operation::Put(put)),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        let deleted = self.issue(Operation::Delete(delete));
        Box::pin(async move { deleted.await.map(drop) })
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        let page = Page { table: "entries", prefix: prefix.clone(), after: after.cloned(), limit };
        let moment = self.config.moment();
        self.ask(move |readers| {
            Box::pin(async move {
                let moment = [(&moment as _, Type::INT8)];
                let entry = |key: Key, row: &Row| reading::entry(&key, row).map(|entry| (key, entry));
                readers.page(page, |statements| &statements.scan, &moment, entry).await
            })
        })
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.readers.feed.watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        let NewSession { name, about, lease } = new;
        let lease = to_server(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)).min(i64::MAX / 4);
        let moment = self.config.moment();
        self.ask(move |readers| {
            Box::pin(async move {
                let token = readers.token();
                let (name_bytes, about) = (name.as_bytes(), &*about);
                let parameters = [
                    (&name_bytes as _, Type::BYTEA),
                    (&about as _, Type::BYTEA),
                    (&lease as _, Type::INT8),
                    (&token as _, Type::TEXT),
                    (&moment as _, Type::INT8),
                ];
                let rows = readers.about_sessions(|statements| &statements.begin_session, &parameters).await?;
                let row = only(&rows)?;
                if let Some(id) = row.get::<_, Option<i64>>(0) {
                    return Ok(SessionId(from_server(id)));
                }
                let (about, left) = (row.get::<_, &[u8]>(1).into(), Duration::from_millis(from_server(row.get(2))));
                Err(StorageError::NameTaken { name: name.to_string(), about, left })
            })
        })
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        let moment = self.config.moment();
        self.ask(move |readers| {
            Box::pin(async move {
                let (session, about) = (to_server(id.0), &*about);
                let parameters = [(&session as _, Type::INT8), (&about as _, Type::BYTEA), (&moment as _, Type::INT8)];
                let rows = readers.about_sessions(|statements| &statements.renew_session, &parameters).await?;
                if !rows.is_empty() {
                    return Ok(());
                }
                let parameters = [(&session as _, Type::INT8)];
                let rows = readers.about_sessions(|statements| &statements.session_is_of_timeline, &parameters).await?;
                match rows.first().map(|row| row.get(0)) {
                    Some(false) => Err(StorageError::Stopped { detail: other_timeline(id) }),
                    Some(true) | None => Err(id.has_ended()),
                }
            })
        })
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        let moment = self.config.moment();
        self.ask(move |readers| {
            Box::pin(async move {
                let session = to_server(id.0);
                let parameters =
                    [(&session as _, Type::INT8), (&only_if_expired as _, Type::BOOL), (&moment as _, Type::INT8)];
                let rows = readers.about_sessions(|statements| &statements.end_session, &parameters).await?;
                match only(&rows)?.get::<_, Option<i64>>(0) {
                    None => Ok(()),
                    Some(left) => Err(StorageError::SessionLives { left: Duration::from_millis(from_server(left)) }),
                }
            })
        })
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        let moment = self.config.moment();
        self.ask(move |readers| {
            Box::pin(async move {
                let parameters = [(&moment as _, Type::INT8)];
                let rows = readers.about_sessions(|statements| &statements.sessions, &parameters).await?;
                Ok(rows.iter().map(reading::session).collect())
            })
        })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.ask(move |readers| {
            Box::pin(async move {
                let session = to_server(id.0);
                let parameters = [(&session as _, Type::INT8)];
                readers.about_sessions(|statements| &statements.forget_session, &parameters).await.map(drop)
            })
        })
    }
}

/// Why a session has ended that was begun in another timeline of the server.
fn other_timeline(id: SessionId) -> String {
    format!(
        "the session {} has ended: the timeline of the server has changed, as after a failover or when a backup is restored",
        id.0
    )
}

fn only(rows: &[Row]) -> Result<&Row, StorageError> {
    rows.first().ok_or_else(|| unavailable("the server's answer has no row"))
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgres").field(&self.config).finish()
    }
}
