//! Tasks that a turn gives to other agents.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::messages::{Answer, ContextStrategy, Json, Order, Refusal, RequestId};
use crate::supervision::runs::rules::requests::{Delegated, TurnReply, TurnRequest};

use super::error::unexpected;
use super::shared::Waiting;
use super::{DelegationError, Turn, TurnError};

impl Turn {
    /// Gives a task to another agent (a name, role or capability) and waits for its answer. Delegations that are open at
    /// the same time run side by side. While it waits, the turn holds neither permit nor slot.
    ///
    /// The order of the calls counts, not the order of the awaits: that is how a repeated attempt finds its answers.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use futures::future::try_join_all;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |turn: Turn| async move {
    ///         let parts = ["one", "two"].map(|part| turn.delegate("helper", part).tokens(1_000));
    ///         let answers: Json = try_join_all(parts).await?.into_iter().collect();
    ///         Ok(Command::output(answers))
    ///     })
    ///     .agent("helper", |turn: Turn| async move { Ok(Command::output(format!("{} done", turn.input::<String>()?))) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("both").to("lead")).await?;
    /// assert_eq!(run.result().await?.output, serde_json::json!(["one done", "two done"]));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use = "a delegation is asked for when it is awaited"]
    pub fn delegate(&self, to: &str, body: &str) -> Delegation {
        Delegation { turn: self.clone(), ordinal: self.take_ordinal(), order: Order::new(to, body), asking: None }
    }

    /// Reads where a delegation of this turn stands: pending while it is open, else what awaiting it gives.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |turn: Turn| async move {
    ///         if turn.input_json() != "x" {
    ///             return Ok(Command::output(turn.input_json().clone()["answer"]["output"].clone()));
    ///         }
    ///         let request = turn.delegate("helper", "look").detach().await?;
    ///         assert_eq!(turn.answer(request).await?, "looked");
    ///         assert!(turn.status(request).await.is_ready());
    ///         Ok(Command::new())
    ///     })
    ///     .agent("helper", |_: Turn| async move { Ok(Command::output("looked")) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("x").to("lead")).await?;
    /// assert_eq!(run.result().await?.output, "looked");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    pub async fn status(&self, request: RequestId) -> Poll<Result<Json, DelegationError>> {
        self.look(request, false).await
    }

    /// As [`Turn::status`]; if the turn waits for the answer, it may be refused.
    async fn look(&self, request: RequestId, waits: bool) -> Poll<Result<Json, DelegationError>> {
        let unknown =
            || DelegationError::Turn(TurnError::terminal(format!("this turn has made no delegation {request}")));
        if request.turn != self.own_id() {
            return Poll::Ready(Err(unknown()));
        }
        match self.request(request.ordinal, || TurnRequest::Status { waits }).await.map_err(DelegationError::Turn) {
            Ok(TurnReply::Status(Some(delegated))) => match *delegated {
                Delegated { answer: None, .. } => Poll::Pending,
                Delegated { to, answer: Some(answer), is_tainted, .. } => {
                    Poll::Ready(answered(self, to, &answer, is_tainted))
                }
            },
            Ok(TurnReply::Status(None)) => Poll::Ready(Err(unknown())),
            Ok(reply) => Poll::Ready(Err(DelegationError::Turn(unexpected(&reply)))),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Waits for the answer to a delegation of this turn that was [given away](Delegation::detach), without permit and slot. The answer
    /// comes as a turn of this agent all the same.
    ///
    /// # Errors
    /// As for awaiting a [`Delegation`]; and the turn has made no such delegation. Where the wait would close a circle, or others do that
    /// meanwhile, it is refused ([`Refusal::WaitCycle`]): the delegation continues.
    pub async fn answer(&self, request: RequestId) -> Result<Json, DelegationError> {
        let _waiting = Waiting::begin(&self.shared);
        let _noted = LateWait { turn: self, request };
        loop {
            if let Poll::Ready(answer) = self.look(request, true).await {
                return answer;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// A wait that the run notes when it is asked for the answer. It is over when this is dropped.
struct LateWait<'a> {
    turn: &'a Turn,
    request: RequestId,
}

impl Drop for LateWait<'_> {
    fn drop(&mut self) {
        if self.request.turn == self.turn.own_id() {
            self.turn.post(self.request.ordinal, TurnRequest::EndWait);
        }
    }
}

/// The pause before a delegation is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A delegation; asked for when it is first polled.
pub struct Delegation {
    turn: Turn,
    ordinal: u32,
    order: Order,
    asking: Option<BoxFuture<'static, Result<Json, DelegationError>>>,
}

impl Delegation {
    /// The request's id: its turn, and which of its requests it is. It is the same for a repeated attempt, so it finds the
    /// delegation in [`Callboard::status`](crate::Callboard::status) and in inboxes, also while it is awaited (SEMANTICS 11).
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("lead", |turn: Turn| async move {
    ///         let asked = turn.delegate("helper", "look");
    ///         let id = asked.request_id();
    ///         asked.await?;
    ///         Ok(Command::output(id.ordinal))
    ///     })
    ///     .agent("helper", |_: Turn| async move { Ok(Command::output("looked")) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("x").to("lead")).await?;
    /// assert_eq!(run.result().await?.output, 0);
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn request_id(&self) -> RequestId {
        RequestId { turn: self.turn.own_id(), ordinal: self.ordinal }
    }

    /// What to work on; the body if none is given.
    #[must_use]
    pub fn input(mut self, input: impl Into<Json>) -> Self {
        self.order.input = input.into();
        self
    }

    /// What the delegated turns may reserve together (default: what the asking turn may). It lies within the asking turn's
    /// own budget, and several delegations that run side by side share that.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.order.tokens = Some(tokens);
        self
    }

    /// How long the answer may take (default: as long as the run may). After that the delegated turns are cancelled, and
    /// the answer is [`DelegationError::NotFinished`].
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.order.deadline = Some(deadline);
        self
    }

    /// What the delegated turns see of this turn's state (default: nothing).
    #[must_use]
    pub fn sees(mut self, strategy: ContextStrategy) -> Self {
        self.order.sees = strategy;
        self
    }

    /// A place outside that the task is about, such as an issue.
    #[must_use]
    pub fn reference(mut self, reference: &str) -> Self {
        self.order.reference = Some(reference.into());
        self
    }
}

impl Delegation {
    /// Gives the task away without waiting. The answer comes to this agent with a turn of its own, whose input is a
    /// [`LateAnswer`](crate::messages::LateAnswer), also after a restart; until then the branch stays open. The turn that
    /// gave it away ends without handing control on. If another board takes that turn, the turn with the answer is taken there as well, and
    /// is part of it for the run that waits.
    ///
    /// # Errors
    /// [`DelegationError::Refused`], and when an earlier attempt asked for something else in this place.
    pub async fn detach(mut self) -> Result<RequestId, DelegationError> {
        self.order.is_detached = true;
        let id = self.request_id();
        let request = || TurnRequest::Delegate(self.order.clone());
        match self.turn.request(self.ordinal, request).await.map_err(DelegationError::Turn)? {
            TurnReply::Done => Ok(id),
            TurnReply::Delegated { answer, .. } if answer.is_err() => {
                Arc::unwrap_or_clone(answer).map(|_| id).map_err(DelegationError::Refused)
            }
            reply => Err(DelegationError::Turn(unexpected(&reply))),
        }
    }
}

impl Future for Delegation {
    type Output = Result<Json, DelegationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { turn, ordinal, order, asking } = &mut *self;
        asking.get_or_insert_with(|| delegated(turn.clone(), *ordinal, order.clone()).boxed()).poll_unpin(context)
    }
}

/// No `async fn`, because its future would hold the arguments twice.
fn delegated(
    turn: Turn,
    ordinal: u32,
    order: Order,
) -> impl Future<Output = Result<Json, DelegationError>> + Send + 'static {
    let agent = Arc::clone(&order.to);
    async move {
        let request = || TurnRequest::Delegate(order.clone());
        match turn.request(ordinal, request).await.map_err(DelegationError::Turn)? {
            TurnReply::Delegated { answer, is_tainted } => answered(&turn, agent, &answer, is_tainted),
            reply => Err(DelegationError::Turn(unexpected(&reply))),
        }
    }
}

/// The result of a delegation, whose taint the turn inherits.
fn answered(
    turn: &Turn,
    agent: Arc<str>,
    answer: &Result<Answer, Refusal>,
    is_tainted: bool,
) -> Result<Json, DelegationError> {
    let Answer { outcome, output } = answer.as_ref().map_err(|refusal| DelegationError::Refused(refusal.clone()))?;
    if is_tainted {
        turn.shared.taint().inherit();
    }
    let output = output.clone();
    if outcome.is_finished() {
        return Ok(output);
    }
    Err(DelegationError::NotFinished { agent, outcome: outcome.clone(), output })
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation").field("turn", &self.turn).field("order", &self.order).finish_non_exhaustive()
    }
}
