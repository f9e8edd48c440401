//! The journal: a run's events as records of one stream.

mod checking;
mod failures;
mod forgetting;
mod inboxes;
mod letters;
mod listed;
mod mail;
mod memory_runs;
mod open;
mod skipped;

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::messages::{AgentName, Beside, Durability, RunEvent, RunId, Timestamp};

pub(crate) use self::forgetting::Forgotten;
pub(crate) use self::letters::LetterNote;
pub(crate) use self::listed::Listing;
pub(crate) use self::open::{Losses, Noted, OpenNote, newest_format};

use self::skipped::Skipped;
use super::codec::{self, CodecError, Payload, Stored};
use super::{
    Append, Entry, Expected, Key, KeyPrefix, Put, Record, Revision, Rider, Sequence, Storage, StorageError,
    StorageFuture,
};

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

/// How many records of each run are read at once where several are read: more than most have after their last snapshot.
const PAGE_OF_MANY: usize = 64;

/// Reads and writes the journals of runs. A cheap clone.
#[derive(Clone, Debug)]
pub struct Journal {
    storage: Arc<dyn Storage>,
    /// The rows beside the journals that cannot be read and were reported.
    skipped: Arc<Skipped>,
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

impl History {
    /// Nothing before a record.
    fn before(from: Sequence) -> Self {
        Self { events: Vec::new(), first: None, in_first: 0, last: from.saturating_sub(1) }
    }

    /// Adds the next records.
    fn add(&mut self, stream: &Key, page: Vec<Record>) -> Result<(), StorageError> {
        for record in page {
            let events = Journal::decode(&record.payload).map_err(|error| StorageError::Corrupt {
                key: stream.clone(),
                detail: format!("record {}: {error}", record.sequence),
            })?;
            if self.first.is_none() {
                (self.first, self.in_first) = (Some(record.sequence), events.len());
            }
            self.events.extend(events);
            self.last = record.sequence;
        }
        Ok(())
    }
}

impl Journal {
    /// Creates a handle that reads and writes the journals of the runs in `storage`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, skipped: Arc::default() }
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
        expected: Sequence,
        events: &[RunEvent],
        durability: Durability,
    ) -> StorageFuture<Sequence> {
        self.append_with((stream, expected), events, durability, Vec::new())
    }

    /// Adds events as one record, and with it notes about the run.
    pub(crate) fn append_with(
        &self,
        (stream, expected): (&Key, Sequence),
        events: &[RunEvent],
        durability: Durability,
        riders: Vec<Rider>,
    ) -> StorageFuture<Sequence> {
        self.append_record((stream, expected), Self::record_of(events), durability, riders)
    }

    /// The record of events, for [`Journal::append_record`].
    pub(crate) fn record_of(events: &[RunEvent]) -> Arc<[u8]> {
        codec::encode_as::<JournalRecord>(&JournalRecordOf::new(events))
    }

    /// Adds a record, and with it notes about the run.
    pub(crate) fn append_record(
        &self,
        (stream, expected): (&Key, Sequence),
        payload: Arc<[u8]>,
        durability: Durability,
        riders: Vec<Rider>,
    ) -> StorageFuture<Sequence> {
        self.storage.append(Append { durability, riders, ..Append::new(stream.clone(), expected, payload) })
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
        self.read_on(&Self::stream(run), History::before(from)).await
    }

    /// The rest of a history.
    async fn read_on(&self, stream: &Key, mut history: History) -> Result<History, StorageError> {
        loop {
            let page = self.storage.read(stream, history.last + 1, PAGE).await?;
            let is_last = page.len() < PAGE;
            history.add(stream, page)?;
            if is_last {
                return Ok(history);
            }
        }
    }

    /// The events of several runs, in their order, each from a record on.
    ///
    /// # Errors
    /// What the store reports of the call; each run has its own errors, as in [`Journal::read_from`].
    pub(crate) async fn read_many(
        &self,
        runs: &[(RunId, Sequence)],
    ) -> Result<Vec<Result<History, StorageError>>, StorageError> {
        let streams: Vec<_> = runs.iter().map(|(run, from)| (Self::stream(*run), *from)).collect();
        let pages = self.storage.read_many(&streams, PAGE_OF_MANY).await?;
        let mut histories = Vec::with_capacity(pages.len());
        for ((stream, from), page) in streams.iter().zip(pages) {
            let history = async {
                let page = page?;
                let is_last = page.len() < PAGE_OF_MANY;
                let mut history = History::before(*from);
                history.add(stream, page)?;
                if is_last { Ok(history) } else { self.read_on(stream, history).await }
            };
            histories.push(history.await);
        }
        Ok(histories)
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

    /// The snapshots of several runs, in their order.
    ///
    /// # Errors
    /// What the store reports of the call; each run has its own errors.
    pub(crate) async fn snapshots(
        &self,
        runs: &[RunId],
    ) -> Result<Vec<Result<Option<Arc<[u8]>>, StorageError>>, StorageError> {
        let keys: Vec<Key> = runs.iter().map(|run| Self::key_of(SNAPSHOT, *run)).collect();
        let entries = self.storage.get_many(&keys).await?.into_iter();
        Ok(entries.map(|entry| entry.map(|entry| entry.map(|entry| entry.value))).collect())
    }

    /// Forgets the records of a run up to one; a snapshot must cover them.
    pub(crate) fn trim(&self, run: RunId, up_to: Sequence) -> StorageFuture<()> {
        self.storage.purge(&Self::stream(run), up_to)
    }

    /// All values under a prefix, in the order of their keys; they are read in pages.
    fn entries(&self, prefix: KeyPrefix) -> impl Stream<Item = Result<(Key, Entry), StorageError>> {
        let pages = stream::try_unfold(Some(None), move |next: Option<Option<Key>>| {
            let page = next.map(|after| self.storage.scan(&prefix, after.as_ref(), PAGE));
            async move {
                let Some(page) = page else { return Ok(None) };
                let page = page.await?;
                let next = page.last().filter(|_| page.len() == PAGE).map(|(key, _)| Some(key.clone()));
                Ok(Some((stream::iter(page.into_iter().map(Ok)), next)))
            }
        });
        pages.try_flatten()
    }

    /// What is written with the last record of a run: its place in the list of runs, and what [`Journal::note_ended`] writes.
    pub(crate) fn end_notes(run: RunId, at: Timestamp, listing: &Listing, inboxes: &[AgentName]) -> Vec<Rider> {
        let ended = (ended_key(run, at), inboxes::to_bytes(inboxes));
        let notes = [listing.note(run), ended].into_iter().chain(inboxes::notes(run, at, inboxes));
        notes.map(|(key, value)| Rider::put(key, value)).collect()
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

    fn write_note(&self, key: Key, value: Arc<[u8]>, expected: Expected) -> StorageFuture<Revision> {
        self.storage.put_if_revision(Put { expected, durability: Durability::Memory, ..Put::new(key, value) })
    }

    fn note(&self, key: Key, value: Arc<[u8]>) -> StorageFuture<()> {
        self.write_note(key, value, Expected::Any).map(|written| written.map(|_| ())).boxed()
    }

    fn key_of(kind: &str, run: RunId) -> Key {
        Key::new([kind, &*run.0.as_simple().encode_lower(&mut Uuid::encode_buffer())])
    }

    /// The runs that are noted to have ended, each with the time of its last event, the earliest end first.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn ended_runs(&self) -> Result<Vec<(Timestamp, RunId)>, StorageError> {
        let ended = self.entries(Key::new([ENDED]).children());
        ended.try_filter_map(async |(key, _)| Ok(ended_of(&key))).try_collect().await
    }

    /// All runs that have records, oldest first.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn runs(&self) -> Result<Vec<RunId>, StorageError> {
        let prefix = Key::new(["run"]).children();
        let (mut runs, mut after) = (Vec::new(), None);
        loop {
            let page = self.storage.streams(&prefix, after.as_ref(), PAGE).await?;
            runs.extend(page.iter().filter_map(run_of));
            match page.last() {
                Some(stream) if page.len() == PAGE => after = Some(stream.clone()),
                _ => return Ok(runs),
            }
        }
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
mod tests;
