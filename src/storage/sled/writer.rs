//! The one thread that writes: it takes what waits, decides it, commits it as one batch, syncs once, and answers.
//!
//! While a sync runs, requests gather; they are the next batch. So the number of syncs does not grow with the number of
//! callers. After a failed sync nobody knows what is on disk: the thread ends, and with it every acknowledgement.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Shared;
use super::disk::{Disk, sync_folder};
use super::folder::{Folder, Synced};
use super::staging::{Staging, Trouble};
use super::writes::{Answer, Request, Write};
use crate::env::{Clock, SystemClock};
use crate::messages::{Durability, Timestamp};

/// Within this time after its acknowledgement a buffered write is on disk, give or take one sync.
const BUFFERED_FOR: Duration = Duration::from_millis(80);

/// Bounds of one batch.
const BATCH_REQUESTS: usize = 4_096;
const BATCH_BYTES: usize = 8 << 20;

/// What the thread owns.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    staging: Staging,
    disk: Box<dyn Disk>,
    db: File,
    folder: Folder,
    blobs: HashSet<OsString>,
    /// Real time: how long a write has been waiting does not depend on a test's clock.
    timer: SystemClock,
    /// When the oldest write that is not synced has to be.
    sync_by: Option<Duration>,
}

/// The answers of one batch.
#[derive(Default)]
struct Waiting {
    for_apply: Vec<Answer>,
    for_sync: Vec<Answer>,
    closing: Option<oneshot::Sender<()>>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, staging: Staging, disk: Box<dyn Disk>, folder: Folder) -> io::Result<Self> {
        let db = OpenOptions::new().read(true).write(true).open(folder.path().join("db"))?;
        let timer = SystemClock::default();
        Ok(Self { shared, staging, disk, db, folder, blobs: HashSet::new(), timer, sync_by: None })
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
        self.shared.stop("it was closed");
        let Self { shared, staging, db, folder, .. } = self;
        drop((staging, db));
        shared.let_go();
        drop(folder);
        if let Some(closed) = closing {
            let _ = closed.send(());
        }
    }

    /// Makes what opening has changed durable: the names of new files, and the new session.
    pub(super) fn commit_opening(&mut self) -> Result<(), String> {
        sync_folder(&mut *self.disk, self.folder.path()).map_err(|error| failed("the folder", &error))?;
        self.sync_now()
    }

    fn serve(&mut self, requests: &Receiver<Request>) -> Result<Option<oneshot::Sender<()>>, String> {
        loop {
            let first = match self.sync_by {
                None => requests.recv().ok(),
                Some(moment) => match requests.recv_timeout(moment.saturating_sub(self.timer.now().monotonic)) {
                    Ok(request) => Some(request),
                    Err(RecvTimeoutError::Disconnected) => None,
                    Err(RecvTimeoutError::Timeout) => {
                        self.sync()?;
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
        }
    }

    /// Commits one batch; `Some` if it ended with the request to close.
    fn batch(&mut self, first: Request, requests: &Receiver<Request>) -> Result<Option<oneshot::Sender<()>>, String> {
        let mut waiting = Waiting::default();
        let committed = self.try_batch(std::iter::once(first).chain(requests.try_iter()), &mut waiting);
        // Before the answers are dropped: that tells the callers, and they ask why.
        committed.inspect_err(|reason| self.shared.stop(reason))?;
        Ok(waiting.closing)
    }

    fn try_batch(&mut self, requests: impl Iterator<Item = Request>, waiting: &mut Waiting) -> Result<(), String> {
        let mut taken = 0;
        for Request { write, now, room } in requests {
            drop(room);
            taken += 1;
            if !self.stage(write, now, waiting)? {
                break;
            }
            if taken == 1 {
                self.staging.rows.sweep(now)?;
            }
            if taken == BATCH_REQUESTS || self.staging.rows.bytes() >= BATCH_BYTES {
                break;
            }
        }
        self.shared.count_batch(taken);
        self.commit()?;
        waiting.for_apply.drain(..).for_each(Answer::tell);
        let due = self.sync_by.is_some_and(|moment| moment <= self.timer.now().monotonic);
        if !waiting.for_sync.is_empty() || due || waiting.closing.is_some() {
            self.sync()?;
        }
        waiting.for_sync.drain(..).for_each(Answer::tell);
        Ok(())
    }

    /// Decides about one request; false if it ends the store.
    fn stage(&mut self, write: Write, now: Timestamp, waiting: &mut Waiting) -> Result<bool, String> {
        match write {
            Write::Change(change, reply) => {
                let answers = match change.durability() {
                    Durability::Sync => &mut waiting.for_sync,
                    Durability::Buffered | Durability::Memory => &mut waiting.for_apply,
                };
                match self.staging.stage(change, now, &mut *self.disk) {
                    Ok(number) => answers.push(Answer::Number(reply, Ok(number))),
                    Err(Trouble::Refused(error)) => answers.push(Answer::Number(reply, Err(error))),
                    Err(Trouble::Broken(reason)) => {
                        // While this caller's reply is still here; the others' are dropped later.
                        self.shared.stop(&reason);
                        return Err(reason);
                    }
                }
            }
            Write::Next { queue, lease_secs, reply } => {
                let item = self.staging.next(&queue, lease_secs, now);
                waiting.for_apply.push(Answer::Item(reply, item));
            }
            Write::Close(reply) => {
                waiting.closing = Some(reply);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Applies the batch to the tree, where readers see it.
    fn commit(&mut self) -> Result<(), String> {
        // Before the rows that refer to them: a crash may leave a file without a row, never a row without its file.
        self.staging.rows.sync_payload_names(&mut *self.disk).map_err(|error| failed("payloads", &error))?;
        let applied = self.staging.apply();
        let (has_changed, changes) = applied.map_err(|error| format!("a batch was not applied: {error}"))?;
        if has_changed {
            self.sync_by.get_or_insert_with(|| self.timer.now().monotonic + BUFFERED_FOR);
        }
        for (key, change) in changes {
            self.shared.watchers.publish(&key, || change.clone());
        }
        Ok(())
    }

    /// Makes everything applied so far durable, if it is not.
    fn sync(&mut self) -> Result<(), String> {
        if self.sync_by.is_some() { self.sync_now() } else { Ok(()) }
    }

    /// Never tried twice: a failed fsync may have dropped what it was to write.
    fn sync_now(&mut self) -> Result<(), String> {
        self.sync_by = None;
        self.staging.mark_progress().map_err(|error| format!("the log was not written: {error}"))?;
        self.staging.rows.tree().flush().map_err(|error| format!("the log was not written: {error}"))?;
        self.sync_blobs().map_err(|error| failed("blobs", &error))?;
        let path = self.folder.path().join("db");
        self.disk.sync(&self.db, &path).map_err(|error| failed("db", &error))?;
        self.shared.count_sync();
        let db_length = self.db.metadata().map_err(|error| failed("db", &error))?.len();
        let note = Synced { sync: self.staging.progress().sync, db_length };
        self.folder.note_synced(note).map_err(|error| failed("synced", &error))?;
        self.staging.rows.remove_loose_payloads();
        Ok(())
    }

    /// Pages are kept below the size from which on sled writes them to files of their own, which it never syncs. Should
    /// one be there all the same, it is synced here.
    fn sync_blobs(&mut self) -> io::Result<()> {
        let folder = self.folder.path().join("blobs");
        let mut is_new = false;
        for blob in fs::read_dir(&folder)? {
            let blob = blob?;
            if self.blobs.insert(blob.file_name()) {
                self.disk.sync(&File::open(blob.path())?, &blob.path())?;
                is_new = true;
            }
        }
        if is_new { sync_folder(&mut *self.disk, &folder) } else { Ok(()) }
    }
}

fn failed(file: &str, error: &io::Error) -> String {
    format!("`{file}` could not be synced: {error}; what was acknowledged before is on disk")
}
