//! Random operations: memory does what a naive model does, and the disk store does what memory does.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::Timestamp;
use callboard::storage::{
    Append, Delete, Durability, Entry, Expected, Key, Memory, NewSession, Put, Record, Rider, SessionId, SessionInfo,
    Sled, Storage, StorageError,
};
use callboard::testing::conformance::ManualClock;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    Append { stream: u8, behind: u64, long: bool, session: Option<usize>, riders: Vec<(u8, bool)> },
    Purge { stream: u8, up_to: u64 },
    Put { key: u8, expected: Option<u64>, ttl_secs: Option<u64>, long: bool, session: Option<usize> },
    Delete { key: u8, revision: u64, session: Option<usize> },
    BeginSession { name: u8, lease_secs: u64 },
    RenewSession { session: usize },
    EndSession { session: usize, only_if_expired: bool },
    ForgetSession { session: usize },
    Advance { secs: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let ttl = prop::option::of(1..20u64);
    // How many revisions back a put or a delete believes the newest to be; `None` means absent.
    let expected = prop::option::of(0..3u64);
    // How many sessions back the one is in which a write is made.
    let session = || prop::option::of(0..3usize);
    prop_oneof![
        6 => (0..3u8, 0..3u64, prop::bool::weighted(0.05), session(), vec((0..3u8, any::<bool>()), 0..3))
            .prop_map(|(stream, behind, long, session, riders)| {
                Append { stream, behind: behind / 2, long, session, riders }
            }),
        1 => (0..3u8, 0..6u64).prop_map(|(stream, up_to)| Purge { stream, up_to }),
        4 => (0..3u8, expected, ttl, prop::bool::weighted(0.05), session())
            .prop_map(|(key, expected, ttl_secs, long, session)| Put { key, expected, ttl_secs, long, session }),
        1 => (0..3u8, 0..3u64, session()).prop_map(|(key, revision, session)| Delete { key, revision, session }),
        2 => (0..2u8, 1..70u64).prop_map(|(name, lease_secs)| BeginSession { name, lease_secs }),
        1 => (0..3usize).prop_map(|session| RenewSession { session }),
        1 => (0..3usize, any::<bool>())
            .prop_map(|(session, only_if_expired)| EndSession { session, only_if_expired }),
        1 => (0..3usize).prop_map(|session| ForgetSession { session }),
        1 => (1..70u64).prop_map(|secs| Advance { secs }),
    ]
}

fn stream(number: u8) -> Key {
    Key::new(["stream", &*number.to_string()])
}

fn key(number: u8) -> Key {
    Key::new(["key", &*number.to_string()])
}

/// What both sides of a comparison can do.
trait Subject {
    fn append(&mut self, append: Append) -> Result<u64, StorageError>;
    fn purge(&mut self, stream: &Key, up_to: u64) -> Result<(), StorageError>;
    fn put(&mut self, put: Put) -> Result<u64, StorageError>;
    fn delete(&mut self, delete: Delete) -> Result<(), StorageError>;
    fn begin_session(&mut self, new: NewSession) -> Result<SessionId, StorageError>;
    fn renew_session(&mut self, id: SessionId, about: Arc<[u8]>) -> Result<(), StorageError>;
    fn end_session(&mut self, id: SessionId, only_if_expired: bool) -> Result<(), StorageError>;
    fn forget_session(&mut self, id: SessionId) -> Result<(), StorageError>;
    fn sessions(&self) -> Vec<SessionInfo>;
    fn advance(&mut self, secs: u64);
    fn read(&self, stream: &Key) -> Vec<Record>;
    fn get(&self, key: &Key) -> Option<Entry>;
    fn listed(&self) -> (Vec<Key>, Vec<Key>);
}

/// Runs operations and notes every answer and, after each, everything that can be read.
fn trace(subject: &mut impl Subject, operations: &[Operation]) -> Vec<String> {
    let mut sessions: Vec<SessionId> = Vec::new();
    let (mut last, mut revisions) = ([0; 3], [0; 3]);
    let mut trace = Vec::new();
    for operation in operations {
        let payload =
            |long: bool| -> Arc<[u8]> { if long { vec![b'x'; 70_000].into() } else { b"x".as_slice().into() } };
        let session_of = |back: usize| sessions.iter().rev().nth(back).copied().unwrap_or(SessionId(7_000));
        let durability = Durability::Memory;
        let answer = match operation.clone() {
            Operation::Append { stream: number, behind, long, session, riders } => {
                let expected = u64::saturating_sub(last[usize::from(number)], behind);
                let rider = |(number, puts): (u8, bool)| {
                    let key = key(number);
                    if puts { Rider::put(key, payload(long)) } else { Rider::Delete { key } }
                };
                let (session, riders) = (session.map(session_of), riders.into_iter().map(rider).collect());
                let append = Append::new(stream(number), expected, payload(long));
                let append = Append { durability, session, riders, ..append };
                let answer = subject.append(append);
                match &answer {
                    Ok(sequence) => last[usize::from(number)] = *sequence,
                    Err(StorageError::WrongSequence { actual, .. }) => last[usize::from(number)] = *actual,
                    Err(_) => {}
                }
                note(answer)
            }
            Operation::Purge { stream: number, up_to } => note(subject.purge(&stream(number), up_to)),
            Operation::Put { key: number, expected, ttl_secs, long, session } => {
                let believed = revisions[usize::from(number)];
                let expected = match expected {
                    None => Expected::Absent,
                    Some(0) => Expected::Any,
                    Some(back) => Expected::Revision(u64::saturating_sub(believed + 1, back)),
                };
                let session = session.map(session_of);
                let put = Put { expected, ttl_secs, durability, session, ..Put::new(key(number), payload(long)) };
                let answer = subject.put(put);
                if let Ok(revision) = answer {
                    revisions[usize::from(number)] = revision;
                }
                note(answer)
            }
            Operation::Delete { key: number, revision, session } => {
                let revision = u64::saturating_sub(revisions[usize::from(number)], revision / 2);
                let session = session.map(session_of);
                note(subject.delete(Delete { session, ..Delete::new(key(number), revision, durability) }))
            }
            Operation::BeginSession { name, lease_secs } => {
                let (name, about) = (name.to_string().into(), b"begun".as_slice().into());
                let answer = subject.begin_session(NewSession { name, about, lease: Duration::from_secs(lease_secs) });
                sessions.extend(answer.iter());
                note(answer)
            }
            Operation::RenewSession { session } => {
                note(subject.renew_session(session_of(session), b"renewed".as_slice().into()))
            }
            Operation::EndSession { session, only_if_expired } => {
                note(subject.end_session(session_of(session), only_if_expired))
            }
            Operation::ForgetSession { session } => note(subject.forget_session(session_of(session))),
            Operation::Advance { secs } => {
                subject.advance(secs);
                String::new()
            }
        };
        let read: Vec<_> = (0..3).map(|number| subject.read(&stream(number))).collect();
        let got: Vec<_> = (0..3).map(|number| subject.get(&key(number))).collect();
        let read: Vec<Vec<_>> = read.iter().map(|read| read.iter().map(brief).collect()).collect();
        let got: Vec<_> = got.iter().flatten().map(|got| (got.value.len(), got.revision, got.expires_at)).collect();
        let (listed, sessions) = (subject.listed(), subject.sessions());
        trace.push(format!("{operation:?} -> {answer}; {read:?} {got:?} {listed:?} {sessions:?}"));
    }
    trace
}

fn note<T: Debug>(answer: Result<T, StorageError>) -> String {
    format!("{answer:?}")
}

fn brief(record: &Record) -> (u64, usize) {
    (record.sequence, record.payload.len())
}

struct Store<S> {
    store: S,
    clock: Arc<ManualClock>,
}

impl<S: Storage> Subject for Store<S> {
    fn append(&mut self, append: Append) -> Result<u64, StorageError> {
        wait(self.store.append(append))
    }
    fn purge(&mut self, stream: &Key, up_to: u64) -> Result<(), StorageError> {
        wait(self.store.purge(stream, up_to))
    }
    fn put(&mut self, put: Put) -> Result<u64, StorageError> {
        wait(self.store.put_if_revision(put))
    }
    fn delete(&mut self, delete: Delete) -> Result<(), StorageError> {
        wait(self.store.delete_if_revision(delete))
    }
    fn begin_session(&mut self, new: NewSession) -> Result<SessionId, StorageError> {
        wait(self.store.begin_session(new))
    }
    fn renew_session(&mut self, id: SessionId, about: Arc<[u8]>) -> Result<(), StorageError> {
        wait(self.store.renew_session(id, about))
    }
    fn end_session(&mut self, id: SessionId, only_if_expired: bool) -> Result<(), StorageError> {
        wait(self.store.end_session(id, only_if_expired))
    }
    fn forget_session(&mut self, id: SessionId) -> Result<(), StorageError> {
        wait(self.store.forget_session(id))
    }
    fn sessions(&self) -> Vec<SessionInfo> {
        wait(self.store.sessions()).unwrap()
    }
    fn advance(&mut self, secs: u64) {
        self.clock.advance(Duration::from_secs(secs));
    }
    fn read(&self, stream: &Key) -> Vec<Record> {
        wait(self.store.read(stream, 0, usize::MAX)).unwrap()
    }
    fn get(&self, key: &Key) -> Option<Entry> {
        wait(self.store.get(key)).unwrap()
    }
    fn listed(&self) -> (Vec<Key>, Vec<Key>) {
        let all = Key::new([]).children();
        let scanned = wait(self.store.scan(&all, None, usize::MAX)).unwrap();
        (wait(self.store.streams(&all, None, usize::MAX)).unwrap(), scanned.into_iter().map(|(key, _)| key).collect())
    }
}

fn wait<T>(future: callboard::storage::StorageFuture<T>) -> Result<T, StorageError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

/// Lists, and nothing clever.
#[derive(Default)]
struct Model {
    secs: u64,
    last_number: u64,
    streams: Vec<ModelStream>,
    values: Vec<(Key, Entry)>,
    sessions: Vec<ModelSession>,
}

struct ModelStream {
    name: Key,
    last: u64,
    records: Vec<Record>,
}

struct ModelSession {
    id: SessionId,
    new: NewSession,
    until_secs: u64,
    has_ended: bool,
}

impl Model {
    fn at(secs: u64) -> Timestamp {
        ManualClock::START + Duration::from_secs(secs)
    }
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
    fn stream(&mut self, name: &Key) -> &mut ModelStream {
        if !self.streams.iter().any(|stream| stream.name == *name) {
            let (name, records) = (name.clone(), Vec::new());
            self.streams.push(ModelStream { name, last: 0, records });
        }
        self.streams.iter_mut().find(|stream| stream.name == *name).unwrap()
    }
    fn forget(&mut self, name: &Key) {
        self.streams.retain(|stream| stream.name != *name || !stream.records.is_empty());
    }
    fn check(&self, key: &Key, expected: Expected) -> Result<(), StorageError> {
        let actual = self.get(key).map(|entry| entry.revision);
        let fine = match expected {
            Expected::Any => true,
            Expected::Absent => actual.is_none(),
            Expected::Revision(_) => actual.map(Expected::Revision) == Some(expected),
        };
        if fine { Ok(()) } else { Err(StorageError::WrongRevision { key: key.clone(), expected, actual }) }
    }
    /// The revision; no condition is left.
    fn write(&mut self, key: Key, value: Arc<[u8]>, ttl_secs: Option<u64>) -> u64 {
        let (revision, secs) = (self.number(), self.secs);
        self.values.retain(|(other, _)| *other != key);
        let expires_at = ttl_secs.map(|ttl| Self::at(secs + ttl));
        self.values.push((key, Entry { value, revision, expires_at }));
        revision
    }
    fn works(&self, session: Option<SessionId>) -> Result<(), StorageError> {
        let counts = |id| self.sessions.iter().any(|session| session.id == id && !session.has_ended);
        session.filter(|id| !counts(*id)).map_or(Ok(()), |id| Err(id.has_ended()))
    }
    fn left(&self, session: &ModelSession) -> Duration {
        let until = if session.has_ended { 0 } else { session.until_secs };
        Duration::from_secs(until.saturating_sub(self.secs))
    }
}

impl Subject for Model {
    fn append(&mut self, append: Append) -> Result<u64, StorageError> {
        self.works(append.session)?;
        let stream = self.stream(&append.stream);
        if stream.last != append.expected {
            let (expected, actual) = (append.expected, stream.last);
            return Err(StorageError::WrongSequence { stream: append.stream, expected, actual });
        }
        stream.last += 1;
        stream.records.push(Record { sequence: stream.last, payload: append.payload });
        let sequence = stream.last;
        for rider in append.riders {
            match rider {
                Rider::Put { key, value, ttl_secs } => drop(self.write(key, value, ttl_secs)),
                Rider::Delete { key } => self.values.retain(|(other, _)| *other != key),
            }
        }
        Ok(sequence)
    }
    fn purge(&mut self, stream: &Key, up_to: u64) -> Result<(), StorageError> {
        self.stream(stream).records.retain(|record| record.sequence > up_to);
        self.forget(stream);
        Ok(())
    }
    fn put(&mut self, put: Put) -> Result<u64, StorageError> {
        self.works(put.session)?;
        self.check(&put.key, put.expected)?;
        Ok(self.write(put.key, put.value, put.ttl_secs))
    }
    fn delete(&mut self, delete: Delete) -> Result<(), StorageError> {
        self.works(delete.session)?;
        self.check(&delete.key, Expected::Revision(delete.revision))?;
        self.values.retain(|(other, _)| *other != delete.key);
        Ok(())
    }
    fn begin_session(&mut self, new: NewSession) -> Result<SessionId, StorageError> {
        let id = SessionId(self.number());
        let live = self.sessions.iter().find(|other| other.new.name == new.name && !self.left(other).is_zero());
        if let Some(other) = live {
            let (name, about, left) = (new.name.to_string(), Arc::clone(&other.new.about), self.left(other));
            return Err(StorageError::NameTaken { name, about, left });
        }
        let until_secs = self.secs + new.lease.as_secs();
        self.sessions.push(ModelSession { id, new, until_secs, has_ended: false });
        Ok(id)
    }
    fn renew_session(&mut self, id: SessionId, about: Arc<[u8]>) -> Result<(), StorageError> {
        self.works(Some(id))?;
        let session = self.sessions.iter_mut().find(|session| session.id == id).unwrap();
        session.until_secs = self.secs + session.new.lease.as_secs();
        session.new.about = about;
        Ok(())
    }
    fn end_session(&mut self, id: SessionId, only_if_expired: bool) -> Result<(), StorageError> {
        let left = self.sessions.iter().find(|session| session.id == id).map_or(Duration::ZERO, |it| self.left(it));
        if only_if_expired && !left.is_zero() {
            return Err(StorageError::SessionLives { left });
        }
        self.sessions.iter_mut().filter(|session| session.id == id).for_each(|session| session.has_ended = true);
        Ok(())
    }
    fn forget_session(&mut self, id: SessionId) -> Result<(), StorageError> {
        self.sessions.retain(|session| session.id != id || !session.has_ended);
        Ok(())
    }
    fn sessions(&self) -> Vec<SessionInfo> {
        let listed = |session: &ModelSession| {
            let (name, about) = (Arc::clone(&session.new.name), Arc::clone(&session.new.about));
            SessionInfo { id: session.id, name, about, left: self.left(session) }
        };
        self.sessions.iter().map(listed).collect()
    }
    fn advance(&mut self, secs: u64) {
        self.secs += secs;
    }
    fn read(&self, name: &Key) -> Vec<Record> {
        self.streams.iter().find(|stream| stream.name == *name).map_or(Vec::new(), |stream| stream.records.clone())
    }
    fn get(&self, key: &Key) -> Option<Entry> {
        let live = |entry: &Entry| entry.expires_at.is_none_or(|moment| moment > Self::at(self.secs));
        self.values.iter().find(|(other, entry)| other == key && live(entry)).map(|(_, entry)| entry.clone())
    }
    fn listed(&self) -> (Vec<Key>, Vec<Key>) {
        let streams = self.streams.iter().filter(|stream| !stream.records.is_empty()).map(|stream| stream.name.clone());
        let values = self.values.iter().map(|(key, _)| key).filter(|key| self.get(key).is_some()).cloned();
        let (mut streams, mut values): (Vec<_>, Vec<_>) = (streams.collect(), values.collect());
        streams.sort();
        values.sort();
        (streams, values)
    }
}

fn memory() -> Store<Memory> {
    let clock = Arc::new(ManualClock::new());
    Store { store: Memory::new(Arc::<ManualClock>::clone(&clock)), clock }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_does_what_a_naive_model_does(operations in vec(operation(), 1..80)) {
        prop_assert_eq!(trace(&mut memory(), &operations), trace(&mut Model::default(), &operations));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_disk_store_does_what_memory_does(operations in vec(operation(), 1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new());
        let store = Sled::open_with_clock(folder.path(), Arc::<ManualClock>::clone(&clock)).unwrap();
        prop_assert_eq!(trace(&mut Store { store, clock }, &operations), trace(&mut memory(), &operations));
    }
}
