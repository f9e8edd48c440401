//! The approvals, questions and interrupts for which a board's runs wait, and the answers of people.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use futures::future::join;
use futures::{FutureExt, StreamExt};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::actors::approvals::{ByPerson, Decider, PersonDoes};
use crate::actors::{StreamMode, Subject};
use crate::messages::{
    ApprovalId, Decision, Envelope, Json, OverLimit, Pending, PendingId, QuestionId, Response, Resume, RunId, TurnId,
    Unacknowledged, Votes, check_person,
};
use crate::storage::StorageError;
use crate::supervision::runs::queue::{RunMessage, ShardMessage};
use crate::supervision::runs::rules::errors::AnswerError;

use super::handle::Callboard;
use super::run_handle::{RunError, RunHandle};

/// What a board waits for people with, to list and to answer: [`Callboard::people`]. For people's front ends, not for agents. A
/// cheap clone.
#[derive(Clone)]
pub struct PeopleHandle {
    callboard: Callboard,
    decider: Decider,
}

impl Callboard {
    /// What runs wait for people with: approvals, questions, interrupted nodes and turns that need attention, in one list and
    /// with one call that answers. For people's front ends, not for agents.
    ///
    /// ```
    /// use callboard::messages::Action;
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("clerk", |turn: Turn| async move {
    ///         let name: String = turn.people().ask("Which file?").await?.parse()?;
    ///         let approved = turn.people().approve(Action::new("write_file", &name, "hello")).await?;
    ///         Ok(Command::output(approved.arguments))
    ///     })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("write")).await?;
    /// while let Some(open) = run.next_pending().await? {
    ///     let response = match &open {
    ///         Pending::Approval(envelope) => {
    ///             assert_eq!(envelope.action.to_string(), "write_file a.txt");
    ///             Response::Approve
    ///         }
    ///         Pending::Question(_) => "a.txt".into(),
    ///         Pending::Node(_) => Resume::default().into(),
    ///         Pending::Attention { .. } => Response::Restart,
    ///     };
    ///     board.people().answer(&open, response, "ann").await?;
    /// }
    /// assert_eq!(run.result().await?.output, "hello");
    /// board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn people(&self) -> PeopleHandle {
        PeopleHandle { decider: self.board.decider.clone(), callboard: self.clone() }
    }
}

impl PeopleHandle {
    /// The same handle, whose decisions about approvals say that they were made there ([`Decision::via`]), such as `dashboard`.
    #[must_use]
    pub fn via(&self, place: &str) -> Self {
        Self { decider: self.decider.via(place), ..self.clone() }
    }

    /// What the runs of this board wait for, and those of the other boards on its store: approvals by expiry, questions by age, nodes,
    /// and turns that need attention. What has expired, runs that are just being read back or taken over, and those of a board that
    /// does not reply within (5 s) are not among them.
    pub async fn pending(&self) -> Vec<Pending> {
        let (mut pending, elsewhere) = join(self.pending_here(), self.callboard.pending_elsewhere()).await;
        if !elsewhere.is_empty() {
            pending.extend(elsewhere);
            pending.sort_by_cached_key(Pending::rank);
        }
        pending
    }

    /// What the runs that this board works on wait for.
    pub(super) async fn pending_here(&self) -> Vec<Pending> {
        let mut pending: Vec<Pending> = self.approvals().into_iter().map(Pending::from).collect();
        for queue in self.callboard.board.shards.all() {
            let of_shard = self.callboard.ask_queue(queue, |reply| ShardMessage::Pending { reply }).await;
            pending.extend(of_shard.into_iter().flatten().filter(is_listed_by_its_run));
        }
        pending.sort_by_cached_key(Pending::rank);
        pending
    }

    /// The first of [`PeopleHandle::pending`], as soon as there is one; `None` once the board has ended. To be asked again when
    /// that one is answered. After a crash an approval may have been decided already by a decision that has yet to reach its run:
    /// answering it then returns [`AnswerError::AlreadyDecided`].
    pub async fn next(&self) -> Option<Pending> {
        self.next_where(|_| true).await
    }

    /// As [`PeopleHandle::next`], of what `is_wanted`: such as one kind, or what was not left open before.
    pub async fn next_where(&self, mut is_wanted: impl FnMut(&Pending) -> bool) -> Option<Pending> {
        let mut asked = self.callboard.board.router.asked();
        let mut ended = pin!(self.callboard.ended());
        loop {
            if let Some(first) = self.pending().await.into_iter().find(&mut is_wanted) {
                return Some(first);
            }
            tokio::select! {
                biased;
                _ = &mut ended => return None,
                () = asked_by(&mut asked, None) => {}
                () = self.callboard.next_look() => {}
            }
        }
    }

    /// Returns once it is no longer open: it was answered, has expired or was withdrawn, or its turn or run has ended. At once if
    /// it never was, or if this board does not work on its run.
    pub async fn closed(&self, id: impl Into<PendingId>) {
        let id = id.into();
        let run = match id {
            PendingId::Approval(id) => return self.decider.closed(id).await,
            PendingId::Question(QuestionId { request, .. }) => request.turn.run,
            PendingId::Node(turn) | PendingId::Attention(turn) => turn.run,
        };
        let buffer = self.callboard.board.settings.capacity.watch_buffer;
        let mut news = self.callboard.board.router.hub.watch(Subject::Run(run), &[StreamMode::Debug], buffer);
        let run = self.callboard.run(run);
        while run.pending_of_run().await.iter().any(|open| open.id() == id) && news.next().await.is_some() {}
    }

    /// Responds to what a run waits for. `by` is who responds, as the caller authenticated them, in at most (128) characters. Of
    /// several the first counts; it is stored when this returns. The answer to an approval returns its votes: several people may have to
    /// approve ([`Envelope::deciders`]).
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub async fn answer(
        &self,
        id: impl Into<PendingId>,
        response: impl Into<Response>,
        by: &str,
    ) -> Result<Option<Votes>, AnswerError> {
        let (id, response) = (id.into(), response.into());
        match self.answer_here(id, response.clone(), by).await {
            Err(not_open @ AnswerError::NotOpen(_)) => {
                let what = PersonDoes::Respond { response, via: self.decider.place().into() };
                let elsewhere = self.callboard.answered_elsewhere(ByPerson { id, by: by.into(), what });
                elsewhere.await.unwrap_or(Err(not_open))
            }
            answered => answered,
        }
    }

    /// Responds to what a run waits for that this board works on.
    pub(super) async fn answer_here(
        &self,
        id: PendingId,
        response: Response,
        by: &str,
    ) -> Result<Option<Votes>, AnswerError> {
        let decider = &self.decider;
        let none = |answered: Result<(), AnswerError>| answered.map(|()| None);
        let decided = match (id, response) {
            (PendingId::Question(id), Response::Value(answer)) => {
                return none(self.answer_question(id, answer, by).await);
            }
            (PendingId::Node(turn), Response::Resume(resume)) => return none(self.resume(turn, resume, by).await),
            (PendingId::Attention(turn), Response::Restart) => return none(self.restart_turn(turn, by).await),
            (PendingId::Approval(id), Response::Approve) => decider.approve(id, by).await,
            (PendingId::Approval(id), Response::ApproveForRun(time)) => decider.approve_for_run(id, by, time).await,
            (PendingId::Approval(id), Response::ApproveEdited(arguments)) => {
                decider.approve_edited(id, by, arguments).await
            }
            (PendingId::Approval(id), Response::Deny { reason }) => decider.deny(id, by, &reason).await,
            (
                id,
                Response::Approve
                | Response::ApproveForRun(_)
                | Response::ApproveEdited(_)
                | Response::Deny { .. }
                | Response::Value(_)
                | Response::Resume(_)
                | Response::Restart,
            ) => return Err(AnswerError::DoesNotFit { id }),
        };
        decided.map(Some)
    }

    /// Answers an approval with [`Response::Approve`], and returns the votes, with the decision unless more people have to approve.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub async fn approve(&self, id: ApprovalId, by: &str) -> Result<Votes, AnswerError> {
        self.answer(id, Response::Approve, by).await.map(Option::unwrap_or_default)
    }

    /// Answers an approval with [`Response::Deny`], and returns the decision.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub async fn deny(&self, id: ApprovalId, by: &str, reason: &str) -> Result<Votes, AnswerError> {
        let response = Response::Deny { reason: reason.to_owned() };
        self.answer(id, response, by).await.map(Option::unwrap_or_default)
    }

    /// The votes about an open approval, if this person may decide it and has not approved before: what a front end checks before it
    /// offers a decision.
    ///
    /// # Errors
    /// As [`PeopleHandle::answer`] would refuse them.
    pub async fn check(&self, id: ApprovalId, by: &str) -> Result<Votes, AnswerError> {
        match self.check_here(id, by).await {
            Err(not_open @ AnswerError::NotOpen(_)) => {
                let check = ByPerson { id: id.into(), by: by.into(), what: PersonDoes::Check };
                let elsewhere = self.callboard.answered_elsewhere(check).await;
                elsewhere.unwrap_or(Err(not_open)).map(Option::unwrap_or_default)
            }
            checked => checked,
        }
    }

    pub(super) async fn check_here(&self, id: ApprovalId, by: &str) -> Result<Votes, AnswerError> {
        self.decider.check(id, by).await
    }

    /// The approval with this id, if a run that this board works on waits for its decision.
    #[must_use]
    pub fn envelope(&self, id: ApprovalId) -> Option<Envelope> {
        self.decider.envelope(id)
    }

    /// Who has approved an approval so far, how many people are missing, and what was decided, as long as that is kept.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn votes(&self, id: ApprovalId) -> Result<Votes, StorageError> {
        self.decider.votes(id).await
    }

    /// What was decided about an approval, if anything was and it is still kept: for the approval's time and 60 days.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn decision(&self, id: ApprovalId) -> Result<Option<Decision>, StorageError> {
        self.decider.decision(id).await
    }

    /// The approvals that can be decided. A run lists one before the approval queue has it, and after it was decided there.
    pub(crate) fn approvals(&self) -> Vec<Envelope> {
        let has_ended = self.callboard.ended().now_or_never().is_some();
        if has_ended { Vec::new() } else { self.decider.open() }
    }

    async fn answer_question(&self, question: QuestionId, answer: Json, by: &str) -> Result<(), AnswerError> {
        check_person(by)?;
        let QuestionId { request, nonce } = question;
        let by: Arc<str> = by.into();
        if answer.is_too_deep() {
            return Err(OverLimit::depth("the answer").into());
        }
        let times = self.callboard.board.env.message_point("answer.dispatch", &by).await.unwrap_or(1);
        let mut answered = None;
        for _ in 0..times {
            let (answer, by) = (answer.clone(), Arc::clone(&by));
            let (run, asked) = (request.turn.run, request.into());
            let message = |ack| RunMessage::Answer { asked, nonce, answer, by, ack };
            let again = self.callboard.ask_run(run, message).await;
            answered = answered.or(again);
        }
        answered.unwrap_or(Err(Unacknowledged::Answer(request).into()))
    }

    async fn resume(&self, turn: TurnId, resume: Resume, by: &str) -> Result<(), AnswerError> {
        check_person(by)?;
        let written = resume.update.writes().iter().map(|write| &write.value);
        if written.chain(&resume.input).any(Json::is_too_deep) {
            return Err(OverLimit::depth("a value").into());
        }
        let message = |ack| RunMessage::Resume { turn: turn.number, resume, by: by.into(), ack };
        let resumed = self.callboard.ask_run(turn.run, message).await;
        resumed.unwrap_or(Err(Unacknowledged::Resume(turn).into()))
    }

    async fn restart_turn(&self, turn: TurnId, by: &str) -> Result<(), AnswerError> {
        check_person(by)?;
        let restarted =
            self.callboard.ask_run(turn.run, |ack| RunMessage::RestartTurn { turn: turn.number, ack }).await;
        restarted.unwrap_or(Err(Unacknowledged::Restart(turn).into()))
    }
}

impl RunHandle {
    /// What the run waits for people with, in the order of [`PeopleHandle::pending`], also in turns that other boards on the store have taken
    /// (SEMANTICS 16): that has the id of their run. What has expired is not among it, nor what a run waits for that no board works on:
    /// [`RunHandle::read_with_placed`] and [`Run::pending`](crate::supervision::runs::Run::pending) show that.
    pub async fn pending(&self) -> Vec<Pending> {
        let (mut pending, placed) = join(self.pending_of_run(), self.pending_of_placed()).await;
        if !placed.is_empty() {
            pending.extend(placed);
            pending.sort_by_cached_key(Pending::rank);
        }
        pending
    }

    /// The same of this run alone.
    pub(super) async fn pending_of_run(&self) -> Vec<Pending> {
        let pending = self.pending_here().await;
        if pending.is_empty() { self.board.pending_of_elsewhere(self.id()).await } else { pending }
    }

    pub(super) async fn pending_here(&self) -> Vec<Pending> {
        let approvals = self.board.people().approvals().into_iter();
        let mut pending: Vec<Pending> = approvals.map(Pending::from).filter(|open| open.run() == self.id()).collect();
        let of_run = self.board.ask_run(self.id(), |reply| RunMessage::Pending { reply }).await;
        pending.extend(of_run.into_iter().flatten().filter(is_listed_by_its_run));
        pending
    }

    /// The first of [`RunHandle::pending`], as soon as there is one; `None` once the run has ended. To be asked again when that one
    /// is answered.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::workflow::{Node, Workflow};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    /// let board = Callboard::builder().agent("echo", echo).start().await?;
    /// let workflow = Workflow::builder("publish")
    ///     .node(Node::agent("draft", "echo"))
    ///     .node(Node::agent("publish", "echo").after("draft").interrupted())
    ///     .build()?;
    /// let run = board.submit(workflow.task("a draft")).await?;
    /// while let Some(open) = run.next_pending().await? {
    ///     assert!(matches!(&open, Pending::Node(node) if node.node == "publish" && node.input == "a draft"));
    ///     let better = Resume { input: Some("a better draft".into()), ..Resume::default() };
    ///     board.people().answer(&open, better, "ann").await?;
    /// }
    /// assert_eq!(run.result().await?.output, "a better draft");
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`RunHandle::result`].
    pub async fn next_pending(&self) -> Result<Option<Pending>, RunError> {
        self.next_pending_where(|_| true).await
    }

    /// As [`RunHandle::next_pending`], of what `is_wanted`: such as one kind, or what was not left open before.
    ///
    /// # Errors
    /// As [`RunHandle::result`].
    pub async fn next_pending_where(
        &self,
        mut is_wanted: impl FnMut(&Pending) -> bool,
    ) -> Result<Option<Pending>, RunError> {
        let mut asked = self.board.board.router.asked();
        // A separate handle: the receiver of the result in `self` stays with its callers.
        let handle = self.board.run(self.id());
        let mut ended = pin!(handle.result());
        loop {
            if let Some(first) = self.pending().await.into_iter().find(&mut is_wanted) {
                return Ok(Some(first));
            }
            tokio::select! {
                biased;
                result = &mut ended => return result.map(|_| None),
                () = asked_by(&mut asked, Some(self.id())) => {}
                () = self.board.next_look() => {}
            }
        }
    }
}

/// Whether it is listed by its run, and not by the approval queue.
fn is_listed_by_its_run(pending: &Pending) -> bool {
    match pending {
        Pending::Approval(_) => false,
        Pending::Question(_) | Pending::Node(_) | Pending::Attention { .. } => true,
    }
}

/// Waits until the run, or any, may have begun to wait for a person.
async fn asked_by(asked: &mut broadcast::Receiver<RunId>, run: Option<RunId>) {
    loop {
        match asked.recv().await {
            Ok(asking) if run.is_none_or(|run| run == asking) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            // The board has ended, which its callers notice.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl fmt::Debug for PeopleHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeopleHandle").field("open", &self.decider.pending()).finish_non_exhaustive()
    }
}
