//! Sends requests of a turn to its run, and waits for the replies.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use crate::messages::{MAX_JSON_DEPTH, RequestId, TurnId};
use crate::supervision::runs::queue::{EnqueueGuard, WithRecord};
use crate::supervision::runs::rules::budget::Share;
use crate::supervision::runs::rules::requests::{TurnReply, TurnRequest};

use super::error::{changed, no_longer_wanted};
use super::programs::check_is_numbered;
use super::shared::Waiting;
use super::{Turn, TurnError};

/// The direction of a request: to its run, or the reply on the way back.
#[derive(Clone, Copy)]
enum Direction {
    Dispatch,
    Reply,
}

impl Direction {
    /// The fault point of a request that others answer, and the point's subject if that is not the asking agent.
    fn point_of(self, request: &TurnRequest) -> Option<(&'static str, Option<&str>)> {
        let (dispatch, reply, target) = match request {
            TurnRequest::Delegate(order) => ("delegation.dispatch", "delegation.reply", Some(&*order.to)),
            TurnRequest::Ask { .. } | TurnRequest::Resolve { .. } => ("question.dispatch", "question.reply", None),
            TurnRequest::Approve { .. } => ("approval.dispatch", "approval.reply", None),
            TurnRequest::StartStep(_)
            | TurnRequest::FinishStep { .. }
            | TurnRequest::Intend { .. }
            | TurnRequest::FailStep(..)
            | TurnRequest::Reserve { .. }
            | TurnRequest::Settle(_)
            | TurnRequest::Status { .. }
            | TurnRequest::EndWait
            | TurnRequest::CheckHandoff(_)
            | TurnRequest::MakeAgent { .. }
            | TurnRequest::Taint(_)
            | TurnRequest::Notice(_)
            | TurnRequest::Summary(_) => return None,
        };
        Some(match self {
            Self::Dispatch => (dispatch, target),
            Self::Reply => (reply, target),
        })
    }
}

thread_local! {
    /// The step that is being polled on this thread.
    static IN_STEP: Cell<Option<InStep>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct InStep {
    turn: TurnId,
    /// Its work has left a message for whoever drains the run's queue next.
    has_left: bool,
}

/// What comes after the work of a step that is ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Another request at once, or [`Turn::hand_over`]: what the work has left is recorded with it.
    Request,
    Anything,
}

/// Sets `IN_STEP` while the step's work is polled. No `async fn`, because its future would hold the arguments twice.
pub(super) fn as_step<T>(turn: &Turn, then: Then, work: impl Future<Output = T>) -> impl Future<Output = T> {
    struct Outer(Option<InStep>);
    impl Drop for Outer {
        fn drop(&mut self) {
            IN_STEP.set(self.0);
        }
    }
    async move {
        let mut work = pin!(work);
        poll_fn(|context| {
            let (polled, has_left) = {
                let _outer = Outer(IN_STEP.replace(Some(InStep { turn: turn.id(), has_left: false })));
                let polled = work.as_mut().poll(context);
                (polled, IN_STEP.get().is_some_and(|step| step.has_left))
            };
            if has_left && (polled.is_pending() || then == Then::Anything) {
                turn.hand_over();
            }
            polled
        })
        .await
    }
}

/// Checks that a request can be read back from the journal.
pub(super) fn check_depth(request: &TurnRequest) -> Result<(), TurnError> {
    if !request.is_too_deep() {
        return Ok(());
    }
    let what = match request {
        TurnRequest::FinishStep { name, .. } => format!("the result of step {name:?}"),
        TurnRequest::Delegate(order) => format!("the input of the delegation to {:?}", order.to),
        TurnRequest::Approve { action, .. } => format!("the arguments of {:?}", action.action),
        TurnRequest::MakeAgent { name, .. } => format!("what the agent {name:?} is"),
        TurnRequest::CheckHandoff(_) => "what is handed on".to_owned(),
        _ => "the question".to_owned(),
    };
    Err(TurnError::terminal(format!("{what} may be nested {MAX_JSON_DEPTH} levels deep at most")))
}

impl Turn {
    /// Refuses requests within a step: once the step is answered from the journal, its work does not run, and the ordinals of
    /// later requests would change.
    pub(super) fn check_not_in_step(&self, what: &str) -> Result<(), TurnError> {
        // Requests of programs have numbers of their own.
        if !self.is_in_step() {
            return Ok(());
        }
        Err(TurnError::terminal(format!("{what} inside the work of a step; make it before the step, or after it")))
    }

    /// Whether the work of a step of it is being polled on this thread.
    fn is_in_step(&self) -> bool {
        self.block.is_none() && IN_STEP.get().is_some_and(|step| step.turn == self.id())
    }

    /// Processes what is enqueued for the run.
    pub(super) fn hand_over(&self) {
        self.shared.ready.sink.drain();
    }

    pub(super) fn take_ordinal(&self) -> u32 {
        match &self.block {
            Some(block) => block.take(),
            None => self.shared.next_ordinal.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(super) fn send(&self, ordinal: u32, request: TurnRequest, reply: Option<oneshot::Sender<TurnReply>>) {
        self.enqueue(ordinal, request, reply, None).drain();
    }

    /// As [`Turn::send`]. In the work of a step, the request is processed with the next one, or when the work is pending, so that both are
    /// one record.
    pub(super) fn send_with_next(&self, ordinal: u32, request: TurnRequest, reply: Option<oneshot::Sender<TurnReply>>) {
        let enqueued = self.enqueue(ordinal, request, reply, None);
        if self.is_in_step() {
            enqueued.leave();
            IN_STEP.set(Some(InStep { turn: self.id(), has_left: true }));
        } else {
            enqueued.drain();
        }
    }

    /// Enqueues a request that nobody waits for: another thread processes it, so the caller may hold any lock.
    pub(super) fn post(&self, ordinal: u32, request: TurnRequest) {
        drop(self.enqueue(ordinal, request, None, None));
    }

    fn enqueue(
        &self,
        ordinal: u32,
        request: TurnRequest,
        reply: Option<oneshot::Sender<TurnReply>>,
        with_share: Option<WithRecord<Share>>,
    ) -> EnqueueGuard<'_> {
        let ready = &self.shared.ready;
        let id = RequestId { turn: ready.id, ordinal };
        let is_tainted = self.shared.is_tainted();
        ready.sink.request(id, ready.attempt, is_tainted, request, reply, with_share)
    }

    /// Sends the request that `request` makes, and waits for its reply without permit and slot. If the supervisor restarts meanwhile,
    /// the request is made and sent again: the run has recorded it, or not yet received it.
    ///
    /// The future keeps what the request is made of, and not the request, which has room for the largest kind of request: turns wait here.
    pub(super) fn request(
        &self,
        ordinal: u32,
        request: impl Fn() -> TurnRequest + Send + Sync,
    ) -> impl Future<Output = Result<TurnReply, TurnError>> + Send {
        self.request_with(ordinal, request, || None)
    }

    /// As [`Turn::request`], with what is written with the record of the share that is reserved.
    pub(super) fn request_with(
        &self,
        ordinal: u32,
        request: impl Fn() -> TurnRequest + Send + Sync,
        with_share: impl Fn() -> Option<WithRecord<Share>> + Send + Sync,
    ) -> impl Future<Output = Result<TurnReply, TurnError>> + Send {
        let has_faults = self.shared.env().has_faults();
        async move {
            let mut asked = {
                let first = request();
                self.check(ordinal, &first)?;
                (!has_faults).then(|| self.ask(ordinal, first, with_share()))
            };
            let _waiting = Waiting::begin(&self.shared);
            loop {
                let Some(answer) = &mut asked else {
                    // Boxed to keep the future small.
                    asked = Some(Box::pin(self.ask_again(ordinal, &request, &with_share)).await?);
                    continue;
                };
                // No reply is kept across an await: it has room for the largest kind.
                let passing = match answer.await {
                    Ok(TurnReply::Changed(difference)) => return Err(changed(difference)),
                    Ok(TurnReply::Gone) => return Err(no_longer_wanted()),
                    Ok(reply) if !has_faults => return Ok(reply),
                    Ok(reply) => Some(Box::pin(self.pass_reply(request(), reply))),
                    Err(_) => None,
                };
                asked = None;
                if let Some(passing) = passing
                    && let Some(reply) = passing.await?
                {
                    return Ok(reply);
                }
                tokio::task::yield_now().await;
            }
        }
    }

    fn check(&self, ordinal: u32, request: &TurnRequest) -> Result<(), TurnError> {
        if !matches!(request, TurnRequest::Reserve { .. } | TurnRequest::StartStep(_) | TurnRequest::Status { .. }) {
            self.check_not_in_step("a request")?;
        }
        check_is_numbered(ordinal)?;
        check_depth(request)
    }

    fn ask(
        &self,
        ordinal: u32,
        request: TurnRequest,
        with_share: Option<WithRecord<Share>>,
    ) -> oneshot::Receiver<TurnReply> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(ordinal, request, Some(reply), with_share).drain();
        answer
    }

    /// Sends a request past its fault point.
    async fn ask_again(
        &self,
        ordinal: u32,
        request: &(impl Fn() -> TurnRequest + Sync),
        with_share: &(impl Fn() -> Option<WithRecord<Share>> + Sync),
    ) -> Result<oneshot::Receiver<TurnReply>, TurnError> {
        let (reply, answer) = oneshot::channel();
        let mut reply = Some(reply);
        // Replies to repeated deliveries are not awaited; the sender of a lost request is dropped with it.
        for _ in 0..self.pass(Direction::Dispatch, &request()).await? {
            self.enqueue(ordinal, request(), reply.take(), with_share()).drain();
        }
        Ok(answer)
    }

    /// Passes the fault point of a reply; `None` if it is lost there.
    async fn pass_reply(&self, request: TurnRequest, reply: TurnReply) -> Result<Option<TurnReply>, TurnError> {
        let delivered = self.pass(Direction::Reply, &request).await?;
        Ok((delivered > 0).then_some(reply))
    }

    /// Passes a fault point with a request or its reply; returns how often it is delivered.
    async fn pass(&self, direction: Direction, request: &TurnRequest) -> Result<usize, TurnError> {
        let env = self.shared.env();
        match direction.point_of(request) {
            Some((point, target)) if env.has_faults() => {
                let subject = target.unwrap_or(self.agent().as_str());
                Box::pin(env.message_point(point, subject)).await.map_err(TurnError::transient)
            }
            Some(_) | None => Ok(1),
        }
    }
}
