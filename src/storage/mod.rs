//! Where everything durable lives: streams of records, keys with revisions, claims with fences, queues.
//!
//! [`Storage`] is the only seam between the runtime and a disk or a cluster. It promises no more than what a stream and a
//! key-value bucket with revisions can do: one write is one record in one stream or one value under one key; there are no
//! transactions. Payloads are bytes that the storage does not look into; the `journal` and the actors above encode them.

pub(crate) mod board_store;
pub mod codec;
mod conversations;
mod journal;
mod limits;
mod memory;
mod queue_order;
pub(crate) mod recent;
#[cfg(feature = "sled")]
mod sled;
mod stream_head;
pub mod transfer;
mod watchers;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

pub use self::conversations::{AllConversations, Conversations, Copying, Taken, Ticket, TicketEnd};
pub(crate) use self::journal::CONTEXT;
pub use self::journal::{Forgotten, History, Journal, LetterNote};
pub use self::limits::{MAX_KEY, MAX_NAME, MAX_RECORD};
pub use self::memory::Memory;
#[cfg(feature = "sled")]
pub use self::sled::{Sled, SledStats};
pub use crate::messages::Durability;
use crate::messages::Timestamp;

/// What a storage call returns: a future that owns what it needs and may be dropped at any time. Dropping it does not
/// undo a write that was issued (see [`Storage`]).
pub type StorageFuture<T> = BoxFuture<'static, Result<T, StorageError>>;

/// Position of a record in its stream; the first record has 1, and 0 means "before the first".
pub type Sequence = u64;

/// Revision of a value; grows with every write anywhere in the store, so it also orders writes.
pub type Revision = u64;

/// Streams of records, keys with revisions, claims and queues, with a durability on every write.
///
/// The rules of every implementation follow. Unless a rule says otherwise, the suites in
/// [`testing::conformance`](crate::testing::conformance) check it.
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
/// - An append with a fence that is not the stream's is refused with [`StorageError::Fenced`], one whose `expected` is not
///   the stream's last sequence with [`StorageError::WrongSequence`]; neither writes anything.
/// - Revisions, fences and queue positions are never given out twice, also not after a crash.
/// - Claims, leases, acknowledgements and purges are at least [`Durability::Buffered`]. A crash may lose the last of them:
///   an item is delivered again, a purge is to be repeated; a fence is never lost together with a record that it let in. (The
///   suites crash stores that append, put, enqueue and claim, not those that acknowledge and purge.)
///
/// Streams and claims:
/// - The purge or release that leaves a stream with neither a record nor a claim in force makes the store forget it, fence
///   included: the next append expects 0 under [`Fence::FIRST`]. Nothing else does: a claim that ends later leaves an emptied
///   stream with its sequence and its fence.
/// - Where one process owns the whole store, reopening it voids the claims and leases of the process before.
///
/// Queues:
/// - Items are delivered in the order in which they were enqueued; an item keeps its place when it is given back or its lease
///   ends. An item is leased to one delivery at a time, and only its last delivery can extend, acknowledge or return it.
///
/// Time:
/// - Times to live, leases and delays are whole seconds of the store's wall clock, counted from the call. What ends at a
///   moment has ended at that moment. [`Storage::renew`] and [`Storage::extend`] set the end and so may also bring it forward.
/// - Expired values are absent. (Not checked: their space is given back in time, and watches do not report expiry.)
///
/// Errors (the suites check of these that an append with a key or a record that is too long is refused):
/// - Keys longer than [`MAX_KEY`], dedupe ids and owners longer than [`MAX_NAME`] and payloads longer than [`MAX_RECORD`]
///   are refused with [`StorageError::TooLarge`] by what would write them.
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
    /// Errors: `Fenced`, `WrongSequence`, `TooLarge`, `Corrupt`.
    fn append(&self, append: Append) -> StorageFuture<Sequence>;

    /// The records of a stream from a sequence on, in order, at most `limit`. Purged records are left out; an unknown
    /// stream has none.
    ///
    /// Errors: `Corrupt`.
    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>>;

    /// The names of the streams under a prefix that have records, in key order.
    ///
    /// Errors: `Corrupt`.
    fn streams(&self, prefix: &KeyPrefix) -> StorageFuture<Vec<Key>>;

    /// Removes the records of a stream up to and including a sequence; the others keep theirs, and later appends continue
    /// to count. A stream that is left with neither a record nor a claim in force is forgotten. It takes no fence: anyone may
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
    fn delete_if_revision(&self, key: &Key, revision: Revision, durability: Durability) -> StorageFuture<()>;

    /// The values under a prefix in key order, after `after` if given, at most `limit`; expired ones are left out. A
    /// corrupt value fails the scan with its key; continue after that key to read the rest.
    ///
    /// Errors: `Corrupt`.
    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>>;

    /// Changes to values under a prefix from now on, in the order of their revisions. The receiver holds 256; one that
    /// falls behind gets [`Change::Missed`] with the number of changes lost in place of them. It ends when the store stops or
    /// is dropped.
    fn watch(&self, prefix: &KeyPrefix) -> Watch;

    /// Takes ownership of a stream for `owner` until `ttl_secs` from now. The fence is greater than every earlier one of
    /// that stream and is stored in the stream itself: from now on appends with an older fence are refused.
    /// A stream that another live owner holds is refused with [`StorageError::Held`]; the owner itself may claim again.
    /// A stream that was never claimed has the fence [`Fence::FIRST`].
    ///
    /// Errors: `Held`, `TooLarge`, `Corrupt`.
    fn claim(&self, stream: &Key, owner: &str, ttl_secs: u64) -> StorageFuture<Fence>;

    /// Has a claim end `ttl_secs` from now, also one that has expired unless its stream has been claimed since, or forgotten.
    ///
    /// Errors: `Fenced`, also if the claim was released; `Corrupt`.
    fn renew(&self, stream: &Key, fence: Fence, ttl_secs: u64) -> StorageFuture<()>;

    /// Gives a claim up; the fence stays where it is while the stream has records, and a stream without any is forgotten.
    /// Releasing twice is fine while the fence stays.
    ///
    /// Errors: `Fenced`, also if the stream has been forgotten; `Corrupt`.
    fn release(&self, stream: &Key, fence: Fence) -> StorageFuture<()>;

    /// Adds an item to a queue. A `dedupe_id` that was added within the last two minutes is acknowledged and not added
    /// again, whether or not the queue still holds that item.
    ///
    /// Errors: `TooLarge`, `Corrupt`.
    fn enqueue(&self, queue: &Key, dedupe_id: &str, payload: Arc<[u8]>, durability: Durability) -> StorageFuture<()>;

    /// Takes the oldest item that is neither leased nor delayed, for `lease_secs`; after that it may be delivered again, and is
    /// also if this call fails when it has taken the item.
    ///
    /// Errors: `Corrupt`.
    fn next(&self, queue: &Key, lease_secs: u64) -> StorageFuture<Option<Delivery>>;

    /// Has the lease of a delivered item end `lease_secs` from now, also one that has ended unless the item has been delivered
    /// again since.
    ///
    /// Errors: `Fenced`, also if the item was returned or acknowledged; `Corrupt`.
    fn extend(&self, delivery: &DeliveryId, lease_secs: u64) -> StorageFuture<()>;

    /// Removes a delivered item for good. Acknowledging an item that is gone is fine.
    ///
    /// Errors: `Fenced`, also if the item was returned; `Corrupt`.
    fn ack(&self, delivery: &DeliveryId) -> StorageFuture<()>;

    /// Gives a delivered item back, to be delivered again after `delay_secs`, in its place before younger ones.
    ///
    /// Errors: `Fenced`, also if the item was returned before, or acknowledged; `Corrupt`.
    fn nack(&self, delivery: &DeliveryId, delay_secs: u64) -> StorageFuture<()>;

    /// What happens to the store when a board that was given it has shut down, while handles of the board still live.
    fn shutdown_policy(&self) -> ShutdownPolicy {
        ShutdownPolicy::KeepOpen
    }
}

/// See [`Storage::shutdown_policy`].
#[derive(Default)]
pub enum ShutdownPolicy {
    /// It can be opened several times, so the board's handles continue to read it.
    #[default]
    KeepOpen,
    /// It can be opened once at a time, and closes when it is dropped: the board drops it.
    Close,
    /// As `Close`, of a store with other holders: the board drops its share, and its handles read as long as another holder has one.
    CloseShared(Reopen),
}

/// Returns the store as long as another holder has it.
pub type Reopen = Box<dyn Fn() -> Option<Arc<dyn Storage>> + Send + Sync>;

impl fmt::Debug for ShutdownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeepOpen => "KeepOpen",
            Self::Close => "Close",
            Self::CloseShared(_) => "CloseShared",
        })
    }
}

/// A store that several hold.
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

/// One append (see [`Storage::append`]).
#[derive(Clone, Debug)]
pub struct Append {
    /// The stream.
    pub stream: Key,
    /// The writer's claim.
    pub fence: Fence,
    /// The sequence that the stream's last record must have.
    pub expected: Sequence,
    /// The record.
    pub payload: Arc<[u8]>,
    /// When to acknowledge.
    pub durability: Durability,
}

/// One write of a value (see [`Storage::put_if_revision`]).
#[derive(Clone, Debug)]
pub struct Put {
    /// The key.
    pub key: Key,
    /// The new value.
    pub value: Arc<[u8]>,
    /// What the key must hold now.
    pub expected: Expected,
    /// Whole seconds until the value expires; `None` keeps it.
    pub ttl_secs: Option<u64>,
    /// When to acknowledge.
    pub durability: Durability,
}

/// What a key must hold for a write to go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Anything, or nothing.
    Any,
    /// No value, or an expired one.
    Absent,
    /// A value of this revision.
    Revision(Revision),
}

impl Expected {
    /// Compares with what the key holds.
    fn check(self, key: &Key, actual: Option<Revision>) -> Result<(), StorageError> {
        let as_expected = match self {
            Self::Any => true,
            Self::Absent => actual.is_none(),
            Self::Revision(revision) => actual == Some(revision),
        };
        if as_expected { Ok(()) } else { Err(StorageError::WrongRevision { key: key.clone(), expected: self, actual }) }
    }
}

/// A record of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub sequence: Sequence,
    /// What was appended.
    pub payload: Arc<[u8]>,
}

/// A value under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What was put.
    pub value: Arc<[u8]>,
    /// The revision of that write.
    pub revision: Revision,
    /// When it expires, if it does.
    pub expires_at: Option<Timestamp>,
}

impl Entry {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|moment| moment <= now)
    }
}

/// A change that a watch reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value was written.
    Put(Key, Entry),
    /// A value was deleted.
    Deleted(Key),
    /// The watcher fell behind; this many changes are lost to it.
    Missed(u64),
}

/// The receiving end of [`Storage::watch`].
pub type Watch = futures::stream::BoxStream<'static, Change>;

/// Orders the owners of a stream; grows with every claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence of a stream that was never claimed.
    pub const FIRST: Self = Self(0);
}

/// An item taken from a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// For `extend`, `ack` and `nack`.
    pub id: DeliveryId,
    /// What was enqueued.
    pub payload: Arc<[u8]>,
    /// How often it has been delivered, this time included.
    pub deliveries: u32,
}

/// Names one delivery of one item; any but the last one is refused with [`StorageError::Fenced`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryId {
    /// The queue.
    pub queue: Key,
    /// The item's position in it.
    pub position: Sequence,
    /// Which delivery of it.
    pub delivery: u32,
}

/// The name of a stream, value or queue: a list of segments. Segments may hold any characters; they are kept apart by
/// the encoding and never joined with a separator, so `["x", "a/b"]` and `["x/a", "b"]` are different keys.
///
/// ```
/// use callboard::storage::Key;
/// let key = Key::new(["context", "codebase", "auth"]);
/// assert!(key.starts_with(&Key::new(["context", "codebase"]).children()));
/// assert!(!key.starts_with(&Key::new(["context", "code"]).children()));
/// assert!(key.starts_with(&Key::new(["context"]).children_beginning_with("code")));
/// assert_eq!(key.segments(), ["context", "codebase", "auth"]);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

/// The beginning of a [`Key`], made by [`Key::children`] or [`Key::children_beginning_with`].
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPrefix(Arc<[u8]>);

/// Ends a segment. A zero byte inside a segment is followed by `ZERO_INSIDE`, so byte order is segment order.
const END: [u8; 2] = [0, 1];
const ZERO_INSIDE: u8 = 0xff;

fn push_segment(bytes: &mut Vec<u8>, segment: &str) {
    if !segment.as_bytes().contains(&0) {
        return bytes.extend_from_slice(segment.as_bytes());
    }
    for &byte in segment.as_bytes() {
        bytes.push(byte);
        if byte == 0 {
            bytes.push(ZERO_INSIDE);
        }
    }
}

impl Key {
    /// A key of these segments.
    #[must_use]
    pub fn new<'a>(segments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut bytes = Vec::with_capacity(64);
        for segment in segments {
            push_segment(&mut bytes, segment);
            bytes.extend_from_slice(&END);
        }
        Self(bytes.into())
    }

    /// This key with one more segment.
    #[must_use]
    pub fn child(&self, segment: &str) -> Self {
        let mut bytes = self.0.to_vec();
        push_segment(&mut bytes, segment);
        bytes.extend_from_slice(&END);
        Self(bytes.into())
    }

    /// All keys that have this one's segments and more.
    #[must_use]
    pub fn children(&self) -> KeyPrefix {
        KeyPrefix(Arc::clone(&self.0))
    }

    /// All keys that have this one's segments and then one that begins with `start`, every character taken literally.
    #[must_use]
    pub fn children_beginning_with(&self, start: &str) -> KeyPrefix {
        let mut bytes = self.0.to_vec();
        push_segment(&mut bytes, start);
        KeyPrefix(bytes.into())
    }

    /// Whether this key lies under `prefix`.
    #[must_use]
    pub fn starts_with(&self, prefix: &KeyPrefix) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> Vec<String> {
        self.each_segment().map(Cow::into_owned).collect()
    }

    /// The segments, borrowed where no character is encoded.
    pub(crate) fn each_segment(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let mut before = Vec::new();
            loop {
                let zero = rest.iter().position(|byte| *byte == 0)?;
                let (text, tag) = (&rest[..zero], rest.get(zero + 1));
                rest = rest.get(zero + END.len()..).unwrap_or_default();
                let ends = tag == Some(&END[1]);
                if ends && before.is_empty() {
                    return Some(String::from_utf8_lossy(text));
                }
                before.extend_from_slice(text);
                if ends {
                    return Some(Cow::Owned(String::from_utf8_lossy(&before).into_owned()));
                }
                before.push(0);
            }
        })
    }

    /// A position in the order of keys; for bounds of ranges only.
    fn unchecked(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The encoded bytes; their order is the order of the segments.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A key from its encoded bytes; `None` if they are not a key's.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // Text, and after every zero a tag and more text.
        let is_text = |text: &[u8]| std::str::from_utf8(text).is_ok();
        let mut pieces = bytes.split(|byte| *byte == 0);
        let is_whole = bytes.is_empty() || bytes.ends_with(&END);
        let is_key = is_whole
            && pieces.next().is_some_and(is_text)
            && pieces
                .all(|piece| matches!(piece, [tag, text @ ..] if [END[1], ZERO_INSIDE].contains(tag) && is_text(text)));
        is_key.then(|| Self(bytes.into()))
    }
}

impl KeyPrefix {
    /// The encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.segments()).finish()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Debug for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", String::from_utf8_lossy(&self.0))
    }
}

/// Why a storage call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Another writer was first.
    #[error("stream {stream} is at sequence {actual}, not {expected}")]
    WrongSequence {
        /// The stream.
        stream: Key,
        /// The sequence that the append expected.
        expected: Sequence,
        /// The sequence of the stream.
        actual: Sequence,
    },
    /// The value is not the one that the writer has seen.
    #[error("key {key} is at revision {actual:?}, not as expected ({expected:?})")]
    WrongRevision {
        /// The key.
        key: Key,
        /// What the write expected.
        expected: Expected,
        /// The revision of the value; `None` if it is absent.
        actual: Option<Revision>,
    },
    /// The fence or delivery is not the current one: there is a newer one, the claim was released, the stream was forgotten, or
    /// the item was returned or acknowledged.
    #[error("not the current fence or delivery of {key} (current: {current})")]
    Fenced {
        /// The stream or queue.
        key: Key,
        /// The current fence of the stream, or the last delivery of the item; 0 if there is none.
        current: u64,
    },
    /// Another owner's claim has not expired.
    #[error("{stream} is held by {owner} until {until}")]
    Held {
        /// The stream.
        stream: Key,
        /// The owner of the claim.
        owner: String,
        /// When the claim expires, unless it is renewed.
        until: Timestamp,
    },
    /// What is stored is not what was written: it does not decode, its checksum is wrong, or a part of it is missing. Only this
    /// key or stream is affected.
    #[error("{key} cannot be read: {detail}")]
    Corrupt {
        /// The stream or key of the record.
        key: Key,
        /// What is wrong with it.
        detail: String,
    },
    /// Too long for this store; nothing was written.
    #[error("{what} is {size} bytes long; at most {max} are allowed")]
    TooLarge {
        /// What is too long: a key, a record, an owner …
        what: String,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The store could not answer now: its disk has failed a read, or an acknowledgement was lost. What was asked may have been
    /// done, or not.
    #[error("the store did not answer: {detail}")]
    Unavailable {
        /// The cause, for people.
        detail: String,
    },
    /// The folder cannot be opened.
    #[error("cannot open the store at {path}: {detail}")]
    Open {
        /// The folder.
        path: String,
        /// Why, and what to do.
        detail: String,
    },
    /// Another process has the store open, or is closing it.
    #[error(
        "cannot open the store at {path}: {} has it open; one process at a time can use a store: stop that one first",
        .holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The folder.
        path: String,
        /// The id of the process, if it has written it down.
        holder: Option<u32>,
    },
    /// The store has stopped acknowledging, because a sync failed or because it was closed.
    #[error("the store has stopped: {detail}")]
    Stopped {
        /// The cause, for people.
        detail: String,
    },
    /// The board of the handle has shut down and released the store.
    #[error("the board has stopped and released its store; start a board on the store, and ask that one")]
    Closed,
}

impl StorageError {
    /// The same call may work later, and whether this one did is not known.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_segments_apart_and_in_order() {
        let hostile = ["", "a", "a/b", "b", "a\0b", "a\0", "\0", "\u{1}", "ä", "a\0\u{1}b"];
        for left in hostile {
            for right in hostile {
                let key = Key::new([left, right]);
                assert_eq!(key.segments(), [left, right]);
                assert_eq!(Key::from_bytes(key.as_bytes()), Some(key.clone()));
                for other in hostile {
                    let other_key = Key::new([other, right]);
                    assert_eq!(key.cmp(&other_key), left.cmp(other), "{left:?} {other:?}");
                    assert_eq!(key.starts_with(&Key::new([other]).children()), left == other);
                }
            }
        }
        let wrong: [&[u8]; 7] =
            [b"half", b"a\0", b"\x01", b"a\0\x02\0\x01", b"a\0\0\x01", b"a\0\xff\x01", b"\xc3\0\x01"];
        for bytes in wrong {
            assert_eq!(Key::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
