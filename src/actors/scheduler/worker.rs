//! A worker runs one turn after another: it polls the agent's future, contains its panics, and yields the turn's permit
//! while the turn waits for the runtime.

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

use crate::actors::agent::{AgentMsg, DynamicValue, value_for};
use crate::actors::turn::{StopReason, Turn, TurnError, TurnShared, changed};
use crate::env::{Env, Fault, happen_slowly};
use crate::messages::{AgentName, Command, Failure, FailureKind};
use crate::supervision::panic_text;
use crate::supervision::runs::queue::EnqueueGuard;
use crate::supervision::runs::rules::requests::TurnOutcome;

use super::Scheduler;
use super::in_place::take_kept;
use super::state::{Job, Next};

/// Starts a worker with its first turn.
pub(super) fn spawn(scheduler: &Arc<Scheduler>, runtime: &Handle, job: Job) {
    let scheduler = Arc::clone(scheduler);
    if job.is_blocking && Env::can_start_thread() {
        let handle = runtime.clone();
        runtime.spawn_blocking(move || handle.block_on(work(scheduler, job)));
    } else {
        runtime.spawn(work(scheduler, job));
    }
}

async fn work(scheduler: Arc<Scheduler>, first: Job) {
    let (mut scheduler, mut job) = (scheduler, first);
    loop {
        let end = run(&scheduler, &job).await;
        match finish(&scheduler, &job, end) {
            // That agent's turns run on a different kind of thread.
            Next::Run(next) if next.is_blocking != job.is_blocking => {
                return spawn(&scheduler, &Handle::current(), next);
            }
            Next::Run(next) => job = next,
            Next::Wait(assigned) => {
                // An idle worker keeps neither the ended turn nor the scheduler alive.
                drop((scheduler, job));
                match assigned.await {
                    Ok(assignment) => (scheduler, job) = assignment,
                    Err(_) => return,
                }
            }
            Next::End => return,
        }
    }
}

/// Takes a turn, and those of its run that are kept for the caller whose task this is. Where no caller polls it any more, none is kept.
pub(super) async fn in_place(scheduler: Arc<Scheduler>, first: Job) {
    let mut kept = Some(first);
    while let Some(job) = kept {
        let end = run(&scheduler, &job).await;
        let outcome = report(&scheduler, &job, end);
        scheduler.end(&job);
        if let Some(outcome) = outcome {
            outcome.drain();
        }
        kept = take_kept();
    }
}

async fn run(scheduler: &Arc<Scheduler>, job: &Job) -> End {
    match begin(scheduler, job) {
        Ok(turn) => turn.await,
        Err(panic) => End::Panicked(panic),
    }
}

/// Calls the agent for the turn's future; `Err` is the text of its panic.
fn begin<'a>(scheduler: &'a Arc<Scheduler>, job: &'a Job) -> Result<Instrumented<PermittedTurn<'a>>, String> {
    let ready = &job.turn.turn.ready;
    let span = tracing::info_span!(
        // Not of the caller in whose task it may be.
        parent: None,
        "turn",
        run = %ready.id.run,
        turn = ready.id.number,
        attempt = ready.attempt.0,
        agent = %ready.agent,
        trace = %ready.submission.trace,
    );
    let turn = Turn::of(Arc::clone(&job.turn.turn));
    let future = span.in_scope(|| catch_unwind(AssertUnwindSafe(|| take_turn(scheduler, job, turn))));
    let future = future.map_err(|panic| panic_text(&*panic))?;
    Ok(PermittedTurn { future, scheduler, job, reacquiring: None }.instrument(span))
}

/// The agent's future; with a fault plan, between two fault points.
fn take_turn(scheduler: &Scheduler, job: &Job, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
    let ready = &job.turn.turn.ready;
    let value = match value_for(&ready.agent, &job.value, ready.made.as_deref()) {
        Ok(DynamicValue { value, namespaces }) => {
            job.turn.turn.narrow(namespaces);
            value
        }
        Err(why) => {
            let error = changed(format!("agent {} can no longer be made: {why}", ready.agent));
            return ready_future(Err(error)).boxed();
        }
    };
    let turn = match &scheduler.elsewhere.get() {
        // Also if this board has its agent by now: the run that was asked for may begin at any time.
        Some(elsewhere) if ready.is_taken_elsewhere() => elsewhere.take(turn),
        Some(_) | None => value.turn(turn),
    };
    if !scheduler.env.has_faults() {
        return turn;
    }
    let (env, agent, actor) = (scheduler.env.clone(), ready.agent.clone(), scheduler.actor(job.agent));
    async move {
        turn_point(&env, "turn.begin", &agent, actor.as_ref()).await?;
        let end = turn.await;
        turn_point(&env, "turn.end", &agent, actor.as_ref()).await?;
        end
    }
    .boxed()
}

/// Passes a fault point of a turn: its agent's actor may be killed there, and the turn continues.
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

/// Ends the turn and finds another one. The permit is released before the shard's queue is drained, so this worker is already the
/// last in the list of idle ones: if draining the queue makes a turn ready, this worker gets it without a task switch.
fn finish(scheduler: &Arc<Scheduler>, job: &Job, end: End) -> Next {
    let outcome = report(scheduler, job, end);
    let next = scheduler.next(job);
    if let Some(outcome) = outcome {
        outcome.drain();
    }
    next
}

/// Enqueues the outcome of the turn. The late outcome of an evicted turn is dropped.
fn report<'a>(scheduler: &Scheduler, job: &'a Job, end: End) -> Option<EnqueueGuard<'a>> {
    let turn = &job.turn.turn;
    let outcome = match end {
        End::Returned(Ok(command)) => TurnOutcome::Command(command),
        End::Returned(Err(error)) if error.failure.kind == FailureKind::Panic => {
            panicked(scheduler, job, error.failure.text)
        }
        End::Returned(Err(TurnError { mut failure })) => {
            failure.text = or_that_there_is_none(failure.text, &turn.ready.agent);
            TurnOutcome::Failed(failure)
        }
        End::Panicked(text) => panicked(scheduler, job, text),
        End::Stopped(StopReason::Cancelled) => return None,
        End::Stopped(StopReason::TimedOut) => timed_out(turn, scheduler.timeout_of(job.agent, turn)),
    };
    if job.turn.is_evicted() {
        return None;
    }
    let Some(fault) = scheduler.env.fault_at("turn.reply", turn.ready.agent.as_str()) else {
        return Some(enqueue(turn, outcome));
    };
    let turn = Arc::clone(turn);
    fault.deliver(outcome, move |outcome| enqueue(&turn, outcome).drain());
    None
}

/// The text of an error. If it is empty, a text that names the agent as its source.
fn or_that_there_is_none(text: String, agent: &AgentName) -> String {
    if text.trim().is_empty() { format!("agent {agent} gave an error without text") } else { text }
}

fn panicked(scheduler: &Scheduler, job: &Job, text: String) -> TurnOutcome {
    let ready = &job.turn.turn.ready;
    let text = or_that_there_is_none(text, &ready.agent);
    if scheduler.discard_value(job.agent, job.generation, Some(ready.id), &text) {
        tracing::error!(turn = %ready.id, agent = %ready.agent, panic = %text, "turn panicked; its agent is rebuilt");
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
    let is_tainted = turn.is_tainted();
    ready.sink.outcome(ready.id, ready.attempt, is_tainted, outcome)
}

enum End {
    Returned(Result<Command, TurnError>),
    Panicked(String),
    Stopped(StopReason),
}

/// Polls a turn while it holds its permit. When the turn is pending and waits for the runtime, the permit is yielded, and
/// acquired again before the next poll.
struct PermittedTurn<'a> {
    future: BoxFuture<'static, Result<Command, TurnError>>,
    scheduler: &'a Arc<Scheduler>,
    job: &'a Job,
    /// Resolves when the permit was acquired again.
    reacquiring: Option<oneshot::Receiver<()>>,
}

impl PermittedTurn<'_> {
    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.reacquiring.is_none() && !self.job.turn.holds_permit() {
            self.reacquiring = self.scheduler.reacquire(self.job);
        }
        if let Some(reacquiring) = &mut self.reacquiring {
            // A dropped sender means that the turn was removed: its stop follows.
            let _ = ready!(reacquiring.poll_unpin(context));
            self.reacquiring = None;
        }
        Poll::Ready(())
    }
}

impl Future for PermittedTurn<'_> {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        let turn = &self.job.turn.turn;
        turn.stop.waker.register(context.waker());
        if let Some(why) = turn.stop.reason() {
            return Poll::Ready(End::Stopped(why));
        }
        ready!(self.poll_permit(context));
        match catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context))) {
            Ok(Poll::Ready(result)) => Poll::Ready(End::Returned(result)),
            Err(panic) => Poll::Ready(End::Panicked(panic_text(&*panic))),
            Ok(Poll::Pending) => {
                if self.job.turn.turn.is_waiting() {
                    self.scheduler.yield_permit(self.job);
                }
                Poll::Pending
            }
        }
    }
}
