//! Starts the runs of schedules. The rules decide what is done at a moment; this submits it, records it, and waits for the next one.
//!
//! A run is submitted before it is recorded. Its id follows from the schedule and the time: after a crash between the two, and with
//! several servers on one store, the same time is submitted again and is the same run.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use callboard::messages::{RunId, Timestamp};
use callboard::runtime::RunError;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::rules::{Overlap, decide, due};
use super::stored::{Fired, Firing, Read, Schedule, Schedules, Status};
use super::when::When;
use crate::context::Context;
use crate::delegations::{self, Request};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Scope, TokenRef};

/// How long to wait at most: the wall clock may be set meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How long to wait after the board or the store refused for a while.
const RETRY: Duration = Duration::from_secs(5);
/// How long one schedule may take.
const MAX_TIME: Duration = Duration::from_secs(30);

/// Starts what is due, until `stop` is ready or the board has ended.
pub(crate) async fn fire(context: &Context, stop: impl Future<Output = ()>) {
    let _running = context.firings.begin();
    let starter = Starter { context, store: Schedules::of(&context.board) };
    tokio::select! {
        biased;
        () = stop => {}
        _ = context.board.ended() => {}
        () = starter.run() => {}
    }
}

/// Why a run is not started.
enum Halt {
    /// The schedule may not fire any more.
    Stop(String),
    /// The task is refused.
    Refused(String),
    /// It may be tried again.
    Later(Problem),
}

impl From<Problem> for Halt {
    fn from(problem: Problem) -> Self {
        match problem.code {
            ProblemCode::Overloaded | ProblemCode::Unavailable => Self::Later(problem),
            _ => Self::Refused(problem.detail),
        }
    }
}

struct Starter<'c> {
    context: &'c Context,
    store: Schedules,
}

/// The runs whose end is waited for.
#[derive(Default)]
struct Ends {
    runs: BTreeSet<RunId>,
    ends: FuturesUnordered<BoxFuture<'static, RunId>>,
}

impl Starter<'_> {
    async fn run(&self) {
        let (mut changes, mut ends) = (self.store.watch(), Ends::default());
        loop {
            let wake = self.look_at_all(&mut ends).await;
            tokio::select! {
                biased;
                // One look is enough for all changes that have come.
                Some(_) = changes.next() => while changes.next().now_or_never().flatten().is_some() {},
                Some(run) = ends.ends.next() => { ends.runs.remove(&run); }
                () = sleep(wake.since(self.context.now()).max(Duration::from_millis(1))) => {}
            }
        }
    }

    /// Starts what is due, and returns when to look again.
    async fn look_at_all(&self, ends: &mut Ends) -> Timestamp {
        let now = self.context.now();
        let mut wake = now + LOOK_AGAIN;
        let all = self.store.all().await.unwrap_or_else(|_| {
            wake = now + RETRY;
            Vec::new()
        });
        for read in all {
            let name = &read.schedule.name;
            let next = match timeout(MAX_TIME, self.look_at(&read, ends)).await {
                Ok(Ok(next)) => next,
                Ok(Err(problem)) => {
                    tracing::warn!(name, problem = problem.detail, "a schedule is looked at again later");
                    Some(now + problem.retry_after.unwrap_or(RETRY))
                }
                Err(_) => {
                    tracing::warn!(name, "a schedule took too long, and is looked at again later");
                    Some(now + RETRY)
                }
            };
            wake = next.map_or(wake, |next| next.min(wake));
        }
        wake
    }

    /// Starts what a schedule has due, and returns when it has something due again.
    async fn look_at(&self, read: &Read, ends: &mut Ends) -> Result<Option<Timestamp>, Problem> {
        let (schedule, now) = (&read.schedule, self.context.now());
        if schedule.status != Status::Active || matches!(schedule.when, When::Webhook(_)) {
            return Ok(None);
        }
        let mut after = schedule.clone();
        let rule = match schedule.when.rule() {
            Ok(rule) => rule,
            Err(reason) => {
                after.status = Status::Stopped { reason };
                self.store.change(read, &after).await?;
                return Ok(None);
            }
        };
        let due = due(&rule, schedule.missed, schedule.progress.seen, now);
        if due.is_some() || !schedule.progress.waiting.is_empty() {
            let open = open_run(self.context, schedule).await?;
            let decision = decide(&schedule.progress, due, schedule.overlap, open.is_some());
            after.progress = decision.progress;
            if let Some(planned_at) = decision.start {
                let outcome = match self.start(schedule, planned_at, open.filter(|_| decision.replaces)).await {
                    Ok(run) => Some(Fired::Started(run)),
                    Err(Halt::Refused(why)) => Some(Fired::Refused(why)),
                    Err(Halt::Stop(reason)) => {
                        after.status = Status::Stopped { reason };
                        None
                    }
                    Err(Halt::Later(problem)) => return Err(problem),
                };
                if let Some(outcome) = outcome {
                    tracing::info!(name = schedule.name, %planned_at, ?outcome, "a schedule has fired");
                    after.record(Firing { planned_at, at: now, outcome });
                }
            } else if let Some(open) = open.filter(|_| !after.progress.waiting.is_empty()) {
                ends.wait_for(self.context, open);
            }
        }
        let next = rule.next(after.progress.seen);
        if next.is_none() && after.progress.waiting.is_empty() && after.status == Status::Active {
            after.status = Status::Ended;
        }
        if after != *schedule {
            // Where it has changed meanwhile, the change is looked at next.
            self.store.change(read, &after).await?;
        }
        Ok(next)
    }

    /// Starts the run of a time with the grant that the owner has now, after the run that it replaces was cancelled.
    async fn start(&self, schedule: &Schedule, planned_at: Timestamp, replaced: Option<RunId>) -> Result<RunId, Halt> {
        let context = self.context;
        let caller = granted(context, &schedule.owner)?.map_err(Halt::Stop)?;
        context.rates.count(&caller, context.now())?;
        let run = schedule.run_at(planned_at);
        if let Some(replaced) = replaced.filter(|replaced| *replaced != run) {
            replace(context, schedule, replaced).await?;
        }
        submit(context, schedule, &caller, run, None).await?;
        Ok(run)
    }
}

impl Ends {
    fn wait_for(&mut self, context: &Context, run: RunId) {
        if self.runs.insert(run) {
            let handle = context.board.run(run);
            self.ends.push(Box::pin(async move {
                // An error counts as an end: the schedule is looked at again.
                let _ = handle.result().await;
                run
            }));
        }
    }
}

/// What the owner of a schedule may do now: the inner error is why its schedules stop.
pub(super) fn granted(context: &Context, owner: &TokenRef) -> Result<Result<Caller, String>, Problem> {
    let found = context.tokens.named(owner).map_err(|error| Problem::of_tokens(&error))?;
    Ok(found.and_then(|mut caller| {
        caller.person = context.people.get(&*caller.name).cloned();
        let has_scope = caller.scopes.contains(&Scope::Delegate);
        let why = || format!("the token {} does not have the scope {}", caller.name, Scope::Delegate);
        if has_scope { Ok(caller) } else { Err(why()) }
    }))
}

/// The last run of a schedule, if it has not ended.
async fn open_run(context: &Context, schedule: &Schedule) -> Result<Option<RunId>, Problem> {
    let Some(run) = schedule.last_run else { return Ok(None) };
    match context.board.run(run).read().await {
        Ok(fold) => Ok(fold.result().is_none().then_some(run)),
        Err(RunError::Storage(error)) => Err(Problem::of_store(&error)),
        // It was deleted, or nobody can work on it.
        Err(_) => Ok(None),
    }
}

/// Cancels a run, because the next one of its schedule is started.
async fn replace(context: &Context, schedule: &Schedule, run: RunId) -> Result<(), Problem> {
    let reason = format!("replaced by the next run of the schedule {}", schedule.name);
    match context.board.run(run).cancel(&reason).await {
        Ok(_) => Ok(()),
        // The server that works on it looks at the schedule as well.
        Err(error @ RunError::NotHere(_)) => Err(Problem::new(ProblemCode::Unavailable, error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Ends the run of a schedule that another one replaces, before a person starts one; refuses that where runs are not replaced.
pub(super) async fn make_room(context: &Context, schedule: &Schedule) -> Result<(), Problem> {
    match (open_run(context, schedule).await?, schedule.overlap) {
        (None, _) => Ok(()),
        (Some(run), Overlap::Replace) => replace(context, schedule, run).await,
        (Some(run), Overlap::Skip | Overlap::Queue) => {
            let detail = format!("its last run, delegation {run}, has not ended");
            Err(Problem::new(ProblemCode::Conflict, detail))
        }
    }
}

/// Submits the task of a schedule as this run, with what was delivered as its input; `false` if the run is there already.
pub(super) async fn submit(
    context: &Context,
    schedule: &Schedule,
    caller: &Caller,
    run: RunId,
    delivered: Option<Value>,
) -> Result<bool, Problem> {
    let request = Request::read(&schedule.task)?;
    if delegations::known(context, Some(run)).await?.is_some() {
        return Ok(false);
    }
    let request = match delivered {
        Some(payload) => request.with_untrusted(payload),
        None => request,
    };
    let task = request.task(context, caller).await?.id(run);
    context.board.try_submit(task).await?;
    Ok(true)
}
