//! The contract of every store: [`Storage`], what its calls take and what they return.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};

use super::{Key, KeyPrefix, ShutdownPolicy, StorageError, codec};
use crate::messages::{Durability, Timestamp};

/// What a storage call returns: a future that owns what it needs and may be dropped at any time. Dropping it does not
/// undo a write that was issued (see [`Storage`]).
pub type StorageFuture<T> = BoxFuture<'static, Result<T, StorageError>>;

/// Position of a record in its stream; the first record has 1, and 0 means "before the first".
pub type Sequence = u64;

/// Revision of a value; grows with every write anywhere in the store, so it also orders writes.
pub type Revision = u64;

/// Streams of records, keys with revisions, and sessions, with a durability on every write.
///
/// The rules of every implementation follow. Unless a rule says otherwise, the suites in
/// `testing::conformance` check it.
///
/// Writes:
/// - A `Sync` write, once acknowledged, is on disk together with every write acknowledged or issued before it through the
///   same store. A crash leaves a beginning of what was issued, in that order.
/// - Appends to one stream, and writes to one key, are linearisable; a read sees every acknowledged write. It may also see one
///   that is not acknowledged yet, and so may a watch: a `Sync` write is visible before it is synced, and a crash may take it.
///   (The suites do not check what is visible before the acknowledgement.)
/// - A write is issued when the method returns its future; while the store's queue is full, it is issued when the future is
///   polled and the queue has space. Dropping the future does not undo an issued write. A write whose future was dropped
///   before it was issued is never made. (Not checked.)
/// - The riders of an append are written with it, or not at all: no reader and no crash finds one without the other.
/// - A write that names a session which has ended, or that the store does not know, is refused with [`StorageError::Stopped`].
/// - An append whose `expected` is not the stream's last sequence is refused with [`StorageError::WrongSequence`], and writes nothing.
/// - Revisions and ids of sessions are never given out twice, also not after a crash.
/// - Purges are at least [`Durability::Buffered`]. A crash may lose the last of them: a purge is to be repeated. (The suites crash
///   stores that append and put, not those that purge.)
///
/// Streams:
/// - The purge that leaves a stream without records makes the store forget it: the next append expects 0. Nothing else does.
///
/// Sessions:
/// - Each board works in a session, and its writes name it. When [`Storage::end_session`] has returned, no write of that session is
///   under way or can come, so whoever reads then sees the last of them.
/// - A session whose lease has run out continues until somebody ends it: a board that was slow and lost nothing continues.
/// - Where one process owns the whole store, reopening it forgets all sessions.
///
/// Time:
/// - Times to live are whole seconds of the store's wall clock, counted from the call. What ends at a moment has ended at that moment.
/// - Expired values are absent. (Not checked: their space is given back in time, and watches do not report expiry.)
///
/// Errors (the suites check of these that an append with a key or a record that is too long is refused):
/// - Keys longer than [`Key::MAX`] and payloads longer than [`Record::MAX`] are refused with [`StorageError::TooLarge`] by what would write them.
/// - A record that cannot be decoded is reported as [`StorageError::Corrupt`] for its stream or key alone; nothing is
///   overwritten and everything else stays readable.
/// - [`StorageError::Unavailable`] is for what may work later, such as a disk that fails a read: callers try it again, while they
///   give up on what is `Corrupt`.
/// - A store stops when it is closed, and when it cannot know what it has written: after a failed sync or a failed write of a
///   payload, or after a panic of its writer. It then acknowledges nothing any more: every later write, and after a failure
///   every one that waits for its acknowledgement, fails with [`StorageError::Stopped`], and watches end. Reads work until it is
///   closed.
/// - Every method may fail with `Unavailable`, `Stopped` or [`StorageError::Closed`]; "Errors" of a method are the others.
///
/// Blocking and panics (not checked): a method may read or write files on its caller's thread, but does not wait there for a
/// sync, a network or another process; its future waits for these. A method should not panic; where a run calls it, a panic
/// counts as `Unavailable`.
pub trait Storage: Send + Sync + fmt::Debug + 'static {
    /// The durability of a board that sets none: `Sync` for stores on disk.
    fn default_durability(&self) -> Durability {
        Durability::Sync
    }

    /// Adds one record to a stream and returns its sequence. Appending to a stream that does not exist creates it
    /// (`expected` 0).
    ///
    /// Errors: `WrongSequence`, `TooLarge`, `Corrupt`.
    fn append(&self, append: Append) -> StorageFuture<Sequence>;

    /// The records of a stream from a sequence on, in order, at most `limit`. Purged records are left out; an unknown
    /// stream has none.
    ///
    /// Errors: `Corrupt`.
    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>>;

    /// The names of the streams under a prefix that have records, in key order, after `after` if given, at most `limit`.
    ///
    /// Errors: `Corrupt`.
    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>>;

    /// Removes the records of a stream up to and including a sequence; the others keep theirs, and later appends continue
    /// to count. A stream that is left without a record is forgotten. It takes no session: anyone may
    /// purge. An unknown stream, and records that are gone, are fine.
    ///
    /// Errors: `Corrupt`.
    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()>;

    /// The value under a key, unless it has expired.
    ///
    /// Errors: `Corrupt`.
    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>>;

    /// Writes a value if its key's current revision is as expected; returns the new revision.
    ///
    /// Errors: `WrongRevision`, `TooLarge`, `Corrupt`.
    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision>;

    /// Deletes a value if its revision is still the given one.
    ///
    /// Errors: `WrongRevision`, also for a value that is absent or has expired; `Corrupt`.
    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()>;

    /// The values under a prefix in key order, after `after` if given, at most `limit`; expired ones are left out. A
    /// corrupt value fails the scan with its key; continue after that key to read the rest.
    ///
    /// Errors: `Corrupt`.
    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>>;

    /// As [`Storage::get`], for stores that have the value at hand: passes it to `read` before it returns, without a copy, and returns `Some`. By
    /// default, and where a store would have to wait, it returns `None` and has passed nothing on; the caller then calls `get`. `read` must not
    /// call the store.
    ///
    /// Errors: `Corrupt`.
    fn get_here(&self, key: &Key, read: &mut dyn FnMut(EntryRef<'_>)) -> Option<Result<(), StorageError>> {
        let _ = (key, read);
        None
    }

    /// As [`Storage::scan`], for stores that have the values at hand: passes each with the encoded bytes of its key to `read` before it returns, and
    /// returns how many there were. `None` as from [`Storage::get_here`].
    ///
    /// Errors: `Corrupt`; what was passed before is of the scan as well.
    fn scan_here(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
        read: &mut dyn FnMut(&[u8], EntryRef<'_>),
    ) -> Option<Result<usize, StorageError>> {
        let _ = (prefix, after, limit, read);
        None
    }

    /// The values under several keys, in the order of the keys, each as [`Storage::get`] returns it. A store that can read them in one
    /// call does; by default it is a call of `get` for each.
    fn get_many(&self, keys: &[Key]) -> StorageFuture<Vec<Result<Option<Entry>, StorageError>>> {
        let gets: Vec<_> = keys.iter().map(|key| self.get(key)).collect();
        join_all(gets).map(Ok).boxed()
    }

    /// The records of several streams, in the order of the streams, each from a sequence on and at most `limit`, as [`Storage::read`]
    /// returns them. A store that can read them in one call does; by default it is a call of `read` for each.
    fn read_many(
        &self,
        streams: &[(Key, Sequence)],
        limit: usize,
    ) -> StorageFuture<Vec<Result<Vec<Record>, StorageError>>> {
        let reads: Vec<_> = streams.iter().map(|(stream, from)| self.read(stream, *from, limit)).collect();
        join_all(reads).map(Ok).boxed()
    }

    /// Changes to values under a prefix from now on, in the order of their revisions. The receiver holds 256; one that
    /// falls behind gets [`Change::Missed`] with the number of changes lost in place of them. It ends when the store stops or
    /// is dropped. Of what other processes write, it may miss what they write in the moment in which it begins.
    fn watch(&self, prefix: &KeyPrefix) -> Watch;

    /// Begins a session, whose lease ends after [`NewSession::lease`] unless it is renewed. Ids grow and are never given out twice.
    ///
    /// Errors: [`StorageError::NameTaken`] when a session of that name has a lease that has not run out.
    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId>;

    /// Has the lease of a session begin anew, also one that has run out, and replaces what is said about the session.
    ///
    /// Errors: `Stopped` when the session has ended.
    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()>;

    /// Ends a session, with `only_if_expired` only one whose lease has run out. Ending it again is fine.
    ///
    /// Errors: [`StorageError::SessionLives`] when the lease had to be over and is not.
    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()>;

    /// Every session that was begun and not forgotten, by its id.
    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>>;

    /// Forgets a session that has ended. One that has not, and one that is unknown, stay as they are.
    fn forget_session(&self, id: SessionId) -> StorageFuture<()>;

    /// Whether several processes may have boards on the store at once, each with agents of its own.
    fn is_shared(&self) -> bool {
        false
    }

    /// What happens to the store when a board that was given it has shut down, while handles of the board still live.
    fn shutdown_policy(&self) -> ShutdownPolicy {
        ShutdownPolicy::KeepOpen
    }
}

/// The arguments of [`Storage::append`]: a record, and the conditions under which it is written.
#[derive(Clone, Debug)]
pub struct Append {
    /// The stream that the record is added to, created if it does not exist.
    pub stream: Key,
    /// The sequence that the stream's last record must have; 0 for a new stream.
    pub expected: Sequence,
    /// The bytes of the record, at most [`Record::MAX`].
    pub payload: Arc<[u8]>,
    /// How far the append must have got before it is acknowledged.
    pub durability: Durability,
    /// The session of the board that writes; `None` for a writer that is no board.
    pub session: Option<SessionId>,
    /// What is written with the record, in this order, if and only if the append is admitted.
    pub riders: Vec<Rider>,
}

impl Append {
    /// An append that is on disk when it is acknowledged, of no session and without riders.
    #[must_use]
    pub fn new(stream: Key, expected: Sequence, payload: Arc<[u8]>) -> Self {
        Self { stream, expected, payload, durability: Durability::Sync, session: None, riders: Vec::new() }
    }
}

/// A change of a value that is made with an append. Watches report it like any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rider {
    /// Writes a value, whatever the key held.
    Put {
        /// The key to write.
        key: Key,
        /// The bytes to store, at most [`Record::MAX`].
        value: Arc<[u8]>,
        /// Whole seconds until the value expires; `None` keeps it.
        ttl_secs: Option<u64>,
    },
    /// Deletes a value, if there is one.
    Delete {
        /// The key to delete.
        key: Key,
    },
}

impl Rider {
    /// Writes a value that does not expire.
    #[must_use]
    pub fn put(key: Key, value: Arc<[u8]>) -> Self {
        Self::Put { key, value, ttl_secs: None }
    }
}

/// One write of a value (see [`Storage::put_if_revision`]).
#[derive(Clone, Debug)]
pub struct Put {
    /// The key to write.
    pub key: Key,
    /// The bytes to store, at most [`Record::MAX`]; they replace the value that the key holds.
    pub value: Arc<[u8]>,
    /// The condition on what the key holds; if it is not met, the write fails with [`StorageError::WrongRevision`].
    pub expected: Expected,
    /// Whole seconds until the value expires; `None` keeps it.
    pub ttl_secs: Option<u64>,
    /// How far the write must have got before it is acknowledged.
    pub durability: Durability,
    /// The session of the board that writes; `None` for a writer that is no board.
    pub session: Option<SessionId>,
}

impl Put {
    /// A write that is on disk when it is acknowledged, of a value that does not expire, whatever the key holds, of no session.
    #[must_use]
    pub fn new(key: Key, value: Arc<[u8]>) -> Self {
        let (expected, durability) = (Expected::Any, Durability::Sync);
        Self { key, value, expected, ttl_secs: None, durability, session: None }
    }
}

/// One deletion of a value (see [`Storage::delete_if_revision`]).
#[derive(Clone, Debug)]
pub struct Delete {
    /// The key to delete.
    pub key: Key,
    /// The revision that its value must have; otherwise the deletion fails with [`StorageError::WrongRevision`].
    pub revision: Revision,
    /// How far the deletion must have got before it is acknowledged.
    pub durability: Durability,
    /// The session of the board that writes; `None` for a writer that is no board.
    pub session: Option<SessionId>,
}

impl Delete {
    /// A deletion of no session.
    #[must_use]
    pub fn new(key: Key, revision: Revision, durability: Durability) -> Self {
        Self { key, revision, durability, session: None }
    }
}

/// Names a session of a store; a later session has a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    /// Why its writes are refused.
    #[must_use]
    pub fn has_ended(self) -> StorageError {
        StorageError::Stopped {
            detail: format!("the session {} has ended: its board was shut down, or others took it for gone", self.0),
        }
    }
}

/// The arguments of [`Storage::begin_session`].
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The name of the board. Two sessions whose leases have not run out do not share one.
    pub name: Arc<str>,
    /// What others are told about the board. The store does not look into it.
    pub about: Arc<[u8]>,
    /// The time after which others may end the session, unless it is renewed. More than zero.
    pub lease: Duration,
}

/// A session, as [`Storage::sessions`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: SessionId,
    /// The name of its board.
    pub name: Arc<str>,
    /// What the board has said about itself last.
    pub about: Arc<[u8]>,
    /// How long its lease lasts, by the store's clock; zero once it has run out or the session has ended.
    pub left: Duration,
}

/// What a key must hold for a write to go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any value, or none: the condition is always met.
    Any,
    /// No value, or an expired one.
    Absent,
    /// A value of this revision that has not expired.
    Revision(Revision),
}

impl Expected {
    /// Compares with what the key holds.
    pub(super) fn check(self, key: &Key, actual: Option<Revision>) -> Result<(), StorageError> {
        let as_expected = match self {
            Self::Any => true,
            Self::Absent => actual.is_none(),
            Self::Revision(revision) => actual == Some(revision),
        };
        if as_expected { Ok(()) } else { Err(StorageError::WrongRevision { key: key.clone(), expected: self, actual }) }
    }
}

/// A record of a stream, as [`Storage::read`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Position of the record in its stream, counted from 1.
    pub sequence: Sequence,
    /// The bytes that were appended.
    pub payload: Arc<[u8]>,
}

impl Record {
    /// The longest record or value, in bytes.
    pub const MAX: usize = codec::MAX_PAYLOAD + codec::HEADER;
}

/// A value under a key, as [`Storage::get`], [`Storage::scan`] and watches return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The bytes that were last written to the key.
    pub value: Arc<[u8]>,
    /// The revision of the write that stored the value.
    pub revision: Revision,
    /// The moment from which the value is absent; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
}

impl Entry {
    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        EntryRef::from(self).has_expired(now)
    }
}

/// As [`Entry`], where the store has it: what [`Storage::get_here`] and [`Storage::scan_here`] pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The bytes that were last written to the key.
    pub value: &'a [u8],
    /// The revision of the write that stored the value.
    pub revision: Revision,
    /// The moment from which the value is absent; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
}

impl EntryRef<'_> {
    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|moment| moment <= now)
    }
}

impl<'a> From<&'a Entry> for EntryRef<'a> {
    fn from(Entry { value, revision, expires_at }: &'a Entry) -> Self {
        Self { value, revision: *revision, expires_at: *expires_at }
    }
}

impl From<EntryRef<'_>> for Entry {
    fn from(EntryRef { value, revision, expires_at }: EntryRef<'_>) -> Self {
        Self { value: value.into(), revision, expires_at }
    }
}

/// An item of a [`Watch`]: a change to one value, or the number of changes that were lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value was written; the [`Entry`] is what the key holds since then.
    Put(Key, Entry),
    /// A value was deleted. The expiry of a value is not reported.
    Deleted(Key),
    /// The watcher fell behind; this many changes are lost to it.
    Missed(u64),
}

/// The stream of changes that [`Storage::watch`] returns.
pub type Watch = futures::stream::BoxStream<'static, Change>;
