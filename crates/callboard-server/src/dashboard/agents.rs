//! The agents and the tree of supervisors, as pages: what each is for, whether it works, and its circuit breaker.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use callboard::messages::Presence;
use callboard::supervision::runs::{BreakerState, BreakerStatus};
use callboard::supervision::tree::{ActorState, TreeNode};
use maud::{Markup, html};

use super::pages::{self, Reader};
use super::run::texts::{line, lines, shown_time, span};
use crate::context::{Context, Shared};
use crate::knowledge::reserved;
use crate::problem::Problem;
use crate::tokens::{Caller, Scope};

/// The most agents and actors of a page, and the most characters of a name and of a text.
const MAX_AGENTS: usize = 200;
const MAX_ACTORS: usize = 500;
const MAX_NAME: usize = 60;
const MAX_TEXT: usize = 300;

/// The page with the agents.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Agents") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let reader = Reader { caller: &caller, csrf };
    let contents = contents(&context, &caller).await;
    let contents = html! { div data-run-part="/parts/agents" data-run-events="/parts/events" { (contents) } };
    pages::page(StatusCode::OK, pages::framed("Agents", Some(&reader), &contents))
}

/// What of the page changes.
pub(super) async fn part(State(context): Shared, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    Ok(pages::page(StatusCode::OK, contents(&context, &caller).await))
}

async fn contents(context: &Context, caller: &Caller) -> Markup {
    let roster = context.board.agents().roster();
    let is_admin = caller.scopes.contains(&Scope::Admin);
    // Errors of agents name what the machine has, as the tree does.
    let failed = context.board.agents().failed().into_iter().filter(|_| is_admin);
    let failed: BTreeMap<String, String> = failed.map(|(agent, error)| (agent.to_string(), error)).collect();
    let files = context.agent_files();
    let tree = if is_admin { context.board.tree().await.ok() } else { None };
    let mut left = MAX_ACTORS;
    html! {
        h1 { "Agents" }
        p.state #run-state role="status" {}
        div #agents data-swap {
            @if roster.is_empty() && failed.is_empty() { section.empty { h2 { "There are no agents" } } }
            ol.runs {
                @for (name, error) in failed.iter().take(MAX_AGENTS) { (failed_agent(name, error)) }
                @for presence in roster.iter().filter(|presence| !failed.contains_key(presence.agent.as_str())).take(MAX_AGENTS) {
                    @let name = presence.agent.as_str();
                    @let is_built_in = files.built_in.contains(name) || reserved::is_reserved(context, name);
                    @let description = files.descriptions.get(name).map(String::as_str);
                    (agent(presence, description, is_built_in, context.board.agents().breaker(name)))
                }
            }
            @if roster.len() > MAX_AGENTS { p.dim { "The first " (MAX_AGENTS) " of " (roster.len()) " agents are shown." } }
        }
        @if let Some(tree) = &tree {
            h2 { "Supervision tree" }
            div #tree data-swap { ul.tree { (node(tree, &mut left)) } }
        }
    }
}

/// An agent that has failed too often, which no longer announces itself.
fn failed_agent(name: &str, error: &str) -> Markup {
    html! {
        li {
            span.kind.bad { "failed" }
            b.task { bdi { (line(name, MAX_NAME)) } }
            p.about { "It takes no tasks. " a href={ "/#agent:" (name) } { "Start it again in the overview" } }
            details data-key={ "error-" (name) } {
                summary { "Its error" }
                pre.text dir="auto" { (lines(error, MAX_TEXT)) }
            }
        }
    }
}

fn agent(presence: &Presence, description: Option<&str>, is_built_in: bool, breaker: BreakerStatus) -> Markup {
    let name = presence.agent.as_str();
    let (state, tone) = if presence.is_available { ("runs", "good") } else { ("stopped", "dim") };
    let announced = presence.role.iter().chain(&presence.capabilities).chain(&presence.projects);
    let announced: Vec<String> = announced.map(|text| line(text, MAX_NAME)).collect();
    html! {
        li {
            span.kind.(tone) { (state) }
            b.task { bdi { (line(name, MAX_NAME)) } }
            span.dim {
                @if is_built_in { "built in · " }
                @if !announced.is_empty() { bdi { (line(&announced.join(", "), MAX_TEXT)) } " · " }
                "life " (presence.instance) " · since " (shown_time(presence.at))
            }
            @if let Some(description) = description { p.about dir="auto" { (line(description, MAX_TEXT)) } }
            (breaker_line(breaker))
        }
    }
}

fn breaker_line(breaker: BreakerStatus) -> Markup {
    let BreakerStatus { state, failures, last_failure, opened_at } = breaker;
    let words = match state {
        BreakerState::Closed if failures == 0 => return html! {},
        BreakerState::Closed => "breaker closed",
        BreakerState::Open => "breaker open: it gets no turns until its cooldown is over",
        BreakerState::HalfOpen => "breaker half open: one turn tries it",
    };
    html! {
        p.about.warn[state != BreakerState::Closed] {
            (words) " · " (failures) @if failures == 1 { " failure" } @else { " failures in a row" }
            @if let Some(at) = last_failure { " · the last " (shown_time(at)) }
            @if let Some(at) = opened_at { " · opened " (shown_time(at)) }
        }
    }
}

/// An actor with those below it, as long as `left` allows.
fn node(tree: &TreeNode, left: &mut usize) -> Markup {
    *left = left.saturating_sub(1);
    let tone = match tree.state {
        ActorState::Running => "good",
        ActorState::Failed => "bad",
        ActorState::Starting | ActorState::Restarting { .. } => "warn",
        ActorState::Stopping | ActorState::Stopped => "dim",
    };
    html! {
        li {
            bdi { (line(&tree.name, MAX_NAME)) } " " span.kind.(tone) { (tree.state) }
            span.dim {
                @if let Some(strategy) = tree.strategy { " · " (strategy) }
                @if tree.restarts > 0 { " · " (tree.restarts) @if tree.restarts == 1 { " restart" } @else { " restarts" } }
                @if let Some(depth) = tree.mailbox_depth { " · mailbox " (depth) }
                @if let Some(uptime) = tree.uptime { " · up " (span(uptime)) }
                @if let Some(detail) = &tree.detail { " · " bdi { (line(detail, MAX_TEXT)) } }
            }
            @if let Some(error) = &tree.last_error { p.about.warn dir="auto" { "last error: " (line(error, MAX_TEXT)) } }
            @if !tree.children.is_empty() {
                ul {
                    @for child in &tree.children { @if *left > 0 { (node(child, left)) } }
                    @if *left == 0 { li.dim { "more are not shown; callboard tree lists all" } }
                }
            }
        }
    }
}
