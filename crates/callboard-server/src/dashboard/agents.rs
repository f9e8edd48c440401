//! The agents and the tree of supervisors, as pages: what each is for, whether it works, and its circuit breaker.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use callboard::messages::{Presence, TurnId, visible};
use callboard::supervision::runs::{BreakerState, BreakerStatus};
use callboard::supervision::tree::{ActorState, TreeNode};
use maud::{Markup, html};

use super::measured::Figures;
use super::pages::{self, Reader, segment};
use super::run::texts::{line, lines, short, shown_time, span};
use crate::context::{Context, Shared};
use crate::knowledge::reserved;
use crate::problem::Problem;
use crate::query;
use crate::tokens::{Caller, Scope};

/// The most agents and actors of a page, and the most characters of a name and of a text.
const MAX_AGENTS: usize = 200;
const MAX_ACTORS: usize = 500;
const MAX_NAME: usize = 60;
const MAX_TEXT: usize = 300;
/// The most turns of an agent that are named.
const MAX_TURNS: usize = 3;

/// Where the part of the page is that changes.
const PART: &str = "/parts/agents";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Name,
    Stopped,
    Newest,
}

/// The orders of the list: their names in a query, and the words of the form.
const ORDERS: [(&str, &str, Order); 3] = [
    ("name", "by name", Order::Name),
    ("stopped", "stopped first", Order::Stopped),
    ("newest", "newest start first", Order::Newest),
];

/// Which agents are listed, and in which order.
struct Listing {
    /// What an agent has in its name, its announcement or its description; in lower case.
    text: String,
    order: Order,
}

impl Listing {
    fn of_query(query: Option<&str>) -> Result<Self, Problem> {
        let [text, order] = query::values(query, ["text", "sort"])?;
        let order = match order.as_deref().filter(|order| !order.is_empty()) {
            None => Order::Name,
            Some(wanted) => match ORDERS.into_iter().find(|(name, ..)| *name == wanted) {
                Some((.., order)) => order,
                None => {
                    let known = ORDERS.map(|(name, ..)| name).join(", ");
                    return Err(Problem::bad(format!("the order {} is not known: there is {known}", visible(wanted))));
                }
            },
        };
        Ok(Self { text: text.unwrap_or_default().trim().to_lowercase(), order })
    }

    fn has<'t>(&self, texts: impl IntoIterator<Item = &'t str>) -> bool {
        self.text.is_empty() || texts.into_iter().any(|text| text.to_lowercase().contains(&self.text))
    }

    fn has_agent(&self, presence: &Presence, description: Option<&str>) -> bool {
        let announced = presence.role.iter().chain(&presence.capabilities).chain(&presence.projects);
        self.has(announced.map(|text| &**text).chain([presence.agent.as_str()]).chain(description))
    }

    /// Sorts agents that are sorted by name.
    fn sort(&self, agents: &mut [Presence]) {
        match self.order {
            Order::Name => {}
            Order::Stopped => agents.sort_by_key(|presence| presence.is_available),
            Order::Newest => agents.sort_by_key(|presence| Reverse(presence.at)),
        }
    }
}

/// The page with the agents.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let query = request.uri().query().map(str::to_owned);
    let (caller, csrf) = match pages::reader_of(&context, &request, "Agents") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let reader = Reader { caller: &caller, csrf };
    let listing = match Listing::of_query(query.as_deref()) {
        Ok(listing) => listing,
        Err(problem) => {
            let contents = html! {
                h1 { "The agents cannot be listed" }
                p { (problem.detail) }
                p { a href="/agents" { "All agents" } }
            };
            return pages::page(problem.code.status(), pages::framed("Agents", Some(&reader), &contents));
        }
    };
    let part = query.as_ref().map_or_else(|| PART.to_owned(), |query| format!("{PART}?{query}"));
    let contents = html! {
        h1 { "Agents" }
        (form(query.as_deref(), &listing))
        div data-run-part=(part) data-run-events="/parts/events" { (contents(&context, &caller, &listing).await) }
    };
    pages::page(StatusCode::OK, pages::framed("Agents", Some(&reader), &contents))
}

/// What of the page changes.
pub(super) async fn part(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let listing = Listing::of_query(query.as_deref())?;
    Ok(pages::page(StatusCode::OK, contents(&context, &caller, &listing).await))
}

/// The form of the search, with what the reader has written.
fn form(query: Option<&str>, listing: &Listing) -> Markup {
    let written = query::pairs(query.unwrap_or_default()).find(|(name, _)| name == "text").map(|(_, text)| text);
    let is_changed = !listing.text.is_empty() || listing.order != Order::Name;
    html! {
        form.filter method="get" action="/agents" {
            div {
                label for="text" { "Search" }
                input #text name="text" value=(written.unwrap_or_default()) autocomplete="off";
            }
            div {
                label for="sort" { "Order" }
                select #sort name="sort" {
                    @for (name, words, order) in ORDERS {
                        option value=(name) selected[order == listing.order] { (words) }
                    }
                }
            }
            button type="submit" { "Show" }
            @if is_changed { a href="/agents" { "All agents" } }
        }
    }
}

async fn contents(context: &Context, caller: &Caller, listing: &Listing) -> Markup {
    let is_admin = caller.scopes.contains(&Scope::Admin);
    // Errors of agents name what the machine has, as the tree does.
    let failed = context.board.agents().failed().into_iter().filter(|_| is_admin);
    let failed: BTreeMap<String, String> = failed.map(|(agent, error)| (agent.to_string(), error)).collect();
    let files = context.agent_files();
    let description = |name: &str| files.descriptions.get(name).map(String::as_str);
    let mut roster = context.board.agents().roster();
    roster.retain(|presence| !failed.contains_key(presence.agent.as_str()));
    let is_without_agents = roster.is_empty() && failed.is_empty();
    roster.retain(|presence| listing.has_agent(presence, description(presence.agent.as_str())));
    listing.sort(&mut roster);
    let failed: Vec<_> = failed.iter().filter(|(name, error)| listing.has([name.as_str(), error.as_str()])).collect();
    let tree = if is_admin { context.board.tree().await.ok() } else { None };
    let is_built_in = |name: &str| files.built_in.contains(name) || reserved::is_reserved(context, name);
    let has_built_in = roster.iter().any(|presence| is_built_in(presence.agent.as_str()));
    let measured = context.measured.as_ref().map(|measured| measured());
    let figures = Figures::read(measured.as_deref().unwrap_or_default());
    let mut left = MAX_ACTORS;
    html! {
        p.state #run-state role="status" {}
        div #agents data-swap {
            @if has_built_in { p.dim { "The overview does not count those that are built in." } }
            @if is_without_agents {
                section.empty {
                    h2 { "There are no agents" }
                    p { "Agents take the tasks of runs. To write some into the folder of the project:" }
                    pre { code { "callboard init" } }
                }
            } @else if roster.is_empty() && failed.is_empty() {
                section.empty { h2 { "No agent fits" } }
            }
            ol.runs {
                @for (name, error) in failed.iter().take(MAX_AGENTS) { (failed_agent(name, error)) }
                @for presence in roster.iter().take(MAX_AGENTS) {
                    @let name = presence.agent.as_str();
                    @let agents = context.board.agents();
                    @let tokens = figures.value("callboard_tokens_total", name);
                    @let work = html! { (at_work(&agents.turns(name), tokens)) (breaker_line(agents.breaker(name))) };
                    @let status = status(presence, agents.is_asleep(name));
                    (agent(presence, status, description(name), is_built_in(name), &work))
                }
            }
            @if roster.len() > MAX_AGENTS { p.dim { "The first " (MAX_AGENTS) " of " (roster.len()) " agents are shown." } }
        }
        @if let Some(tree) = &tree {
            h2 { "Supervision tree" }
            div #tree data-swap {
                @if let Some(bytes) = memory() { p.dim { "The process of this server has " (bytes >> 20) " MiB of memory." } }
                ul.tree { (node(tree, &mut left)) }
            }
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

/// The memory of this process that is in use, in bytes, where the system says it.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The turns that an agent has begun, and the tokens that it has used since this server started.
pub(super) fn at_work(turns: &[TurnId], tokens: f64) -> Markup {
    html! {
        @if !turns.is_empty() || tokens > 0.0 {
            p.about {
                @if !turns.is_empty() { "works on " }
                @for (place, turn) in turns.iter().take(MAX_TURNS).enumerate() {
                    @if place > 0 { ", " }
                    a href={ "/runs/" (turn.run) "/turns/" (turn.number) } { "turn " (turn.number) " of " code { (short(turn.run)) } }
                }
                @if turns.len() > MAX_TURNS { " and " (turns.len() - MAX_TURNS) " more" }
                @if !turns.is_empty() && tokens > 0.0 { " · " }
                @if tokens > 0.0 { (format!("{tokens:.0}")) " tokens since this server started" }
            }
        }
    }
}

/// The word for what an agent that has announced itself does, and its tone.
pub(super) fn status(presence: &Presence, is_asleep: bool) -> (&'static str, &'static str) {
    match (presence.is_available, is_asleep) {
        (true, true) => ("dormant", "dim"),
        (true, false) => ("running", "good"),
        (false, _) => ("stopped", "dim"),
    }
}

fn agent(
    presence: &Presence,
    (state, tone): (&str, &str),
    description: Option<&str>,
    is_built_in: bool,
    work: &Markup,
) -> Markup {
    let name = presence.agent.as_str();
    let announced = presence.role.iter().chain(&presence.capabilities).chain(&presence.projects);
    let announced: Vec<String> = announced.map(|text| line(text, MAX_NAME)).collect();
    html! {
        li {
            span.kind.(tone) { (state) }
            a.task href={ "/agents/" (segment(name)) } { b { bdi { (line(name, MAX_NAME)) } } }
            span.dim {
                @if is_built_in { "built in · " }
                @if !announced.is_empty() { bdi { (line(&announced.join(", "), MAX_TEXT)) } " · " }
                "made " (presence.instance) @if presence.instance == 1 { " time" } @else { " times" } " · since " (shown_time(presence.at))
            }
            @if let Some(description) = description { p.about dir="auto" { (line(description, MAX_TEXT)) } }
            (work)
        }
    }
}

pub(super) fn breaker_line(breaker: BreakerStatus) -> Markup {
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
pub(super) fn node(tree: &TreeNode, left: &mut usize) -> Markup {
    *left = left.saturating_sub(1);
    let tone = match tree.state {
        ActorState::Running => "good",
        ActorState::Failed => "bad",
        ActorState::Starting | ActorState::Restarting { .. } => "warn",
        ActorState::Stopping | ActorState::Stopped | ActorState::Dormant => "dim",
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
