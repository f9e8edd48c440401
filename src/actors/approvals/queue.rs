//! The approval queue: the open questions, and the store of their decisions. It is outside the gateway's actor, so a restart of
//! the actor loses no question.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::actors::shard_queues::ShardQueues;
use crate::env::Env;
use crate::messages::{ApprovalId, Decision, Durability, Envelope, Timestamp};
use crate::storage::codec::{self, Stored};
use crate::storage::{Expected, Key, Put, Storage, StorageError};
use crate::supervision::runs::queue::{RunMessage, ShardMessage};
use crate::supervision::runs::rules::errors::AnswerError;
use crate::supervision::{Mailbox, answer_of};

use super::message::GatewayMsg;

/// How long a decision is kept after its approval has expired, so that a late answer finds it.
const KEEP_SECS: u64 = 60 * 24 * 3600;

pub(super) struct ApprovalQueue {
    pub(super) env: Env,
    storage: Arc<dyn Storage>,
    durability: Durability,
    shards: Arc<ShardQueues>,
    open: Mailbox<GatewayMsg, BTreeMap<ApprovalId, Question>>,
    /// Notified when a question is asked.
    pub(super) opened: Notify,
    /// Notified when a question is no longer open.
    pub(super) closed: Notify,
}

/// A question that is open.
struct Question {
    envelope: Envelope,
    /// Whether people are asked once more, because an answer was lost.
    asks_again: bool,
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

impl ApprovalQueue {
    pub(super) fn new(env: Env, storage: Arc<dyn Storage>, durability: Durability, shards: Arc<ShardQueues>) -> Self {
        Self {
            env,
            storage,
            durability,
            shards,
            open: Mailbox::default(),
            opened: Notify::new(),
            closed: Notify::new(),
        }
    }

    /// Sets the address of a gateway actor that starts. The actor reads the open questions after this.
    pub(super) fn attach(&self, actor: ActorRef<GatewayMsg>) {
        self.open.attach(actor);
    }

    pub(super) fn open(&self) -> Vec<Envelope> {
        self.open.lock().values().map(|question| question.envelope.clone()).collect()
    }

    pub(super) fn is_open(&self, id: ApprovalId) -> bool {
        self.open.lock().contains_key(&id)
    }

    pub(super) fn envelope(&self, id: ApprovalId) -> Option<Envelope> {
        self.open.lock().get(&id).map(|question| question.envelope.clone())
    }

    pub(super) fn expiry(&self, id: ApprovalId) -> Option<Timestamp> {
        self.open.lock().get(&id).map(|question| question.envelope.expires_at)
    }

    /// An open question, and whether it is to be shown once more; `true` is returned once.
    pub(super) fn question(&self, id: ApprovalId) -> Option<(Envelope, bool)> {
        let mut open = self.open.lock();
        let Question { envelope, asks_again } = open.get_mut(&id)?;
        Some((envelope.clone(), std::mem::take(asks_again)))
    }

    pub(super) fn request(&self, envelope: &Envelope) {
        let id = envelope.id();
        let question = || Question { envelope: envelope.clone(), asks_again: false };
        self.open.lock().entry(id).or_insert_with(question);
        self.opened.notify_waiters();
        self.wake(GatewayMsg::Requested(id));
    }

    /// Shows the question again on all channels, unless the lost answer turns out to be stored.
    pub(super) fn ask_again(&self, id: ApprovalId) {
        if let Some(question) = self.open.lock().get_mut(&id) {
            question.asks_again = true;
        }
        self.wake(GatewayMsg::Requested(id));
    }

    pub(super) fn withdraw(&self, id: ApprovalId) {
        if self.open.lock().remove(&id).is_some() {
            self.closed.notify_waiters();
            self.wake(GatewayMsg::Settled(id, None));
        }
    }

    /// Stores the decision if it is the first, and sends it to its run.
    pub(super) async fn decide(&self, id: ApprovalId, decision: Decision) -> Result<Decision, AnswerError> {
        if !self.is_open(id) {
            let decided = self.stored(id).await?;
            return Err(
                decided.map_or(AnswerError::NotOpen(id.into()), |decision| AnswerError::AlreadyDecided { decision })
            );
        }
        let left = self.expiry(id).map_or(Duration::ZERO, |expires_at| expires_at.since(decision.at));
        let put = Put {
            key: key(id),
            value: codec::encode_shared(&StoredDecision { decision: decision.clone() }),
            expected: Expected::Absent,
            ttl_secs: Some(left.as_secs().saturating_add(KEEP_SECS)),
            durability: self.durability,
        };
        match answer_of(self.storage.put_if_revision(put)).await {
            Ok(_) => {
                self.deliver(id, decision.clone());
                Ok(decision)
            }
            Err(error @ StorageError::WrongRevision { .. }) => match self.stored(id).await? {
                Some(decision) => {
                    // The caller that stored it may not have learned that it did.
                    self.deliver(id, decision.clone());
                    Err(AnswerError::AlreadyDecided { decision })
                }
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a stored decision to its run, once.
    pub(super) fn deliver(&self, id: ApprovalId, decision: Decision) {
        let Some(Question { envelope, .. }) = self.open.lock().remove(&id) else { return };
        let (run, asked) = (envelope.request.turn.run, envelope.request.into());
        let message = RunMessage::Decide { asked, approval: id, decision: decision.clone() };
        self.shards.of(run).push(ShardMessage::Run { run, message });
        self.closed.notify_waiters();
        self.wake(GatewayMsg::Settled(id, Some(decision)));
    }

    pub(super) async fn stored(&self, id: ApprovalId) -> Result<Option<Decision>, StorageError> {
        let Some(entry) = answer_of(self.storage.get(&key(id))).await? else { return Ok(None) };
        let stored: StoredDecision = codec::decode(&entry.value)
            .map_err(|error| StorageError::Corrupt { key: key(id), detail: error.to_string() })?;
        Ok(Some(stored.decision))
    }

    /// Wakes the gateway's actor. An actor that is down finds all open questions when it restarts, and has channels close the
    /// others.
    fn wake(&self, message: GatewayMsg) {
        self.open.wake(message);
    }
}

fn key(id: ApprovalId) -> Key {
    Key::new(["approval", &*id.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Json, Terms};

    #[test]
    fn the_bytes_of_a_decision_are_golden() {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let terms = Terms::Edited { arguments: Json::from("x") };
        let decision = Decision { approved: false, by: "ann".into(), reason: "too long".into(), at, terms };
        crate::testing::golden::check(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"),
            &StoredDecision { decision },
        );
    }
}
