//! The saved workflows as pages: a list, and of each its drawing, its agents, and a form that starts it.

use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use callboard::workflow::{Drawing, Workflow};
use maud::{Markup, html};

use super::pages::{self, Reader, segment};
use super::run::texts::{line, lines};
use crate::context::{Context, Shared};
use crate::problem::Problem;
use crate::query;
use crate::tokens::{Caller, Scope};
use crate::workflows::{find, version_of};

/// The most workflows, versions and agents of a page, and the most characters of a name and of a description.
const MAX_WORKFLOWS: usize = 200;
const MAX_VERSIONS: usize = 20;
const MAX_AGENTS: usize = 50;
const MAX_NAME: usize = 80;
const MAX_TEXT: usize = 2_000;

/// The page with the list.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Workflows") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    pages::answer("Workflows", "/workflows", &Reader { caller: &caller, csrf }, list(&context).await)
}

async fn list(context: &Context) -> Result<Markup, Problem> {
    let mut names = context.board.workflows().names().await.map_err(|error| Problem::of_store(&error))?;
    let left_out = names.len().saturating_sub(MAX_WORKFLOWS);
    names.truncate(MAX_WORKFLOWS);
    let mut rows = Vec::new();
    for name in &names {
        let latest = context.board.workflows().latest(name).await;
        rows.push(row(name, latest.as_ref().map(Option::as_ref).map_err(ToString::to_string)));
    }
    Ok(html! {
        h1 { "Workflows" }
        @if rows.is_empty() {
            section.empty {
                h2 { "No workflow is saved" }
                p { "A workflow is a plan of agents. To save one from a file:" }
                pre { code { "callboard workflow save FILE" } }
            }
        }
        ol.runs { @for row in &rows { (row) } }
        @if left_out > 0 { p.dim { (left_out) " more: " code { "callboard workflow versions" } " has all." } }
    })
}

fn row(name: &str, latest: Result<Option<&(u32, Workflow)>, String>) -> Markup {
    html! {
        li {
            a.task href={ "/workflows/" (segment(name)) } { bdi { (line(name, MAX_NAME)) } }
            @match latest {
                Ok(Some((version, workflow))) => {
                    span.dim { "version " (version) " · " (workflow.plan().node_count()) @if workflow.plan().node_count() == 1 { " node" } @else { " nodes" } }
                    @if let Some(text) = workflow.description() { p.about dir="auto" { (line(text, 300)) } }
                }
                Ok(None) => {}
                Err(error) => { span.kind.bad { "cannot be read" } p.about { (line(&error, MAX_TEXT)) } }
            }
        }
    }
}

/// The page of a workflow.
pub(super) async fn one(State(context): Shared, Path(name): Path<String>, request: Request) -> Response {
    let query = request.uri().query().map(str::to_owned);
    let (caller, csrf) = match pages::reader_of(&context, &request, "Workflow") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = shown(&context, &caller, &name, query.as_deref()).await;
    pages::answer("Workflow", "/workflows", &Reader { caller: &caller, csrf }, contents)
}

async fn shown(context: &Context, caller: &Caller, name: &str, query: Option<&str>) -> Result<Markup, Problem> {
    let [version] = query::values(query, ["version"])?;
    let (version, workflow) = find(context, name, version_of(version.as_deref())?).await?;
    let versions = context.board.workflows().versions(name).await.map_err(|error| Problem::of_store(&error))?;
    let is_latest = versions.last() == Some(&version);
    let path = segment(name);
    let cast = workflow.plan().cast();
    let runs = form_urlencoded::Serializer::new(String::new()).append_pair("workflow", name).finish();
    Ok(html! {
        h1.title { bdi { (line(name, MAX_NAME)) } }
        @if let Some(text) = workflow.description() { p dir="auto" { (lines(text, MAX_TEXT)) } }
        dl.facts {
            div { dt { "Version" } dd { (version) @if !is_latest { " (not the latest)" } } }
            div { dt { "Nodes" } dd { (workflow.plan().node_count()) } }
            div {
                dt { "Agents" }
                dd {
                    @for (place, agent) in cast.iter().take(MAX_AGENTS).enumerate() { @if place > 0 { ", " } bdi { (line(agent, MAX_NAME)) } }
                    @if cast.len() > MAX_AGENTS { " and " (cast.len() - MAX_AGENTS) " more" }
                }
            }
        }
        p { a href={ "/runs?" (runs) } { "Its runs" } }
        @if caller.scopes.contains(&Scope::Delegate) && is_latest { section { (start(name, &workflow)) } }
        h2 { "Drawing" }
        div.drawing { img src={ "/parts/workflow?name=" (path) "&version=" (version) } alt={ "The nodes of " (line(name, MAX_NAME)) }; }
        @if versions.len() > 1 {
            h2 { "Versions" }
            p.versions {
                @for number in versions.iter().rev().take(MAX_VERSIONS) {
                    a href={ "/workflows/" (path) "?version=" (number) } aria-current=[(*number == version).then_some("page")] { (number) } " "
                }
            }
        }
    })
}

/// The form that starts a workflow: a field for each one of its input.
fn start(name: &str, workflow: &Workflow) -> Markup {
    let inputs: Vec<&str> = workflow.inputs().collect();
    html! {
        h2 { "Start it" }
        form data-run-action="/v1/delegations" data-workflow=(name) {
            @for (number, input) in inputs.iter().enumerate() {
                label for={ "input-" (number) } { bdi { (line(input, MAX_NAME)) } }
                textarea id={ "input-" (number) } data-input=(input) rows="1" required {}
                label.check { input type="checkbox" data-is-json=(input); " This is JSON" }
            }
            label for="task" { "What it is for, in words" }
            input #task name="body" maxlength="4096" autocomplete="off" value=(line(name, MAX_NAME));
            div.actions { button.main type="submit" { "Start the workflow" } }
            p.result role="status" {}
        }
    }
}

/// A workflow as an image, in which no script runs.
pub(super) async fn drawing(State(context): Shared, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let [name, version] = query::values(query.as_deref(), ["name", "version"])?;
    let name = name.ok_or_else(|| Problem::bad("the query has no `name`"))?;
    let (_, workflow) = find(&context, &name, version_of(version.as_deref())?).await?;
    Ok(([(CONTENT_TYPE, "image/svg+xml")], Drawing::of(&workflow).to_svg()).into_response())
}
