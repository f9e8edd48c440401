//! The page of an agent, with what its file says and what is done to it; and the page of all files, with their defects.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use callboard::messages::Presence;
use callboard::supervision::tree::TreeNode;
use maud::{Markup, html};

use super::agents::{at_work, breaker_line, node, status};
use super::pages::{self, Reader, segment};
use super::run::because;
use super::run::texts::{cut_lines, line, lines, shown_time};
use crate::agent_files::{AgentFile, AgentFiles};
use crate::context::{Context, Shared};
use crate::problem::Problem;
use crate::tokens::{Caller, Scope};

/// The most files and teammates of a page, and the most characters of a name, of a text and of a reason.
const MAX_FILES: usize = 200;
const MAX_TEAM: usize = 50;
const MAX_NAME: usize = 80;
const MAX_TEXT: usize = 1_000;
const MAX_REASON: usize = 20_000;

/// The page of an agent.
pub(super) async fn page(State(context): Shared, Path(name): Path<String>, request: Request) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Agent") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = shown(&context, &caller, &name).await;
    pages::answer("Agent", "/agents", &Reader { caller: &caller, csrf }, contents)
}

async fn shown(context: &Context, caller: &Caller, name: &str) -> Result<Markup, Problem> {
    let (agents, files) = (context.board.agents(), context.agent_files());
    let is_admin = caller.scopes.contains(&Scope::Admin);
    let presence = agents.roster().into_iter().find(|presence| presence.agent.as_str() == name);
    let error = agents.failed().into_iter().find(|(failed, _)| failed.as_str() == name).map(|(_, error)| error);
    if presence.is_none() && error.is_none() && agents.authority(name).is_none() {
        return Err(Problem::not_found(format!("there is no agent {}", line(name, MAX_NAME))));
    }
    let (mut left, tree) = (MAX_FILES, if is_admin { context.board.tree().await.ok() } else { None });
    let actor = tree.as_ref().and_then(|tree| found(tree, name));
    let authority: Vec<&str> =
        agents.authority(name).into_iter().flat_map(|all| all.effects()).map(|it| it.name()).collect();
    Ok(html! {
        p.under { a href="/agents" { "All agents" } }
        h1.title { bdi { (line(name, MAX_NAME)) } }
        (state(presence.as_ref(), error.is_some(), agents.is_asleep(name)))
        @if let Some(text) = files.descriptions.get(name) { p dir="auto" { (lines(text, MAX_TEXT)) } }
        (at_work(&agents.turns(name), 0.0))
        (breaker_line(agents.breaker(name)))
        @if let Some(error) = error.filter(|_| is_admin) {
            details data-key="error" open { summary { "Its error" } pre.text dir="auto" { (cut_lines(&error, MAX_REASON)) } }
        }
        dl.facts { div { dt { "May cause, by itself or through others" } dd { @if authority.is_empty() { "nothing" } @else { (authority.join(", ")) } } } }
        p { a href={ "/runs?agent=" (segment(name)) } { "Its runs" } }
        @match files.files.get(name) {
            Some(file) => (of_file(file)),
            None if files.built_in.contains(name) => p.dim { "It is built in: no file says what it is." },
            None => {}
        }
        @if let Some(actor) = actor { h2 { "Its actors" } ul.tree { (node(actor, &mut left)) } }
        @if is_admin { section { (actions(name)) } }
    })
}

fn state(presence: Option<&Presence>, has_failed: bool, is_asleep: bool) -> Markup {
    let (words, tone) = match presence {
        _ if has_failed => ("failed", "bad"),
        Some(presence) => status(presence, is_asleep),
        None => ("stopped", "dim"),
    };
    html! {
        p.under {
            span.kind.(tone) { (words) }
            @if let Some(presence) = presence { " made " (presence.instance) @if presence.instance == 1 { " time" } @else { " times" } ", last " (shown_time(presence.at)) }
        }
    }
}

/// The part of the tree of an agent.
fn found<'t>(tree: &'t TreeNode, name: &str) -> Option<&'t TreeNode> {
    if &*tree.name == name { Some(tree) } else { tree.children.iter().find_map(|child| found(child, name)) }
}

/// What a file says about its agent.
fn of_file(file: &AgentFile) -> Markup {
    html! {
        dl.facts.said {
            div { dt { "File" } dd { code { bdi { (line(&file.path, MAX_TEXT)) } } } }
            @for (name, value) in &file.facts { div { dt { (name) } dd { bdi { (line(value, MAX_TEXT)) } } } }
            @if !file.team.is_empty() {
                div {
                    dt { "May give tasks to" }
                    dd {
                        @for (place, name) in file.team.iter().take(MAX_TEAM).enumerate() {
                            @if place > 0 { ", " }
                            a href={ "/agents/" (segment(name)) } { bdi { (line(name, MAX_NAME)) } }
                        }
                        @if file.team.len() > MAX_TEAM { " and " (file.team.len() - MAX_TEAM) " more" }
                    }
                }
            }
        }
    }
}

/// Forms that start an agent again, or stop it.
fn actions(name: &str) -> Markup {
    let form = |action: &str, open: &str, text: &str, button: &str| {
        html! {
            details.more data-key=(action) {
                summary { (open) }
                form data-run-action={ "/v1/agents/" (segment(name)) "/" (action) } {
                    p { (text) }
                    (because(&format!("{action}-reason"), button))
                    p.result role="status" {}
                }
            }
        }
    };
    html! {
        (form("restart", "Start again …", "Its value is made again; turns that it works on begin again.", "Start the agent again"))
        (form("stop", "Stop …", "Turns under way finish. What is given to it waits two minutes for an agent of this name, and fails then. It is in no list until its file changes, or the server starts again.", "Stop the agent"))
    }
}

/// The page of all files.
pub(super) async fn files(State(context): Shared, request: Request) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Files") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = caller.needs(Scope::Admin).map(|()| all(&context.agent_files()));
    pages::answer("Files", "/files", &Reader { caller: &caller, csrf }, contents)
}

fn all(AgentFiles { files, refused, descriptions, .. }: &AgentFiles) -> Markup {
    html! {
        h1 { "Files" }
        p.dim { "What the files of the agents mean, as they are in effect now. " code { "callboard check" } " reports the same before a start." }
        @if !refused.is_empty() {
            h2 { "Defects" }
            @for (file, why) in refused.iter().take(MAX_FILES) {
                p { code { bdi { (line(file, MAX_TEXT)) } } }
                pre.text dir="auto" { (cut_lines(why, MAX_REASON)) }
            }
        }
        @if files.is_empty() && refused.is_empty() {
            section.empty {
                h2 { "No agent is from a file" }
                p { "To write some into the folder of the project:" }
                pre { code { "callboard init" } }
            }
        }
        @for (name, file) in files.iter().take(MAX_FILES) {
            h2 { a href={ "/agents/" (segment(name)) } { bdi { (line(name, MAX_NAME)) } } }
            @if let Some(text) = descriptions.get(name) { p dir="auto" { (lines(text, MAX_TEXT)) } }
            (of_file(file))
        }
        @if files.len() > MAX_FILES { p.dim { (files.len() - MAX_FILES) " more are not shown." } }
    }
}
