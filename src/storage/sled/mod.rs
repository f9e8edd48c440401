//! A store on disk: sled as an ordered map, and what sled leaves out.
//!
//! What sled 0.34 does not do by itself, and what is done here about it:
//! - its flush does not fsync: every acknowledgement of a `Sync` write waits for an fsync of the log through our own handle;
//! - it has no checks of sequences, revisions and sessions: writes are decided in order, one at a time, under one lock (`write_state`);
//! - it mistakes a truncated log for a crash: a note of what was synced distinguishes them;
//! - half-written snapshots keep it from opening: they are removed first;
//! - it keeps long pages in files that it never syncs: pages stay below that, longer payloads are files of our own.

mod api;
mod disk;
mod folder;
mod gaps;
mod groups;
mod joining;
#[cfg(test)]
mod later_rows;
mod loading;
mod log_check;
mod overlay;
mod payloads;
mod read_error;
mod reads;
mod row_batch;
mod rows;
mod shared;
mod staging;
#[cfg(test)]
mod tests;
mod write_state;
mod writer;
mod writes;

use std::fmt;
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, oneshot};

use self::disk::{Disk, SystemDisk};
use self::folder::{Folder, MovedFiles, RESTORE_ADVICE, SEGMENT, refused};
use self::overlay::{Overlay, Stored};
use self::payloads::Payloads;
use self::row_batch::RowBatch;
use self::rows::Progress;
use self::shared::{Open, QUEUE, Shared, StopOnDrop};
use self::staging::Staging;
use self::write_state::WriteState;
use self::writer::Writer;
use self::writes::{Request, Write};
use super::watchers::Watchers;
use super::{StorageError, codec};
use crate::env::{Clock, SystemClock};

/// sled's page cache in bytes (its own default is 1 GiB).
const CACHE: u64 = 64 << 20;

/// Opening jumps ahead by this many numbers, so that one which a crash made us forget is not given out again.
const NUMBERS_PER_SESSION: u64 = 1 << 24;

/// How long opening waits for sled to release a store that this process has just closed.
const SLED_UNLOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps everything in one folder, which one process at a time can use.
///
/// A short write is made in memory on the caller's thread; one with a long payload, and one that finds others in the
/// queue, is made by the store's own thread. That thread alone writes to sled and syncs, so no caller waits in an fsync, and many writes
/// share one. A write is made or enqueued when it is called; while 16,384 others are queued, its future waits for a permit and
/// enqueues it then. Reads are served on the caller's thread from the last writes and sled's cache, and from disk if they do not
/// hold the page.
///
/// Dropping the store closes it: everything acknowledged is synced, and the drop waits for that. [`Sled::close`] does the
/// same without blocking.
///
/// ```
/// use callboard::storage::{Append, Durability, Key, Sled, Storage};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let store = Sled::open(folder)?;
/// let stream = Key::new(["run", "1"]);
/// let payload = b"started".as_slice().into();
/// store.append(Append::new(stream.clone(), 0, payload)).await?;
/// drop(store);
///
/// let store = Sled::open(folder)?;
/// assert_eq!(store.read(&stream, 1, 10).await?.len(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Sled {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    payloads: Payloads,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SledStats {
    /// Successful syncs of the log; opening the store makes the first.
    pub syncs: u64,
    /// Batches of writes; one that its caller has applied is a batch of its own.
    pub batches: u64,
    /// Writes, including refused ones and the changes of sessions, except those that were too long.
    pub writes: u64,
}

impl Sled {
    /// Opens the store in a folder, or makes one there. Blocks for as long as sled reads its log; and for up to 5 s if the lock of
    /// the folder belongs to a process that has died, or if this process has just closed the store.
    ///
    /// # Errors
    /// [`StorageError::InUse`] if another process, or this one, has it open; [`StorageError::Open`] if a newer version of callboard wrote it, if it is damaged
    /// or truncated, or if the disk fails.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        Self::open_with_clock(path, Arc::new(SystemClock::default()))
    }

    /// As [`Sled::open`], with entries and leases that expire by `clock`.
    ///
    /// # Errors
    /// As [`Sled::open`].
    pub fn open_with_clock(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self, StorageError> {
        Self::open_on(path.as_ref(), clock, Arc::new(SystemDisk))
    }

    fn open_on(path: &Path, clock: Arc<dyn Clock>, disk: Arc<dyn Disk>) -> Result<Self, StorageError> {
        let (mut folder, lock, synced) = Folder::open(path, &*disk)?;
        let refuse = |detail: String| refused(path, detail);
        let db = open_sled(path).or_else(|error| open_without_extras(path).ok_or(error)).map_err(refuse)?;
        let stored = db
            .get(rows::PROGRESS)
            .map_err(|error| refuse(format!("the file `db` cannot be read: {error}; {RESTORE_ADVICE}")))?;
        let progress = match stored {
            Some(row) => codec::decode::<Progress>(&row)
                .map_err(|error| refuse(format!("the file `db` is damaged: {error}; {RESTORE_ADVICE}")))?,
            None => Progress::default(),
        };
        if progress.sync < synced.sync {
            return Err(refuse(format!(
                "the file `db` is damaged: it ends with sync {} and had {}; {RESTORE_ADVICE}",
                progress.sync, synced.sync
            )));
        }
        let progress = next_session(progress);
        let payloads = Payloads::open(path.join("payloads"), Arc::clone(&disk))
            .map_err(|error| refuse(format!("its folder `payloads` cannot be used: {error}")))?;
        folder
            .bring_up_to_date(&*disk)
            .map_err(|error| refuse(format!("the file `format` cannot be written: {error}")))?;
        groups::apply_left(&db)
            .map_err(|error| refuse(format!("the file `db` is damaged: {error}; {RESTORE_ADVICE}")))?;
        let (tree, overlay) = ((*db).clone(), Arc::new(Overlay::default()));
        payloads
            .remove_unused(|name| row_batch::is_used(Stored { tree: &tree, overlay: &overlay }, name))
            .map_err(|error| refuse(format!("unused files of `payloads` cannot be removed: {error}")))?;
        let staging = Staging::new(RowBatch::new(tree.clone(), Arc::clone(&overlay), payloads.clone()), progress);
        let (requests, waiting) = mpsc::channel();
        let shared = Arc::new(Shared {
            state: Mutex::new(Some(WriteState::new(staging))),
            requests,
            permits: Arc::new(Semaphore::new(QUEUE)),
            overlay,
            open: RwLock::new(Some(Open { db, _lock: lock })),
            stopped: OnceLock::new(),
            watchers: Watchers::default(),
            syncs: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        });
        let mut writer = Writer::new(Arc::clone(&shared), tree, payloads.clone(), disk, folder)
            .map_err(|error| refuse(format!("the file `db` cannot be opened: {error}")))?;
        writer.commit_opening().map_err(refuse)?;
        let thread = std::thread::Builder::new()
            .name("callboard-store".to_owned())
            .spawn(move || {
                let _stop = StopOnDrop(Arc::clone(&writer.shared));
                writer.run(&waiting);
            })
            .map_err(|error| refuse(format!("the writer cannot be started: {error}")))?;
        Ok(Self { path: path.to_owned(), clock, shared, payloads, thread: Mutex::new(Some(thread)) })
    }

    /// Sets the interval for [`Durability::Buffered`](crate::messages::Durability::Buffered) writes (100 ms): a sync begins when four
    /// fifths of it are over since the oldest write that is not synced, so that it usually ends within it. The shorter it is, the
    /// less a power failure can take, and the more syncs there are.
    ///
    /// ```
    /// use std::time::Duration;
    /// use callboard::storage::Sled;
    /// # let folder = tempfile::tempdir()?;
    /// let store = Sled::open(folder.path())?.buffered_within(Duration::from_millis(20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn buffered_within(self, within: Duration) -> Self {
        if let Some(state) = &mut *self.shared.state.lock() {
            state.buffer_within(within);
        }
        self
    }

    /// Sets how many bytes of the last writes are kept in memory and synced in groups, before they are applied to rows of their own (4 MiB):
    /// for tests, in which few writes are to get there.
    #[doc(hidden)]
    #[must_use]
    pub fn applied_from(self, bytes: usize) -> Self {
        if let Some(state) = &mut *self.shared.state.lock() {
            state.apply_from(bytes);
        }
        self
    }

    /// What the store has done since it was opened.
    #[must_use]
    pub fn stats(&self) -> SledStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { syncs, batches, writes, .. } = &*self.shared;
        SledStats { syncs: read(syncs), batches: read(batches), writes: read(writes) }
    }

    /// Syncs everything and gives the folder back. Later calls fail with [`StorageError::Stopped`]. Once polled, it closes the
    /// store also if its future is dropped; the last steps may block the thread that polls it for a moment. Closing again is fine.
    ///
    /// # Errors
    /// [`StorageError::Stopped`] if the last sync has failed, or the store had stopped before: of what was acknowledged as `Buffered`
    /// or `Memory`, some may not be on disk. The folder is given back all the same.
    pub async fn close(&self) -> Result<(), StorageError> {
        let (closed, is_closed) = oneshot::channel();
        if self.send(Write::Close(closed)) {
            let _ = is_closed.await;
        }
        self.finish();
        if self.shared.was_closed() { Ok(()) } else { Err(self.shared.why_stopped()) }
    }

    /// Waits for the writer, which has ended or is about to, and releases the tree if it could not.
    fn finish(&self) {
        let thread = self.thread.lock().take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!(folder = %self.path.display(), "the store's writer has panicked");
        }
        self.shared.release();
    }

    /// Sends a request to the writer without a permit; false if the writer has ended.
    fn send(&self, write: Write) -> bool {
        let now = self.clock.now().wall;
        self.shared.requests.send(Request { write, now, permit: None }).is_ok()
    }
}

impl Drop for Sled {
    fn drop(&mut self) {
        let (closed, _) = oneshot::channel();
        self.send(Write::Close(closed));
        self.finish();
    }
}

impl fmt::Debug for Sled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stopped = self.shared.stopped.get();
        f.debug_struct("Sled")
            .field("path", &self.path)
            .field("stats", &self.stats())
            .field("stopped", &stopped)
            .finish()
    }
}

/// Opens sled with settings under which it is safe.
fn open_sled(path: &Path) -> Result<sled::Db, String> {
    let config = sled::Config::new()
        .path(path)
        .mode(sled::Mode::HighThroughput)
        .segment_size(SEGMENT)
        .cache_capacity(CACHE)
        .flush_every_ms(None);
    let timer = SystemClock::default();
    loop {
        // sled answers some damage with a panic.
        match std::panic::catch_unwind(AssertUnwindSafe(|| config.open())) {
            Ok(Ok(db)) => return Ok(db),
            Ok(Err(sled::Error::Io(error)))
                if error.to_string().contains("could not acquire lock")
                    && timer.now().monotonic < SLED_UNLOCK_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            // The disk, and not what is on it.
            Ok(Err(sled::Error::Io(error))) if !is_damage(error.kind()) => {
                let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
                let help = if is_full { format!("; free at least {} bytes there", 2 * SEGMENT) } else { String::new() };
                return Err(format!("its files cannot be used: {error}{help}"));
            }
            Ok(Err(error)) => return Err(format!("the file `db` cannot be read: {error}; {RESTORE_ADVICE}")),
            Err(_) => return Err(format!("the file `db` is damaged: sled gave up on it; {RESTORE_ADVICE}")),
        }
    }
}

/// Whether sled reports damaged files by such an error.
fn is_damage(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::Other | ErrorKind::NotFound)
}

/// Opens sled by its log alone, if there are other files that may be the cause. `None` leaves everything as it was.
fn open_without_extras(path: &Path) -> Option<sled::Db> {
    let aside = MovedFiles::of(path).ok().filter(|aside| !aside.is_empty())?;
    match open_sled(path) {
        Ok(db) => {
            aside.remove();
            Some(db)
        }
        Err(_) => {
            aside.put_back();
            None
        }
    }
}

fn next_session(Progress { sync, last_number, session }: Progress) -> Progress {
    let last_number = if session == 0 { 0 } else { (last_number / NUMBERS_PER_SESSION + 1) * NUMBERS_PER_SESSION };
    Progress { sync, last_number, session: session + 1 }
}
