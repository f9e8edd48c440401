//! A worker runs one turn after another: it polls the agent's future, contains its panics, and lets go of its seat while
//! the turn waits for the runtime.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::future::ready as ready_future;
use ractor::ActorRef;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument;
use tracing::instrument::Instrumented;

use crate::env::can_start_thread;
use crate::env::{Env, Fault, happen_slowly};
use crate::messages::{AgentName, Command, Failure, FailureKind};
use crate::supervision::panic_text;
use crate::supervision::runs::queue::EnqueueGuard;
use crate::supervision::runs::rules::requests::TurnOutcome;

use super::agent::{MadeValue, made_for};
use super::agent_actor::AgentMsg;
use super::floor::{Floor, Job, Next};
use super::turn::{StopReason, Turn, TurnError, TurnShared, changed};

/// Starts a worker with its first turn.
pub(super) fn spawn(floor: &Arc<Floor>, runtime: &Handle, job: Job) {
    let floor = Arc::clone(floor);
    if job.is_blocking && can_start_thread() {
        let handle = runtime.clone();
        runtime.spawn_blocking(move || handle.block_on(work(floor, job)));
    } else {
        runtime.spawn(work(floor, job));
    }
}

async fn work(floor: Arc<Floor>, first: Job) {
    let (mut floor, mut job) = (floor, first);
    loop {
        let end = match begin(&floor, &job) {
            Ok(seated) => seated.await,
            Err(panic) => End::Panicked(panic),
        };
        match finish(&floor, &job, end) {
            // That agent's turns run on another kind of thread.
            Next::Work(next) if next.is_blocking != job.is_blocking => return spawn(&floor, &Handle::current(), next),
            Next::Work(next) => job = next,
            Next::Wait(assigned) => {
                // Nothing is held meanwhile, neither what the turn shares nor the floor.
                drop((floor, job));
                match assigned.await {
                    Ok(assignment) => (floor, job) = assignment,
                    Err(_) => return,
                }
            }
            Next::End => return,
        }
    }
}

/// Has the agent make the turn's future; `Err` is the text of its panic.
fn begin<'a>(floor: &'a Arc<Floor>, job: &'a Job) -> Result<Instrumented<Seated<'a>>, String> {
    let ready = &job.turn.ready;
    let span = tracing::info_span!(
        "turn",
        run = %ready.id.run,
        turn = ready.id.number,
        attempt = ready.attempt,
        agent = %ready.agent,
        trace = %ready.submission.trace,
    );
    let turn = Turn { shared: Arc::clone(&job.turn) };
    let future = span.in_scope(|| catch_unwind(AssertUnwindSafe(|| take_turn(floor, job, turn))));
    let future = future.map_err(|panic| panic_text(&*panic))?;
    Ok(Seated { future, floor, job, coming: None }.instrument(span))
}

/// The agent's future, between two fault points if there is a plan.
fn take_turn(floor: &Floor, job: &Job, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
    let ready = &turn.shared.ready;
    let value = match made_for(&ready.agent, &job.value, ready.made.as_deref()) {
        Ok(MadeValue { value, namespaces }) => {
            namespaces.map(|namespaces| turn.shared.narrowed.set(namespaces));
            value
        }
        Err(why) => {
            let agent = &turn.shared.ready.agent;
            let error = changed(format!("agent {agent} can no longer be made: {why}"));
            return ready_future(Err(error)).boxed();
        }
    };
    if !floor.env.has_faults() {
        return value.turn(turn);
    }
    let (env, agent, actor) = (floor.env.clone(), job.turn.ready.agent.clone(), floor.actor(job.place));
    async move {
        turn_point(&env, "turn.begin", &agent, actor.as_ref()).await?;
        let end = value.turn(turn).await;
        turn_point(&env, "turn.end", &agent, actor.as_ref()).await?;
        end
    }
    .boxed()
}

/// Passes a fault point of a turn: its agent's actor may be killed there, and the turn goes on.
async fn turn_point(
    env: &Env,
    point: &'static str,
    agent: &AgentName,
    actor: Option<&ActorRef<AgentMsg>>,
) -> Result<(), TurnError> {
    match env.fault_at(point, agent.as_str()) {
        None => {}
        Some(Fault::Kill) => actor.into_iter().for_each(|actor| actor.kill()),
        Some(fault) => happen_slowly(fault).await.map_err(TurnError::transient)?,
    }
    Ok(())
}

/// Ends the turn and finds another one. The place is left before the run supervisor's work is done: a worker that is idle
/// by then came last, so it is the one that gets the turn which comes of that work, and no task is switched.
fn finish(floor: &Arc<Floor>, job: &Job, end: End) -> Next {
    let outcome = report(floor, job, end);
    let next = floor.next(job);
    if let Some(outcome) = outcome {
        outcome.drain();
    }
    next
}

/// Hands in how the turn ended. What a fenced turn still returns is late, and dropped.
fn report<'a>(floor: &Floor, job: &'a Job, end: End) -> Option<EnqueueGuard<'a>> {
    let outcome = match end {
        End::Returned(Ok(command)) => TurnOutcome::Command(command),
        End::Returned(Err(error)) if error.failure.kind == FailureKind::Panic => {
            panicked(floor, job, error.failure.text)
        }
        End::Returned(Err(TurnError { mut failure })) => {
            failure.text = or_that_there_is_none(failure.text, &job.turn.ready.agent);
            TurnOutcome::Failed(failure)
        }
        End::Panicked(text) => panicked(floor, job, text),
        End::Stopped(StopReason::Cancelled) => return None,
        End::Stopped(StopReason::TimedOut) => timed_out(&job.turn, floor.timeout_of(job.place, &job.turn)),
    };
    if job.turn.seat.is_fenced.load(Ordering::Acquire) {
        return None;
    }
    let Some(fault) = floor.env.fault_at("turn.reply", job.turn.ready.agent.as_str()) else {
        return Some(enqueue(&job.turn, outcome));
    };
    let turn = Arc::clone(&job.turn);
    fault.hand_over(outcome, move |outcome| enqueue(&turn, outcome).drain());
    None
}

/// The text of an error, or that its agent gave none: whoever reads it has to know where to look.
fn or_that_there_is_none(text: String, agent: &AgentName) -> String {
    if text.trim().is_empty() { format!("agent {agent} gave an error without text") } else { text }
}

fn panicked(floor: &Floor, job: &Job, text: String) -> TurnOutcome {
    let turn = job.turn.ready.id;
    let text = or_that_there_is_none(text, &job.turn.ready.agent);
    if floor.discard(job.place, job.generation, Some(turn), &text) {
        tracing::error!(%turn, agent = %job.turn.ready.agent, panic = %text, "turn panicked; its agent is rebuilt");
    }
    TurnOutcome::Failed(Failure::new(FailureKind::Panic, text))
}

pub(super) fn timed_out(turn: &TurnShared, timeout: Duration) -> TurnOutcome {
    let text = format!("a turn of agent {} took longer than its timeout of {timeout:?}", turn.ready.agent);
    TurnOutcome::Failed(Failure::new(FailureKind::Timeout, text))
}

pub(super) fn enqueue(turn: &TurnShared, outcome: TurnOutcome) -> EnqueueGuard<'_> {
    turn.has_reported.store(true, Ordering::Release);
    let ready = &turn.ready;
    let is_marked = turn.is_marked();
    ready.sink.outcome(ready.id, ready.attempt, is_marked, outcome)
}

enum End {
    Returned(Result<Command, TurnError>),
    Panicked(String),
    Stopped(StopReason),
}

/// Polls a turn while it holds its seat. When the turn is pending and waits for the runtime, the seat is given up, and
/// taken again before the next poll.
struct Seated<'a> {
    future: BoxFuture<'static, Result<Command, TurnError>>,
    floor: &'a Arc<Floor>,
    job: &'a Job,
    coming: Option<oneshot::Receiver<()>>,
}

impl Seated<'_> {
    fn poll_seat(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.coming.is_none() && !self.job.turn.seat.is_held() {
            self.coming = self.floor.come_back(self.job);
        }
        if let Some(coming) = &mut self.coming {
            // A sender that is gone means that the agent's place is gone with it: the stop follows.
            let _ = ready!(coming.poll_unpin(context));
            self.coming = None;
        }
        Poll::Ready(())
    }
}

impl Future for Seated<'_> {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        let turn = &self.job.turn;
        turn.stop.waker.register(context.waker());
        if let Some(why) = turn.stop.reason() {
            return Poll::Ready(End::Stopped(why));
        }
        ready!(self.poll_seat(context));
        match catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context))) {
            Ok(Poll::Ready(result)) => Poll::Ready(End::Returned(result)),
            Err(panic) => Poll::Ready(End::Panicked(panic_text(&*panic))),
            Ok(Poll::Pending) => {
                if self.job.turn.waits.load(Ordering::Relaxed) > 0 {
                    self.floor.leave(self.job);
                }
                Poll::Pending
            }
        }
    }
}
