//! A worker runs one turn after another: it polls the agent's future, contains its panics, and yields the turn's permit
//! while the turn waits for the runtime.

use std::future::{Future, poll_fn};
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
use super::state::{Assignment, Job, Next};

/// Starts a worker with its first turn.
pub(super) fn spawn(scheduler: &Arc<Scheduler>, runtime: &Handle, job: Job) {
    let needs_thread = job.is_blocking && Env::can_start_thread();
    let worker = Worker::Turn(PermittedTurn::of(Arc::clone(scheduler), job));
    if needs_thread {
        let handle = runtime.clone();
        runtime.spawn_blocking(move || handle.block_on(worker));
    } else {
        runtime.spawn(worker);
    }
}

/// The task of a worker. Most of a board's tasks are workers whose turns wait, so it is written as one small value.
enum Worker {
    /// It runs a turn.
    Turn(PermittedTurn),
    /// It is idle until its next turn arrives. It keeps neither the ended turn nor the scheduler alive.
    Idle(oneshot::Receiver<Assignment>),
}

impl Future for Worker {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let worker = &mut *self;
        loop {
            match worker {
                Self::Turn(turn) => {
                    let Poll::Ready(end) = turn.poll_end(context) else {
                        // What was gathered does not wait with it.
                        turn.hand_over();
                        return Poll::Pending;
                    };
                    match finish(turn, end) {
                        // That agent's turns run on a different kind of thread.
                        Next::Run(next) if next.is_blocking != turn.job.is_blocking => {
                            spawn(&turn.scheduler, &Handle::current(), next);
                            return Poll::Ready(());
                        }
                        Next::Run(next) => turn.job = next,
                        Next::Wait(assigned) => *worker = Self::Idle(assigned),
                        Next::End => return Poll::Ready(()),
                    }
                }
                Self::Idle(assigned) => match ready!(assigned.poll_unpin(context)) {
                    Ok((scheduler, job)) => *worker = Self::Turn(PermittedTurn::of(scheduler, job)),
                    Err(_) => return Poll::Ready(()),
                },
            }
        }
    }
}

/// Takes a turn, and those of its run that are kept for the caller whose task this is. Where no caller polls it any more, none is kept.
pub(super) async fn in_place(scheduler: Arc<Scheduler>, first: Job) {
    let mut turn = PermittedTurn::of(scheduler, first);
    loop {
        let end = poll_fn(|context| turn.poll_end(context)).await;
        end_in_place(&turn.scheduler, &turn.job, end);
        match take_kept() {
            Some(next) => turn.job = next,
            None => return,
        }
    }
}

fn end_in_place(scheduler: &Arc<Scheduler>, job: &Job, end: End) {
    let outcome = report(scheduler, job, end);
    scheduler.end(job);
    if let Some(outcome) = outcome {
        outcome.drain();
    }
}

/// Calls the agent for the turn's future; `Err` is the text of its panic.
fn begin(scheduler: &Scheduler, job: &Job) -> Result<Instrumented<TurnFuture>, String> {
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
    future.map(|future| future.instrument(span)).map_err(|panic| panic_text(&*panic))
}

/// The agent's future; with a fault plan, between two fault points.
fn take_turn(scheduler: &Scheduler, job: &Job, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
    let ready = &job.turn.turn.ready;
    let value = match value_for(&ready.agent, &job.value, ready.extras.made.as_deref()) {
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
/// last in the list of idle ones: if draining the queue makes a turn ready, this worker gets it without a task switch. Ends of short turns
/// of one run are gathered: the run has them in one record.
fn finish(turn: &mut PermittedTurn, end: End) -> Next {
    let outcome = report(&turn.scheduler, &turn.job, end);
    let since = turn.job.turn.since();
    let next = turn.scheduler.next(&turn.job);
    let gathers = matches!(&next, Next::Run(next) if turn.gathers_before(next, since));
    match outcome.map(|outcome| if gathers { outcome.leave() } else { outcome.drain() }) {
        Some(()) if gathers => turn.gathered += 1,
        Some(()) => turn.gathered = 0,
        None => turn.hand_over(),
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

/// The most ends of turns that wait for the next one.
const MOST_GATHERED: u8 = 31;

/// The time of a turn after whose end another one may be awaited.
const SHORT: Duration = Duration::from_micros(100);

enum End {
    Returned(Result<Command, TurnError>),
    Panicked(String),
    Stopped(StopReason),
}

type TurnFuture = BoxFuture<'static, Result<Command, TurnError>>;

/// Polls a turn while it holds its permit. When the turn is pending and waits for the runtime, the permit is yielded, and
/// acquired again before the next poll.
struct PermittedTurn {
    scheduler: Arc<Scheduler>,
    job: Job,
    /// How many ends of turns of its run are enqueued that this worker has yet to hand over.
    gathered: u8,
    /// `None` before the first poll and after the end.
    future: Option<Instrumented<TurnFuture>>,
    /// Resolves when the permit was acquired again.
    reacquiring: Option<oneshot::Receiver<()>>,
}

impl PermittedTurn {
    fn of(scheduler: Arc<Scheduler>, job: Job) -> Self {
        Self { scheduler, job, gathered: 0, future: None, reacquiring: None }
    }

    /// Whether its end may wait for that of the next turn: both are of one run, so they become ready and are recorded together, and this
    /// one was short, so that the next one probably is. One that waits or is long has what was gathered wait no longer than its first poll.
    fn gathers_before(&self, next: &Job, since: Duration) -> bool {
        let (own, next_turn) = (&self.job.turn, &next.turn);
        self.gathered < MOST_GATHERED
            && own.turn.ready.id.run == next_turn.turn.ready.id.run
            && !(self.job.is_blocking || next.is_blocking)
            && next_turn.since().saturating_sub(since) <= SHORT
    }

    /// Has the run take the ends that were gathered.
    fn hand_over(&mut self) {
        if std::mem::take(&mut self.gathered) > 0 {
            self.job.turn.turn.ready.sink.drain();
        }
    }

    /// Polls the turn until it has ended. Its future is dropped by then.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let end = ready!(self.poll_turn(context));
        (self.future, self.reacquiring) = (None, None);
        Poll::Ready(end)
    }

    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<End> {
        if self.future.is_none() {
            match begin(&self.scheduler, &self.job) {
                Ok(future) => self.future = Some(future),
                Err(panic) => return Poll::Ready(End::Panicked(panic)),
            }
        }
        let stop = &self.job.turn.turn.stop;
        stop.waker.register(context.waker());
        if let Some(why) = stop.reason() {
            return Poll::Ready(End::Stopped(why));
        }
        ready!(self.poll_permit(context));
        let future = self.future.as_mut().map(Pin::new);
        match catch_unwind(AssertUnwindSafe(|| future.map_or(Poll::Pending, |future| future.poll(context)))) {
            Ok(Poll::Ready(result)) => Poll::Ready(End::Returned(result)),
            Err(panic) => Poll::Ready(End::Panicked(panic_text(&*panic))),
            Ok(Poll::Pending) => {
                if self.job.turn.turn.is_waiting() {
                    self.scheduler.yield_permit(&self.job);
                }
                Poll::Pending
            }
        }
    }

    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.reacquiring.is_none() && !self.job.turn.holds_permit() {
            self.reacquiring = self.scheduler.reacquire(&self.job);
        }
        if let Some(reacquiring) = &mut self.reacquiring {
            // A dropped sender means that the turn was removed: its stop follows.
            let _ = ready!(reacquiring.poll_unpin(context));
            self.reacquiring = None;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_worker_is_small() {
        // With what tokio adds, it has room in 256 bytes.
        assert!(size_of::<Worker>() <= 144, "{} bytes", size_of::<Worker>());
    }
}
