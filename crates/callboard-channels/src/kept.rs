//! What the tasks of a channel share: what it has sent, kept in a file, and how it decides and looks up what was decided.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use callboard::AnswerError;
use callboard::actors::approvals::Decider;
use callboard::messages::{ApprovalId, Decision, Envelope};
use callboard_private::Folder;
use futures::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// How long an approval for the whole run is valid.
const FOR_RUN: Duration = Duration::MAX;
/// After this long a question that was left open and that no board has asked about is closed.
const GIVES_UP: Duration = Duration::from_secs(600);

/// What a person chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Choice {
    Approve,
    ApproveForRun,
    Deny,
}

/// What a channel has sent and has to send.
pub(crate) trait Ledger: Send + 'static {
    /// The content of the file.
    fn bytes(&self) -> Vec<u8>;
    /// Whether one more question may be open.
    fn has_room(&self) -> bool;
    /// The open questions of earlier processes that this one was not asked about.
    fn left_over(&self) -> Vec<ApprovalId>;
    /// Notes a decision.
    fn settle(&mut self, id: ApprovalId, decision: &Decision);
    /// Notes that no board asks about it any more, as far as is known here.
    fn give_up(&mut self, id: ApprovalId);
    /// Notes that somebody is about to decide here.
    fn attempt(&mut self, id: ApprovalId, by: &str, approves: bool);
}

/// Where the ledger is kept.
pub(crate) struct LedgerFile {
    pub(crate) folder: Folder,
    pub(crate) name: &'static str,
}

/// A ledger that is kept in a file, with the handle that decides.
pub(crate) struct Kept<L> {
    /// The name of the channel.
    channel: &'static str,
    ledger: Mutex<L>,
    decider: Mutex<Option<Decider>>,
    file: LedgerFile,
    /// The least and the greatest delay before what has failed is tried again.
    delays: [Duration; 2],
    /// Whether the ledger has changed since it was written.
    is_changed: AtomicBool,
    /// Held while the file is written: later contents come later.
    writing: Mutex<()>,
    /// Whether questions are open that the ledger had no room for.
    has_overflowed: AtomicBool,
    /// Notified when there may be something to send.
    changes: watch::Sender<()>,
}

/// Why nothing was decided.
pub(crate) enum DecideError {
    /// The board has not started yet.
    NotStarted,
    /// The board takes no such decision.
    Answer(AnswerError),
    /// The decision has panicked.
    Panicked,
}

impl<L: Ledger> Kept<L> {
    pub(crate) fn new(channel: &'static str, ledger: L, file: LedgerFile, delays: [Duration; 2]) -> Self {
        Self {
            channel,
            ledger: Mutex::new(ledger),
            decider: Mutex::default(),
            file,
            delays,
            is_changed: AtomicBool::new(false),
            writing: Mutex::default(),
            has_overflowed: AtomicBool::new(false),
            changes: watch::Sender::new(()),
        }
    }

    /// The board has started, or the channel again.
    pub(crate) fn started(&self, decider: &Decider) {
        *self.decider.lock() = Some(decider.clone());
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

    /// Notes a question. `ask` returns whether there was room for it.
    pub(crate) fn ask(&self, ask: impl FnOnce(&mut L) -> Result<bool, getrandom::Error>) {
        match self.change(ask) {
            Ok(true) => {}
            Ok(false) => self.has_overflowed.store(true, Ordering::Release),
            Err(error) => {
                tracing::error!(channel = self.channel, %error, "an approval is not sent: there are no random numbers")
            }
        }
    }

    /// Takes up questions that there was no room for, by `ask`; whether there were any.
    pub(crate) fn has_refilled(&self, ask: impl Fn(&Envelope)) -> bool {
        let Some(decider) = self.decider.lock().clone().filter(|_| self.ledger.lock().has_room()) else { return false };
        let has_overflowed = self.has_overflowed.swap(false, Ordering::AcqRel);
        if has_overflowed {
            decider.open().iter().for_each(ask);
        }
        has_overflowed
    }

    /// Writes the ledger, if it has changed.
    pub(crate) async fn save(self: &Arc<Self>) {
        let kept = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || {
            let _writing = kept.writing.lock();
            if !kept.is_changed.swap(false, Ordering::AcqRel) {
                return Ok(());
            }
            let (bytes, file) = (kept.ledger.lock().bytes(), &kept.file);
            file.folder.write(file.name, &bytes).inspect_err(|_| kept.is_changed.store(true, Ordering::Release))
        });
        if let Ok(Err(error)) = written.await {
            // The next change writes it again.
            let channel = self.channel;
            tracing::error!(channel, %error, "what was sent cannot be kept: a later process may send it again");
        }
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

    /// Decides, and returns what was decided; nothing if others have to approve as well.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        id: ApprovalId,
        by: &Arc<str>,
        choice: Choice,
        reason: &str,
    ) -> Result<Option<Decision>, DecideError> {
        let Some(decider) = self.decider.lock().clone() else { return Err(DecideError::NotStarted) };
        self.change(|ledger| ledger.attempt(id, by, choice != Choice::Deny));
        self.save().await;
        let (deciding, name, reason) = (decider.clone(), Arc::clone(by), reason.to_owned());
        // In a task of its own: a decision that is stored has to reach its run as well, whatever ends this one.
        let decided = tokio::spawn(async move {
            match choice {
                Choice::Approve => deciding.approve(id, &name).await,
                Choice::ApproveForRun => deciding.approve_for_run(id, &name, FOR_RUN).await,
                Choice::Deny => deciding.deny(id, &name, &reason).await,
            }
        });
        let decided = decided.await;
        let decision = self.take_over(id, &decider).await;
        match decided {
            Ok(Ok(_)) => Ok(decision),
            Ok(Err(error)) => Err(DecideError::Answer(error)),
            Err(_) => Err(DecideError::Panicked),
        }
    }

    /// Whether this person may decide a question now; nothing if that cannot be found out yet.
    #[cfg(feature = "email")]
    pub(crate) async fn may_decide(&self, id: ApprovalId, person: &str) -> Option<bool> {
        let decider = self.decider.lock().clone()?;
        match decider.check(id, person).await {
            Ok(_) => Some(true),
            Err(AnswerError::Storage(error)) => {
                tracing::warn!(channel = self.channel, %id, %error, "who may decide an approval cannot be read yet");
                None
            }
            Err(_) => Some(false),
        }
    }

    /// Notes what was decided about a question, and returns it, if anything was.
    async fn take_over(&self, id: ApprovalId, decider: &Decider) -> Option<Decision> {
        let stored = decider.decision(id).await;
        let decision =
            stored.inspect_err(|error| tracing::warn!(%id, %error, "a stored approval cannot be read")).ok()??;
        self.change(|ledger| ledger.settle(id, &decision));
        Some(decision)
    }

    /// Looks up what was decided about the questions that an earlier process has left open, until none of them is left. A run that is
    /// read back asks about them again, or decides them.
    pub(crate) async fn look_up(self: Arc<Self>) {
        let (mut delays, mut waited) = (self.delays(), Duration::ZERO);
        loop {
            let left = self.ledger.lock().left_over();
            let Some(decider) = self.decider.lock().clone().filter(|_| !left.is_empty()) else {
                return std::future::pending().await;
            };
            for id in left {
                self.take_over(id, &decider).await;
                if waited >= GIVES_UP {
                    self.change(|ledger| ledger.give_up(id));
                }
            }
            waited += self.pause(&mut delays).await;
        }
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
