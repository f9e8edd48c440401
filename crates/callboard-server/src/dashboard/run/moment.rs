//! A run as it was after one of its events: a control that goes through the journal, what the event changed, and the state by then.

use axum::Extension;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use callboard::runtime::RunHandle;
use callboard::supervision::runs::{Moment, Replay, ReplayStep};
use maud::{Markup, html};

use super::named;
use super::query::is_failure;
use super::replayed::{changes, folded, replayed};
use super::texts::{line, lines, short, shown_time, span, tokens};
use crate::context::{Context, Shared};
use crate::dashboard::pages::{self, Reader};
use crate::delegations::find;
use crate::problem::Problem;
use crate::query;
use crate::tokens::Caller;

/// The most characters of an event and of a name, and the most open turns that are named.
const MAX_EVENT: usize = 4_000;
const MAX_NAME: usize = 80;
const MAX_OPEN: usize = 20;

/// The page of a run at one of its events.
pub(in crate::dashboard) async fn page(State(context): Shared, Path(id): Path<String>, request: Request) -> Response {
    let query = request.uri().query().map(str::to_owned);
    let (caller, csrf) = match pages::reader_of(&context, &request, "Journal of a run") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = async {
        let run = named(&context, &id).await?;
        let [event] = query::values(query.as_deref(), ["event"])?;
        shown(&context, &run, event.as_deref()).await
    };
    let reader = Reader { caller: &caller, csrf };
    pages::answer("Journal of a run", "/runs", &reader, contents.await)
}

/// The part of the page that the control replaces.
pub(in crate::dashboard) async fn part(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(_): Extension<Caller>,
) -> Result<Response, Problem> {
    let [id, event] = query::values(query.as_deref(), ["id", "event"])?;
    let run = find(&context, &id.ok_or_else(|| Problem::bad("the query has no `id`"))?)?;
    let replay = replayed(&context, &run).await?;
    Ok(pages::page(StatusCode::OK, at(&replay, number(&replay, event.as_deref())?)?))
}

/// The number of the event that a query names; by default, that of the last one.
fn number(replay: &Replay, event: Option<&str>) -> Result<usize, Problem> {
    let last = replay.steps().len();
    match event {
        None => Ok(last),
        Some(event) => {
            event.parse().ok().filter(|number| (1..=last).contains(number)).ok_or_else(|| {
                Problem::bad(format!("`event` in the query is the number of an event, from 1 to {last}"))
            })
        }
    }
}

async fn shown(context: &Context, run: &RunHandle, event: Option<&str>) -> Result<Markup, Problem> {
    let replay = replayed(context, run).await?;
    let (event, last, id) = (number(&replay, event)?, replay.steps().len(), run.id());
    Ok(html! {
        p.under { a href={ "/runs/" (id) } { "Run " code { (short(id)) } } }
        h1.title dir="auto" { (line(&replay.submission().task.body, 120)) }
        form.journal method="get" action={ "/runs/" (id) "/journal" } data-journal={ "/parts/run/moment?id=" (id) } {
            label for="event" { "Event" }
            input #event type="range" name="event" min="1" max=(last) value=(event);
            output for="event" { (event) " of " (last) }
            button type="submit" { "Show" }
        }
        div #moment { (at(&replay, event)?) }
    })
}

/// The run after an event.
fn at(replay: &Replay, number: usize) -> Result<Markup, Problem> {
    let none = || Problem::not_found(format!("the run has no event {number}"));
    let step = number.checked_sub(1).and_then(|place| replay.steps().get(place)).ok_or_else(none)?;
    let moment = replay.at_step(number).ok_or_else(none)?;
    let (run, last) = (replay.submission().run, replay.steps().len());
    let link = |event: usize, words: &str| {
        let is_there = event != number && (1..=last).contains(&event);
        html! {
            @if is_there { a href={ "/runs/" (run) "/journal?event=" (event) } { (words) } } @else { span.dim { (words) } }
        }
    };
    Ok(html! {
        nav.pages aria-label="Events" {
            (link(1, "First")) (link(number - 1, "Previous")) (link(number + 1, "Next")) (link(last, "Last"))
        }
        section { (happened(replay, step)) }
        section { (then(&moment)) }
    })
}

fn happened(replay: &Replay, step: &ReplayStep) -> Markup {
    let run = replay.submission().run;
    html! {
        h2 { "Event " (step.number) }
        dl.facts {
            div { dt { "At" } dd { (shown_time(step.at)) } }
            div { dt { "After" } dd { (span(step.at.since(replay.submission().at))) } }
            @if let Some(turn) = step.event.turn() {
                div { dt { "Turn" } dd { a href={ "/runs/" (run) "/turns/" (turn) } { (turn) } } }
            }
            @if let Some(agent) = &step.agent { div { dt { "Agent" } dd { bdi { (line(agent.as_str(), MAX_NAME)) } } } }
        }
        pre.text.prose.bad[is_failure(&step.event)] dir="auto" { (lines(&step.event.to_string(), MAX_EVENT)) }
        @let changed = step.changes();
        @if changed.is_empty() { p.dim { "It changed no channel." } } @else { h2 { "What it changed" } (changes(&changed)) }
    }
}

fn then(moment: &Moment) -> Markup {
    let Moment { state, open, metrics, outcome, .. } = moment;
    html! {
        h2 { "The run after it" }
        dl.facts {
            div { dt { "Ended turns" } dd { (metrics.turns) } }
            div { dt { "Handoffs and delegations" } dd { (metrics.handoffs) } }
            div { dt { "Used" } dd { (tokens(metrics.usage).unwrap_or_else(|| "no tokens".to_owned())) } }
            @if let Some(outcome) = outcome { div { dt { "Ended" } dd { bdi { (line(&outcome.to_string(), MAX_EVENT)) } } } }
        }
        @if outcome.is_none() {
            p {
                @if open.is_empty() { "No turn was open." } @else { "Open: " }
                @for (place, (turn, agent)) in open.iter().take(MAX_OPEN).enumerate() {
                    @if place > 0 { ", " } "turn " (turn) " of " b { bdi { (line(agent.as_str(), MAX_NAME)) } }
                }
                @if open.len() > MAX_OPEN { " and " (open.len() - MAX_OPEN) " more" }
            }
        }
        (folded("state", "State", state.value()))
    }
}
