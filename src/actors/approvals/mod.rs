//! The approval gateway: questions of consent to people, over any number of channels; the first valid decision wins.
//!
//! What is asked is in the run's journal; what was decided is one record under the approval's id, which is the hash of
//! the exact question. A decision that was stored and not yet delivered is delivered when the run asks again.

mod actor;
mod card;
mod desk;
mod folding;
mod keyboard;
mod screen;
mod terminal;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::env::Env;
use crate::messages::{
    ASK, ApprovalId, Decision, Durability, Envelope, Json, Terms, Timestamp, TooLong, check_person, check_reason,
};
use crate::storage::{Storage, StorageError};
use crate::supervision::runs::decide::EXPIRY;

use super::shards::Shards;

use desk::Desk;

pub(crate) use actor::GatewayActor;
pub use card::{approval_code, arguments_lines, card, outcome_code, whole_card};
pub use folding::{Rows, folded};
pub use keyboard::{Keyboard, Typed, Withdrawal, Withdrawer, terminal_columns, withdrawal};
pub(crate) use screen::{ChannelActor, Screen};
pub use terminal::TerminalChannel;

/// Somewhere people see questions and decide. It gets a [`Decider`] to answer through, and says who answered: a channel
/// authenticates its people.
pub trait Channel: Send + Sync + 'static {
    /// Names the channel in the supervision tree.
    fn name(&self) -> &str;

    /// Shows a question. Must not block; the decision may come at any time, through any channel.
    ///
    /// A question that is shown may be asked again: after a panic of the channel, and when a decision on it could not be
    /// stored. It is the same question; show it once.
    fn ask(&self, envelope: &Envelope, decider: &Decider);

    /// A question that was asked is no longer open: it was decided here or elsewhere (`Some`), or withdrawn. Told once.
    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>);

    /// A question that was shown is still open, and expires soon ([`Envelope::remind_at`]). It is called once; one that is asked
    /// after that moment, such as by a process that was started later, is not reminded of. By default nothing happens.
    fn remind(&self, envelope: &Envelope, decider: &Decider) {
        let _ = (envelope, decider);
    }
}

/// Decides approvals: the handle that channels and front ends hold, and agents do not. A cheap clone.
#[derive(Clone)]
pub struct Decider {
    desk: Arc<Desk>,
}

/// Why a decision was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// Somebody was first.
    #[error("already {} by {} at {}", if decision.approved { "approved" } else { "denied" }, decision.by, decision.at)]
    AlreadyDecided {
        /// What they decided.
        decision: Decision,
    },
    /// No such question is open.
    #[error("no approval {id} is open")]
    Unknown {
        /// The id.
        id: ApprovalId,
    },
    /// The question has expired, which denies it.
    #[error("approval {id} expired at {at}")]
    Expired {
        /// The id.
        id: ApprovalId,
        /// When.
        at: Timestamp,
    },
    /// It is a question that is asked each time, or a handoff: it cannot be decided for a whole run. Nothing was decided.
    #[error("approval {id} cannot be given for the whole run: it is asked each time")]
    NotForRun {
        /// The id.
        id: ApprovalId,
    },
    /// It is a handoff, what it was changed to nests too deeply, or it cannot be said what it would be done to. Nothing was
    /// decided.
    #[error("approval {id} cannot be given with other arguments: deny it, and say what to do instead")]
    NotEditable {
        /// The id.
        id: ApprovalId,
    },
    /// Who decides, or why, is said at too great a length. Nothing was decided.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The decision could not be stored. Nobody knows whether it will be found later, and everybody is asked again.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Decider {
    pub(crate) fn new(env: Env, storage: Arc<dyn Storage>, durability: Durability, shards: Arc<Shards>) -> Self {
        Self { desk: Arc::new(Desk::new(env, storage, durability, shards)) }
    }

    /// The open questions, oldest expiry first. What has expired is not among them.
    #[must_use]
    pub fn open(&self) -> Vec<Envelope> {
        let now = self.desk.env.now().wall;
        let mut open = self.desk.open();
        open.retain(|envelope| envelope.expires_at > now);
        open.sort_by_key(|envelope| (envelope.expires_at, envelope.request));
        open
    }

    /// The open question that expires first, as soon as there is one. To be asked again once that one is decided.
    pub async fn next_open(&self) -> Envelope {
        loop {
            let mut opened = pin!(self.desk.opened.notified());
            opened.as_mut().enable();
            if let Some(first) = self.open().into_iter().next() {
                return first;
            }
            opened.await;
        }
    }

    /// How many questions wait for a decision, those too that have expired and whose runs do not know yet.
    pub(crate) fn pending(&self) -> usize {
        self.desk.open().len()
    }

    /// Returns once the question is no longer open: it was decided, has expired or was withdrawn. At once if it never was.
    pub async fn closed(&self, id: ApprovalId) {
        loop {
            let mut closed = pin!(self.desk.closed.notified());
            closed.as_mut().enable();
            if !self.desk.is_open(id) {
                return;
            }
            closed.await;
        }
    }

    /// What was decided, if anything was and it is still kept: for the approval's time and 60 days.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn decision(&self, id: ApprovalId) -> Result<Option<Decision>, StorageError> {
        self.desk.stored(id).await
    }

    /// Says yes. `by` is who decided, as the caller authenticated them, in at most (128) characters.
    ///
    /// # Errors
    /// Somebody was first, the question is not open or has expired, a text is too long, or the decision could not be stored.
    pub async fn approve(&self, id: ApprovalId, by: &str) -> Result<Decision, DecideError> {
        self.decide(id, true, by, "").await
    }

    /// Says yes, and that the same agent may do exactly the same again in its run, for this long. Other arguments are asked
    /// about again.
    ///
    /// # Errors
    /// As [`Decider::approve`]; and [`DecideError::NotForRun`].
    pub async fn approve_for_run(&self, id: ApprovalId, by: &str, time: Duration) -> Result<Decision, DecideError> {
        if self.desk.envelope(id).is_some_and(|envelope| &*envelope.policy != ASK || envelope.is_handoff()) {
            return Err(DecideError::NotForRun { id });
        }
        let until = self.desk.env.now().wall + time;
        self.decide_on(id, true, by, "", Terms::Run { until }).await
    }

    /// Says no to what is asked, and yes to the same with other arguments. That is a question of its own, which is journaled
    /// and answered at once: what is done is what was said here.
    ///
    /// # Errors
    /// As [`Decider::approve`]; and [`DecideError::NotEditable`].
    pub async fn approve_edited(
        &self,
        id: ApprovalId,
        by: &str,
        arguments: impl Into<Json>,
    ) -> Result<Decision, DecideError> {
        let arguments = arguments.into();
        let cannot = |envelope: Envelope| envelope.is_handoff() || envelope.action.edited(arguments.clone()).is_none();
        if arguments.is_too_deep() || self.desk.envelope(id).is_some_and(cannot) {
            return Err(DecideError::NotEditable { id });
        }
        self.decide_on(id, true, by, "", Terms::Edited { arguments }).await
    }

    /// Says no, with a reason for the agent, of at most (4,096) characters.
    ///
    /// # Errors
    /// As [`Decider::approve`].
    pub async fn deny(&self, id: ApprovalId, by: &str, reason: &str) -> Result<Decision, DecideError> {
        self.decide(id, false, by, reason).await
    }

    async fn decide(&self, id: ApprovalId, approved: bool, by: &str, reason: &str) -> Result<Decision, DecideError> {
        self.decide_on(id, approved, by, reason, Terms::Once).await
    }

    async fn decide_on(
        &self,
        id: ApprovalId,
        approved: bool,
        by: &str,
        reason: &str,
        terms: Terms,
    ) -> Result<Decision, DecideError> {
        check_person(by)?;
        check_reason(reason)?;
        let at = self.desk.env.now().wall;
        if let Some(expired) = self.desk.expiry(id).filter(|expires_at| *expires_at <= at) {
            return Err(DecideError::Expired { id, at: expired });
        }
        let decision = Decision { approved, by: by.into(), reason: reason.into(), at, terms };
        let decided = self.bring(id, decision).await;
        if let Err(DecideError::Storage(_)) = decided {
            self.desk.ask_again(id);
        }
        decided
    }

    /// Brings a decision to the desk; the first time counts that it arrives.
    async fn bring(&self, id: ApprovalId, decision: Decision) -> Result<Decision, DecideError> {
        let unavailable = |detail| StorageError::Unavailable { detail };
        let times = self.desk.env.message_point("decision.dispatch", &decision.by).await.map_err(unavailable)?;
        let mut decided = None;
        for _ in 0..times {
            let again = self.desk.decide(id, decision.clone()).await;
            decided.get_or_insert(again);
        }
        decided.unwrap_or_else(|| Err(unavailable("the decision was lost".to_owned()).into()))
    }

    /// Silence denies.
    async fn expire(&self, id: ApprovalId) -> Result<Decision, DecideError> {
        let at = self.desk.env.now().wall;
        let silence = Decision { approved: false, by: EXPIRY.into(), reason: "".into(), at, terms: Terms::Once };
        self.desk.decide(id, silence).await
    }

    /// A run asks for a decision; asking again changes nothing.
    pub(crate) fn request(&self, envelope: &Envelope) {
        self.desk.request(envelope);
    }

    /// A run no longer needs a decision.
    pub(crate) fn withdraw(&self, id: ApprovalId) {
        self.desk.withdraw(id);
    }
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decider").field("open", &self.desk.open().len()).finish()
    }
}

#[cfg(test)]
mod model;
