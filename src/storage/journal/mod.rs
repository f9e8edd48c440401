//! The journal: a run's events as records of one stream.

mod inboxes;
mod letters;
mod listed;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::messages::{AgentName, Beside, Durability, RunEvent, RunId, Timestamp};

pub(crate) use self::letters::LetterNote;
pub(crate) use self::listed::Listing;

use super::codec::{self, CodecError, Payload, Stored};
use super::recent::Recent;
use super::{Append, Expected, Fence, Key, Put, Revision, Sequence, Storage, StorageError, StorageFuture};

/// The events of one append.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct JournalRecord {
    events: Vec<RunEvent>,
    /// The times of those events that have them here ([`RunEvent::time_beside`]), in order.
    times: Vec<Option<Timestamp>>,
    /// What else is stored beside events ([`RunEvent::beside`]), with the index of the event.
    beside: Vec<(u32, Beside)>,
}

/// A [`JournalRecord`] of events that stay where they are.
#[derive(Serialize)]
struct JournalRecordOf<'a> {
    events: &'a [RunEvent],
    times: Vec<Option<Timestamp>>,
    beside: Vec<(u32, Beside)>,
}

/// A [`JournalRecord`] of version 2.
#[derive(Deserialize)]
struct TimedRecord {
    events: Vec<RunEvent>,
    times: Vec<Option<Timestamp>>,
}

/// A [`JournalRecord`] of version 1.
#[derive(Deserialize)]
struct UntimedRecord {
    events: Vec<RunEvent>,
}

impl Stored for JournalRecord {
    const SCHEMA: u16 = 1;
    const VERSION: u16 = 3;
    const NAME: &'static str = "journal-record";

    fn upgrade(version: u16, payload: Payload<'_>) -> Option<Result<Self, CodecError>> {
        let of = |events, times| Self { events, times, beside: Vec::new() };
        match version {
            1 => Some(payload.read().map(|UntimedRecord { events }| of(events, Vec::new()))),
            2 => Some(payload.read().map(|TimedRecord { events, times }| of(events, times))),
            _ => None,
        }
    }
}

impl JournalRecord {
    /// The events, each with its time and what else is beside it.
    fn whole(self) -> Vec<RunEvent> {
        let Self { mut events, times, beside } = self;
        for (beside, time) in events.iter_mut().filter_map(RunEvent::time_beside_mut).zip(times) {
            *beside = time;
        }
        for (index, beside) in beside {
            if let Some(event) = events.get_mut(index as usize) {
                event.put_beside(beside);
            }
        }
        events
    }
}

impl<'a> JournalRecordOf<'a> {
    fn new(events: &'a [RunEvent]) -> Self {
        let beside = (0..).zip(events).filter_map(|(index, event)| Some((index, event.beside()?)));
        Self {
            events,
            times: events.iter().filter_map(RunEvent::time_beside).copied().collect(),
            beside: beside.collect(),
        }
    }
}

/// Where the entries of the shared context are, below it by namespace and key.
pub(crate) const CONTEXT: &str = "context";

/// How many records are read at once.
const PAGE: usize = 512;

/// Open runs whose notes are remembered.
const OPEN_NOTES: usize = 16_384;

/// Reads and writes the journals of runs. A cheap clone.
#[derive(Clone, Debug)]
pub struct Journal {
    storage: Arc<dyn Storage>,
    /// The revisions of open runs' notes, so that a note need not be read to be removed. The storage compares them.
    open_notes: Arc<Mutex<OpenNotes>>,
}

#[derive(Debug)]
struct OpenNotes {
    recent: Recent<RunId, OpenNote>,
    written: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenNote {
    /// That write of a note is not acknowledged yet. Acknowledgements may come in another order.
    UnderWay(u64),
    Written(Revision),
}

/// A run's journal as it was read.
#[derive(Debug)]
pub(crate) struct History {
    /// The events in order.
    pub(crate) events: Vec<RunEvent>,
    /// The sequence of the first record that was read.
    pub(crate) first: Option<Sequence>,
    /// How many of the events are the first record's.
    pub(crate) in_first: usize,
    /// The sequence of the last record.
    pub(crate) last: Sequence,
}

/// What became of runs that ended long ago.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    /// How many are gone.
    pub(crate) runs: usize,
    /// Those that could not be forgotten, and why.
    pub(crate) failed: Vec<(RunId, StorageError)>,
}

/// Claims a board's stream for the moment in which it is asked whether the board lives. The ids of boards are UUIDs.
const LOOKING: &str = "looking";

impl Journal {
    /// Creates a handle that reads and writes the journals of the runs in `storage`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, open_notes: Arc::new(Mutex::new(OpenNotes { recent: Recent::new(OPEN_NOTES), written: 0 })) }
    }

    /// The store that it is in.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Returns the key of the stream that holds the events of `run`.
    #[must_use]
    pub fn stream(run: RunId) -> Key {
        Self::key_of("run", run)
    }

    /// Adds events as one record.
    pub(crate) fn append(
        &self,
        stream: &Key,
        fence: Fence,
        expected: Sequence,
        events: &[RunEvent],
        durability: Durability,
    ) -> StorageFuture<Sequence> {
        let payload = codec::encode_as::<JournalRecord>(&JournalRecordOf::new(events));
        self.storage.append(Append { stream: stream.clone(), fence, expected, payload, durability })
    }

    /// The events in one record of a journal; `None` if it is not one.
    pub(crate) fn events_in(payload: &[u8]) -> Option<Vec<RunEvent>> {
        Self::decode(payload).ok()
    }

    /// The events in one record of a journal.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn decode(payload: &[u8]) -> Result<Vec<RunEvent>, CodecError> {
        codec::decode(payload).map(JournalRecord::whole)
    }

    /// The run whose journal a stream is.
    pub(super) fn run_of_stream(stream: &Key) -> Option<RunId> {
        run_of(stream).filter(|run| *stream == Self::stream(*run))
    }

    /// The events of a run, in order; none if there is no such run.
    ///
    /// # Errors
    /// What the store reports; [`StorageError::Corrupt`] for a record that does not decode, which makes the whole journal
    /// unreadable. Other journals are not affected.
    pub async fn events(&self, run: RunId) -> Result<Vec<RunEvent>, StorageError> {
        Ok(self.read(run).await?.events)
    }

    /// The events of the records after `record` (0: of all), in order, and the number of the last record. A reader that passes that
    /// number again gets the events that were added since.
    ///
    /// # Errors
    /// As [`Journal::events`].
    pub async fn events_after(&self, run: RunId, record: Sequence) -> Result<(Vec<RunEvent>, Sequence), StorageError> {
        let History { events, last, .. } = self.read_from(run, record.saturating_add(1)).await?;
        Ok((events, last))
    }

    /// As [`Journal::events`], with the positions of the records.
    ///
    /// # Errors
    /// As [`Journal::events`].
    pub(crate) async fn read(&self, run: RunId) -> Result<History, StorageError> {
        self.read_from(run, 1).await
    }

    /// The events of a run from a record on.
    ///
    /// # Errors
    /// As [`Journal::read`].
    pub(crate) async fn read_from(&self, run: RunId, from: Sequence) -> Result<History, StorageError> {
        let stream = Self::stream(run);
        let mut history = History { events: Vec::new(), first: None, in_first: 0, last: from.saturating_sub(1) };
        loop {
            let page = self.storage.read(&stream, history.last + 1, PAGE).await?;
            let is_last = page.len() < PAGE;
            for record in page {
                let events = Self::decode(&record.payload).map_err(|error| StorageError::Corrupt {
                    key: stream.clone(),
                    detail: format!("record {}: {error}", record.sequence),
                })?;
                if history.first.is_none() {
                    (history.first, history.in_first) = (Some(record.sequence), events.len());
                }
                history.events.extend(events);
                history.last = record.sequence;
            }
            if is_last {
                return Ok(history);
            }
        }
    }

    /// Whether a run has records.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn has(&self, run: RunId) -> Result<bool, StorageError> {
        Ok(!self.storage.read(&Self::stream(run), 1, 1).await?.is_empty())
    }

    /// Keeps a snapshot of a run, in place of an earlier one.
    pub(crate) fn keep_snapshot(&self, run: RunId, snapshot: Arc<[u8]>) -> StorageFuture<()> {
        self.note(Self::key_of(SNAPSHOT, run), snapshot)
    }

    /// The snapshot of a run.
    pub(crate) fn snapshot(&self, run: RunId) -> BoxFuture<'static, Result<Option<Arc<[u8]>>, StorageError>> {
        let entry = self.storage.get(&Self::key_of(SNAPSHOT, run));
        entry.map(|entry| entry.map(|entry| entry.map(|entry| entry.value))).boxed()
    }

    /// Forgets the records of a run up to one; a snapshot must cover them.
    pub(crate) fn trim(&self, run: RunId, up_to: Sequence) -> StorageFuture<()> {
        self.storage.purge(&Self::stream(run), up_to)
    }

    /// Forgets a run that has ended, or that no board works on, with everything about it.
    pub fn forget(&self, run: RunId) -> StorageFuture<()> {
        let journal = self.clone();
        async move {
            journal.delete(Self::key_of(SNAPSHOT, run)).await?;
            journal.forget_letters(run).await?;
            journal.forget_context(run).await?;
            journal.delete(Self::key_of(OPEN, run)).await?;
            journal.storage.purge(&Self::stream(run), Sequence::MAX).await
        }
        .boxed()
    }

    /// Forgets what agents of a run left in its namespace of the shared context.
    async fn forget_context(&self, run: RunId) -> Result<(), StorageError> {
        let entries = Key::new([CONTEXT, &run.namespace()]).children();
        let mut after = None;
        loop {
            let page = self.storage.scan(&entries, after.as_ref(), PAGE).await?;
            for (key, _) in &page {
                self.delete(key.clone()).await?;
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
                _ => return Ok(()),
            }
        }
    }

    /// Notes that a run has ended, for [`Journal::forget_ended_before`], and which inboxes have messages of it.
    pub(crate) fn note_ended(&self, run: RunId, at: Timestamp, inboxes: &[AgentName]) -> StorageFuture<()> {
        let inboxes_noted = (!inboxes.is_empty()).then(|| self.note_inboxes(run, at, inboxes));
        let ended = self.note(ended_key(run, at), inboxes::to_bytes(inboxes));
        match inboxes_noted {
            None => ended,
            Some(noted) => async move { noted.await.and(ended.await) }.boxed(),
        }
    }

    /// Takes the notes of [`Journal::note_ended`] back: the run continues.
    pub(crate) fn note_reopened(&self, run: RunId, ended_at: Timestamp) -> StorageFuture<()> {
        let (journal, key) = (self.clone(), ended_key(run, ended_at));
        async move {
            let Some(entry) = journal.storage.get(&key).await? else { return Ok(()) };
            journal.forget_inboxes(run, ended_at, &inboxes::of_bytes(&entry.value)).await?;
            journal.delete(key).await
        }
        .boxed()
    }

    /// Forgets the runs that ended before a time, and their places in the list. One that cannot be forgotten holds up no other;
    /// its note stays, so that it is tried again the next time.
    ///
    /// # Errors
    /// What the store reports when the notes cannot be read, or when it has stopped.
    pub(crate) async fn forget_ended_before(&self, time: Timestamp) -> Result<Forgotten, StorageError> {
        let forgotten = self.forget_ended(time).await?;
        self.forget_listed_before(time).await?;
        Ok(forgotten)
    }

    async fn forget_ended(&self, time: Timestamp) -> Result<Forgotten, StorageError> {
        let prefix = Key::new([ENDED]).children();
        let (mut forgotten, mut after) = (Forgotten::default(), None);
        loop {
            let page = self.storage.scan(&prefix, after.as_ref(), PAGE).await?;
            for (key, entry) in &page {
                let Some((at, run)) = ended_of(key) else { continue };
                if at >= time {
                    return Ok(forgotten);
                }
                let gone = async {
                    self.forget_inboxes(run, at, &inboxes::of_bytes(&entry.value)).await?;
                    self.forget(run).await?;
                    self.delete(key.clone()).await
                };
                match gone.await {
                    Ok(()) => forgotten.runs += 1,
                    Err(error @ StorageError::Stopped { .. }) => return Err(error),
                    Err(error) => forgotten.failed.push((run, error)),
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
                _ => return Ok(forgotten),
            }
        }
    }

    fn write_note(&self, key: Key, value: Arc<[u8]>, expected: Expected) -> StorageFuture<Revision> {
        self.storage.put_if_revision(Put { key, value, expected, ttl_secs: None, durability: Durability::Memory })
    }

    fn note(&self, key: Key, value: Arc<[u8]>) -> StorageFuture<()> {
        self.write_note(key, value, Expected::Any).map(|written| written.map(|_| ())).boxed()
    }

    pub(crate) fn delete(&self, key: Key) -> StorageFuture<()> {
        let storage = Arc::clone(&self.storage);
        async move {
            match storage.get(&key).await? {
                Some(entry) => storage.delete_if_revision(&key, entry.revision, Durability::Memory).await,
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn key_of(kind: &str, run: RunId) -> Key {
        Key::new([kind, &*run.0.as_simple().encode_lower(&mut Uuid::encode_buffer())])
    }

    /// Writes the first record of a run, with the note of [`Journal::mark_open`]: a board that starts on the store takes the run
    /// over, unless a board of the name `owner` works.
    ///
    /// # Errors
    /// [`StorageError::WrongSequence`] if the run has records already; what the store reports.
    pub fn begin(
        &self,
        run: RunId,
        owner: &str,
        events: &[RunEvent],
        durability: Durability,
    ) -> StorageFuture<Sequence> {
        self.append_and_note((run, owner), &Self::stream(run), Fence::FIRST, 0, events, durability)
    }

    /// Adds a record to a run, with the note of [`Journal::mark_open`] if it has none.
    ///
    /// # Errors
    /// As [`Storage::append`]. If that refuses the record, the run's note stays as it was, or absent.
    pub(crate) fn append_and_note(
        &self,
        (run, owner): (RunId, &str),
        stream: &Key,
        fence: Fence,
        expected: Sequence,
        events: &[RunEvent],
        durability: Durability,
    ) -> StorageFuture<Sequence> {
        let (journal, owner, taken): (_, Arc<str>, _) = (self.clone(), owner.into(), stream.clone());
        // Issued first: a record that is on disk has its note there too.
        let noted = self.write_open_note(run, &owner, Expected::Absent);
        let appended = self.append(stream, fence, expected, events, durability);
        async move {
            match (noted.await, appended.await) {
                (Ok(_), Ok(sequence)) => Ok(sequence),
                (Ok(revision), Err(error @ (StorageError::WrongSequence { .. } | StorageError::Fenced { .. }))) => {
                    // It had no note, so it has ended, or was never there.
                    let note = Self::key_of(OPEN, run);
                    let _ = journal.storage.delete_if_revision(&note, revision, Durability::Memory).await;
                    Err(error)
                }
                // It is the run's own: a board that takes a run over writes the note under the fence.
                (Err(StorageError::WrongRevision { .. }), Ok(sequence)) if expected > 0 => Ok(sequence),
                // Of a submission that was never journaled, perhaps to another board.
                (Err(StorageError::WrongRevision { actual: Some(revision), .. }), Ok(sequence)) => {
                    match journal.take_note(run, &owner, revision).await {
                        // The board that took the note meanwhile has taken over the run.
                        Err(StorageError::WrongRevision { .. }) => {
                            Err(StorageError::Fenced { key: taken, current: fence.0 })
                        }
                        noted => noted.map(|()| sequence),
                    }
                }
                (Err(StorageError::WrongRevision { actual: None, .. }), Ok(sequence)) => {
                    journal.mark_open(run, &owner).await?;
                    Ok(sequence)
                }
                (_, Err(error)) | (Err(error), Ok(_)) => Err(error),
            }
        }
        .boxed()
    }

    /// Notes that a run is unfinished, and which board works on it. Written before its first record and removed after its
    /// last, so that a start finds every unfinished run without reading the finished ones; a note too many does no harm.
    pub fn mark_open(&self, run: RunId, owner: &str) -> StorageFuture<()> {
        self.write_open_note(run, owner, Expected::Any).map(|written| written.map(|_| ())).boxed()
    }

    fn write_open_note(&self, run: RunId, owner: &str, expected: Expected) -> StorageFuture<Revision> {
        let under_way = {
            let mut notes = self.open_notes.lock();
            notes.written += 1;
            let under_way = OpenNote::UnderWay(notes.written);
            notes.recent.insert(run, under_way);
            notes.recent.turn();
            under_way
        };
        let (written, notes) = (
            self.write_note(Self::key_of(OPEN, run), Arc::from(owner.as_bytes()), expected),
            Arc::clone(&self.open_notes),
        );
        let remember = move |revision| {
            if let Some(note) = notes.lock().recent.get(&run).filter(|note| **note == under_way) {
                *note = OpenNote::Written(revision);
            }
            revision
        };
        written.map(|written| written.map(remember)).boxed()
    }

    /// The board in the note of [`Journal::mark_open`], and the note's revision.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn owner_of(&self, run: RunId) -> Result<Option<(Arc<str>, Revision)>, StorageError> {
        let entry = self.storage.get(&Self::key_of(OPEN, run)).await?;
        Ok(entry.and_then(|entry| Some((std::str::from_utf8(&entry.value).ok()?.into(), entry.revision))))
    }

    /// The board that works on a run: `None` if the run has ended or was never journaled, or if its board is gone.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn board_of(&self, run: RunId) -> Result<Option<Arc<str>>, StorageError> {
        let Some((owner, _)) = self.owner_of(run).await? else { return Ok(None) };
        Ok(self.is_alive(&owner).await?.then_some(owner))
    }

    /// Whether the board of this name holds its claim.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn is_alive(&self, board: &str) -> Result<bool, StorageError> {
        let board = Self::board(board);
        match self.storage.claim(&board, LOOKING, 1).await {
            Ok(fence) => {
                // Refused if somebody else looks at the same time.
                let _ = self.storage.release(&board, fence).await;
                Ok(false)
            }
            Err(StorageError::Held { owner, .. }) => Ok(owner != LOOKING),
            Err(error) => Err(error),
        }
    }

    /// The stream by whose claim a board shows that it lives.
    pub(crate) fn board(owner: &str) -> Key {
        Key::new(["board", owner])
    }

    /// Puts this board into the note of [`Journal::mark_open`].
    ///
    /// # Errors
    /// [`StorageError::WrongRevision`] when another write was first; what the store reports.
    pub(crate) async fn take_note(&self, run: RunId, owner: &str, revision: Revision) -> Result<(), StorageError> {
        self.write_open_note(run, owner, Expected::Revision(revision)).await.map(|_| ())
    }

    /// Removes the note of [`Journal::mark_open`], unless it was written again.
    pub(crate) fn mark_ended(&self, run: RunId) -> StorageFuture<()> {
        let key = Self::key_of(OPEN, run);
        let Some(OpenNote::Written(revision)) = self.open_notes.lock().recent.remove(&run) else {
            return self.delete(key);
        };
        let removed = self.storage.delete_if_revision(&key, revision, Durability::Memory);
        async move {
            match removed.await {
                Err(StorageError::WrongRevision { .. }) => Ok(()),
                removed => removed,
            }
        }
        .boxed()
    }

    /// The runs that have a note.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn open_runs(&self) -> Result<Vec<RunId>, StorageError> {
        let prefix = Key::new([OPEN]).children();
        let mut runs = Vec::new();
        let mut after: Option<Key> = None;
        loop {
            let page = self.storage.scan(&prefix, after.as_ref(), PAGE).await?;
            runs.extend(page.iter().filter_map(|(key, _)| run_of(key)));
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
                _ => return Ok(runs),
            }
        }
    }

    /// The runs that are noted to have ended, each with the time of its last event, the earliest end first.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn ended_runs(&self) -> Result<Vec<(Timestamp, RunId)>, StorageError> {
        let prefix = Key::new([ENDED]).children();
        let (mut ended, mut after) = (Vec::new(), None);
        loop {
            let page = self.storage.scan(&prefix, after.as_ref(), PAGE).await?;
            ended.extend(page.iter().filter_map(|(key, _)| ended_of(key)));
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
                _ => return Ok(ended),
            }
        }
    }

    /// All runs that have records, oldest first.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn runs(&self) -> Result<Vec<RunId>, StorageError> {
        let streams = self.storage.streams(&Key::new(["run"]).children()).await?;
        Ok(streams.iter().filter_map(run_of).collect())
    }
}

const OPEN: &str = "open";
const ENDED: &str = "ended";
const SNAPSHOT: &str = "snapshot";

fn ended_key(run: RunId, at: Timestamp) -> Key {
    let at = format!("{:020}", at.as_millis());
    Key::new([ENDED, &*at, &*run.0.as_simple().to_string()])
}

fn ended_of(key: &Key) -> Option<(Timestamp, RunId)> {
    let segments = key.segments();
    let at = segments.get(1)?.parse().ok().map(Timestamp::from_millis)?;
    Some((at, segments.get(2)?.parse().ok()?))
}

fn run_of(key: &Key) -> Option<RunId> {
    key.segments().get(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{
        Action, ActionKind, AskedOutcome, Authority, Chain, Command, ConversationId, Cost, Decision, Effect, Envelope,
        Failure, FailureKind, Intent, Json, Limits, Order, Outcome, Refusal, RequestId, Resolution, Submission, Task,
        Terms, Timestamp, TraceId, TraceParent, TurnId, Usage, Verdict,
    };
    use crate::storage::Memory;
    use serde_json::json;
    use std::time::Duration;

    fn events() -> Vec<RunEvent> {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let submission = Submission {
            cast: Vec::new(),
            run: RunId(Uuid::from_u128(7)),
            trace: TraceId(Uuid::from_u128(8)),
            task: Task::new("Summarise").to("researcher").input(json!({ "path": "docs" })),
            agent: AgentName::new("researcher").unwrap(),
            chain: Chain::default(),
            at,
        };
        let command = Command::update("artifacts", json!({ "notes": "n.md" })).with_output("done").goto("writer");
        let verdict = Verdict::Admitted(vec![AgentName::new("writer").unwrap()]);
        vec![
            RunEvent::Submitted(Arc::new(submission)),
            RunEvent::TurnEnded {
                turn: 1,
                agent: AgentName::new("researcher").unwrap(),
                attempt: 1,
                command: Arc::new(command),
                verdict,
                at,
            },
        ]
    }

    /// One of every kind, so that none changes its bytes unnoticed.
    fn every_event() -> Vec<RunEvent> {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let (turn, ordinal, attempt) = (3, 2, 1);
        let agent = AgentName::new("writer").unwrap();
        let input = Json::from("in");
        let name: Arc<str> = "search".into();
        let request = RequestId { turn: TurnId { run: RunId(Uuid::from_u128(7)), number: turn }, ordinal };
        let action = Action::new("write_file", "REVIEW.md", json!({ "text": "x" }));
        // As it was before questions had a version.
        let envelope = Envelope {
            version: 0,
            kind: ActionKind::Requested,
            request,
            agent: agent.clone(),
            action,
            policy: "ask".into(),
            nonce: 9,
            expires_at: at,
            remind_at: None,
        };
        let approval = envelope.id();
        let decision = Decision { approved: true, by: "ann".into(), reason: "".into(), at, terms: Terms::Once };
        let failure = Failure::new(FailureKind::Transient, "later");
        let reference = Some("group/project#7".into());
        let order = Order { input: input.clone(), reference, is_detached: true, ..Order::new("writer", "write") };
        let refused = Verdict::Refused(Refusal::HandoffLimit { max: 5, asked: 1 });
        let usage = Some(Usage::of(300, 20));
        let mut events = events();
        events.extend([
            RunEvent::StepStarted { turn, ordinal, name: name.clone(), at: Some(at) },
            RunEvent::StepFinished { turn, ordinal, name, value: input.clone(), is_tainted: true, at: None },
            RunEvent::Delegated { turn, ordinal, order, verdict: refused, at },
            RunEvent::DelegationExpired { turn, ordinal, at },
            RunEvent::Reserved {
                turn,
                ordinal,
                tokens: 400,
                verdict: Verdict::Nothing,
                at: Some(at),
                cost: None,
                charged: None,
            },
            RunEvent::Settled { turn, ordinal, usage, at: Some(at), model: None, is_of_run: false },
            RunEvent::Asked { turn, ordinal, question: input.clone(), nonce: 9, at },
            RunEvent::Answered { turn, ordinal, answer: Json::null(), by: "ann".into(), at },
            RunEvent::ApprovalAsked { turn, ordinal, envelope: Box::new(envelope.clone()), at },
            RunEvent::Decided { turn, ordinal, approval, decision, verdict: Verdict::Parked(Box::new(envelope)), at },
            RunEvent::HandoffChecked {
                turn,
                ordinal,
                to: vec!["writer".into()],
                refusal: Some(Refusal::HandoffsOff),
                at,
            },
            RunEvent::AgentMade {
                turn,
                ordinal,
                name: "helper".into(),
                draft: json!({ "system_prompt": "Help." }).into(),
                is_change: false,
                authority: Authority::of([Effect::Reads, Effect::Writes]),
                made: AgentName::new("writer~helper").map_err(|_| Refusal::HandoffsOff),
                at,
            },
            RunEvent::Tainted { turn, source: "HttpGet".into(), at },
            RunEvent::Noticed { turn, text: "half way".into(), at },
            RunEvent::AttemptFailed { turn, attempt, failure: failure.clone(), retry_at: at, at },
            RunEvent::TurnFailed { turn, agent, input, attempt, failure, at },
            RunEvent::Recovered { at, new_process: true },
            RunEvent::NeedsAttention { turn, has_changed: true, why: "changed".into(), at },
            RunEvent::TurnRestarted { turn, at },
            RunEvent::Stopped { outcome: Outcome::Cancelled { reason: "enough".into() }, at },
            RunEvent::Overwritten {
                turn,
                update: Command::new().overwrite("verdict", "good").update,
                verdict: Verdict::Nothing,
                by: "ann".into(),
                at,
            },
            RunEvent::Forked {
                turn,
                from: request.turn,
                input: Some(Json::from("other")),
                update: Command::new().overwrite("verdict", "good").update,
                at,
            },
        ]);
        events
    }

    /// As the record is read, before the events get back what is beside them.
    fn stored(events: Vec<RunEvent>) -> JournalRecord {
        let JournalRecordOf { times, beside, .. } = JournalRecordOf::new(&events);
        let alone = |mut event: RunEvent| {
            event.time_beside_mut().map(Option::take);
            match &mut event {
                RunEvent::Reserved { cost, charged, .. } => (*cost, *charged) = (None, None),
                RunEvent::Settled { model, is_of_run, .. } => (*model, *is_of_run) = (None, false),
                _ => {}
            }
            event
        };
        JournalRecord { events: events.into_iter().map(alone).collect(), times, beside }
    }

    #[test]
    fn events_that_had_no_time_at_first_have_it_beside_them_and_older_records_have_none() {
        let mut events = every_event();
        assert_eq!(stored(events.clone()).whole(), events);
        assert_eq!(
            Journal::events_in(&codec::encode_as::<JournalRecord>(&JournalRecordOf::new(&events))),
            Some(events.clone())
        );
        let old: String = include_str!("../../../tests/golden/journal-record-v1.hex").split_whitespace().collect();
        let byte = |at: usize| u8::from_str_radix(&old[at..at + 2], 16).unwrap();
        let old: Vec<u8> = (0..old.len()).step_by(2).map(byte).collect();
        for event in &mut events {
            event.time_beside_mut().map(Option::take);
        }
        assert_eq!(Journal::events_in(&old), Some(events));
    }

    #[test]
    fn the_bytes_of_a_journal_record_are_golden() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        crate::testing::golden::check(folder, &stored(every_event()));
    }

    /// The events that came after the first golden file was written: their bytes have a file of their own, so that the first
    /// one stays as it is.
    #[test]
    fn the_bytes_of_events_about_outside_effects_are_golden() {
        let (turn, ordinal, at) = (3, 2, Timestamp::from_millis(1_767_225_600_000));
        let failure = Failure::new(FailureKind::OutcomeUnknown, "it may have run");
        let asked = AskedOutcome { nonce: 9, at, expires_at: at, problem: Some("does not fit".into()) };
        let resolved = |resolution| RunEvent::OutcomeResolved { turn, ordinal, resolution, by: "ann".into(), at };
        let events = vec![
            RunEvent::IntentRecorded {
                turn,
                ordinal,
                intent: Intent {
                    before: "missing".into(),
                    ..Intent::new("charge", "order 7", &json!({ "amount": 3 }).into())
                },
                at,
            },
            RunEvent::StepFailed { turn, ordinal, name: "charge".into(), failure, is_tainted: true, at: Some(at) },
            RunEvent::OutcomeUnknown { turn, ordinal, asked },
            resolved(Resolution::Done(Json::from("receipt"))),
            resolved(Resolution::Repeat),
            resolved(Resolution::GiveUp),
            resolved(Resolution::Report),
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/outside_effects");
        crate::testing::golden::check(folder, &stored(events));
    }

    /// The versions of what people are asked, and the times that they have for it.
    #[test]
    fn the_bytes_of_what_people_are_asked_in_time_are_golden() {
        let (turn, ordinal, at) = (3, 2, Timestamp::from_millis(1_767_225_600_000));
        let (minute, agent) = (Duration::from_secs(60), AgentName::new("writer").unwrap());
        let request = RequestId { turn: TurnId { run: RunId(Uuid::from_u128(7)), number: turn }, ordinal };
        let envelope = |kind, remind_at| Envelope {
            version: Envelope::VERSION,
            kind,
            request,
            agent: agent.clone(),
            action: Action::new("write_file", "REVIEW.md", json!({ "text": "x" })),
            policy: "ask".into(),
            nonce: 9,
            expires_at: at,
            remind_at,
        };
        let submitted = |task: Task| {
            RunEvent::Submitted(Arc::new(Submission {
                cast: Vec::new(),
                run: request.turn.run,
                trace: TraceId(Uuid::from_u128(8)),
                task,
                agent: agent.clone(),
                chain: Chain::default(),
                at,
            }))
        };
        let parked = Verdict::Parked(Box::new(envelope(ActionKind::Handoff, None)));
        let expired = Refusal::QuestionExpired { question: "Which colour?".into() };
        let events = vec![
            submitted(Task::new("x").approval_ttl(minute)),
            submitted(Task::new("x").approval_ttl(minute).deadline(minute * 2)),
            RunEvent::ApprovalAsked {
                turn,
                ordinal,
                envelope: Box::new(envelope(ActionKind::Requested, Some(at))),
                at,
            },
            RunEvent::Decided {
                turn,
                ordinal,
                approval: envelope(ActionKind::Delegation, None).id(),
                decision: Decision { approved: true, by: "ann".into(), reason: "".into(), at, terms: Terms::Once },
                verdict: parked,
                at,
            },
            RunEvent::AskedUntil {
                turn,
                ordinal,
                question: "Which colour?".into(),
                nonce: 9,
                expires_at: at + minute,
                at,
            },
            RunEvent::QuestionExpired { turn, ordinal, at: at + minute },
            RunEvent::AttemptFailed { turn, attempt: 1, failure: Failure::refused(expired), retry_at: at, at },
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/expiring");
        crate::testing::golden::check(folder, &stored(events));
    }

    #[test]
    fn the_bytes_of_events_about_money_and_of_tasks_with_a_money_limit_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let (run, agent) = (RunId(Uuid::from_u128(7)), AgentName::new("writer").unwrap());
        let limits = Limits { cost: Some(Cost(2_500_000_000)), ..Limits::default() };
        let task = Task::new("x").limits(limits).deadline(Duration::from_secs(9));
        let (cast, chain) = (Vec::new(), Chain::default());
        let submission = Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at };
        let (turn, usage) = (1, Some(Usage { cost: Cost(300_000), ..Usage::of(300, 20) }));
        let [spent, unsettled, reserved] = [1, 0, 2].map(Cost);
        let priced = Refusal::CostBudget { budget: Cost(3), spent, unsettled, reserved, asked: Some(Cost(4)) };
        let reserved = |ordinal, verdict, cost| RunEvent::Reserved {
            turn,
            ordinal,
            tokens: 400,
            verdict,
            at: Some(at),
            cost,
            charged: None,
        };
        let events = vec![
            RunEvent::Submitted(Arc::new(submission)),
            reserved(0, Verdict::Admitted(Vec::new()), Some(Cost(400_000))),
            RunEvent::Settled { turn, ordinal: 0, usage, at: Some(at), model: Some("large".into()), is_of_run: false },
            RunEvent::Settled { turn, ordinal: 9, usage, at: Some(at), model: None, is_of_run: true },
            reserved(1, Verdict::Refused(priced), Some(Cost(4))),
            RunEvent::AttemptFailed {
                turn,
                attempt: 1,
                failure: Failure::new(FailureKind::NeedsPerson, "no money"),
                retry_at: at,
                at,
            },
        ];
        let stored = stored(events.clone());
        assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/money");
        crate::testing::golden::check(folder, &stored);
    }

    #[test]
    fn the_bytes_of_events_about_limits_of_a_day_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let reserved = |ordinal, verdict, cost| {
            let charged = Some((20_454, "board".into()));
            RunEvent::Reserved { turn: 1, ordinal, tokens: 400, verdict, at: Some(at), cost, charged }
        };
        let (whose, day, asked) = ("the board".into(), "2026-01-01".into(), Some(3));
        let refused = Refusal::DayLimit { whose, day, limit: 7, used: 5, asked, is_money: true };
        let events = vec![
            reserved(0, Verdict::Admitted(Vec::new()), Some(Cost(3))),
            reserved(1, Verdict::Refused(refused), None),
        ];
        let stored = stored(events.clone());
        assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/day_limits");
        crate::testing::golden::check(folder, &stored);
    }

    #[test]
    fn the_bytes_of_events_about_limits_of_an_agent_in_a_run_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let agent = AgentName::new("coder").unwrap();
        let refused = Refusal::AgentBudget { agent, limit: 7, used: 5, asked: Some(3), is_money: true };
        let (verdict, cost) = (Verdict::Refused(refused), Some(Cost(3)));
        let stored = stored(vec![RunEvent::Reserved {
            turn: 1,
            ordinal: 0,
            tokens: 400,
            verdict,
            at: Some(at),
            cost,
            charged: None,
        }]);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/agent_limits");
        crate::testing::golden::check(folder, &stored);
    }

    #[test]
    fn the_bytes_of_events_about_conversations_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let conversation = ConversationId::new("ann").unwrap();
        let messages = json!([{ "role": "user", "text": "hello" }]).into();
        let events = vec![
            RunEvent::ConversationEntered { conversation, at },
            RunEvent::ConversationRead { messages, runs: 1, left_out: 2, is_tainted: true, at },
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/conversations");
        crate::testing::golden::check(folder, &stored(events));
    }

    #[test]
    fn the_bytes_of_tasks_from_outside_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let (run, agent, ann) =
            (RunId(Uuid::from_u128(7)), AgentName::new("writer").unwrap(), AgentName::new("ann").unwrap());
        let submitted = |task: Task| {
            let (cast, chain, agent) = (Vec::new(), Chain::default(), agent.clone());
            RunEvent::Submitted(Arc::new(Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at }))
        };
        let events = vec![
            submitted(Task::new("x").from_agent(ann.clone())),
            submitted(Task::new("x").reference("group/project#7").deadline(Duration::from_secs(9))),
            submitted(Task::new("x").from_agent(ann).reference("#7").approval_ttl(Duration::from_secs(60))),
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/from_outside");
        crate::testing::golden::check(folder, &stored(events));
    }

    #[test]
    fn the_bytes_of_changes_of_a_reference_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let changed = |reference| RunEvent::ReferenceChanged { reference, at };
        let events = vec![changed(Some("group/project#8".into())), changed(None)];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/references");
        crate::testing::golden::check(folder, &stored(events));
    }

    #[test]
    fn the_bytes_of_tasks_in_a_trace_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let (run, agent) = (RunId(Uuid::from_u128(7)), AgentName::new("writer").unwrap());
        let submitted = |task: Task| {
            let parent = TraceParent { trace: 5, span: 6, is_sampled: true, state: None };
            let task = Task { trace_parent: Some(Box::new(parent)), ..task };
            let (cast, chain, agent) = (Vec::new(), Chain::default(), agent.clone());
            RunEvent::Submitted(Arc::new(Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at }))
        };
        let limits = Limits { cost: Some(Cost(2_500_000_000)), ..Limits::default() };
        let events = vec![
            submitted(Task::new("x")),
            submitted(Task::new("x").limits(limits).reference("#7").deadline(Duration::from_secs(9))),
        ];
        let stored = stored(events.clone());
        assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/traced");
        crate::testing::golden::check(folder, &stored);
    }

    #[test]
    fn the_bytes_of_tasks_in_a_trace_with_a_state_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let (run, agent) = (RunId(Uuid::from_u128(7)), AgentName::new("writer").unwrap());
        let parent = TraceParent { trace: 5, span: 6, is_sampled: true, state: None }.with_state("vendor=1");
        let task = Task { trace_parent: Some(Box::new(parent)), ..Task::new("x") };
        let (cast, chain) = (Vec::new(), Chain::default());
        let submission = Submission { run, trace: TraceId(run.0), task, agent, cast, chain, at };
        let events = vec![RunEvent::Submitted(Arc::new(submission))];
        let stored = stored(events.clone());
        assert_eq!(codec::decode::<JournalRecord>(&codec::encode(&stored)).unwrap().whole(), events);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/traced_with_state");
        crate::testing::golden::check(folder, &stored);
    }

    #[tokio::test]
    async fn a_journal_reads_back_what_was_appended() {
        let journal = Journal::new(Arc::new(Memory::default()));
        let run = RunId(Uuid::from_u128(7));
        journal.mark_open(run, "board").await.unwrap();
        assert_eq!(journal.owner_of(run).await.unwrap().map(|(owner, _)| owner).as_deref(), Some("board"));
        let stream = Journal::stream(run);
        journal.append(&stream, Fence::FIRST, 0, &events(), Durability::Memory).await.unwrap();
        let history = journal.read(run).await.unwrap();
        assert_eq!((history.events, history.last), (events(), 1));
        assert_eq!(journal.open_runs().await.unwrap(), [run]);
        journal.mark_ended(run).await.unwrap();
        assert_eq!(journal.open_runs().await.unwrap(), []);
        assert_eq!(journal.runs().await.unwrap(), [run]);
    }

    #[tokio::test]
    async fn a_run_has_a_board_while_that_lives() {
        let storage: Arc<dyn Storage> = Arc::new(Memory::default());
        let (journal, run) = (Journal::new(Arc::clone(&storage)), RunId(Uuid::from_u128(7)));
        assert_eq!(journal.board_of(run).await, Ok(None));
        journal.mark_open(run, "board").await.unwrap();
        assert_eq!(journal.board_of(run).await, Ok(None));
        let fence = storage.claim(&Journal::board("board"), "board", 60).await.unwrap();
        assert_eq!(journal.board_of(run).await, Ok(Some("board".into())));
        storage.release(&Journal::board("board"), fence).await.unwrap();
        assert_eq!(journal.board_of(run).await, Ok(None));
    }

    #[tokio::test]
    async fn a_note_that_another_board_has_written_again_is_its_own() {
        let storage: Arc<dyn Storage> = Arc::new(Memory::default());
        let (journal, other) = (Journal::new(Arc::clone(&storage)), Journal::new(storage));
        let run = RunId(Uuid::from_u128(7));
        journal.mark_open(run, "board").await.unwrap();
        other.mark_open(run, "heir").await.unwrap();
        journal.mark_ended(run).await.unwrap();
        assert_eq!(journal.open_runs().await.unwrap(), [run]);
        other.mark_ended(run).await.unwrap();
        assert_eq!(journal.open_runs().await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_run_that_cannot_be_forgotten_holds_up_no_other() {
        let storage: Arc<dyn Storage> = Arc::new(Memory::default());
        let journal = Journal::new(Arc::clone(&storage));
        let (broken, at) = (RunId(Uuid::from_u128(3)), Timestamp::from_millis(1000));
        for run in (1..=5).map(|number| RunId(Uuid::from_u128(number))) {
            journal.append(&Journal::stream(run), Fence::FIRST, 0, &events(), Durability::Memory).await.unwrap();
            journal.note_ended(run, at, &[]).await.unwrap();
        }
        let damaged = Journal::key_of("letter", broken).child("1");
        journal.note(damaged.clone(), Arc::from(b"no note".as_slice())).await.unwrap();

        let Forgotten { runs, failed } = journal.forget_ended_before(Timestamp::from_millis(1001)).await.unwrap();
        assert_eq!((runs, journal.runs().await.unwrap()), (4, vec![broken]));
        assert!(matches!(&failed[..], [(run, StorageError::Corrupt { .. })] if *run == broken), "{failed:?}");

        journal.delete(damaged).await.unwrap();
        let again = journal.forget_ended_before(Timestamp::from_millis(1001)).await.unwrap();
        assert_eq!((again.runs, again.failed.len()), (1, 0), "its note is still there");
        assert_eq!(journal.runs().await.unwrap(), []);
    }
}
