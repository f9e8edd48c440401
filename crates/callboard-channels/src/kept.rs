//! A ledger that is kept in a file of this user alone, and the tasks that work by it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use callboard_private::Folder;
use futures::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Where the ledger is kept.
pub(crate) struct LedgerFile {
    pub(crate) folder: Folder,
    pub(crate) name: &'static str,
}

/// A ledger that is kept in a file.
pub(crate) struct Kept<L> {
    /// The name of the channel.
    pub(crate) channel: &'static str,
    ledger: Mutex<L>,
    /// The content of the file.
    bytes: fn(&L) -> Vec<u8>,
    file: LedgerFile,
    /// The least and the greatest delay before what has failed is tried again.
    delays: [Duration; 2],
    /// Whether the ledger has changed since it was written.
    is_changed: AtomicBool,
    /// Held while the file is written: later contents come later. Whether it may be written still.
    may_write: Mutex<bool>,
    /// Notified when there may be something to send.
    changes: watch::Sender<()>,
}

impl<L: Send + 'static> Kept<L> {
    pub(crate) fn new(
        channel: &'static str,
        (ledger, bytes): (L, fn(&L) -> Vec<u8>),
        file: LedgerFile,
        delays: [Duration; 2],
    ) -> Self {
        Self {
            channel,
            ledger: Mutex::new(ledger),
            bytes,
            file,
            delays,
            is_changed: AtomicBool::new(false),
            may_write: Mutex::new(true),
            changes: watch::Sender::new(()),
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, L> {
        self.ledger.lock()
    }

    /// Each change of the ledger.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Changes the ledger, and has what follows from it done.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut L) -> T) -> T {
        let changed = change(&mut self.ledger.lock());
        self.is_changed.store(true, Ordering::Release);
        self.changes.send_replace(());
        changed
    }

    /// Writes the ledger, if it has changed.
    pub(crate) async fn save(self: &Arc<Self>) {
        let kept = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || {
            let may_write = kept.may_write.lock();
            if !*may_write || !kept.is_changed.swap(false, Ordering::AcqRel) {
                return Ok(());
            }
            let (bytes, file) = ((kept.bytes)(&kept.ledger.lock()), &kept.file);
            file.folder.write(file.name, &bytes).inspect_err(|_| kept.is_changed.store(true, Ordering::Release))
        });
        if let Ok(Err(error)) = written.await {
            // The next change writes it again.
            let channel = self.channel;
            tracing::error!(channel, %error, "what was sent cannot be kept: a later process may send it again");
        }
    }

    /// Ends the channel's tasks and its writes: once this has returned, the file may belong to another channel.
    pub(crate) fn close(&self, tasks: &[AbortHandle]) {
        tasks.iter().for_each(AbortHandle::abort);
        *self.may_write.lock() = false;
    }

    /// Delays that grow.
    pub(crate) fn delays(&self) -> ExponentialBackoff {
        let [least, greatest] = self.delays;
        let delays = ExponentialBuilder::new().with_min_delay(least).with_max_delay(greatest).with_jitter();
        delays.without_max_times().build()
    }

    /// Waits for the next of these delays.
    pub(crate) async fn pause(&self, delays: &mut ExponentialBackoff) -> Duration {
        let delay = delays.next().unwrap_or(self.delays[1]);
        sleep(delay).await;
        delay
    }

    /// Runs a task, and again after a panic of it.
    pub(crate) fn keep<F: Future<Output = ()> + Send>(
        self: &Arc<Self>,
        task: impl Fn() -> F + Send + Sync + 'static,
    ) -> AbortHandle {
        let kept = Arc::clone(self);
        let running = async move {
            let mut delays = kept.delays();
            while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
                tracing::error!(channel = kept.channel, "a task of the channel has panicked; it starts again");
                kept.pause(&mut delays).await;
            }
        };
        tokio::spawn(running).abort_handle()
    }
}
