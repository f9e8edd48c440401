//! The store's own thread, on which everything that waits for the disk is done: it writes payload files, takes requests from the
//! queue, syncs, and answers. A sync appends what was written to the write-ahead log. The thread alone changes sled's tree: between syncs it
//! applies to it what the log has.
//!
//! While a sync runs, writes gather; the next one is for all of them. So the number of syncs does not grow with the
//! number of callers. After a failed sync it is unknown what is on disk: the thread ends, and with it every
//! acknowledgement.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use parking_lot::{MappedMutexGuard, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::disk::{Disk, sync_folder};
use super::folder::Folder;
use super::joining::with_joined_records;
use super::overlay::{Rows, Stored};
use super::payloads::{PayloadName, Payloads};
use super::row_batch::is_used;
use super::rows::{self, Progress};
use super::shared::{CLOSED, ENDED, Shared};
use super::staging::StageError;
use super::write_ahead::WriteAheadLog;
use super::write_state::{Covered, LAYER_BYTES, Log, WriteState};
use super::writes::{Answer, Request, Write};
use crate::messages::{Durability, Timestamp};
use crate::storage::codec;

/// The most requests of one batch. Callers at the front of a long queue are answered between its batches; with one batch for all of them,
/// they would wait for the last.
const BATCH_REQUESTS: usize = 256;

/// How many rows are applied to the tree between two looks at the queue: whoever waits for a sync waits for them. More if the next layer
/// waits already.
const APPLIED_AT_ONCE: usize = 8;
const APPLIED_IF_LATE: usize = 512;

/// What the thread owns.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    tree: sled::Tree,
    payloads: Payloads,
    disk: Arc<dyn Disk>,
    db: File,
    folder: Folder,
    blobs: HashSet<OsString>,
    log: WriteAheadLog,
    /// What is being applied to the tree.
    applying: Option<Applying>,
}

/// The old layer on its way into the tree.
struct Applying {
    rows: Arc<Rows>,
    /// The last row that was applied.
    last: Bound<Vec<u8>>,
    /// How far the log has got with it.
    progress: Progress,
}

/// The answers that wait for one batch.
#[derive(Default)]
struct Waiting {
    for_apply: Vec<Answer>,
    permit: Option<OwnedSemaphorePermit>,
    closing: Option<oneshot::Sender<()>>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        tree: sled::Tree,
        payloads: Payloads,
        disk: Arc<dyn Disk>,
        folder: Folder,
    ) -> io::Result<Self> {
        let db = OpenOptions::new().read(true).write(true).open(folder.path().join("db"))?;
        let (blobs, log) = (HashSet::new(), WriteAheadLog::new(folder.path()));
        Ok(Self { shared, tree, payloads, disk, db, folder, blobs, log, applying: None })
    }

    /// Serves until the store is closed or breaks.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        let closing = match self.serve(requests) {
            Ok(closing) => closing,
            Err(reason) => {
                tracing::error!(folder = %self.folder.path().display(), %reason, "the store has stopped");
                self.shared.stop(&reason);
                return;
            }
        };
        self.shared.stop(CLOSED);
        let Self { shared, tree, db, folder, .. } = self;
        drop((shared.state.lock().take(), tree, db));
        shared.release();
        drop(folder);
        if let Some(closed) = closing {
            let _ = closed.send(());
        }
    }

    /// Makes what opening has changed durable: sled's settings, which it never syncs and without which it refuses its log,
    /// the names of new files, the new session, and what was left in the write-ahead log.
    pub(super) fn commit_opening(&mut self) -> Result<(), String> {
        let settings = self.folder.path().join("conf");
        let synced = File::open(&settings).and_then(|file| self.disk.sync(&file, &settings));
        synced.map_err(|error| failed("conf", &error))?;
        sync_folder(&*self.disk, self.folder.path()).map_err(|error| failed("the folder", &error))?;
        let Covered { log, .. } = write_state(&self.shared)?.begin_sync(false, false);
        if let Some(Log { progress, .. }) = log {
            self.sync_tree(progress)?;
            self.shared.count_sync();
        }
        self.remove_log_up_to(u64::MAX)
    }

    fn serve(&mut self, requests: &Receiver<Request>) -> Result<Option<oneshot::Sender<()>>, String> {
        let (mut sync_in, mut idle_after) = (None, None);
        loop {
            match self.next(requests, sync_in.or(idle_after)) {
                Ok(first) => {
                    if let Some(closing) = self.batch(first, requests)? {
                        return Ok(Some(closing));
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.applying.is_none() && sync_in.is_none() => {
                    let aged = write_state(&self.shared)?.age_if_synced();
                    aged.map_or(Ok(()), |progress| self.begin_applying(progress))?;
                }
                // It was waited for, or is due already.
                Err(RecvTimeoutError::Timeout) if self.applying.is_none() || sync_in == Some(Duration::ZERO) => {
                    self.sync(false)?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.sync(true)?;
                    return Ok(None);
                }
            }
            self.apply_some()?;
            let state = write_state(&self.shared)?;
            (sync_in, idle_after) = (state.sync_in(), state.idle_after());
        }
    }

    /// Waits for a request until there is something else to do, or not at all while there are rows to apply.
    fn next(&self, requests: &Receiver<Request>, within: Option<Duration>) -> Result<Request, RecvTimeoutError> {
        if self.applying.is_some() {
            return requests.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            });
        }
        match within {
            Some(wait) => requests.recv_timeout(wait),
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// Commits one batch; `Some` if it ended with the request to close.
    fn batch(&mut self, first: Request, requests: &Receiver<Request>) -> Result<Option<oneshot::Sender<()>>, String> {
        let mut waiting = Waiting::default();
        let committed = self.try_batch(std::iter::once(first).chain(requests.try_iter()), &mut waiting);
        // Before the answers are dropped: their callers then read the reason.
        committed.inspect_err(|reason| self.shared.stop(reason))?;
        Ok(waiting.closing)
    }

    fn try_batch(&mut self, requests: impl Iterator<Item = Request>, waiting: &mut Waiting) -> Result<(), String> {
        let mut state = write_state(&self.shared)?;
        state.writer_woke();
        let (mut taken, mut writes) = (0, 0);
        for Request { write, now, permit } in requests {
            match (&mut waiting.permit, permit) {
                (Some(all), Some(permit)) => all.merge(permit),
                (all, permit) => *all = all.take().or(permit),
            }
            taken += 1;
            writes += usize::from(matches!(write, Write::Change(..)));
            if !stage(&mut state, &self.shared, write, now, waiting)? {
                break;
            }
            if taken == 1 {
                state.staging.rows.remove_expired(now)?;
            }
            state.commit(&self.shared)?;
            if taken == BATCH_REQUESTS || state.is_full() {
                break;
            }
        }
        self.shared.count_batch(writes);
        drop(waiting.permit.take());
        let (is_closing, is_full) = (waiting.closing.is_some(), state.is_full());
        let is_sync_due = state.is_sync_due();
        drop(state);
        waiting.for_apply.drain(..).for_each(Answer::send);
        if is_full {
            self.apply_rest()?;
        }
        if is_sync_due || is_closing || is_full { self.sync(is_closing) } else { Ok(()) }
    }

    /// Makes everything written so far durable, if it is not, and sends the answers that wait for that. If it is the last time, the tree
    /// then has everything in rows of its own.
    fn sync(&mut self, is_last: bool) -> Result<(), String> {
        if is_last {
            self.apply_rest()?;
        }
        let is_applied = self.applying.is_none();
        let Covered { answers, log, loose_payloads } = write_state(&self.shared)?.begin_sync(is_applied, is_last);
        let aged = log.as_ref().filter(|log| log.has_aged).map(|log| log.progress);
        let synced = log.map_or(Ok(()), |log| self.sync_log(&log, &loose_payloads));
        // Before the answers are dropped: their callers then read the reason.
        synced.inspect_err(|reason| self.shared.stop(reason))?;
        answers.into_iter().for_each(Answer::send);
        if let Some(progress) = aged {
            self.begin_applying(progress)?;
        }
        if is_last { self.apply_rest() } else { Ok(()) }
    }

    /// Never tried twice: a failed fsync may have dropped what it was to write.
    fn sync_log(&mut self, log: &Log, loose_payloads: &[PayloadName]) -> Result<(), String> {
        let Log { unwritten, progress, has_aged: _ } = log;
        let appended = self.log.append(&*self.disk, progress, unwritten);
        appended.map_err(|error| format!("the log was not written: {error}; {KEPT}"))?;
        self.shared.count_sync();
        let noted = self.folder.note_sync(&*self.disk, progress.sync);
        noted.map_err(|error| failed("synced", &error))?;
        let stored = Stored { tree: &self.tree, overlay: &self.shared.overlay };
        for name in loose_payloads.iter().filter(|name| !is_used(stored, name)) {
            self.payloads.remove(name);
        }
        Ok(())
    }

    /// Begins to apply the old layer, with which the log has got this far. Not before it is on disk there: sled may write its own log at any
    /// time.
    fn begin_applying(&mut self, progress: Progress) -> Result<(), String> {
        self.log.end_file();
        let overlay = &self.shared.overlay;
        let joined = with_joined_records(&overlay.old(), &overlay.take_written_again());
        let state = write_state(&self.shared)?;
        // A purge meanwhile has removed the rows that are joined here.
        if !state.staging.has_purged() {
            self.shared.overlay.replace_old(joined);
        }
        drop(state);
        let (rows, last) = (self.shared.overlay.old(), Bound::Unbounded);
        self.applying = Some(Applying { rows, last, progress });
        Ok(())
    }

    /// Applies some rows of the old layer to the tree.
    fn apply_some(&mut self) -> Result<(), String> {
        let Some(Applying { rows, last, progress }) = &mut self.applying else { return Ok(()) };
        let is_late = self.shared.overlay.young_bytes() >= LAYER_BYTES;
        let mut left = if is_late { APPLIED_IF_LATE } else { APPLIED_AT_ONCE };
        let mut applied = Bound::Unbounded;
        for (row, sealed) in rows.range::<[u8], _>((last.as_ref().map(Vec::as_slice), Bound::Unbounded)) {
            if left == 0 {
                break;
            }
            left -= 1;
            let changed = match sealed {
                Some(sealed) => self.tree.insert(row, sealed),
                None => self.tree.remove(row),
            };
            changed.map_err(not_applied)?;
            applied = Bound::Excluded(row.clone());
        }
        if left == 0 {
            *last = applied;
            return Ok(());
        }
        let progress = *progress;
        self.applying = None;
        self.shared.overlay.forget_old();
        self.sync_tree(progress)?;
        self.remove_log_up_to(progress.sync)
    }

    /// Removes what the log has of writes that the tree has on disk.
    fn remove_log_up_to(&self, sync: u64) -> Result<(), String> {
        let removed = self.log.remove_up_to(sync);
        removed.map_err(|error| format!("files of the write-ahead log cannot be removed: {error}"))
    }

    /// Applies the rest of the old layer.
    fn apply_rest(&mut self) -> Result<(), String> {
        while self.applying.is_some() {
            self.apply_some()?;
        }
        Ok(())
    }

    /// Makes the tree durable, which has everything up to a sync.
    fn sync_tree(&mut self, progress: Progress) -> Result<(), String> {
        let not_written = |error: sled::Error| format!("the tree was not written: {error}");
        self.tree.insert(rows::PROGRESS, codec::encode(&progress)).map_err(not_written)?;
        self.tree.flush().map_err(not_written)?;
        self.sync_blobs().map_err(|error| failed("blobs", &error))?;
        // Before the sync: what others add meanwhile may not be on disk.
        let db_length = self.db.metadata().map_err(|error| failed("db", &error))?.len();
        let path = self.folder.path().join("db");
        self.disk.sync(&self.db, &path).map_err(|error| failed("db", &error))?;
        let noted = self.folder.note_db(&*self.disk, progress.sync, db_length);
        noted.map_err(|error| failed("synced", &error))
    }

    /// Pages are kept below the size from which on sled writes them to files of their own, which it never syncs. Should
    /// one be there all the same, it is synced here.
    fn sync_blobs(&mut self) -> io::Result<()> {
        let folder = self.folder.path().join("blobs");
        let mut is_new = false;
        for blob in fs::read_dir(&folder)? {
            let blob = blob?;
            // sled makes files alone; a pipe would be waited for.
            if blob.file_type()?.is_file() && self.blobs.insert(blob.file_name()) {
                self.disk.sync(&File::open(blob.path())?, &blob.path())?;
                is_new = true;
            }
        }
        if is_new { sync_folder(&*self.disk, &folder) } else { Ok(()) }
    }
}

/// The write state, unless the store has ended.
fn write_state(shared: &Shared) -> Result<MappedMutexGuard<'_, WriteState>, String> {
    MutexGuard::try_map(shared.state.lock(), Option::as_mut)
        .map_err(|_| shared.stopped.get().map_or(ENDED, String::as_str).to_owned())
}

/// Decides about one request; false if it ends the store.
fn stage(
    state: &mut WriteState,
    shared: &Shared,
    write: Write,
    now: Timestamp,
    waiting: &mut Waiting,
) -> Result<bool, String> {
    match write {
        Write::Change(change, reply) => {
            let durability = change.durability();
            let answer = match state.staging.stage(change, now) {
                Ok(number) => Ok(number),
                Err(StageError::Refused(error)) => Err(error),
                Err(StageError::Broken(reason)) => {
                    // While this caller's reply is still here; the others' are dropped later.
                    shared.stop(&reason);
                    return Err(reason);
                }
            };
            let answer = Answer { reply, answer };
            match durability {
                Durability::Sync => state.hold_back(answer),
                Durability::Buffered | Durability::Memory => waiting.for_apply.push(answer),
            }
        }
        Write::Wake => {}
        Write::Close(reply) => {
            state.is_closing = true;
            waiting.closing = Some(reply);
            return Ok(false);
        }
    }
    Ok(true)
}

const KEPT: &str = "what was acknowledged as `Sync` before is on disk";

fn not_applied(error: sled::Error) -> String {
    format!("a row was not applied: {error}")
}

fn failed(file: &str, error: &io::Error) -> String {
    format!("`{file}` could not be synced: {error}; {KEPT}")
}
