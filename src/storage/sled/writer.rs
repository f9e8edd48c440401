//! The store's own thread, on which everything that waits for the disk is done: it writes payload files, takes requests from the
//! queue, syncs, and answers.
//!
//! While a sync runs, writes gather; the next one is for all of them. So the number of syncs does not grow with the
//! number of callers. After a failed sync it is unknown what is on disk: the thread ends, and with it every
//! acknowledgement.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use parking_lot::{MappedMutexGuard, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::disk::{Disk, sync_folder};
use super::folder::{Folder, Synced};
use super::payloads::{PayloadName, Payloads};
use super::row_batch::is_used;
use super::shared::{CLOSED, ENDED, Shared};
use super::staging::StageError;
use super::write_state::{Covered, WriteState};
use super::writes::{Answer, Request, Write};
use crate::messages::{Durability, Timestamp};

/// Bounds of one batch. Callers at the front of a long queue are answered between its batches; with one batch for all of them,
/// they would wait for the last.
const BATCH_REQUESTS: usize = 256;
const BATCH_BYTES: usize = 8 << 20;

/// What the thread owns.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    tree: sled::Tree,
    payloads: Payloads,
    disk: Arc<dyn Disk>,
    db: File,
    folder: Folder,
    blobs: HashSet<OsString>,
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
        Ok(Self { shared, tree, payloads, disk, db, folder, blobs: HashSet::new() })
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
    /// the names of new files, and the new session.
    pub(super) fn commit_opening(&mut self) -> Result<(), String> {
        let settings = self.folder.path().join("conf");
        let synced = File::open(&settings).and_then(|file| self.disk.sync(&file, &settings));
        synced.map_err(|error| failed("conf", &error))?;
        sync_folder(&*self.disk, self.folder.path()).map_err(|error| failed("the folder", &error))?;
        self.sync()
    }

    fn serve(&mut self, requests: &Receiver<Request>) -> Result<Option<oneshot::Sender<()>>, String> {
        let mut sync_in = None;
        loop {
            let first = match sync_in {
                None => requests.recv().ok(),
                Some(wait) => match requests.recv_timeout(wait) {
                    Ok(request) => Some(request),
                    Err(RecvTimeoutError::Disconnected) => None,
                    Err(RecvTimeoutError::Timeout) => {
                        self.sync()?;
                        sync_in = write_state(&self.shared)?.sync_in();
                        continue;
                    }
                },
            };
            let Some(first) = first else {
                self.sync()?;
                return Ok(None);
            };
            if let Some(closing) = self.batch(first, requests)? {
                return Ok(Some(closing));
            }
            sync_in = write_state(&self.shared)?.sync_in();
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
            // As its caller would have: a batch of sled's keeps readers out, and only several rows at once need one.
            if state.staging.rows.is_single() {
                state.commit(&self.shared)?;
            }
            if taken == BATCH_REQUESTS || state.staging.rows.bytes() >= BATCH_BYTES {
                break;
            }
        }
        self.shared.count_batch(writes);
        state.commit(&self.shared)?;
        drop(waiting.permit.take());
        let is_sync_due = state.is_sync_due() || waiting.closing.is_some();
        drop(state);
        waiting.for_apply.drain(..).for_each(Answer::send);
        if is_sync_due { self.sync() } else { Ok(()) }
    }

    /// Makes everything applied so far durable, if it is not, and sends the answers that wait for that.
    fn sync(&mut self) -> Result<(), String> {
        let (Covered { answers, sync, loose_payloads }, written) = write_state(&self.shared)?.begin_sync();
        let synced = written.and_then(|()| match sync {
            Some(sync) => self.sync_log(sync, &loose_payloads),
            None => Ok(()),
        });
        // Before the answers are dropped: their callers then read the reason.
        synced.inspect_err(|reason| self.shared.stop(reason))?;
        answers.into_iter().for_each(Answer::send);
        Ok(())
    }

    /// Never tried twice: a failed fsync may have dropped what it was to write.
    fn sync_log(&mut self, sync: u64, loose_payloads: &[PayloadName]) -> Result<(), String> {
        self.tree.flush().map_err(|error| format!("the log was not written: {error}"))?;
        self.sync_blobs().map_err(|error| failed("blobs", &error))?;
        // Before the sync: what others add meanwhile may not be on disk.
        let db_length = self.db.metadata().map_err(|error| failed("db", &error))?.len();
        let path = self.folder.path().join("db");
        self.disk.sync(&self.db, &path).map_err(|error| failed("db", &error))?;
        self.shared.count_sync();
        let noted = self.folder.note_synced(&*self.disk, Synced { sync, db_length });
        noted.map_err(|error| failed("synced", &error))?;
        for name in loose_payloads.iter().filter(|name| !is_used(&self.tree, name)) {
            self.payloads.remove(name);
        }
        Ok(())
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

fn failed(file: &str, error: &io::Error) -> String {
    format!("`{file}` could not be synced: {error}; what was acknowledged as `Sync` before is on disk")
}
