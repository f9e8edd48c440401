//! The approval queue: the open questions, and the store of their decisions. It is outside the gateway's actor, so a restart of
//! the actor loses no question.

use std::collections::BTreeMap;
use std::sync::Arc;

use ractor::ActorRef;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::actors::shard_queues::ShardQueues;
use crate::env::Env;
use crate::messages::{ApprovalId, Barred, Decision, Durability, Envelope, Groups, Timestamp, Vote, Votes};
use crate::storage::codec::{self, CodecError, Payload, Stored};
use crate::storage::{Expected, Key, Put, Revision, Storage, StorageError};
use crate::supervision::runs::queue::{RunMessage, ShardMessage};
use crate::supervision::runs::rules::errors::AnswerError;
use crate::supervision::{Mailbox, answer_of};

use super::elsewhere::Elsewhere;
use super::message::GatewayMsg;

/// How long a decision is kept after its approval has expired, so that a late answer finds it.
const KEEP_SECS: u64 = 60 * 24 * 3600;

pub(super) struct ApprovalQueue {
    pub(super) env: Env,
    storage: Arc<dyn Storage>,
    durability: Durability,
    shards: Arc<ShardQueues>,
    groups: Groups,
    open: Mailbox<GatewayMsg, BTreeMap<ApprovalId, Question>>,
    /// Questions of other boards. One that this board asks is not among them.
    pub(super) elsewhere: Elsewhere,
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

/// The stored votes and the decision that followed from them: one record, so that the last vote and the decision are stored
/// together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct StoredDecision {
    /// Who has approved, where several people have to.
    votes: Vec<Vote>,
    decision: Option<Decision>,
    /// Where it was decided ([`Decision::via`]).
    via: Arc<str>,
}

impl Stored for StoredDecision {
    const SCHEMA: u16 = 3;
    const VERSION: u16 = 3;
    const NAME: &'static str = "approval-decision";

    fn upgrade(version: u16, payload: Payload<'_>) -> Option<Result<Self, CodecError>> {
        let of = |votes, decision| Self { votes, decision, via: "".into() };
        match version {
            1 => Some(payload.read().map(|decision| of(Vec::new(), Some(decision)))),
            2 => Some(payload.read().map(|(votes, decision)| of(votes, decision))),
            _ => None,
        }
    }
}

impl StoredDecision {
    /// The decision, with what is stored beside it.
    fn decision(self) -> Option<Decision> {
        let Self { votes, decision, via } = self;
        decision.map(|decision| Decision { votes, via, ..decision })
    }
}

impl ApprovalQueue {
    pub(super) fn new(
        env: Env,
        (storage, durability): (Arc<dyn Storage>, Durability),
        shards: Arc<ShardQueues>,
        groups: Groups,
    ) -> Self {
        Self {
            env,
            storage,
            durability,
            shards,
            groups,
            open: Mailbox::default(),
            elsewhere: Elsewhere::default(),
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

    pub(super) fn len(&self) -> usize {
        self.open.lock().len()
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
        // This board has taken its run over.
        self.elsewhere.remove(id);
        self.opened.notify_waiters();
        self.wake(GatewayMsg::Requested(id));
    }

    /// Shows the question again on all channels, unless the lost answer turns out to be stored.
    pub(super) fn ask_again(&self, id: ApprovalId) {
        match self.open.lock().get_mut(&id) {
            Some(question) => question.asks_again = true,
            None => self.elsewhere.ask_again(id),
        }
        self.wake(GatewayMsg::Requested(id));
    }

    pub(super) fn withdraw(&self, id: ApprovalId) {
        if self.open.lock().remove(&id).is_some() {
            self.closed.notify_waiters();
            self.wake(GatewayMsg::Settled(id, None));
        }
    }

    /// Stores what somebody decides - a vote, or the decision if none was stored - and sends a decision to its run. `None` stores the
    /// decision that follows from the votes that there are.
    pub(super) async fn decide(&self, id: ApprovalId, decision: Option<Decision>) -> Result<Votes, AnswerError> {
        // One person's decision is written without reading first: that it is the only one is checked by the write.
        let reads = self.envelope(id).is_some_and(|envelope| decision.is_none() || envelope.deciders.at_least > 1);
        let mut stored = if reads { self.read(id).await? } else { None };
        loop {
            let Some(envelope) = self.envelope(id) else {
                let decided = self.stored(id).await?;
                return Err(decided
                    .map_or(AnswerError::NotOpen(id.into()), |decision| AnswerError::AlreadyDecided { decision }));
            };
            let (revision, votes) = match stored {
                Some((_, stored)) if stored.decision.is_some() => {
                    let decision = stored.decision().unwrap_or_else(|| unreachable!("it was there"));
                    // The caller that stored it may not have learned that it did.
                    self.deliver(id, decision.clone());
                    return Err(AnswerError::AlreadyDecided { decision });
                }
                Some((revision, stored)) => (Some(revision), stored.votes),
                None => (None, Vec::new()),
            };
            let votes = match &decision {
                Some(decision) => {
                    let by = Arc::clone(&decision.by);
                    let counted = envelope.vote(&votes, decision.clone(), &self.groups);
                    counted.map_err(|barred| refusal(id, by, barred))?
                }
                None => envelope.enough(envelope.votes(&votes, &self.groups), "".into(), "".into()),
            };
            if decision.is_none() && votes.decision.is_none() {
                return Ok(votes);
            }
            match self.store(&envelope, revision, &votes).await {
                Ok(()) => {
                    if let Some(decision) = &votes.decision {
                        self.deliver(id, decision.clone());
                    }
                    return Ok(votes);
                }
                // Somebody else was first: their vote counts, and then this one.
                Err(error @ StorageError::WrongRevision { .. }) => {
                    stored = self.read(id).await?;
                    if stored.as_ref().map(|(revision, _)| *revision) == revision {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn store(&self, envelope: &Envelope, over: Option<Revision>, votes: &Votes) -> Result<(), StorageError> {
        let (id, now) = (envelope.id(), self.env.now().wall);
        let decision = votes.decision.clone();
        let via = decision.as_ref().map(|decision| Arc::clone(&decision.via)).unwrap_or_default();
        let stored = StoredDecision { votes: votes.approved.clone(), decision, via };
        let put = Put {
            expected: over.map_or(Expected::Absent, Expected::Revision),
            ttl_secs: Some(envelope.expires_at.since(now).as_secs().saturating_add(KEEP_SECS)),
            durability: self.durability,
            ..Put::new(key(id), codec::encode_shared(&stored))
        };
        answer_of(self.storage.put_if_revision(put)).await.map(drop)
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
        Ok(self.read(id).await?.and_then(|(_, stored)| stored.decision()))
    }

    /// The votes about an approval and its decision, as far as they are kept.
    pub(super) async fn votes(&self, id: ApprovalId) -> Result<Votes, StorageError> {
        let (_, stored) = self.read(id).await?.unwrap_or_default();
        let approved = stored.votes.clone();
        Ok(match (stored.decision(), self.envelope(id)) {
            (None, Some(envelope)) => envelope.votes(&approved, &self.groups),
            (decision, _) => Votes { approved, missing: 0, decision },
        })
    }

    /// The votes about an approval that this person may decide, and has not approved before.
    pub(super) async fn check(&self, id: ApprovalId, by: &str) -> Result<Votes, AnswerError> {
        let (_, stored) = self.read(id).await?.unwrap_or_default();
        let Some(envelope) = self.envelope(id).filter(|_| stored.decision.is_none()) else {
            return Err(stored
                .decision()
                .map_or(AnswerError::NotOpen(id.into()), |decision| AnswerError::AlreadyDecided { decision }));
        };
        let checked = envelope.check_voter(&stored.votes, by, self.env.now().wall, &self.groups);
        checked.map_err(|barred| refusal(id, by.into(), barred))
    }

    async fn read(&self, id: ApprovalId) -> Result<Option<(Revision, StoredDecision)>, StorageError> {
        read(&*self.storage, id).await
    }

    /// Wakes the gateway's actor. An actor that is down finds all open questions when it restarts, and has channels close the
    /// others.
    pub(super) fn wake(&self, message: GatewayMsg) {
        self.open.wake(message);
    }
}

/// What was decided about an approval, if anything was and the store still has it.
pub(super) async fn decision_in(storage: &dyn Storage, id: ApprovalId) -> Result<Option<Decision>, StorageError> {
    Ok(read(storage, id).await?.and_then(|(_, stored)| stored.decision()))
}

async fn read(storage: &dyn Storage, id: ApprovalId) -> Result<Option<(Revision, StoredDecision)>, StorageError> {
    let Some(entry) = answer_of(storage.get(&key(id))).await? else { return Ok(None) };
    let stored = codec::decode(&entry.value)
        .map_err(|error| StorageError::Corrupt { key: key(id), detail: error.to_string() })?;
    Ok(Some((entry.revision, stored)))
}

fn refusal(id: ApprovalId, by: Arc<str>, barred: Barred) -> AnswerError {
    match barred {
        Barred::NotInGroup(group) => AnswerError::NotInGroup { id, by, group },
        Barred::Requester => AnswerError::OfRequester { id, by },
        Barred::HasApproved(at) => AnswerError::HasApproved { id, by, at },
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
        let (by, reason, votes, via) = ("ann".into(), "too long".into(), Vec::new(), "".into());
        let decision = Some(Decision { approved: false, by, reason, at, terms, votes, via });
        let votes = vec![Vote { by: "bob".into(), at, until: None }, Vote { by: "cat".into(), at, until: Some(at) }];
        crate::testing::golden::check(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"),
            &StoredDecision { votes, decision, via: "telegram".into() },
        );
    }
}
