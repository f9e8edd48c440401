//! Decides and applies writes, one after the other: on their callers' threads, or on the writer's for those in its queue.
//!
//! What a write may wait for is the writer's: a permit of the queue, payload files, syncs. A short write that finds the queue
//! empty waits for none of these and is cheaper than waking a thread, so its caller applies it, in memory, under the lock of
//! the state. Either way the order in which writes are issued is the order in which they are applied and synced. Neither changes
//! sled's tree: that is the writer's, which syncs writes in a log (`write_ahead`) and applies them to the tree later.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tokio::sync::oneshot;

use super::changes::Unwritten;
use super::payloads::PayloadName;
use super::rows::Progress;
use super::shared::{ENDED, QUEUE, Shared};
use super::staging::{StageError, Staging};
use super::writes::{Answer, Change, Request, Write};
use crate::env::{Clock, SystemClock};
use crate::messages::{Durability, Timestamp};
use crate::storage::{SessionInfo, StorageError};

/// Within this time after its acknowledgement a buffered write is on disk, give or take one sync.
const BUFFERED_FOR: Duration = Duration::from_millis(80);

/// How many bytes of writes are kept in memory before they are applied to the tree.
pub(super) const LAYER_BYTES: usize = 4 << 20;

/// With so many bytes of writes in memory, a caller does not add to them: its write waits in the queue, whose length is bounded.
const MAX_BYTES: usize = 16 << 20;

/// How long a caller waits for another one's write before it goes to the queue.
const LOCK_TIMEOUT: Duration = Duration::from_micros(50);

/// What is stored, what is to be synced, and the answers that wait for the sync.
pub(super) struct WriteState {
    pub(super) staging: Staging,
    /// Real time: how long a write has been waiting does not depend on a test's clock.
    timer: SystemClock,
    /// When the oldest write that is not synced has to be.
    sync_by: Option<Duration>,
    /// How long what is not to be synced at once may wait for a sync.
    buffered_for: Duration,
    /// With so many bytes in the young layer, it becomes the old one.
    layer_bytes: usize,
    /// Answers to what is applied, and true once it is synced.
    for_sync: Vec<Answer>,
    /// Whether something has to be synced that the writer may not know of.
    wants_writer: bool,
    /// Whether the writer has been called since it last woke.
    has_called: bool,
    /// Whether the store is being closed: what is applied now would not be synced any more.
    pub(super) is_closing: bool,
}

/// What a sync covers.
#[derive(Default)]
pub(super) struct Covered {
    pub(super) answers: Vec<Answer>,
    /// What is to be written before the sync; `None` if there is nothing to sync.
    pub(super) log: Option<Log>,
    pub(super) loose_payloads: Vec<PayloadName>,
}

/// What is written to the log before a sync. A log that has the progress has what comes before it.
pub(super) struct Log {
    /// The writes since the last sync.
    pub(super) unwritten: Unwritten,
    pub(super) progress: Progress,
    /// Whether the young layer has become the old one, with all of these writes.
    pub(super) has_aged: bool,
}

impl WriteState {
    /// The state of a store that was just opened, which has to be synced.
    pub(super) fn new(staging: Staging) -> Self {
        let timer = SystemClock::default();
        let sync_by = Some(Duration::ZERO);
        Self {
            staging,
            timer,
            sync_by,
            buffered_for: BUFFERED_FOR,
            layer_bytes: LAYER_BYTES,
            for_sync: Vec::new(),
            wants_writer: false,
            has_called: false,
            is_closing: false,
        }
    }

    /// Keeps an answer for after the next sync.
    pub(super) fn hold_back(&mut self, answer: Answer) {
        self.for_sync.push(answer);
        self.wants_writer = true;
    }

    /// Makes the write that is staged, where readers see it.
    pub(super) fn commit(&mut self, shared: &Shared) -> Result<(), String> {
        // Before the rows that refer to them: a crash may leave a file without a row, never a row without its file.
        let names = self.staging.rows.sync_payload_names();
        names.map_err(|error| format!("`payloads` could not be synced: {error}"))?;
        let (has_changed, changes) = self.staging.apply();
        if has_changed && self.sync_by.is_none() {
            self.sync_by = Some(self.timer.now().monotonic + self.buffered_for);
            self.wants_writer = true;
        }
        changes.iter().for_each(|change| shared.watchers.publish(change));
        Ok(())
    }

    /// Whether the writer has to write before more is added in memory.
    pub(super) fn is_full(&self) -> bool {
        self.staging.rows.bytes() >= MAX_BYTES
    }

    /// Sets the time within which writes that are not synced at once are synced.
    pub(super) fn buffer_within(&mut self, within: Duration) {
        self.buffered_for = within - within / 5;
    }

    /// Sets how many bytes of writes are kept in memory before they are applied to the tree.
    pub(super) fn apply_from(&mut self, bytes: usize) {
        self.layer_bytes = bytes;
    }

    /// How long nothing may be written until what is in memory is applied to the tree, if it is much: whoever reads then finds it in one
    /// place.
    pub(super) fn idle_after(&self) -> Option<Duration> {
        self.has_much().then(|| self.buffered_for.saturating_mul(3))
    }

    /// Has the young layer become the old one, which must have been applied, if it is much and synced; returns how far the log has got.
    pub(super) fn age_if_synced(&mut self) -> Option<Progress> {
        let ages = self.sync_by.is_none() && self.has_much();
        ages.then(|| self.staging.age())
    }

    /// Whether the young layer has so much that readers gain by its being applied: 64 KiB. To apply less is a sync more for each write of a
    /// store that has few.
    fn has_much(&self) -> bool {
        self.staging.rows.young_bytes() >= (self.layer_bytes / 64).max(1)
    }

    /// How long until something has to be synced.
    pub(super) fn sync_in(&self) -> Option<Duration> {
        self.sync_by.map(|moment| moment.saturating_sub(self.timer.now().monotonic))
    }

    pub(super) fn is_sync_due(&self) -> bool {
        !self.for_sync.is_empty() || self.sync_in() == Some(Duration::ZERO)
    }

    /// Begins a sync: returns what it covers. What is applied from here on is for the next one. If the old layer `is_applied` and the
    /// young one has grown, that becomes the old one; before the last sync it does in any case, also if there is nothing else to sync.
    pub(super) fn begin_sync(&mut self, is_applied: bool, is_last: bool) -> Covered {
        let mut covered = Covered { answers: std::mem::take(&mut self.for_sync), ..Covered::default() };
        let young_bytes = self.staging.rows.young_bytes();
        let is_due = self.sync_by.take().is_some();
        let has_aged = is_applied && if is_last { is_due || young_bytes > 0 } else { young_bytes >= self.layer_bytes };
        if is_due || (has_aged && is_last) {
            covered.loose_payloads = self.staging.rows.take_loose_payloads();
            let (unwritten, progress) = self.staging.begin_sync(has_aged);
            covered.log = Some(Log { unwritten, progress, has_aged });
        }
        covered
    }

    /// The writer has woken up and will see what there is to sync.
    pub(super) fn writer_woke(&mut self) {
        (self.wants_writer, self.has_called) = (false, false);
    }

    /// Whether the writer has to be called because of what has just been applied.
    fn calls_writer(&mut self) -> bool {
        let calls = std::mem::take(&mut self.wants_writer) && !self.has_called;
        self.has_called |= calls;
        calls
    }

    fn apply(&mut self, shared: &Shared, change: Change, now: Timestamp) -> Result<Result<u64, StorageError>, String> {
        match self.staging.stage(change, now) {
            Ok(number) => self.commit(shared).map(|()| Ok(number)),
            Err(StageError::Refused(error)) => Ok(Err(error)),
            Err(StageError::Broken(reason)) => Err(reason),
        }
    }
}

/// The answer to a change that its caller has applied.
pub(super) enum Applied {
    Now(Result<u64, StorageError>),
    /// As soon as it is synced.
    Soon(oneshot::Receiver<Result<u64, StorageError>>),
}

impl Shared {
    /// The sessions of the open store.
    pub(super) fn sessions(&self, now: Duration) -> Result<Vec<SessionInfo>, StorageError> {
        let sessions = self.state.lock().as_ref().map(|state| state.staging.sessions.list(now));
        sessions.ok_or_else(|| self.why_stopped())
    }

    /// Applies a change on this thread and answers it, if it is a short one, the queue is empty and memory is not full; else returns it.
    pub(super) fn apply_here(&self, change: Change, now: Timestamp) -> Result<Applied, Change> {
        if !change.is_short() || self.permits.available_permits() < QUEUE {
            return Err(change);
        }
        let Some(mut guard) = self.state.try_lock_for(LOCK_TIMEOUT) else { return Err(change) };
        let Some(state) = guard.as_mut() else { return Err(change) };
        if self.stopped.get().is_some() || state.is_closing || state.staging.rows.is_expiry_due(now) || state.is_full()
        {
            return Err(change);
        }
        let durability = change.durability();
        // sled answers some damage with a panic.
        let applied = std::panic::catch_unwind(AssertUnwindSafe(|| state.apply(self, change, now)));
        let answer = match applied.unwrap_or_else(|_| Err(ENDED.to_owned())) {
            Ok(answer) => answer,
            Err(reason) => {
                self.stop(&reason);
                *guard = None;
                // The writer finds no state, reports why, and ends.
                let _ = self.requests.send(Request { write: Write::Wake, now, permit: None });
                return Ok(Applied::Now(Err(self.why_stopped())));
            }
        };
        let applied = match durability {
            Durability::Buffered | Durability::Memory => Applied::Now(answer),
            Durability::Sync => {
                let (reply, synced) = oneshot::channel();
                state.hold_back(Answer { reply, answer });
                Applied::Soon(synced)
            }
        };
        let calls = state.calls_writer();
        drop(guard);
        self.count_batch(1);
        if calls {
            let _ = self.requests.send(Request { write: Write::Wake, now, permit: None });
        }
        Ok(applied)
    }
}
