//! Turns in the task of a caller that waits for their run ([`Callboard::complete`](crate::Callboard::complete)): no worker is woken for them.
//!
//! While such a caller is polled, the first turn of its run that its thread makes ready, and that may start, is kept for it. When that turn ends,
//! the thread drains the run's shard, which may make the next turn ready, and so on. All other turns go to workers.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::messages::RunId;

use super::Scheduler;
use super::state::Job;
use super::worker;

thread_local! {
    /// What the caller that this thread polls wants; `None` between polls.
    static POLLED: RefCell<Option<Wanted>> = const { RefCell::new(None) };
}

/// The run whose turns a caller takes, and the turn that was kept for it.
#[derive(Default)]
struct Wanted {
    run: Option<RunId>,
    kept: Option<Job>,
}

/// Has the caller that this thread polls take the turns of this run, if it takes any and has no run yet.
pub(crate) fn want(run: RunId) {
    POLLED.with_borrow_mut(|polled| {
        if let Some(wanted) = polled {
            wanted.run.get_or_insert(run);
        }
    });
}

/// Whether the caller that this thread polls takes the turns of the next run that it submits.
pub(crate) fn wants_next() -> bool {
    POLLED.with_borrow(|polled| polled.as_ref().is_some_and(|wanted| wanted.run.is_none()))
}

/// Keeps a turn for the caller that this thread polls; returns one that the caller does not take.
pub(super) fn keep(job: Job) -> Option<Job> {
    let mut job = Some(job);
    // A thread that ends polls nobody.
    let _ = POLLED.try_with(|polled| {
        if let Some(Wanted { run, kept: kept @ None }) = &mut *polled.borrow_mut()
            && job.as_ref().is_some_and(|job| *run == Some(job.turn.turn.ready.id.run) && !job.is_blocking)
        {
            *kept = job.take();
        }
    });
    job
}

/// The turn that was kept for the caller that this thread polls.
pub(super) fn take_kept() -> Option<Job> {
    POLLED.with_borrow_mut(|polled| polled.as_mut()?.kept.take())
}

/// A caller that takes the turns of one run in its own task. Dropped in the middle of a turn, it leaves the turn to a worker.
pub(crate) struct InPlace {
    scheduler: Arc<Scheduler>,
    wanted: Wanted,
    /// The turn that has begun, and those that are kept after it.
    turns: Option<BoxFuture<'static, ()>>,
}

impl InPlace {
    pub(crate) fn new(scheduler: &Arc<Scheduler>) -> Self {
        Self { scheduler: Arc::clone(scheduler), wanted: Wanted::default(), turns: None }
    }

    /// Waits for the submission of the run or for its end, and takes its turns meanwhile. A turn that becomes ready with what is waited for
    /// begins with the next wait.
    pub(crate) async fn until<T>(&mut self, something: impl Future<Output = T>) -> T {
        let mut something = pin!(something);
        poll_fn(|context| {
            let Self { scheduler, wanted, turns } = &mut *self;
            let _runtime = scheduler.runtime.enter();
            let _polled = Polled::begin(wanted);
            loop {
                poll_turns(scheduler, turns, context);
                if let Poll::Ready(done) = something.as_mut().poll(context) {
                    return Poll::Ready(done);
                }
                match take_kept() {
                    None => return Poll::Pending,
                    // The turn that has begun may wait for this one, as for a delegation.
                    Some(job) if turns.is_some() => {
                        worker::spawn(scheduler, &scheduler.runtime, job);
                        return Poll::Pending;
                    }
                    Some(job) => *turns = Some(worker::in_place(Arc::clone(scheduler), job).boxed()),
                }
            }
        })
        .await
    }
}

fn poll_turns(scheduler: &Arc<Scheduler>, turns: &mut Option<BoxFuture<'static, ()>>, context: &mut Context<'_>) {
    if turns.is_none() {
        *turns = take_kept().map(|job| worker::in_place(Arc::clone(scheduler), job).boxed());
    }
    if let Some(taken) = turns
        && taken.poll_unpin(context).is_ready()
    {
        *turns = None;
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        let Self { scheduler, wanted, turns } = self;
        if let Some(turns) = turns.take() {
            drop(scheduler.runtime.spawn(turns));
        }
        if let Some(job) = wanted.kept.take() {
            worker::spawn(scheduler, &scheduler.runtime, job);
        }
    }
}

/// A poll of a caller. The turns of callers that are polled within a turn are theirs.
struct Polled<'a> {
    wanted: &'a mut Wanted,
    outer: Option<Wanted>,
}

impl<'a> Polled<'a> {
    fn begin(wanted: &'a mut Wanted) -> Self {
        let outer = POLLED.replace(Some(std::mem::take(wanted)));
        Self { wanted, outer }
    }
}

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        *self.wanted = POLLED.replace(self.outer.take()).unwrap_or_default();
    }
}
