//! What the tasks of a channel share that asks people: the ledger of its questions, and how it decides and looks up what was decided.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callboard::AnswerError;
use callboard::actors::approvals::Decider;
use callboard::messages::{ApprovalId, Decision, Envelope};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::kept::{Kept, LedgerFile};

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

/// The ledger of a channel, with the handle that decides.
pub(crate) struct Deciding<L> {
    kept: Arc<Kept<L>>,
    decider: Mutex<Option<Decider>>,
    /// Whether questions are open that the ledger had no room for.
    has_overflowed: AtomicBool,
}

impl<L> Deref for Deciding<L> {
    type Target = Arc<Kept<L>>;

    fn deref(&self) -> &Self::Target {
        &self.kept
    }
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

impl<L: Ledger> Deciding<L> {
    pub(crate) fn new(channel: &'static str, ledger: L, file: LedgerFile, delays: [Duration; 2]) -> Self {
        let kept = Arc::new(Kept::new(channel, (ledger, L::bytes), file, delays));
        Self { kept, decider: Mutex::default(), has_overflowed: AtomicBool::new(false) }
    }

    /// The board has started, or the channel again.
    pub(crate) fn started(&self, decider: &Decider) {
        *self.decider.lock() = Some(decider.clone());
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
        let Some(decider) = self.decider.lock().clone().filter(|_| self.ledger().has_room()) else { return false };
        let has_overflowed = self.has_overflowed.swap(false, Ordering::AcqRel);
        if has_overflowed {
            decider.open().iter().for_each(ask);
        }
        has_overflowed
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
            let left = self.ledger().left_over();
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
}
