//! The list of runs, newest first, in pages: that of `/v1/runs`, with its filters.

use axum::extract::{Request, State};
use axum::response::Response;
use callboard::messages::Timestamp;
use callboard::supervision::runs::Run;
use maud::{Markup, html};

use super::pages::{self, Reader};
use super::run::state::{badge, words};
use super::run::texts::{line, short, shown_time, span, tokens};
use crate::context::{Context, Shared};
use crate::json as shapes;
use crate::lists::{self, STATES};
use crate::problem::Problem;
use crate::query;
use crate::tokens::{Caller, Scope};

/// The most characters of a task and of a name in a row.
const MAX_TASK: usize = 120;
const MAX_NAME: usize = 60;

/// The page with the list.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (caller, csrf) = match pages::reader_of(&context, &request, "Runs") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let reader = Reader { caller: &caller, csrf };
    pages::answer("Runs", "/runs", &reader, list(&context, &caller, &query).await)
}

async fn list(context: &Context, caller: &Caller, query: &str) -> Result<Markup, Problem> {
    let filters = without_empty(query);
    let (runs, next) = lists::page_of(context, Some(&filters)).await?;
    let value =
        |wanted: &str| query::pairs(&filters).find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned());
    let is_filtered = query::pairs(&filters).next().is_some();
    let (state, may_change) = (value("state"), caller.scopes.contains(&Scope::Delegate));
    let field = |name: &str, label: &str, example: &str| {
        let value = value(name).unwrap_or_default();
        html! {
            div {
                label for=(name) { (label) }
                input id=(name) name=(name) value=(value) placeholder=(example) autocomplete="off";
            }
        }
    };
    Ok(html! {
        h1 { "Runs" }
        form.filter method="get" action="/runs" {
            div {
                label for="state" { "State" }
                select #state name="state" {
                    option value="" { "all" }
                    @for known in STATES {
                        option value=(known) selected[state.as_deref() == Some(known)] { (words(known).0) }
                    }
                }
            }
            (field("agent", "Agent", ""))
            (field("workflow", "Workflow", ""))
            (field("text", "Text of the task", ""))
            (field("since", "Since (UTC)", "2026-01-31"))
            button type="submit" { "Filter" }
            a href="/runs?state=failed" { "Failed only" }
            @if is_filtered { a href="/runs" { "All runs" } }
        }
        @if runs.is_empty() { (nothing(is_filtered, next.is_some())) }
        ol.runs { @for run in &runs { (row(run, context.now(), may_change)) } }
        @if may_change { (batch()) }
        @if let Some(next) = next { p.pages { a href={ "/runs?" (after(&filters, &next)) } { "Older runs" } } }
    })
}

/// What is done with the runs that are selected.
fn batch() -> Markup {
    html! {
        form.batch data-run-batch hidden {
            span role="status" { b data-count { "0" } " selected" }
            input.grow name="reason" maxlength="1024" autocomplete="off" aria-label="Reason" placeholder="Reason";
            span.actions {
                button type="submit" value="cancel" { "Cancel them" }
                button type="submit" value="retry" { "Try failed turns again" }
            }
            p.result role="status" {}
        }
    }
}

fn nothing(is_filtered: bool, has_more: bool) -> Markup {
    html! {
        section.empty {
            @if has_more {
                h2 { "None of these runs fits" }
                p { "Older ones may." }
            } @else if is_filtered {
                h2 { "No run fits" }
            } @else {
                h2 { "There are no runs yet" }
                p { "To give an agent a task:" }
                pre { code { "callboard send AGENT 'what is to be done'" } }
            }
        }
    }
}

fn row(run: &Run, now: Timestamp, may_change: bool) -> Markup {
    let (submission, metrics) = (run.submission(), run.metrics());
    let until = if run.result().is_some() { run.last_at() } else { now };
    let whose = match &submission.task.plan {
        Some(plan) => format!("workflow {}", line(&plan.name, MAX_NAME)),
        None => line(submission.agent.as_str(), MAX_NAME),
    };
    html! {
        li {
            @if may_change { input.pick type="checkbox" data-run=(run.id()) aria-label={ "Select run " (short(run.id())) }; }
            (badge(shapes::status(run, now)))
            a.task href={ "/runs/" (run.id()) } {
                bdi { @if submission.task.body.is_empty() { (short(run.id())) } @else { (line(&submission.task.body, MAX_TASK)) } }
            }
            span.dim {
                bdi { (whose) } " · " (span(until.since(submission.at)))
                @if let Some(used) = tokens(metrics.usage) { " · " (used) }
            }
            (shown_time(submission.at))
        }
    }
}

/// A query without the fields of a form that were left empty.
pub(super) fn without_empty(query: &str) -> String {
    let mut kept = form_urlencoded::Serializer::new(String::new());
    kept.extend_pairs(query::pairs(query).filter(|(_, value)| !value.is_empty()));
    kept.finish()
}

/// The query of the next page.
pub(super) fn after(filters: &str, next: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(query::pairs(filters).filter(|(name, _)| name != "page"));
    query.append_pair("page", next);
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_has_the_filters_and_no_other_cursor() {
        assert_eq!(after("state=failed&page=1_a&agent=a%26b", "2_b"), "state=failed&agent=a%26b&page=2_b");
        assert_eq!(without_empty("state=&agent=x&since="), "agent=x");
    }
}
