//! The schedules as a page: when each fires next, what became of the last time, and its last run.

use axum::extract::{Request, State};
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::pages::{self, Reader, segment};
use super::run::texts::{line, shown_time_of};
use crate::context::{Context, Shared};
use crate::problem::Problem;
use crate::schedules;
use crate::tokens::{Caller, Scope};

/// The most schedules of a page, and the most characters of a name, of a time and of a reason.
const MAX_SCHEDULES: usize = 200;
const MAX_NAME: usize = 80;
const MAX_TEXT: usize = 200;

/// The page with the schedules.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Schedules") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = list(&context, &caller).await;
    pages::answer("Schedules", "/schedules", &Reader { caller: &caller, csrf }, contents)
}

async fn list(context: &Context, caller: &Caller) -> Result<Markup, Problem> {
    let listed = schedules::all(context).await?;
    let may_change = caller.scopes.contains(&Scope::Delegate);
    Ok(html! {
        h1 { "Schedules" }
        @if listed.is_empty() {
            section.empty {
                h2 { "There are no schedules" }
                p { "A schedule starts runs at times, or when another service sends something. To add one:" }
                pre { code { "callboard schedule add NAME --cron '0 9 * * *' --to AGENT 'what is to be done'" } }
            }
        }
        ol.runs { @for schedule in listed.iter().take(MAX_SCHEDULES) { (row(schedule, may_change)) } }
        @if listed.len() > MAX_SCHEDULES {
            p.dim { (listed.len() - MAX_SCHEDULES) " more: " code { "callboard schedule list" } " has all." }
        }
    })
}

fn row(schedule: &Value, may_change: bool) -> Markup {
    let text = |name: &str| schedule[name].as_str().unwrap_or_default();
    let (state, name) = (text("state"), text("name"));
    let tone = match state {
        "active" => "good",
        "paused" => "warn",
        "stopped" => "bad",
        _ => "dim",
    };
    let last = &schedule["last"];
    html! {
        li {
            span.kind.(tone) { (state) }
            b.task { bdi { (line(name, MAX_NAME)) } }
            span.dim { (when(schedule)) }
            @if !text("next_at").is_empty() { span.dim { "next " (shown_time_of(text("next_at"))) } }
            div.about {
                "of " bdi { (line(text("owner"), MAX_NAME)) } " · " (schedule["started"]) " started · " (schedule["skipped"]) " skipped"
                @if !text("reason").is_empty() { " · " bdi { (line(text("reason"), MAX_TEXT)) } }
                @if let Some(run) = last["request_id"].as_str() { " · last run " a href={ "/runs/" (run) } { code { (line(run, 40)) } } }
                @if let Some(error) = last["refused"].as_str() { " · the last time was refused: " bdi { (line(error, MAX_TEXT)) } }
            }
            @if may_change && matches!(state, "active" | "paused") {
                div.about.actions {
                    (button(name, if state == "active" { "pause" } else { "resume" }, if state == "active" { "Pause" } else { "Resume" }))
                    (button(name, "run", "Run it now"))
                }
            }
        }
    }
}

/// A form that is a button: it sends a request about a schedule.
fn button(name: &str, action: &str, words: &str) -> Markup {
    html! {
        form data-run-action={ "/v1/schedules/" (segment(name)) "/" (action) } {
            button type="submit" { (words) }
            p.result role="status" {}
        }
    }
}

/// When it fires, in words.
fn when(schedule: &Value) -> String {
    let text = |name: &str| schedule[name].as_str().map(|text| line(text, MAX_NAME));
    match (text("cron"), text("at"), schedule["every_ms"].as_u64(), text("webhook")) {
        (Some(cron), ..) => format!("{cron} ({})", text("time_zone").unwrap_or_default()),
        (_, Some(at), ..) => format!("once, at {at}"),
        (_, _, Some(every), _) => format!("every {} s", every / 1_000),
        (.., Some(scheme)) => format!("deliveries signed as {scheme}"),
        _ => String::new(),
    }
}
