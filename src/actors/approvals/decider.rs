//! The handle by which approvals are decided.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::actors::shard_queues::ShardQueues;
use crate::env::Env;
use crate::messages::{
    ApprovalId, Decision, Durability, EXPIRY, Envelope, Groups, Json, Response, Terms, Votes, check_person,
    check_reason,
};
use crate::storage::{Storage, StorageError};
use crate::supervision::runs::rules::errors::AnswerError;

use super::elsewhere::{ByPerson, PersonDoes};
use super::queue::{self, ApprovalQueue};

/// Decides approvals: the handle that channels and front ends hold, and agents do not. A cheap clone.
#[derive(Clone)]
pub struct Decider {
    pub(super) queue: Arc<ApprovalQueue>,
    /// What decisions have as [`Decision::via`].
    via: Arc<str>,
    /// The channel that has it, through which the questions of other boards are shown and decided as well.
    channel: Option<Arc<str>>,
}

impl Decider {
    pub(crate) fn new(
        env: Env,
        storage: (Arc<dyn Storage>, Durability),
        shards: Arc<ShardQueues>,
        groups: Groups,
    ) -> Self {
        Self { queue: Arc::new(ApprovalQueue::new(env, storage, shards, groups)), via: "".into(), channel: None }
    }

    /// The handle of a channel, whose decisions say that they were made there, and which reaches the other boards.
    pub(super) fn of_channel(&self, channel: &str) -> Self {
        Self { channel: Some(channel.into()), ..self.via(channel) }
    }

    /// The same handle, whose decisions say that they were made there ([`Decision::via`]). A channel gets one that has its name.
    #[must_use]
    pub fn via(&self, place: &str) -> Self {
        Self { via: place.into(), ..self.clone() }
    }

    /// Where its decisions say that they were made.
    pub(crate) fn place(&self) -> &str {
        &self.via
    }

    /// The open questions, oldest expiry first. What has expired is not among them. A channel's handle also has those of other boards that
    /// the channel shows.
    #[must_use]
    pub fn open(&self) -> Vec<Envelope> {
        let now = self.queue.env.now().wall;
        let mut open = self.queue.open();
        open.extend(self.channel.iter().flat_map(|channel| self.queue.elsewhere.open(channel)));
        open.retain(|envelope| envelope.expires_at > now);
        open.sort_by_key(|envelope| (envelope.expires_at, envelope.request));
        open
    }

    /// The open question that expires first, as soon as there is one. To be asked again once that one is decided.
    pub async fn next_open(&self) -> Envelope {
        loop {
            let mut opened = pin!(self.queue.opened.notified());
            opened.as_mut().enable();
            if let Some(first) = self.open().into_iter().next() {
                return first;
            }
            opened.await;
        }
    }

    /// The open question with this id, if there is one.
    pub(crate) fn envelope(&self, id: ApprovalId) -> Option<Envelope> {
        self.queue.envelope(id)
    }

    /// The number of questions without a decision, including expired ones whose runs have not been notified yet.
    pub(crate) fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Whether a question is open on this board, or shown by the channel that has this handle.
    pub(crate) fn is_open(&self, id: ApprovalId) -> bool {
        let is_shown = |channel: &Arc<str>| self.queue.elsewhere.is_shown(id, channel);
        self.queue.is_open(id) || self.channel.as_ref().is_some_and(is_shown)
    }

    /// Returns once the question is no longer open: it was decided, has expired or was withdrawn. At once if it never was.
    pub async fn closed(&self, id: ApprovalId) {
        loop {
            let mut closed = pin!(self.queue.closed.notified());
            closed.as_mut().enable();
            if !self.is_open(id) {
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
        self.queue.stored(id).await
    }

    /// As [`Decider::decision`], without a board.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn decision_in(storage: &dyn Storage, id: ApprovalId) -> Result<Option<Decision>, StorageError> {
        queue::decision_in(storage, id).await
    }

    /// Who has approved so far, how many people are missing, and what was decided.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn votes(&self, id: ApprovalId) -> Result<Votes, StorageError> {
        self.queue.votes(id).await
    }

    /// The votes about an open question, if this person may decide it and has not approved before: what a front end checks before it
    /// offers a decision.
    ///
    /// # Errors
    /// As [`Decider::approve`].
    pub async fn check(&self, id: ApprovalId, by: &str) -> Result<Votes, AnswerError> {
        let checked = self.queue.check(id, by).await;
        self.or_elsewhere(checked, (id, by), || PersonDoes::Check).await
    }

    /// What the board answers that has the question, if this one does not have it, and the handle is a channel's.
    async fn or_elsewhere(
        &self,
        here: Result<Votes, AnswerError>,
        (id, by): (ApprovalId, &str),
        what: impl FnOnce() -> PersonDoes,
    ) -> Result<Votes, AnswerError> {
        let not_open = match here {
            Err(not_open @ AnswerError::NotOpen(_)) => not_open,
            here => return here,
        };
        let Some(boards) = self.channel.as_ref().and_then(|_| self.queue.elsewhere.boards()) else {
            return Err(not_open);
        };
        let asked = boards.ask(ByPerson { id: id.into(), by: by.into(), what: what() }).await;
        asked.unwrap_or(Err(not_open)).map(Option::unwrap_or_default)
    }

    /// The same of a response of a person.
    async fn respond(
        &self,
        here: Result<Votes, AnswerError>,
        (id, by): (ApprovalId, &str),
        response: impl FnOnce() -> Response,
    ) -> Result<Votes, AnswerError> {
        let responds = || PersonDoes::Respond { response: response(), via: Arc::clone(&self.via) };
        let answered = self.or_elsewhere(here, (id, by), responds).await;
        if let Err(AnswerError::Storage(_)) = answered {
            self.queue.ask_again(id);
        }
        answered
    }

    /// Approves. `by` is the person who does, as the caller authenticated them, in at most (128) characters. Where several people have to
    /// approve ([`Envelope::deciders`]), it is one vote: the action is approved with the last of them.
    ///
    /// # Errors
    /// Somebody was first, the person may not decide or has approved before, the question is not open or has expired, a text is too
    /// long, or it could not be stored.
    pub async fn approve(&self, id: ApprovalId, by: &str) -> Result<Votes, AnswerError> {
        let here = self.decide(id, true, by, "").await;
        self.respond(here, (id, by), || Response::Approve).await
    }

    /// Approves, and that the same agent may do exactly the same again in its run, for this long and at most until the question
    /// expires. Other arguments are asked about again. Where several people have to approve, it holds for the run if all of them say so.
    ///
    /// # Errors
    /// As [`Decider::approve`]; and [`AnswerError::NotForRun`].
    pub async fn approve_for_run(&self, id: ApprovalId, by: &str, time: Duration) -> Result<Votes, AnswerError> {
        if self.queue.envelope(id).is_some_and(|envelope| &*envelope.policy != Envelope::ASK || envelope.is_handoff()) {
            return Err(AnswerError::NotForRun { id });
        }
        let until = self.queue.env.now().wall + time;
        let until = self.queue.expiry(id).map_or(until, |expires_at| until.min(expires_at));
        let here = self.decide_on(id, true, by, "", Terms::Run { until }).await;
        self.respond(here, (id, by), || Response::ApproveForRun(time)).await
    }

    /// Denies what is asked, and approves the same with other arguments. That is a question of its own, which is journaled
    /// and answered at once: what is done is what was approved here. Where several people have to approve, it replaces this question
    /// and its votes, everybody is asked, and this is its first vote. With the arguments that it has, it is approved as it is.
    ///
    /// # Errors
    /// As [`Decider::approve`]; and [`AnswerError::NotEditable`].
    pub async fn approve_edited(
        &self,
        id: ApprovalId,
        by: &str,
        arguments: impl Into<Json>,
    ) -> Result<Votes, AnswerError> {
        let arguments = arguments.into();
        if self.queue.envelope(id).is_some_and(|envelope| envelope.action.arguments == arguments) {
            return self.approve(id, by).await;
        }
        let cannot = |envelope: Envelope| envelope.is_handoff() || envelope.action.edited(arguments.clone()).is_none();
        if arguments.is_too_deep() || self.queue.envelope(id).is_some_and(cannot) {
            return Err(AnswerError::NotEditable { id });
        }
        let here = self.decide_on(id, true, by, "", Terms::Edited { arguments: arguments.clone() }).await;
        self.respond(here, (id, by), || Response::ApproveEdited(arguments)).await
    }

    /// Denies, with a reason for the agent, of at most (4,096) characters.
    ///
    /// # Errors
    /// As [`Decider::approve`].
    pub async fn deny(&self, id: ApprovalId, by: &str, reason: &str) -> Result<Votes, AnswerError> {
        let here = self.decide(id, false, by, reason).await;
        self.respond(here, (id, by), || Response::Deny { reason: reason.to_owned() }).await
    }

    async fn decide(&self, id: ApprovalId, approved: bool, by: &str, reason: &str) -> Result<Votes, AnswerError> {
        self.decide_on(id, approved, by, reason, Terms::Once).await
    }

    async fn decide_on(
        &self,
        id: ApprovalId,
        approved: bool,
        by: &str,
        reason: &str,
        terms: Terms,
    ) -> Result<Votes, AnswerError> {
        check_person(by)?;
        check_reason(reason)?;
        let at = self.queue.env.now().wall;
        if let Some(expired) = self.queue.expiry(id).filter(|expires_at| *expires_at <= at) {
            return Err(AnswerError::Expired { id: id.into(), at: expired });
        }
        let (votes, via) = (Vec::new(), Arc::clone(&self.via));
        let decision = Decision { approved, by: by.into(), reason: reason.into(), at, terms, votes, via };
        self.bring(id, decision).await
    }

    /// Sends a decision to the queue; if several arrive, the first counts.
    async fn bring(&self, id: ApprovalId, decision: Decision) -> Result<Votes, AnswerError> {
        let unavailable = |detail| StorageError::Unavailable { detail };
        let times = self.queue.env.message_point("decision.dispatch", &decision.by).await.map_err(unavailable)?;
        let mut decided = None;
        for _ in 0..times {
            let again = self.queue.decide(id, Some(decision.clone())).await;
            decided.get_or_insert(again);
        }
        decided.unwrap_or_else(|| Err(unavailable("the decision was lost".to_owned()).into()))
    }

    /// Denies an expired question.
    pub(super) async fn expire(&self, id: ApprovalId) -> Result<Votes, AnswerError> {
        let at = self.queue.env.now().wall;
        let (by, reason, votes, via) = (EXPIRY.into(), "".into(), Vec::new(), "".into());
        let silence = Decision { approved: false, by, reason, at, terms: Terms::Once, votes, via };
        self.queue.decide(id, Some(silence)).await
    }

    /// A run asks for a decision; asking again changes nothing.
    pub(crate) fn request(&self, envelope: &Envelope) {
        self.queue.request(envelope);
    }

    /// A run no longer needs a decision.
    pub(crate) fn withdraw(&self, id: ApprovalId) {
        self.queue.withdraw(id);
    }
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decider").field("open", &self.queue.len()).finish()
    }
}
