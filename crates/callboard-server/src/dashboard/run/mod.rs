//! The page of a run: what it is about, why it waits, its turns in time, and its events.
//!
//! `story` has what the events tell about the turns, `consents` what people were asked to allow, `questions` what else they were asked, `query` which of them a page has, `view` the parts of the page, `timeline` the rows of
//! turns, and `live` when they are read again. `turn` is the page of a turn, `moment` that of the run at one of its events, and `nodes` that of the nodes of its workflow; they are made from
//! the run's journal, which `replayed` replays. Each part of a page has a bound, however long a run is.

mod consents;
mod live;
pub(super) mod moment;
pub(super) mod nodes;
mod query;
mod questions;
mod replayed;
pub(super) mod state;
mod story;
pub(super) mod texts;
mod timeline;
pub(super) mod turn;
mod view;

use axum::Extension;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Redirect, Response};
use callboard::messages::{Pending, RunEvent, RunId};
use callboard::runtime::RunHandle;
use callboard::supervision::runs::Run;
use maud::{Markup, html};

use self::consents::Consents;
use self::query::Asked;
use self::story::Handoffs;
use self::texts::short;
use super::pages::{self, Reader};
use crate::context::{Context, Shared};
use crate::delegations::find;
use crate::inbox::{Item, may_not};
use crate::problem::Problem;
use crate::tokens::{Caller, Scope};

pub(super) use live::events;
pub(super) use view::because;

/// How many runs are compared with a short id.
const MAX_PASSED: usize = 5_000;

/// The page of a run.
pub(super) async fn page(State(context): Shared, Path(id): Path<String>, request: Request) -> Response {
    let query = request.uri().query().map(str::to_owned);
    let (caller, csrf) = match pages::reader_of(&context, &request, "Run") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    if let Ok(Some(run)) = of_short(&context, &id).await {
        return Redirect::to(&format!("/runs/{run}")).into_response();
    }
    let reader = Reader { caller: &caller, csrf };
    match shown(&context, &caller, &id, query.as_deref()).await {
        Ok((title, contents)) => pages::page(StatusCode::OK, pages::framed(&title, Some(&reader), &contents)),
        Err(problem) => {
            let status = problem.code.status();
            let contents = html! {
                h1 { "This run cannot be shown" }
                p { (problem.detail) }
                p { a href="/runs" { "All runs" } }
            };
            pages::page(status, pages::framed("Run", Some(&reader), &contents))
        }
    }
}

/// The run with a short id, such as `req-0123456789ab`: the newest one of the first in the lists.
async fn of_short(context: &Context, id: &str) -> Result<Option<RunId>, Problem> {
    if !id.starts_with("req-") {
        return Ok(None);
    }
    let mut walk = context.index.walk(&context.board, None).await?;
    for _ in 0..MAX_PASSED {
        match walk.next().await? {
            None => break,
            Some(listed) if short(listed.place.1) == id => return Ok(Some(listed.place.1)),
            Some(_) => {}
        }
    }
    Ok(None)
}

/// The run that the address of a page names, by its id or by its short one.
async fn named(context: &Context, id: &str) -> Result<RunHandle, Problem> {
    of_short(context, id).await?.map_or_else(|| find(context, id), |run| Ok(context.board.run(run)))
}

/// The title of the page, and its contents.
async fn shown(context: &Context, caller: &Caller, id: &str, query: Option<&str>) -> Result<(String, Markup), Problem> {
    let (_, asked) = Asked::read(query)?;
    let run = find(context, id)?;
    let parts = read(context, caller, &run, &asked).await?;
    let query = asked.query();
    let (part, events) = (format!("/parts/run?id={}&{query}", run.id()), format!("/parts/run/events?id={}", run.id()));
    let contents = html! {
        div data-run-part=(part) data-run-events=(events) { (parts) }
    };
    Ok((format!("Run {}", short(run.id())), contents))
}

/// The parts of the page of a run.
pub(super) async fn part(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let (id, asked) = Asked::read(query.as_deref())?;
    let run = find(&context, &id.ok_or_else(|| Problem::bad("the query has no `id`"))?)?;
    Ok(pages::page(StatusCode::OK, read(&context, &caller, &run, &asked).await?))
}

async fn read(context: &Context, caller: &Caller, run: &RunHandle, asked: &Asked) -> Result<Markup, Problem> {
    let mut handoffs = Handoffs::new(asked.turns_before, view::MAX_TURNS);
    let (history, fold) = run.read_with_history(|run, turn| handoffs.take(run, turn)).await?;
    let (now, may_change) = (context.now(), caller.scopes.contains(&Scope::Delegate));
    let mut consents = Consents::of(&history);
    consents.complete(&context.board).await?;
    let with_placed = if fold.result().is_none() { Some(run.read_with_placed().await?) } else { None };
    let (waits, more) = waits(context, caller, with_placed.as_ref().unwrap_or(&fold), |_| true).await;
    let has_failed =
        fold.result().is_some() && history.iter().any(|event| matches!(event, RunEvent::TurnFailed { .. }));
    let letters = if has_failed { run.dead_letters().await? } else { Vec::new() };
    let retried = letters.last().and_then(|letter| letter.retried_as);
    let waits = (&*waits, more);
    let seen = view::Seen { history: &history, run: &fold, consents: &consents, waits, retried, now, may_change };
    Ok(view::parts(&seen, handoffs, asked))
}

/// What a run waits for that people decide and that is wanted, the first of it, and how much more there is.
async fn waits(
    context: &Context,
    caller: &Caller,
    run: &Run,
    is_wanted: impl Fn(&Pending) -> bool,
) -> (Vec<Item>, usize) {
    let (now, mut waits) = (context.now(), Vec::new());
    let mut pending = if run.result().is_some() { Vec::new() } else { run.pending() };
    pending.retain(|wait| is_wanted(wait) && !wait.is_expired(now));
    for wait in pending.iter().take(view::MAX_WAITS) {
        let item = Item::of_pending(wait);
        let may_not = may_not(context, caller, &item).await;
        waits.push(Item { may_not, ..item });
    }
    let more = pending.len() - waits.len();
    (waits, more)
}

/// The workflow of a run as an image, in which no script runs.
pub(super) async fn drawing(State(context): Shared, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    // `at` has browsers read it again after a change.
    let [id, _] = crate::query::values(query.as_deref(), ["id", "at"])?;
    let run = find(&context, &id.ok_or_else(|| Problem::bad("the query has no `id`"))?)?;
    let drawing = run.drawing().await?.ok_or_else(|| Problem::not_found("this run has no workflow"))?;
    Ok(([(CONTENT_TYPE, "image/svg+xml")], drawing.to_svg()).into_response())
}
