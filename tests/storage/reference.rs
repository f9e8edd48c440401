//! Random operations: memory does what a naive model does, and the disk store does what memory does.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::Timestamp;
use callboard::storage::{
    Append, DeliveryId, Durability, Entry, Expected, Fence, Key, Memory, Put, Record, Sled, Storage, StorageError,
};
use callboard::testing::conformance::ManualClock;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    Append { stream: u8, fence: usize, behind: u64, long: bool },
    Purge { stream: u8, up_to: u64 },
    Put { key: u8, expected: Option<u64>, ttl_secs: Option<u64>, long: bool },
    Delete { key: u8, revision: u64 },
    Claim { stream: u8, owner: u8, ttl_secs: u64 },
    Renew { stream: u8, fence: usize },
    Release { stream: u8, fence: usize },
    Enqueue { id: u8 },
    Next,
    Ack { delivery: usize },
    Nack { delivery: usize, delay_secs: u64 },
    Extend { delivery: usize },
    Advance { secs: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let ttl = prop::option::of(1..20u64);
    // How many revisions back a put or a delete believes the newest to be; `None` means absent.
    let expected = prop::option::of(0..3u64);
    prop_oneof![
        6 => (0..3u8, 0..3usize, 0..3u64, prop::bool::weighted(0.05))
            .prop_map(|(stream, fence, behind, long)| Append { stream, fence, behind: behind / 2, long }),
        1 => (0..3u8, 0..6u64).prop_map(|(stream, up_to)| Purge { stream, up_to }),
        4 => (0..3u8, expected, ttl, prop::bool::weighted(0.05))
            .prop_map(|(key, expected, ttl_secs, long)| Put { key, expected, ttl_secs, long }),
        1 => (0..3u8, 0..3u64).prop_map(|(key, revision)| Delete { key, revision }),
        1 => (0..3u8, 0..2u8, 1..20u64).prop_map(|(stream, owner, ttl_secs)| Claim { stream, owner, ttl_secs }),
        1 => (0..3u8, 0..3usize).prop_map(|(stream, fence)| Renew { stream, fence }),
        1 => (0..3u8, 0..2usize).prop_map(|(stream, fence)| Release { stream, fence }),
        3 => (0..8u8).prop_map(|id| Enqueue { id }),
        3 => Just(Next),
        1 => (0..3usize).prop_map(|delivery| Ack { delivery }),
        1 => (0..3usize, 0..20u64).prop_map(|(delivery, delay_secs)| Nack { delivery, delay_secs }),
        1 => (0..3usize).prop_map(|delivery| Extend { delivery }),
        1 => (1..70u64).prop_map(|secs| Advance { secs }),
    ]
}

fn stream(number: u8) -> Key {
    Key::new(["stream", &*number.to_string()])
}

fn key(number: u8) -> Key {
    Key::new(["key", &*number.to_string()])
}

fn queue() -> Key {
    Key::new(["queue"])
}

/// What both sides of a comparison can do.
trait Subject {
    fn append(&mut self, append: Append) -> Result<u64, StorageError>;
    fn purge(&mut self, stream: &Key, up_to: u64) -> Result<(), StorageError>;
    fn put(&mut self, put: Put) -> Result<u64, StorageError>;
    fn delete(&mut self, key: &Key, revision: u64) -> Result<(), StorageError>;
    fn claim(&mut self, stream: &Key, owner: &str, ttl_secs: u64) -> Result<Fence, StorageError>;
    fn renew(&mut self, stream: &Key, fence: Fence) -> Result<(), StorageError>;
    fn release(&mut self, stream: &Key, fence: Fence) -> Result<(), StorageError>;
    fn enqueue(&mut self, id: &str) -> Result<(), StorageError>;
    fn next(&mut self) -> Result<Option<DeliveryId>, StorageError>;
    fn ack(&mut self, delivery: &DeliveryId) -> Result<(), StorageError>;
    fn nack(&mut self, delivery: &DeliveryId, delay_secs: u64) -> Result<(), StorageError>;
    fn extend(&mut self, delivery: &DeliveryId) -> Result<(), StorageError>;
    fn advance(&mut self, secs: u64);
    fn read(&self, stream: &Key) -> Vec<Record>;
    fn get(&self, key: &Key) -> Option<Entry>;
    fn listed(&self) -> (Vec<Key>, Vec<Key>);
}

const LEASE_SECS: u64 = 10;

/// Runs operations and notes every answer and, after each, everything that can be read.
fn trace(subject: &mut impl Subject, operations: &[Operation]) -> Vec<String> {
    let mut fences = vec![Vec::<Fence>::new(); 3];
    let mut deliveries: Vec<DeliveryId> = Vec::new();
    let (mut last, mut revisions) = ([0; 3], [0; 3]);
    let mut trace = Vec::new();
    for operation in operations {
        let fence_of = |fences: &[Vec<Fence>], stream: u8, back: usize| {
            fences[usize::from(stream)].iter().rev().nth(back).copied().unwrap_or(Fence::FIRST)
        };
        let payload =
            |long: bool| -> Arc<[u8]> { if long { vec![b'x'; 70_000].into() } else { b"x".as_slice().into() } };
        let delivery_of = |deliveries: &[DeliveryId], back: usize| {
            let nobody = DeliveryId { queue: queue(), position: 7_000, delivery: 1 };
            deliveries.iter().rev().nth(back).cloned().unwrap_or(nobody)
        };
        let durability = Durability::Memory;
        let answer = match operation.clone() {
            Operation::Append { stream: number, fence, behind, long } => {
                let fence = fence_of(&fences, number, fence);
                let expected = u64::saturating_sub(last[usize::from(number)], behind);
                let append = Append { fence, durability, ..Append::new(stream(number), expected, payload(long)) };
                let answer = subject.append(append);
                match &answer {
                    Ok(sequence) => last[usize::from(number)] = *sequence,
                    Err(StorageError::WrongSequence { actual, .. }) => last[usize::from(number)] = *actual,
                    Err(_) => {}
                }
                note(answer)
            }
            Operation::Purge { stream: number, up_to } => note(subject.purge(&stream(number), up_to)),
            Operation::Put { key: number, expected, ttl_secs, long } => {
                let believed = revisions[usize::from(number)];
                let expected = match expected {
                    None => Expected::Absent,
                    Some(0) => Expected::Any,
                    Some(back) => Expected::Revision(u64::saturating_sub(believed + 1, back)),
                };
                let put = Put { expected, ttl_secs, durability, ..Put::new(key(number), payload(long)) };
                let answer = subject.put(put);
                if let Ok(revision) = answer {
                    revisions[usize::from(number)] = revision;
                }
                note(answer)
            }
            Operation::Delete { key: number, revision } => {
                note(subject.delete(&key(number), u64::saturating_sub(revisions[usize::from(number)], revision / 2)))
            }
            Operation::Claim { stream: number, owner, ttl_secs } => {
                let answer = subject.claim(&stream(number), &owner.to_string(), ttl_secs);
                fences[usize::from(number)].extend(answer.iter());
                note(answer)
            }
            Operation::Renew { stream: number, fence } => {
                note(subject.renew(&stream(number), fence_of(&fences, number, fence)))
            }
            Operation::Release { stream: number, fence } => {
                note(subject.release(&stream(number), fence_of(&fences, number, fence)))
            }
            Operation::Enqueue { id } => note(subject.enqueue(&id.to_string())),
            Operation::Next => {
                let answer = subject.next();
                deliveries.extend(answer.iter().flatten().cloned());
                note(answer)
            }
            Operation::Ack { delivery } => note(subject.ack(&delivery_of(&deliveries, delivery))),
            Operation::Nack { delivery, delay_secs } => {
                note(subject.nack(&delivery_of(&deliveries, delivery), delay_secs))
            }
            Operation::Extend { delivery } => note(subject.extend(&delivery_of(&deliveries, delivery))),
            Operation::Advance { secs } => {
                subject.advance(secs);
                String::new()
            }
        };
        let read: Vec<_> = (0..3).map(|number| subject.read(&stream(number))).collect();
        let got: Vec<_> = (0..3).map(|number| subject.get(&key(number))).collect();
        let read: Vec<Vec<_>> = read.iter().map(|read| read.iter().map(brief).collect()).collect();
        let got: Vec<_> = got.iter().flatten().map(|got| (got.value.len(), got.revision, got.expires_at)).collect();
        trace.push(format!("{operation:?} -> {answer}; {read:?} {got:?} {:?}", subject.listed()));
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
    fn delete(&mut self, key: &Key, revision: u64) -> Result<(), StorageError> {
        wait(self.store.delete_if_revision(Delete::new(key, revision, Durability::Memory)))
    }
    fn claim(&mut self, stream: &Key, owner: &str, ttl_secs: u64) -> Result<Fence, StorageError> {
        wait(self.store.claim(stream, owner, ttl_secs))
    }
    fn renew(&mut self, stream: &Key, fence: Fence) -> Result<(), StorageError> {
        wait(self.store.renew(stream, fence, LEASE_SECS))
    }
    fn release(&mut self, stream: &Key, fence: Fence) -> Result<(), StorageError> {
        wait(self.store.release(stream, fence))
    }
    fn enqueue(&mut self, id: &str) -> Result<(), StorageError> {
        wait(self.store.enqueue(&queue(), id, id.as_bytes().into(), Durability::Memory))
    }
    fn next(&mut self) -> Result<Option<DeliveryId>, StorageError> {
        Ok(wait(self.store.next(&queue(), LEASE_SECS))?.map(|delivery| delivery.id))
    }
    fn ack(&mut self, delivery: &DeliveryId) -> Result<(), StorageError> {
        wait(self.store.ack(delivery))
    }
    fn nack(&mut self, delivery: &DeliveryId, delay_secs: u64) -> Result<(), StorageError> {
        wait(self.store.nack(delivery, delay_secs))
    }
    fn extend(&mut self, delivery: &DeliveryId) -> Result<(), StorageError> {
        wait(self.store.extend(delivery, LEASE_SECS))
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
        (wait(self.store.streams(&all)).unwrap(), scanned.into_iter().map(|(key, _)| key).collect())
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
    items: Vec<ModelItem>,
    ids: Vec<(String, u64)>,
}

struct ModelStream {
    name: Key,
    last: u64,
    records: Vec<Record>,
    fence: Fence,
    claim: Option<(String, u64)>,
}

struct ModelItem {
    position: u64,
    deliveries: u32,
    held: bool,
    from_secs: u64,
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
            self.streams.push(ModelStream { name, last: 0, records, fence: Fence::FIRST, claim: None });
        }
        self.streams.iter_mut().find(|stream| stream.name == *name).unwrap()
    }
    fn owned(&mut self, name: &Key, fence: Fence) -> Result<&mut ModelStream, StorageError> {
        let stream = self.stream(name);
        let current = stream.fence.0;
        if fence.0 == current { Ok(stream) } else { Err(StorageError::Fenced { key: name.clone(), current }) }
    }
    fn forget(&mut self, name: &Key) {
        let secs = self.secs;
        self.streams.retain(|stream| {
            let claimed = stream.claim.as_ref().is_some_and(|(_, until)| *until > secs);
            stream.name != *name || !stream.records.is_empty() || claimed
        });
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
    fn held(&mut self, delivery: &DeliveryId) -> Result<&mut ModelItem, StorageError> {
        let item = self.items.iter_mut().find(|item| item.position == delivery.position);
        let current = item.as_ref().map_or(0, |item| item.deliveries.into());
        let fenced = StorageError::Fenced { key: queue(), current };
        item.filter(|item| item.held && item.deliveries == delivery.delivery).ok_or(fenced)
    }
}

impl Subject for Model {
    fn append(&mut self, append: Append) -> Result<u64, StorageError> {
        let stream = self.owned(&append.stream, append.fence)?;
        if stream.last != append.expected {
            let (expected, actual) = (append.expected, stream.last);
            return Err(StorageError::WrongSequence { stream: append.stream, expected, actual });
        }
        stream.last += 1;
        stream.records.push(Record { sequence: stream.last, payload: append.payload });
        Ok(stream.last)
    }
    fn purge(&mut self, stream: &Key, up_to: u64) -> Result<(), StorageError> {
        self.stream(stream).records.retain(|record| record.sequence > up_to);
        self.forget(stream);
        Ok(())
    }
    fn put(&mut self, put: Put) -> Result<u64, StorageError> {
        self.check(&put.key, put.expected)?;
        let (revision, secs) = (self.number(), self.secs);
        self.values.retain(|(key, _)| *key != put.key);
        let expires_at = put.ttl_secs.map(|ttl| Self::at(secs + ttl));
        self.values.push((put.key, Entry { value: put.value, revision, expires_at }));
        Ok(revision)
    }
    fn delete(&mut self, key: &Key, revision: u64) -> Result<(), StorageError> {
        self.check(key, Expected::Revision(revision))?;
        self.values.retain(|(other, _)| other != key);
        Ok(())
    }
    fn claim(&mut self, name: &Key, owner: &str, ttl_secs: u64) -> Result<Fence, StorageError> {
        let (fence, secs) = (Fence(self.number()), self.secs);
        let stream = self.stream(name);
        if let Some((holder, until)) = &stream.claim
            && *until > secs
            && holder != owner
        {
            let (owner, until) = (holder.clone(), Self::at(*until));
            return Err(StorageError::Held { stream: name.clone(), owner, until });
        }
        stream.fence = fence;
        stream.claim = Some((owner.to_owned(), secs + ttl_secs));
        Ok(fence)
    }
    fn renew(&mut self, name: &Key, fence: Fence) -> Result<(), StorageError> {
        let until = self.secs + LEASE_SECS;
        let stream = self.owned(name, fence)?;
        let gone = StorageError::Fenced { key: name.clone(), current: fence.0 };
        stream.claim.as_mut().map(|claim| claim.1 = until).ok_or(gone)
    }
    fn release(&mut self, name: &Key, fence: Fence) -> Result<(), StorageError> {
        self.owned(name, fence)?.claim = None;
        self.forget(name);
        Ok(())
    }
    fn enqueue(&mut self, id: &str) -> Result<(), StorageError> {
        let (position, secs) = (self.number(), self.secs);
        self.ids.retain(|(_, until)| *until > secs);
        if !self.ids.iter().any(|(seen, _)| seen == id) {
            self.ids.push((id.to_owned(), secs + 120));
            self.items.push(ModelItem { position, deliveries: 0, held: false, from_secs: 0 });
        }
        Ok(())
    }
    fn next(&mut self) -> Result<Option<DeliveryId>, StorageError> {
        let secs = self.secs;
        Ok(self.items.iter_mut().find(|item| item.from_secs <= secs).map(|item| {
            *item = ModelItem { deliveries: item.deliveries + 1, held: true, from_secs: secs + LEASE_SECS, ..*item };
            DeliveryId { queue: queue(), position: item.position, delivery: item.deliveries }
        }))
    }
    fn ack(&mut self, delivery: &DeliveryId) -> Result<(), StorageError> {
        if self.items.iter().any(|item| item.position == delivery.position) {
            self.held(delivery)?;
            self.items.retain(|item| item.position != delivery.position);
        }
        Ok(())
    }
    fn nack(&mut self, delivery: &DeliveryId, delay_secs: u64) -> Result<(), StorageError> {
        let from_secs = self.secs + delay_secs;
        let item = self.held(delivery)?;
        *item = ModelItem { held: false, from_secs, ..*item };
        Ok(())
    }
    fn extend(&mut self, delivery: &DeliveryId) -> Result<(), StorageError> {
        let from_secs = self.secs + LEASE_SECS;
        self.held(delivery)?.from_secs = from_secs;
        Ok(())
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
