//! The executions of each node of a workflow: its turns, how each ended, and how long it took.

use std::collections::BTreeMap;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use callboard::runtime::RunHandle;
use callboard::supervision::runs::{Cause, TurnEnd, TurnStory};
use maud::{Markup, html};

use super::named;
use super::replayed::replayed;
use super::texts::{line, short, span, tokens};
use crate::context::{Context, Shared};
use crate::dashboard::pages::{self, Reader};
use crate::problem::Problem;

/// The most nodes of the page, turns of a node, and characters of a name.
const MAX_NODES: usize = 200;
const MAX_TURNS: usize = 20;
const MAX_NAME: usize = 80;

/// The page of the nodes of a run.
pub(in crate::dashboard) async fn page(State(context): Shared, Path(id): Path<String>, request: Request) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Nodes of a run") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = async { shown(&context, &named(&context, &id).await?).await }.await;
    pages::answer("Nodes of a run", "/runs", &Reader { caller: &caller, csrf }, contents)
}

async fn shown(context: &Context, run: &RunHandle) -> Result<Markup, Problem> {
    let replay = replayed(context, run).await?;
    let mut nodes: BTreeMap<(&str, bool), Vec<&TurnStory>> = BTreeMap::new();
    for turn in replay.turns() {
        match &turn.cause {
            Cause::Node { node } => nodes.entry((node, false)).or_default().push(turn),
            Cause::Compensation { node } => nodes.entry((node, true)).or_default().push(turn),
            Cause::Task | Cause::Handoff { .. } | Cause::Delegation { .. } | Cause::Answer { .. } => {}
        }
    }
    let id = run.id();
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort_by_key(|((node, compensates), _)| (numbered(node), *compensates));
    Ok(html! {
        p.under { a href={ "/runs/" (id) } { "Run " code { (short(id)) } } }
        h1 { "Executions of each node" }
        @if nodes.is_empty() { p.dim { "No node of a workflow has begun." } }
        ul.rows {
            @for ((node, compensates), turns) in nodes.iter().take(MAX_NODES) {
                li {
                    b { code { bdi { (line(node, MAX_NAME)) } } }
                    @if *compensates { span.kind.warn { "compensation" } }
                    span.dim { (turns.len()) @if turns.len() == 1 { " execution" } @else { " executions" } }
                    @if turns.len() > MAX_TURNS { span.dim { "the last " (MAX_TURNS) ":" } }
                    @for turn in turns.iter().rev().take(MAX_TURNS).rev() { (execution(context, run, turn)) }
                }
            }
        }
        @if nodes.len() > MAX_NODES { p.dim { (nodes.len() - MAX_NODES) " more nodes are not shown." } }
    })
}

/// The parts by which names are sorted: those that a map has numbered, such as `tick#10`, by their numbers.
fn numbered(node: &str) -> (&str, u64) {
    let parts = node.rsplit_once('#').and_then(|(name, number)| Some((name, number.parse().ok()?)));
    parts.unwrap_or((node, 0))
}

fn execution(context: &Context, run: &RunHandle, turn: &TurnStory) -> Markup {
    let (words, tone) = match &turn.end {
        TurnEnd::Open => ("open", "info"),
        TurnEnd::NeedsAttention { .. } => ("needs attention", "bad"),
        TurnEnd::Command { .. } => ("ended", "good"),
        TurnEnd::Failed(_) => ("failed", "bad"),
        TurnEnd::Cancelled => ("cancelled", "dim"),
    };
    let until = turn.closed.map_or_else(|| context.now(), |(_, at)| at);
    html! {
        span {
            a href={ "/runs/" (run.id()) "/turns/" (turn.number) } { "turn " (turn.number) } " "
            span.kind.(tone) { (words) }
            span.dim {
                " " bdi { (line(turn.agent.as_str(), MAX_NAME)) } " · " (span(until.since(turn.begun_at)))
                @if turn.attempts > 1 { " · " (turn.attempts) " attempts" }
                @if let Some(used) = tokens(turn.usage) { " · " (used) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn nodes_of_a_map_are_in_the_order_of_their_numbers() {
        let mut nodes = ["tick#10", "tick#2", "a", "tick", "tick#x"];
        nodes.sort_by_key(|node| numbered(node));
        assert_eq!(nodes, ["a", "tick", "tick#2", "tick#10", "tick#x"]);
    }
}
