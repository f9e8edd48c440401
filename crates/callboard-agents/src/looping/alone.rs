//! A loop without a board: a stream of its events, and a handle to stop it, to decide, and to answer.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use callboard::messages::{Action, AgentEvent, Command, Json, LoopEnd, Message};
use futures::future::{Abortable, BoxFuture};
use futures::{FutureExt, Stream};
use parking_lot::Mutex;

use super::AgentLoop;
use super::context::LoopContext;
use super::finish::Finish;
use super::host::Permission;
use super::standalone::{Alone, Pending};

/// A loop that runs while its events are read.
pub struct LoopRun {
    work: Option<Abortable<Work>>,
    handle: LoopHandle,
    handoff: Option<Command>,
}

/// The end of the loop, and the command of a handoff.
type Work = BoxFuture<'static, (LoopEnd, Option<Command>)>;

/// Looks into a loop, stops it, and says what people say. A cheap clone.
#[derive(Clone)]
pub struct LoopHandle {
    context: Arc<Mutex<LoopContext>>,
    pending: Arc<Pending>,
}

impl AgentLoop {
    /// Returns the loop as a stream of its events, without a board. The loop advances only while the stream is read.
    #[must_use]
    pub fn run(&self, messages: Vec<Message>) -> LoopRun {
        LoopRun::new(self.clone(), messages)
    }
}

impl LoopRun {
    fn new(agent: AgentLoop, messages: Vec<Message>) -> Self {
        let host = Alone::new();
        let (context, registration) = LoopContext::begin_cancellable(messages);
        let context = Arc::new(Mutex::new(context));
        let handle = LoopHandle { context: Arc::clone(&context), pending: Arc::clone(host.pending()) };
        let work = async move {
            match agent.drive(&host, &context).await {
                Ok(Finish::HandedOff(command)) => (LoopEnd::HandedOff, Some(*command)),
                Ok(finish) => (finish.end(), None),
                Err(error) => (LoopEnd::Failed(error.to_string().into()), None),
            }
        };
        Self { work: Some(Abortable::new(work.boxed(), registration)), handle, handoff: None }
    }

    /// Returns a handle that stops the loop, decides about uses of tools and answers questions from elsewhere.
    #[must_use]
    pub fn handle(&self) -> LoopHandle {
        self.handle.clone()
    }

    /// Returns a copy of what the loop knows at this moment.
    #[must_use]
    pub fn context(&self) -> LoopContext {
        self.handle.context()
    }

    /// Returns the command of a handoff, once the loop has ended with one: whom control would go to, and with what.
    #[must_use]
    pub fn handoff(&self) -> Option<&Command> {
        self.handoff.as_ref()
    }
}

impl Stream for LoopRun {
    type Item = AgentEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        // Text that arrived before the stop is sent first.
        if let Some(event) = self.handle.pending.shown.lock().pop_front() {
            return Poll::Ready(Some(event));
        }
        let Some(work) = &mut self.work else { return Poll::Ready(None) };
        match work.poll_unpin(context) {
            Poll::Pending => match self.handle.pending.shown.lock().pop_front() {
                Some(event) => Poll::Ready(Some(event)),
                None => Poll::Pending,
            },
            Poll::Ready(done) => {
                self.work = None;
                let (end, handoff) = done.unwrap_or((LoopEnd::Cancelled, None));
                self.handoff = handoff;
                self.handle.pending.close();
                let mut shown = self.handle.pending.shown.lock();
                shown.push_back(AgentEvent::Ended { end });
                Poll::Ready(shown.pop_front())
            }
        }
    }
}

/// The error of a decision or an answer that no call waits for: it was settled already, or the loop has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call {call:?} waits for nothing like this; it may have been settled, or the loop has ended")]
pub struct NotPending {
    /// The id of the call, as it was given to the [`LoopHandle`].
    pub call: String,
}

impl LoopHandle {
    /// Stops the loop at the await where it is.
    pub fn cancel(&self) {
        self.context.lock().cancel.cancel();
    }

    /// Returns a copy of what the loop knows at this moment.
    #[must_use]
    pub fn context(&self) -> LoopContext {
        self.context.lock().clone()
    }

    /// Allows a use of a tool.
    ///
    /// # Errors
    /// Nobody asks for it.
    pub fn allow(&self, call: &str) -> Result<(), NotPending> {
        self.decide(call, Permission::Granted)
    }

    /// Allows a use of a tool with other arguments.
    ///
    /// # Errors
    /// Nobody asks for it.
    pub fn allow_with(&self, call: &str, arguments: impl Into<Json>) -> Result<(), NotPending> {
        let arguments = arguments.into();
        self.decide(call, |mut action| {
            action.arguments = arguments;
            Permission::Granted(action)
        })
    }

    /// Does not allow it; the model receives the reason.
    ///
    /// # Errors
    /// Nobody asks for it.
    pub fn deny(&self, call: &str, reason: &str) -> Result<(), NotPending> {
        self.decide(call, |_| Permission::Denied { reason: reason.into() })
    }

    /// Answers the question that this call has asked ([`AgentEvent::QuestionAsked`]).
    ///
    /// # Errors
    /// It was not asked, or is answered.
    pub fn answer(&self, call: &str, answer: impl Into<Json>) -> Result<(), NotPending> {
        let waiting = self.pending.questions.lock().remove(call);
        let not_pending = || NotPending { call: call.to_owned() };
        waiting.ok_or_else(not_pending)?.send(answer.into()).map_err(|_| not_pending())
    }

    fn decide(&self, call: &str, decision: impl FnOnce(Action) -> Permission) -> Result<(), NotPending> {
        let waiting = self.pending.permissions.lock().remove(call);
        let not_pending = || NotPending { call: call.to_owned() };
        let (action, sender) = waiting.ok_or_else(not_pending)?;
        sender.send(decision(action)).map_err(|_| not_pending())
    }
}

impl fmt::Debug for LoopRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopRun").field("context", &*self.handle.context.lock()).finish_non_exhaustive()
    }
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle").finish_non_exhaustive()
    }
}
