//! Schedules: tasks that are started at times or by webhooks, with the grant that their owner has then.
//!
//! `when` has the times, `rules` decides what is done at a moment; both are pure; `callboard-signatures` checks deliveries. `firing` starts the runs, `stored` has what is
//! kept, and the routes are here.

mod firing;
mod firings;
mod rules;
mod stored;
pub(crate) mod webhooks;
mod when;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use callboard::messages::visible;
use serde_json::{Value, json};

use self::firing::{granted, make_room, submit};
use self::rules::Progress;
use self::stored::{Definition, Fired, Firing, Read, Schedule, Schedules, Status};
use self::when::When;
use crate::body::{Body, Name, Nothing};
use crate::context::{Context, Shared};
use crate::delegations::{Request, accepted, shown_run};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Scope};

pub(crate) use self::firing::fire;
pub(crate) use self::firings::Firings;

/// How often a change is tried again, because the schedule has changed meanwhile.
const TRIES: usize = 16;

/// Answers with the schedules, by name.
pub(crate) async fn list(State(context): Shared) -> Result<Json<Value>, Problem> {
    Ok(Json(json!({ "schedules": all(&context).await? })))
}

/// The schedules as programs read them, by name.
pub(crate) async fn all(context: &Context) -> Result<Vec<Value>, Problem> {
    let mut listed = Vec::new();
    for Read { schedule, .. } in Schedules::of(&context.board).all().await? {
        listed.push(schedule.brief(revoked(context, &schedule)?));
    }
    Ok(listed)
}

/// Answers with a schedule.
pub(crate) async fn get(State(context): Shared, Name(name): Name) -> Result<Json<Value>, Problem> {
    let Read { schedule, .. } = find(&context, &name).await?;
    shown(&context, &schedule)
}

/// Creates a schedule, whose runs have the grant of the caller's token.
pub(crate) async fn create(
    State(context): Shared,
    Extension(caller): Extension<Caller>,
    Body(definition): Body<Definition>,
) -> Result<Response, Problem> {
    if !context.firings.is_running() && !definition.is_webhook() {
        return Err(Problem::new(ProblemCode::Unavailable, "this server does not start the runs of schedules"));
    }
    let refused = |why: String| Problem::new(ProblemCode::Refused, why);
    let given = definition.secret.clone();
    let schedule = definition.schedule(caller.token(), context.id(), context.now()).map_err(refused)?;
    // What is wrong with the task is better known now than at its time.
    Request::read(&schedule.task)?.task(&context, &caller).await?;
    let is_webhook = matches!(schedule.when, When::Webhook(_));
    // First: nothing could be delivered to a webhook without its secret.
    let secret = if is_webhook { Some(webhooks::keep_secret(&context, schedule.id, given)?) } else { None };
    if let Err(problem) = Schedules::of(&context.board).add(&schedule).await {
        webhooks::forget_secret(&context, &schedule);
        return Err(problem);
    }
    let location = format!("schedules/{}", encoded(&schedule.name));
    let Json(mut created) = shown(&context, &schedule)?;
    if let Some(secret) = secret {
        created["secret"] = json!(secret);
    }
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(created)).into_response())
}

/// Deletes a schedule. Runs that it has started continue.
pub(crate) async fn delete(
    State(context): Shared,
    Name(name): Name,
    Extension(caller): Extension<Caller>,
) -> Result<StatusCode, Problem> {
    let store = Schedules::of(&context.board);
    for _ in 0..TRIES {
        let read = find_own(&context, &name, &caller).await?;
        if store.delete(&read).await? {
            webhooks::forget_secret(&context, &read.schedule);
            return Ok(StatusCode::NO_CONTENT);
        }
    }
    Err(contended(&name))
}

/// Has a schedule start nothing until it is resumed.
pub(crate) async fn pause(
    State(context): Shared,
    Name(name): Name,
    Extension(caller): Extension<Caller>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Value>, Problem> {
    let paused = change(&context, &name, &caller, |schedule| match schedule.status {
        Status::Active | Status::Paused => {
            schedule.status = Status::Paused;
            Ok(())
        }
        Status::Stopped { .. } | Status::Ended => Err("it does not fire any more".to_owned()),
    });
    shown(&context, &paused.await?)
}

/// Has a schedule continue with the times from now on.
pub(crate) async fn resume(
    State(context): Shared,
    Name(name): Name,
    Extension(caller): Extension<Caller>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Value>, Problem> {
    let now = context.now();
    let resumed = change(&context, &name, &caller, |schedule| {
        granted(&context, &schedule.owner).map_err(|problem| problem.detail)??;
        match schedule.status {
            Status::Active => return Ok(()),
            Status::Paused | Status::Stopped { .. } => {}
            Status::Ended => return Err("it has no time left".to_owned()),
        }
        let rule = schedule.when.rule()?;
        if rule.next(now).is_none() && !matches!(schedule.when, When::Webhook(_)) {
            return Err("its time has passed; delete it, and create another".to_owned());
        }
        let Progress { started, skipped, .. } = schedule.progress;
        schedule.progress = Progress { started, skipped, ..Progress::after(now) };
        schedule.status = Status::Active;
        Ok(())
    });
    shown(&context, &resumed.await?)
}

/// Starts a run of a schedule now, and answers with its delegation.
pub(crate) async fn run(
    State(context): Shared,
    Name(name): Name,
    Extension(caller): Extension<Caller>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Response, Problem> {
    let Read { schedule, .. } = find_own(&context, &name, &caller).await?;
    let conflict = |why: String| Problem::new(ProblemCode::Conflict, why);
    let owner = granted(&context, &schedule.owner)?.map_err(conflict)?;
    let now = context.now();
    let run = schedule.run_by_hand(now);
    make_room(&context, &schedule).await?;
    submit(&context, &schedule, &owner, run, None).await?;
    let firing = Firing { planned_at: now, at: now, outcome: Fired::Started(run) };
    record(&context, &schedule, &firing).await?;
    Ok(accepted(&format!("../../delegations/{run}"), shown_run(&context, run).await?))
}

/// Changes a schedule, also if it changes meanwhile. The error of `change` is why it cannot be made.
async fn change(
    context: &Context,
    name: &str,
    caller: &Caller,
    change: impl Fn(&mut Schedule) -> Result<(), String>,
) -> Result<Schedule, Problem> {
    let store = Schedules::of(&context.board);
    for _ in 0..TRIES {
        let read = find_own(context, name, caller).await?;
        let mut changed = read.schedule.clone();
        change(&mut changed).map_err(|why| Problem::new(ProblemCode::Conflict, why))?;
        if store.change(&read, &changed).await? {
            return Ok(changed);
        }
    }
    Err(contended(name))
}

/// Records a run that was started by hand or by a delivery. It is there also if that cannot be recorded.
async fn record(context: &Context, schedule: &Schedule, firing: &Firing) -> Result<(), Problem> {
    let store = Schedules::of(&context.board);
    for _ in 0..TRIES {
        let Some(read) = store.get(&schedule.name).await?.filter(|read| read.schedule.id == schedule.id) else { break };
        let mut changed = read.schedule.clone();
        changed.record(firing.clone());
        if store.change(&read, &changed).await? {
            break;
        }
    }
    Ok(())
}

fn contended(name: &str) -> Problem {
    Problem::new(ProblemCode::Unavailable, format!("the schedule {} changes all the time; try again", visible(name)))
}

async fn find(context: &Context, name: &str) -> Result<Read, Problem> {
    let found = Schedules::of(&context.board).get(name).await?;
    found.ok_or_else(|| Problem::not_found(format!("there is no schedule {}", visible(name))))
}

/// A schedule that the caller may change: one of the same token, or any with the scope `admin`.
async fn find_own(context: &Context, name: &str, caller: &Caller) -> Result<Read, Problem> {
    let found = find(context, name).await?;
    let owner = &found.schedule.owner;
    if caller.scopes.contains(&Scope::Admin) || *owner == caller.token() {
        return Ok(found);
    }
    let detail =
        format!("the schedule {} belongs to the token {}; another needs the scope admin", visible(name), owner.name);
    Err(Problem::new(ProblemCode::MissingScope, detail))
}

fn revoked(context: &Context, schedule: &Schedule) -> Result<Option<String>, Problem> {
    Ok(granted(context, &schedule.owner)?.err())
}

fn shown(context: &Context, schedule: &Schedule) -> Result<Json<Value>, Problem> {
    Ok(Json(schedule.shown(revoked(context, schedule)?)))
}

/// A name in a path.
fn encoded(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}
