//! A store in memory: for runs that need no disk, for tests, and as the plainest reading of the rules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use futures::FutureExt;
use parking_lot::Mutex;

use super::sessions::Sessions;
use super::stream_head::StreamHead;
use super::stream_names::StreamNames;
use super::watchers::Watchers;
use super::{
    Append, Change, Delete, Durability, Entry, Expected, Key, KeyPrefix, NewSession, Put, Record, Revision, Rider,
    Sequence, SessionId, SessionInfo, Storage, StorageError, StorageFuture, Watch, limits,
};
use crate::env::{Clock, SystemClock};
use crate::messages::Timestamp;

/// Keeps everything in this process. All durabilities are the same to it: a value lives as long as the last handle.
///
/// Every call does its work before it returns, and the future that it returns is ready, so a caller that must not wait
/// may use `now_or_never`.
///
/// Expired values are absent at once; the next [`Storage::put_if_revision`] frees their memory.
///
/// ```
/// use callboard::storage::{Append, Key, Memory, Storage, StorageError};
/// use futures::FutureExt;
///
/// let store = Memory::default();
/// let stream = Key::new(["run", "1"]);
/// let append = |expected| store.append(Append::new(stream.clone(), expected, b"started".as_slice().into()));
/// assert_eq!(append(0).now_or_never().unwrap(), Ok(1));
/// let refused = append(0).now_or_never().unwrap();
/// assert!(matches!(refused, Err(StorageError::WrongSequence { actual: 1, .. })), "another writer was first");
/// assert_eq!(store.read(&stream, 1, 10).now_or_never().unwrap().unwrap().len(), 1);
/// ```
pub struct Memory {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    watchers: Watchers,
}

#[derive(Default)]
struct State {
    /// The last revision or session that was given out.
    last_number: u64,
    streams: HashMap<Key, Stream>,
    /// The streams that have records.
    names: StreamNames,
    values: BTreeMap<Key, Entry>,
    expiring: BTreeSet<(Timestamp, Key)>,
    sessions: Sessions,
}

#[derive(Default)]
struct Stream {
    head: StreamHead,
    /// The first one has the sequence `head.purged + 1`.
    records: VecDeque<Arc<[u8]>>,
}

impl Memory {
    /// Creates an empty store whose entries expire by `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default(), watchers: Watchers::default() }
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }
}

/// Creates an empty store whose entries expire by the machine's clock.
impl Default for Memory {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::default()))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Memory").field("streams", &state.names.len()).field("values", &state.values.len()).finish()
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Appends a record; the riders are left to the caller.
    fn append(&mut self, append: Append) -> Result<Sequence, StorageError> {
        let Append { stream: name, expected, payload, durability: _, session, riders: _ } = append;
        self.sessions.check(session)?;
        if let Some(stream) = self.streams.get_mut(&name) {
            let sequence = stream.head.append(&name, expected)?;
            stream.records.push_back(payload);
            if stream.records.len() == 1 {
                self.names.insert(name);
            }
            return Ok(sequence);
        }
        let mut stream = Stream::default();
        let sequence = stream.head.append(&name, expected)?;
        stream.records.push_back(payload);
        self.names.insert(name.clone());
        self.streams.insert(name, stream);
        Ok(sequence)
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> Vec<Record> {
        let Some(stream) = self.streams.get(stream) else { return Vec::new() };
        let first = stream.head.purged + 1;
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let records = (first..).zip(&stream.records).skip(skipped).take(limit);
        records.map(|(sequence, payload)| Record { sequence, payload: Arc::clone(payload) }).collect()
    }

    fn purge(&mut self, name: &Key, up_to: Sequence) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        for _ in stream.head.purge(up_to) {
            stream.records.pop_front();
        }
        if stream.records.is_empty() {
            self.names.remove(name);
            self.streams.remove(name);
        }
    }

    fn get(&self, key: &Key, now: Timestamp) -> Option<&Entry> {
        self.values.get(key).filter(|entry| !entry.has_expired(now))
    }

    fn check(&self, key: &Key, expected: Expected, now: Timestamp) -> Result<(), StorageError> {
        expected.check(key, self.get(key, now).map(|entry| entry.revision))
    }

    fn put(&mut self, put: Put, now: Timestamp) -> Result<Entry, StorageError> {
        self.sessions.check(put.session)?;
        self.remove_expired(now);
        self.check(&put.key, put.expected, now)?;
        let expires_at = put.ttl_secs.map(|secs| now + Duration::from_secs(secs));
        let entry = Entry { value: put.value, revision: self.next_number(), expires_at };
        if let Some(moment) = expires_at {
            self.expiring.insert((moment, put.key.clone()));
        }
        if let Some(Entry { expires_at: Some(moment), .. }) = self.values.insert(put.key.clone(), entry.clone())
            && expires_at != Some(moment)
        {
            self.expiring.remove(&(moment, put.key));
        }
        Ok(entry)
    }

    fn delete(&mut self, delete: &Delete, now: Timestamp) -> Result<(), StorageError> {
        let Delete { key, revision, durability: _, session } = delete;
        self.sessions.check(*session)?;
        self.check(key, Expected::Revision(*revision), now)?;
        self.remove(key);
        Ok(())
    }

    /// Removes a value; whether there was one.
    fn remove(&mut self, key: &Key) -> bool {
        let removed = self.values.remove(key);
        if let Some(Entry { expires_at: Some(moment), .. }) = removed {
            self.expiring.remove(&(moment, key.clone()));
        }
        removed.is_some()
    }

    /// Makes the change of a rider.
    fn ride(&mut self, rider: Rider, now: Timestamp) -> Option<Change> {
        match rider {
            Rider::Put { key, value, ttl_secs } => {
                let entry = self.put(Put { ttl_secs, ..Put::new(key.clone(), value) }, now).ok()?;
                Some(Change::Put(key, entry))
            }
            Rider::Delete { key } => {
                self.remove_expired(now);
                self.remove(&key).then_some(Change::Deleted(key))
            }
        }
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize, now: Timestamp) -> Vec<(Key, Entry)> {
        let prefix_key = Key::unchecked(prefix.as_bytes());
        let values = self
            .values
            .range((start_of(&prefix_key, after), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix));
        let live = values.filter(|(_, entry)| !entry.has_expired(now)).take(limit);
        live.map(|(key, entry)| (key.clone(), entry.clone())).collect()
    }

    /// Gives back the memory of what has expired.
    fn remove_expired(&mut self, now: Timestamp) {
        while self.expiring.first().is_some_and(|(moment, _)| *moment <= now) {
            if let Some((_, key)) = self.expiring.pop_first() {
                self.values.remove(&key);
            }
        }
    }
}

/// Where a page begins of what is under a prefix, after a key.
fn start_of<'a>(prefix: &'a Key, after: Option<&'a Key>) -> Bound<&'a Key> {
    match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        Some(_) | None => Bound::Included(prefix),
    }
}

fn ready<T: Send + 'static>(result: Result<T, StorageError>) -> StorageFuture<T> {
    futures::future::ready(result).boxed()
}

impl Storage for Memory {
    fn default_durability(&self) -> Durability {
        Durability::Memory
    }

    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        if let Err(error) = limits::check_append(&append) {
            return ready(Err(error));
        }
        let mut append = append;
        let riders = std::mem::take(&mut append.riders);
        // Most appends have no riders, and then the clock is not read.
        let now = if riders.is_empty() { Timestamp::default() } else { self.now() };
        let mut state = self.state.lock();
        ready(state.append(append).inspect(|_| {
            for change in riders.into_iter().filter_map(|rider| state.ride(rider, now)) {
                self.watchers.publish(&change);
            }
        }))
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        ready(Ok(self.state.lock().read(stream, from, limit)))
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        let mut state = self.state.lock();
        let first = Key::unchecked(prefix.as_bytes());
        let names = state.names.sorted().range((start_of(&first, after), Bound::Unbounded));
        ready(Ok(names.take_while(|name| name.starts_with(prefix)).take(limit).cloned().collect()))
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        self.state.lock().purge(stream, up_to);
        ready(Ok(()))
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        let now = self.now();
        ready(Ok(self.state.lock().get(key, now).cloned()))
    }

    fn get_many(&self, keys: &[Key]) -> StorageFuture<Vec<Result<Option<Entry>, StorageError>>> {
        let now = self.now();
        let state = self.state.lock();
        ready(Ok(keys.iter().map(|key| Ok(state.get(key, now).cloned())).collect()))
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        if let Err(error) = limits::check_put(&put) {
            return ready(Err(error));
        }
        let (now, key) = (self.now(), put.key.clone());
        // Published under the lock, so that watchers see changes in the order of their revisions.
        let mut state = self.state.lock();
        ready(state.put(put, now).map(|entry| {
            let revision = entry.revision;
            self.watchers.publish(&Change::Put(key, entry));
            revision
        }))
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        let now = self.now();
        let mut state = self.state.lock();
        ready(state.delete(&delete, now).map(|()| self.watchers.publish(&Change::Deleted(delete.key))))
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        let now = self.now();
        ready(Ok(self.state.lock().scan(prefix, after, limit, now)))
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.watchers.watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        let now = self.clock.now().monotonic;
        let mut state = self.state.lock();
        let id = SessionId(state.next_number());
        ready(state.sessions.begin(id, new, now))
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        let now = self.clock.now().monotonic;
        ready(self.state.lock().sessions.renew(id, about, now))
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        let now = self.clock.now().monotonic;
        ready(self.state.lock().sessions.end(id, only_if_expired, now))
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        let now = self.clock.now().monotonic;
        ready(Ok(self.state.lock().sessions.list(now)))
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.state.lock().sessions.forget(id);
        ready(Ok(()))
    }
}
