//! The simulated disk: a memory store behind calls that take their time and may fail, and that loses at a crash what was
//! not synced.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;

use crate::env::{Clock, Fault, Now, happen_slowly};
use crate::messages::{RunEvent, RunId};
use crate::storage::{
    Append, Delete, Durability, Entry, Journal, Key, KeyPrefix, Memory, NewSession, Put, Record, Revision, Sequence,
    SessionId, SessionInfo, Storage, StorageError, StorageFuture, Watch,
};

use super::trace::Weight;
use super::world::World;

/// How long a buffered write may take to the disk (SEMANTICS 10).
const BUFFERED_WITHIN: Duration = Duration::from_millis(100);

pub(super) struct Disk {
    world: Arc<World>,
    clock: DiskClock,
    state: Mutex<State>,
}

struct State {
    memory: Arc<Memory>,
    /// Every write since the beginning, in the order in which it was issued.
    log: Vec<Written>,
    /// How many of them are on disk for certain.
    synced: usize,
}

struct Written {
    at: Now,
    durability: Durability,
    write: Write,
}

#[derive(Clone)]
enum Write {
    Append(Append),
    Put(Put),
    Delete(Delete),
    Purge(Key, Sequence),
    Session(SessionWrite),
}

#[derive(Clone)]
enum SessionWrite {
    Begin(NewSession),
    Renew(SessionId, Arc<[u8]>),
    End(SessionId, bool),
    Forget(SessionId),
}

impl SessionWrite {
    fn point(&self) -> &'static str {
        match self {
            Self::Begin(_) => "session.begin",
            Self::Renew(..) => "session.renew",
            Self::End(..) => "session.end",
            Self::Forget(_) => "session.forget",
        }
    }
}

impl Write {
    /// Its fault point, and whose it is.
    fn point(&self) -> (&'static str, &Key) {
        match self {
            Self::Append(append) => ("storage.append", &append.stream),
            Self::Put(put) => ("storage.put", &put.key),
            Self::Delete(delete) => ("storage.delete", &delete.key),
            Self::Purge(key, _) => ("storage.purge", key),
            Self::Session(write) => (write.point(), key_of_sessions()),
        }
    }

    /// Repeats it without an answer.
    fn repeat(self, memory: &Memory) {
        fn done<T>(future: StorageFuture<T>) {
            drop(future.now_or_never());
        }
        match self {
            Self::Append(append) => done(memory.append(append)),
            Self::Put(put) => done(memory.put_if_revision(put)),
            Self::Delete(delete) => done(memory.delete_if_revision(delete)),
            Self::Purge(key, up_to) => done(memory.purge(&key, up_to)),
            Self::Session(SessionWrite::Begin(new)) => done(memory.begin_session(new)),
            Self::Session(SessionWrite::Renew(id, about)) => done(memory.renew_session(id, about)),
            Self::Session(SessionWrite::End(id, only_if_expired)) => done(memory.end_session(id, only_if_expired)),
            Self::Session(SessionWrite::Forget(id)) => done(memory.forget_session(id)),
        }
    }

    fn note(&self, world: &World) {
        let (point, key) = self.point();
        match self {
            Self::Append(append) => {
                for event in Journal::events_in(&append.payload).unwrap_or_default() {
                    let run = key.segments().pop().unwrap_or_default();
                    world.note(Weight::Shown, format!("{run}: {event:?}"));
                }
                world.note_bytes(&append.payload);
            }
            Self::Put(put) => {
                world.note(Weight::Fine, format!("{point} {key}"));
                world.note_bytes(&put.value);
            }
            Self::Delete(..) | Self::Purge(..) | Self::Session(_) => world.note(Weight::Fine, format!("{point} {key}")),
        }
    }
}

/// The simulation's clock, except while writes are repeated: then the time is theirs.
#[derive(Clone)]
struct DiskClock {
    world: Arc<World>,
    then: Arc<Mutex<Option<Now>>>,
}

impl Clock for DiskClock {
    fn now(&self) -> Now {
        self.then.lock().unwrap_or_else(|| self.world.clock.now())
    }
}

impl Disk {
    pub(super) fn new(world: Arc<World>) -> Self {
        let clock = DiskClock { world: Arc::clone(&world), then: Arc::default() };
        let memory = Arc::new(Memory::new(Arc::new(clock.clone())));
        Self { world, clock, state: Mutex::new(State { memory, log: Vec::new(), synced: 0 }) }
    }

    /// Loses some of what was not on disk: what is kept is a beginning of what was written, and chance decides how much.
    pub(super) fn crash(&self) {
        let mut state = self.state.lock();
        let now = self.clock.now().monotonic;
        let is_on_disk = |written: &Written| {
            written.durability >= Durability::Buffered && written.at.monotonic + BUFFERED_WITHIN <= now
        };
        let flushed = state.log.iter().rposition(is_on_disk).map_or(0, |last| last + 1);
        let certain = state.synced.max(flushed);
        let (issued, given_out) = (state.log.len(), next_number(&state.memory));
        let kept = certain + self.world.below((issued - certain + 1) as u64) as usize;
        self.world.note(Weight::Shown, format!("the disk keeps {kept} of {issued} writes ({certain} were synced)"));
        state.log.truncate(kept);
        state.memory = Arc::new(Memory::new(Arc::new(self.clock.clone())));
        for written in &state.log {
            *self.clock.then.lock() = Some(written.at);
            written.write.clone().repeat(&state.memory);
        }
        *self.clock.then.lock() = None;
        // A number that was given out does not come again, whatever became of its write.
        let mut number = 0;
        while number < given_out {
            number = next_number(&state.memory);
            let (at, write) = (self.clock.now(), Write::Put(numbered()));
            state.log.push(Written { at, durability: Durability::Sync, write });
        }
        state.synced = state.log.len();
    }

    /// What the journal of a run holds now.
    pub(super) fn events(&self, run: RunId) -> Vec<RunEvent> {
        let records = at_once(self.state.lock().memory.read(&Journal::stream(run), 1, usize::MAX)).unwrap_or_default();
        records.iter().filter_map(|record| Journal::events_in(&record.payload)).flatten().collect()
    }

    /// How long a call takes: often nothing, mostly a little, rarely long.
    fn latency(&self) -> Duration {
        match self.world.below(16) {
            0..8 => Duration::ZERO,
            8..15 => Duration::from_millis(self.world.below(5)),
            _ => Duration::from_millis(self.world.below(300)),
        }
    }

    /// Does something now, and answers after a while.
    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        (point, key): (&'static str, &Key),
        work: impl FnOnce(&mut State) -> Done<T>,
    ) -> StorageFuture<T> {
        let fault = self.world.strike(point, &key.to_string());
        let (latency, loses) = match fault {
            // No call of a disk takes those that are for messages and actors.
            None | Some(Fault::Drop | Fault::Duplicate | Fault::Kill) => (self.latency(), false),
            Some(Fault::Lose) => (self.latency(), true),
            Some(Fault::Wait(time) | Fault::Hold(time)) => (time, false),
            Some(Fault::Error(detail)) => {
                let latency = self.latency();
                return answer(Arc::clone(self), latency, None, Err(StorageError::Unavailable { detail }));
            }
            Some(fault @ (Fault::Panic(_) | Fault::Yield(_) | Fault::Crash)) => {
                return async move {
                    let _ = happen_slowly(fault).await;
                    Err(StorageError::Unavailable { detail: "a planned fault".to_owned() })
                }
                .boxed();
            }
        };
        let Done { result, synced } = work(&mut self.state.lock());
        let lost = || Err(StorageError::Unavailable { detail: "a planned fault: the answer is lost".to_owned() });
        answer(Arc::clone(self), latency, synced, if loses { lost() } else { result })
    }

    fn read<T: Send + 'static>(
        self: &Arc<Self>,
        point: (&'static str, &Key),
        read: impl FnOnce(&Memory) -> StorageFuture<T>,
    ) -> StorageFuture<T> {
        self.world.note(Weight::Fine, format!("{} {}", point.0, point.1));
        self.call(point, |state| Done { result: at_once(read(&state.memory)), synced: None })
    }

    fn write<T: Send + 'static>(
        self: &Arc<Self>,
        write: Write,
        durability: Durability,
        work: impl FnOnce(&Memory) -> StorageFuture<T>,
    ) -> StorageFuture<T> {
        let written = self.call(write.point(), |state| {
            write.note(&self.world);
            let result = at_once(work(&state.memory));
            state.log.push(Written { at: self.clock.now(), durability, write: write.clone() });
            Done { result, synced: (durability == Durability::Sync).then_some(state.log.len()) }
        });
        let writing = self.world.begin_write();
        async move {
            let _unacknowledged = writing;
            written.await
        }
        .boxed()
    }

    fn has_synced(&self, up_to: Option<usize>) {
        if let Some(up_to) = up_to {
            let mut state = self.state.lock();
            state.synced = state.synced.max(up_to);
        }
    }
}

/// What the fault points of sessions name.
fn key_of_sessions() -> &'static Key {
    static KEY: LazyLock<Key> = LazyLock::new(|| Key::new(["sessions"]));
    &KEY
}

/// A value that stands for nothing, written for the number that it takes.
fn numbered() -> Put {
    Put::new(Key::new(["simulation", "numbers"]), Arc::default())
}

fn next_number(memory: &Memory) -> Revision {
    at_once(memory.put_if_revision(numbered())).expect("the memory store takes a value")
}

/// The outcome of a call.
struct Done<T> {
    result: Result<T, StorageError>,
    /// With the answer, this many writes are on disk.
    synced: Option<usize>,
}

fn at_once<T>(future: StorageFuture<T>) -> Result<T, StorageError> {
    future.now_or_never().expect("the memory store answers at once")
}

fn answer<T: Send + 'static>(
    disk: Arc<Disk>,
    latency: Duration,
    synced: Option<usize>,
    result: Result<T, StorageError>,
) -> StorageFuture<T> {
    if latency.is_zero() {
        disk.has_synced(synced);
        return futures::future::ready(result).boxed();
    }
    async move {
        tokio::time::sleep(latency).await;
        if disk.world.has_crashed() {
            std::future::pending::<()>().await;
        }
        disk.has_synced(synced);
        result
    }
    .boxed()
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the simulated disk")
    }
}

/// A node's handle of the disk.
#[derive(Clone, Debug)]
pub(super) struct Mounted(pub(super) Arc<Disk>);

impl Storage for Mounted {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        self.0.write(Write::Append(append.clone()), append.durability, |memory| memory.append(append))
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.0.read(("storage.read", stream), |memory| memory.read(stream, from, limit))
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        self.0.read(("storage.streams", &Key::new([])), |memory| memory.streams(prefix, after, limit))
    }

    fn purge(&self, stream: &Key, up_to: Sequence) -> StorageFuture<()> {
        let write = Write::Purge(stream.clone(), up_to);
        self.0.write(write, Durability::Buffered, |memory| memory.purge(stream, up_to))
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.0.read(("storage.get", key), |memory| memory.get(key))
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        self.0.write(Write::Put(put.clone()), put.durability, |memory| memory.put_if_revision(put))
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        let write = Write::Delete(delete.clone());
        self.0.write(write, delete.durability, |memory| memory.delete_if_revision(delete))
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.0.read(("storage.scan", &Key::new([])), |memory| memory.scan(prefix, after, limit))
    }

    fn watch(&self, prefix: &KeyPrefix) -> Watch {
        self.0.state.lock().memory.watch(prefix)
    }

    fn begin_session(&self, new: NewSession) -> StorageFuture<SessionId> {
        self.session(SessionWrite::Begin(new.clone()), |memory| memory.begin_session(new))
    }

    fn renew_session(&self, id: SessionId, about: Arc<[u8]>) -> StorageFuture<()> {
        self.session(SessionWrite::Renew(id, Arc::clone(&about)), |memory| memory.renew_session(id, about))
    }

    fn end_session(&self, id: SessionId, only_if_expired: bool) -> StorageFuture<()> {
        self.session(SessionWrite::End(id, only_if_expired), |memory| memory.end_session(id, only_if_expired))
    }

    fn sessions(&self) -> StorageFuture<Vec<SessionInfo>> {
        self.0.read(("session.list", key_of_sessions()), Memory::sessions)
    }

    fn forget_session(&self, id: SessionId) -> StorageFuture<()> {
        self.session(SessionWrite::Forget(id), |memory| memory.forget_session(id))
    }
}

impl Mounted {
    fn session<T: Send + 'static>(
        &self,
        write: SessionWrite,
        work: impl FnOnce(&Memory) -> StorageFuture<T>,
    ) -> StorageFuture<T> {
        self.0.write(Write::Session(write), Durability::Sync, work)
    }
}
