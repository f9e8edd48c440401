//! The approval gateway: questions of consent to people, over any number of channels; the first valid decision wins.
//!
//! What is asked is in the run's journal; what was decided is one record under the approval's id, which is the hash of
//! the exact question. A decision that was stored and not yet delivered is delivered when the run asks again.

mod actor;
mod terminal;

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::env::Env;
use crate::messages::{ApprovalId, Decision, Durability, Envelope, Timestamp};
use crate::storage::codec::{self, Stored};
use crate::storage::{Expected, Key, Put, Storage, StorageError};
use crate::supervision::runs::decide::EXPIRY;
use crate::supervision::runs::inbox::Input;
use crate::supervision::tree::ChildRef;

use super::shards::Shards;

pub(crate) use actor::{ChannelActor, GatewayActor, Msg};
pub use terminal::{TerminalChannel, card};

/// Somewhere people see questions and decide. It gets a [`Decider`] to answer through, and says who answered: a channel
/// authenticates its people.
pub trait Channel: Send + Sync + 'static {
    /// Names the channel in the supervision tree.
    fn name(&self) -> &str;

    /// Shows a question. Must not block; the decision may come at any time, through any channel.
    fn ask(&self, envelope: &Envelope, decider: &Decider);

    /// A question is no longer open: it was decided here or elsewhere (`Some`), or withdrawn.
    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>);
}

/// Decides approvals: the handle that channels and front ends hold, and agents do not. A cheap clone.
#[derive(Clone)]
pub struct Decider {
    pub(crate) desk: Arc<GatewayDesk>,
}

/// What survives a restart of the gateway's actor.
pub(crate) struct GatewayDesk {
    env: Env,
    storage: Arc<dyn Storage>,
    durability: Durability,
    shards: Arc<Shards>,
    open: Mutex<BTreeMap<ApprovalId, Envelope>>,
    opened: Notify,
    wake: OnceLock<ChildRef<Msg>>,
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
    /// The decision could not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The stored decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredDecision {
    decision: Decision,
}

impl Stored for StoredDecision {
    const SCHEMA: u16 = 3;
    const VERSION: u16 = 1;
    const NAME: &'static str = "approval-decision";
}

/// How long a decision is kept: well past every approval's expiry, so that a late click finds it.
const KEEP_SECS: u64 = 60 * 24 * 3600;

impl Decider {
    pub(crate) fn new(env: Env, storage: Arc<dyn Storage>, durability: Durability, shards: Arc<Shards>) -> Self {
        let (open, opened, wake) = (Mutex::default(), Notify::new(), OnceLock::new());
        Self { desk: Arc::new(GatewayDesk { env, storage, durability, shards, open, opened, wake }) }
    }

    /// The open questions, oldest expiry first.
    #[must_use]
    pub fn open(&self) -> Vec<Envelope> {
        let mut open: Vec<Envelope> = self.desk.open.lock().values().cloned().collect();
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

    /// Says yes. `by` is who decided, as the caller authenticated them.
    ///
    /// # Errors
    /// Somebody was first, the question is not open or has expired, or the decision could not be stored.
    pub async fn approve(&self, id: ApprovalId, by: &str) -> Result<Decision, DecideError> {
        self.decide(id, true, by, "").await
    }

    /// Says no, with a reason for the agent.
    ///
    /// # Errors
    /// As [`Decider::approve`].
    pub async fn deny(&self, id: ApprovalId, by: &str, reason: &str) -> Result<Decision, DecideError> {
        self.decide(id, false, by, reason).await
    }

    async fn decide(&self, id: ApprovalId, approved: bool, by: &str, reason: &str) -> Result<Decision, DecideError> {
        let now = self.desk.env.now().wall;
        let open = self.desk.open.lock().get(&id).cloned();
        let Some(envelope) = open else {
            let decided = self.desk.stored(id).await?;
            return Err(
                decided.map_or(DecideError::Unknown { id }, |decision| DecideError::AlreadyDecided { decision })
            );
        };
        if now >= envelope.expires_at && by != EXPIRY {
            return Err(DecideError::Expired { id, at: envelope.expires_at });
        }
        let decision = Decision { approved, by: by.into(), reason: reason.into(), at: now };
        let put = Put {
            key: key(id),
            value: codec::encode_shared(&StoredDecision { decision: decision.clone() }),
            expected: Expected::Absent,
            ttl_secs: Some(KEEP_SECS),
            durability: self.desk.durability,
        };
        match self.desk.storage.put_if_revision(put).await {
            Ok(_) => {
                self.desk.deliver(&envelope, decision.clone());
                Ok(decision)
            }
            Err(error @ StorageError::WrongRevision { .. }) => match self.desk.stored(id).await? {
                Some(decision) => Err(DecideError::AlreadyDecided { decision }),
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decider").field("open", &self.desk.open.lock().len()).finish()
    }
}

impl GatewayDesk {
    /// Where the actor is, once.
    pub(crate) fn set_actor(&self, actor: ChildRef<Msg>) {
        let _ = self.wake.set(actor);
    }

    /// A run asks for a decision; asking again changes nothing.
    pub(crate) fn request(&self, envelope: &Envelope) {
        let id = envelope.id();
        self.open.lock().entry(id).or_insert_with(|| envelope.clone());
        self.opened.notify_waiters();
        self.tell(Msg::Requested(id));
    }

    /// A run no longer needs a decision.
    pub(crate) fn withdraw(&self, id: ApprovalId) {
        if let Some(envelope) = self.open.lock().remove(&id) {
            self.tell(Msg::Settled(Box::new(envelope), None));
        }
    }

    /// Brings a stored decision to its run.
    fn deliver(&self, envelope: &Envelope, decision: Decision) {
        let id = envelope.id();
        self.open.lock().remove(&id);
        let input = Input::Decide { request: envelope.request, approval: id, decision: decision.clone() };
        self.shards.of(envelope.request.turn.run).push(input);
        self.tell(Msg::Settled(Box::new(envelope.clone()), Some(decision)));
    }

    async fn stored(&self, id: ApprovalId) -> Result<Option<Decision>, StorageError> {
        let Some(entry) = self.storage.get(&key(id)).await? else { return Ok(None) };
        let stored: StoredDecision = codec::decode(&entry.value)
            .map_err(|error| StorageError::Corrupt { key: key(id), detail: error.to_string() })?;
        Ok(Some(stored.decision))
    }

    /// A gateway that is down finds everything open when it is back.
    fn tell(&self, message: Msg) {
        if let Some(actor) = self.wake.get() {
            let _ = actor.cast(message);
        }
    }
}

fn key(id: ApprovalId) -> Key {
    Key::new(["approval", &*id.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_decision_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let decision = Decision { approved: false, by: "ann".into(), reason: "too long".into(), at };
        crate::testing::golden::check(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"),
            &StoredDecision { decision },
        );
    }
}
