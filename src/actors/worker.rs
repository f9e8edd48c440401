//! A worker runs one turn after another: it polls the agent's future, contains its panics, and lets go of its seat while
//! the turn waits for the runtime.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument;
use tracing::instrument::Instrumented;

use crate::messages::{Command, Failure, FailureKind};
use crate::supervision::panic_text;
use crate::supervision::runs::dispatch::TurnOutcome;
use crate::supervision::runs::inbox::Input;

use super::agent_actor::AgentMsg;
use super::floor::{Floor, Job, Next};
use super::turn::{StopReason, Turn, TurnError, TurnShared};

/// Starts a worker with its first turn.
pub(super) fn spawn(floor: &Arc<Floor>, runtime: &Handle, job: Job) {
    let floor = Arc::clone(floor);
    if job.is_blocking {
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
        finish(&floor, &job, end);
        match floor.next(&job) {
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
    let future = span.in_scope(|| catch_unwind(AssertUnwindSafe(|| Arc::clone(&job.value).turn(turn))));
    let future = future.map_err(|panic| panic_text(&*panic))?;
    Ok(Seated { future, floor, job, coming: None }.instrument(span))
}

fn finish(floor: &Floor, job: &Job, end: End) {
    match end {
        End::Returned(Ok(command)) => report(&job.turn, TurnOutcome::Command(command)),
        End::Returned(Err(error)) => report(&job.turn, TurnOutcome::Failed(error.failure)),
        End::Panicked(text) => panicked(floor, job, text),
        End::Stopped(StopReason::Cancelled) => {}
        End::Stopped(StopReason::TimedOut) => {
            if !job.turn.seat.is_fenced.load(Ordering::Acquire) {
                report_timeout(&job.turn);
            }
        }
    }
}

fn panicked(floor: &Floor, job: &Job, text: String) {
    if floor.discard(job.place, job.generation) {
        let turn = job.turn.ready.id;
        tracing::error!(%turn, agent = %job.turn.ready.agent, panic = %text, "turn panicked; its agent is rebuilt");
        // An actor that is down rebuilds the value when it is back.
        let _ = job.actor.cast(AgentMsg::Panicked { turn: Some(turn), text: text.clone() });
    }
    report(&job.turn, TurnOutcome::Failed(Failure::new(FailureKind::Panic, text)));
}

/// What a fenced turn still returns is late, and dropped.
fn report(turn: &TurnShared, outcome: TurnOutcome) {
    if !turn.seat.is_fenced.load(Ordering::Acquire) {
        push(turn, outcome);
    }
}

pub(super) fn report_timeout(turn: &TurnShared) {
    let text = "the turn took longer than its agent may".to_owned();
    push(turn, TurnOutcome::Failed(Failure::new(FailureKind::Timeout, text)));
}

fn push(turn: &TurnShared, outcome: TurnOutcome) {
    turn.has_reported.store(true, Ordering::Release);
    let ready = &turn.ready;
    ready.inbox.push(Input::Outcome { turn: ready.id, attempt: ready.attempt, outcome });
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
