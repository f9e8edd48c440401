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

use crate::messages::{Command, Failure, FailureKind, Origin, TurnId};
use crate::supervision::panic_text;
use crate::supervision::runs::dispatch::TurnOutcome;
use crate::supervision::runs::inbox::Input;
use crate::supervision::tree::ChildRef;

use super::agent_actor::AgentMsg;
use super::context::ContextAccess;
use super::floor::{Floor, Job, Seat};
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
    let mut next = Some(first);
    let is_blocking = next.as_ref().is_some_and(|job| job.is_blocking);
    while let Some(job) = next {
        if job.is_blocking != is_blocking {
            // That agent's turns run on another kind of thread.
            spawn(&floor, &Handle::current(), job);
            return;
        }
        let (place, turn, seat) = (job.place, job.ready.id, Arc::clone(&job.seat));
        run(&floor, job).await;
        next = floor.next(place, turn, &seat);
    }
}

async fn run(floor: &Arc<Floor>, job: Job) {
    let Job { place, ready, value, generation, seat, namespaces, actor, .. } = job;
    let span = tracing::info_span!(
        "turn",
        run = %ready.id.run,
        turn = ready.id.number,
        attempt = ready.attempt,
        agent = %ready.agent,
        trace = %ready.submission.trace,
    );
    let origin = Origin { run: ready.id.run, chain: ready.chain.clone() };
    let context = ContextAccess::new(floor.context.clone(), ready.agent.clone(), namespaces, Some(origin));
    let turn = Turn::new(ready, context);
    let shared = Arc::clone(&turn.shared);
    floor.register(place, &shared, &seat);
    let end = {
        let future = match span.in_scope(|| catch_unwind(AssertUnwindSafe(|| value.turn(turn)))) {
            Ok(future) => future,
            Err(panic) => {
                let text = panic_text(&*panic);
                return panicked(floor, place, generation, &actor, &shared, &seat, text);
            }
        };
        let seated = Seated {
            future,
            floor: Arc::clone(floor),
            place,
            turn: Arc::clone(&shared),
            seat: Arc::clone(&seat),
            coming: None,
        };
        seated.instrument(span).await
    };
    match end {
        End::Returned(Ok(command)) => report(&shared, &seat, TurnOutcome::Command(command)),
        End::Returned(Err(error)) => report(&shared, &seat, TurnOutcome::Failed(error.failure)),
        End::Panicked(text) => panicked(floor, place, generation, &actor, &shared, &seat, text),
        End::Stopped(StopReason::Cancelled) => {}
        End::Stopped(StopReason::TimedOut) => {
            if !seat.is_fenced.load(Ordering::Acquire) {
                report_timeout(&shared);
            }
        }
    }
}

fn panicked(
    floor: &Arc<Floor>,
    place: usize,
    generation: u64,
    actor: &ChildRef<AgentMsg>,
    shared: &TurnShared,
    seat: &Seat,
    text: String,
) {
    if floor.discard(place, generation) {
        let turn = shared.ready.id;
        tracing::error!(%turn, agent = %shared.ready.agent, panic = %text, "turn panicked; its agent is rebuilt");
        // An actor that is down rebuilds the value when it is back.
        let _ = actor.cast(AgentMsg::Panicked { turn: Some(turn), text: text.clone() });
    }
    report(shared, seat, TurnOutcome::Failed(Failure::new(FailureKind::Panic, text)));
}

/// What a fenced turn still returns is late, and dropped.
fn report(shared: &TurnShared, seat: &Seat, outcome: TurnOutcome) {
    if !seat.is_fenced.load(Ordering::Acquire) {
        push(shared, outcome);
    }
}

pub(super) fn report_timeout(shared: &TurnShared) {
    let text = "the turn took longer than its agent may".to_owned();
    push(shared, TurnOutcome::Failed(Failure::new(FailureKind::Timeout, text)));
}

fn push(shared: &TurnShared, outcome: TurnOutcome) {
    shared.has_reported.store(true, Ordering::Release);
    let ready = &shared.ready;
    ready.inbox.push(Input::Outcome { turn: ready.id, attempt: ready.attempt, outcome });
}

enum End {
    Returned(Result<Command, TurnError>),
    Panicked(String),
    Stopped(StopReason),
}

/// Polls a turn while it holds its seat. When the turn is pending and waits for the runtime, the seat is given up, and
/// taken again before the next poll.
struct Seated {
    future: BoxFuture<'static, Result<Command, TurnError>>,
    floor: Arc<Floor>,
    place: usize,
    turn: Arc<TurnShared>,
    seat: Arc<Seat>,
    coming: Option<oneshot::Receiver<()>>,
}

impl Seated {
    fn id(&self) -> TurnId {
        self.turn.ready.id
    }

    fn poll_seat(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.coming.is_none() && !self.seat.is_held() {
            self.coming = self.floor.come_back(self.place, self.id(), &self.seat);
        }
        if let Some(coming) = &mut self.coming {
            // A sender that is gone means that the agent's place is gone with it: the stop follows.
            let _ = ready!(coming.poll_unpin(context));
            self.coming = None;
        }
        Poll::Ready(())
    }
}

impl Future for Seated {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        self.turn.stop.waker.register(context.waker());
        if let Some(why) = self.turn.stop.reason() {
            return Poll::Ready(End::Stopped(why));
        }
        ready!(self.poll_seat(context));
        match catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context))) {
            Ok(Poll::Ready(result)) => Poll::Ready(End::Returned(result)),
            Err(panic) => Poll::Ready(End::Panicked(panic_text(&*panic))),
            Ok(Poll::Pending) => {
                if self.turn.waits.load(Ordering::Relaxed) > 0 {
                    self.floor.leave(self.place, self.id(), &self.seat);
                }
                Poll::Pending
            }
        }
    }
}
