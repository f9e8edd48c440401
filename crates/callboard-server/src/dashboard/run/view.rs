//! The parts of the page of a run.

use callboard::messages::{RunEvent, RunId, Timestamp};
use callboard::supervision::runs::Run;
use maud::{Markup, html};

use super::consents::Consents;
use super::query::{Asked, KINDS, is_failure};
use super::questions::Questions;
use super::state::badge;
use super::story::{End, Handoffs, Story, TurnRow};
use super::texts::{cut_lines, json_text, line, lines, short, shown_time, span, tokens};
use super::timeline::{self, Axis};
use crate::inbox::Item;
use crate::json as shapes;

/// The most turns and events of a page.
pub(super) const MAX_TURNS: usize = 20;
const MAX_EVENTS: usize = 40;
/// The most things that it waits for which are listed.
pub(super) const MAX_WAITS: usize = 10;
/// The most characters of a task, of a result and of an event.
const MAX_TASK: usize = 600;
const MAX_EVENT: usize = 160;
/// How many bytes the input of a run has that is not folded.
const SHORT_INPUT: usize = 400;

/// What a page is made of.
pub(super) struct Seen<'s> {
    pub(super) history: &'s [RunEvent],
    pub(super) run: &'s Run,
    pub(super) consents: &'s Consents<'s>,
    /// What waits for people, the first of it, and how much more does.
    pub(super) waits: (&'s [Item], usize),
    /// The run in which the turn that failed last was tried again.
    pub(super) retried: Option<RunId>,
    pub(super) now: Timestamp,
    /// Whether the reader may cancel it and try it again.
    pub(super) may_change: bool,
}

/// The parts, each with an id by which the script replaces it.
pub(super) fn parts(seen: &Seen<'_>, handoffs: Handoffs, asked: &Asked) -> Markup {
    let story = Story::of(seen.history, seen.run, handoffs);
    html! {
        section #run-head data-swap { (head(seen, story.turns().count())) }
        p.state #run-state role="status" {}
        section #run-waits data-swap { (waits(seen, &story)) }
        section #run-actions data-swap { @if seen.may_change { (actions(seen, &story)) } }
        section #run-consents data-swap { (seen.consents.shown()) }
        section #run-questions data-swap { (Questions::of(seen.history).shown(seen.run.id())) }
        section #run-drawing data-swap { (drawing(seen)) }
        section #run-turns data-swap { (turns(seen, &story, asked)) }
        section #run-filter { (filter(seen.run.id(), asked)) }
        section #run-events data-swap { (events(seen, asked)) }
    }
}

fn head(seen: &Seen<'_>, turns: usize) -> Markup {
    let (run, submission) = (seen.run, seen.run.submission());
    let (metrics, task) = (run.metrics(), &submission.task);
    let until = if run.result().is_some() { run.last_at() } else { seen.now };
    html! {
        h1.title dir="auto" { (line(&task.body, 120)) }
        p.under { (badge(shapes::status(run, seen.now))) " " code { (short(run.id())) } (origin(seen)) }
        @if task.body.chars().count() > 120 || task.body.contains('\n') {
            details data-key="task" { summary { "The task" } pre.text.prose dir="auto" { (lines(&task.body, MAX_TASK)) } }
        }
        dl.facts {
            @match &task.plan {
                Some(plan) => { div { dt { "Workflow" } dd { bdi { (line(&plan.name, 80)) } } } }
                None => { div { dt { "Agent" } dd { bdi { (line(submission.agent.as_str(), 80)) } } } }
            }
            @if let Some(from) = &task.from_agent { div { dt { "Submitted by" } dd { bdi { (line(from.as_str(), 80)) } } } }
            div { dt { "Since" } dd { (shown_time(submission.at)) } }
            div { dt { "Duration" } dd { (span(until.since(submission.at))) } }
            div { dt { "Used" } dd { (tokens(metrics.usage).unwrap_or_else(|| "no tokens".to_owned())) } }
            div { dt { "Turns" } dd { (turns) } }
            @if metrics.retries > 0 { div { dt { "Retries" } dd { (metrics.retries) } } }
            div { dt { "Run" } dd { code { (run.id()) } } }
        }
        @if let Some(input) = task.input.as_ref().filter(|input| input.as_str() != Some(&*task.body)) {
            @let text = json_text(input.value());
            details data-key="input" open[text.len() <= SHORT_INPUT] {
                summary { "Its input" }
                pre.text dir="auto" { (cut_lines(&text, MAX_TASK)) }
            }
        }
        @if let Some(result) = run.result() {
            @if !result.outcome.is_finished() {
                details data-key="outcome" open { summary { "How it ended" } pre.text dir="auto" { (lines(&result.outcome.to_string(), MAX_TASK)) } }
            }
            @if !result.output.is_null() {
                @let text = result.output.as_str().map_or_else(|| result.output.to_string(), str::to_owned);
                details data-key="output" { summary { "Its output" } pre.text dir="auto" { (lines(&text, MAX_TASK)) } }
            }
        }
    }
}

/// Of a fork, the turn that it repeats, and whether with another input.
fn origin(seen: &Seen<'_>) -> Markup {
    let forked = seen.history.iter().find_map(|event| match event {
        RunEvent::Forked { from, input, .. } => Some((from, input.is_some())),
        _ => None,
    });
    html! {
        @if let Some((from, has_input)) = forked {
            span.dim {
                " · fork of " a href={ "/runs/" (from.run) "/turns/" (from.number) } { "turn " (from.number) " of " code { (short(from.run)) } }
                @if has_input { ", with another input" }
            }
        }
    }
}

/// Why it waits: what waits for people, attempts that are to come, and turns that are open below others.
fn waits(seen: &Seen<'_>, story: &Story) -> Markup {
    if seen.run.result().is_some() {
        return html! {};
    }
    let (pending, more) = seen.waits;
    let retries: Vec<_> = story.turns().filter_map(|turn| Some((turn, turn.retry_at?))).collect();
    let waiting = story.turns().filter(|turn| turn.end == End::Open);
    let delegated: Vec<_> = waiting.filter(|turn| turn.is_handed).take(MAX_WAITS).collect();
    html! {
        @if !pending.is_empty() || !retries.is_empty() || !delegated.is_empty() {
            h2 { "What it waits for" }
            ul.waits {
                @for item in pending { (waits_for(seen.run.id(), item)) }
                @if more > 0 { li { (more) " more wait for people." } }
                @for (turn, at) in retries.iter().take(MAX_WAITS) {
                    li { "Turn " (turn.number) " is tried again: attempt " (turn.retries + 1) " begins at " (shown_time(*at)) }
                }
                @for turn in &delegated { li { "Turn " (turn.number) " of " (agent(turn)) " is open" } }
            }
        }
    }
}

fn agent(turn: &TurnRow) -> Markup {
    let name = turn.agent.as_ref().map_or_else(|| "–".to_owned(), |agent| line(agent.as_str(), 80));
    html! { b { bdi { (name) } } }
}

/// What waits for people, in a line, with where they decide. What waits in a turn at another board is listed under its run there.
pub(super) fn waits_for(run: RunId, item: &Item) -> Markup {
    html! {
        li {
            @if let Some(agent) = &item.agent { b { bdi { (line(agent, 80)) } } " " }
            bdi { (line(&item.what, MAX_EVENT)) } " "
            a href={ "/?run=" (item.run.unwrap_or(run)) "#" (item.id) } { @if item.may_not.is_none() { "Decide in the overview" } @else { "See it in the overview" } }
            @if let Some(why) = &item.may_not { span.dim { " You do not decide this: " (line(why, MAX_EVENT)) } }
        }
    }
}

fn actions(seen: &Seen<'_>, story: &Story) -> Markup {
    let (id, is_open) = (seen.run.id(), seen.run.result().is_none());
    html! {
        @if is_open {
            details.more data-key="cancel" {
                summary { "Cancel …" }
                form data-run-action={ "/v1/delegations/" (id) "/cancel" } {
                    (because("cancel-reason", "Cancel the run"))
                    p.result role="status" {}
                }
            }
        } @else if let Some(retried) = seen.retried {
            p { "The turn that failed last was tried again: " a href={ "/runs/" (retried) } { code { (short(retried)) } } }
        } @else if story.has_failed_turn() {
            details.more data-key="retry" {
                summary { "Try again …" }
                form data-run-action={ "/v1/delegations/" (id) "/retry" } {
                    p { "The turn that failed last begins again, in a run of its own." }
                    (because("retry-reason", "Try the turn again"))
                    p.result role="status" {}
                }
            }
        }
    }
}

/// The end of a form: why its reader does it, and the button.
pub(in crate::dashboard) fn because(id: &str, button: &str) -> Markup {
    html! {
        label for=(id) { "Why, for the audit log" }
        div.actions {
            input.grow id=(id) name="reason" maxlength="1024" autocomplete="off";
            button.main type="submit" { (button) }
        }
    }
}

fn drawing(seen: &Seen<'_>) -> Markup {
    let plan = seen.run.submission().task.plan.as_ref();
    html! {
        @if let Some(plan) = plan {
            h2 { "Workflow" }
            p { a href={ "/runs/" (seen.run.id()) "/nodes" } { "Executions of each node" } }
            div.drawing {
                img src={ "/parts/run/drawing?id=" (seen.run.id()) "&at=" (seen.run.sequence()) }
                    alt={ "The nodes of " (line(&plan.name, 80)) " with their states" };
            }
        }
    }
}

fn turns(seen: &Seen<'_>, story: &Story, asked: &Asked) -> Markup {
    let is_before = |turn: &&TurnRow| asked.turns_before.is_none_or(|before| turn.number < before);
    let mut shown: Vec<_> = story.turns().rev().filter(is_before).take(MAX_TURNS + 1).collect();
    let has_more = shown.len() > MAX_TURNS;
    shown.truncate(MAX_TURNS);
    shown.reverse();
    let axis = Axis::of(&shown, seen.now);
    let link = |turns_before| format!("?{}#run-turns", Asked { turns_before, ..asked.clone() }.query());
    html! {
        h2 { "Turns" }
        @if shown.is_empty() { p.dim { "No turn has begun." } }
        @if let Some(first) = shown.first().filter(|_| has_more) {
            p.pages { a href=(link(Some(first.number))) { "Earlier turns" } }
        }
        ol.turns { @for turn in &shown { (timeline::row(seen.run.id(), turn, axis, seen.now)) } }
        @if asked.turns_before.is_some() { p.pages { a href=(link(None)) { "The newest turns" } } }
    }
}

/// The form that filters the events.
fn filter(run: RunId, asked: &Asked) -> Markup {
    html! {
        h2 { "Events" }
        p { a href={ "/runs/" (run) "/journal?event=1" } { "Go through them from the first" } }
        form.filter method="get" action="#run-events" {
            @if let Some(before) = asked.turns_before { input type="hidden" name="turns_before" value=(before); }
            div {
                label for="kind" { "Type" }
                select #kind name="kind" {
                    option value="" { "all" }
                    @for kind in KINDS {
                        option value=(kind) selected[asked.kind.as_deref() == Some(kind)] { (kind.replace('_', " ")) }
                    }
                }
            }
            div {
                label for="text" { "Name or text" }
                input #text name="text" value=(asked.text.as_deref().unwrap_or_default()) autocomplete="off";
            }
            label.check { input type="checkbox" name="failed" value="1" checked[asked.failed]; " Failed only" }
            label.check { input type="checkbox" name="all" value="1" checked[asked.all]; " Also unimportant ones" }
            button type="submit" { "Filter" }
        }
    }
}

fn events(seen: &Seen<'_>, asked: &Asked) -> Markup {
    let numbered = (1_u64..).zip(seen.history).collect::<Vec<_>>().into_iter().rev();
    let is_before = |number: u64| asked.events_before.is_none_or(|before| number < before);
    let mut shown: Vec<_> =
        numbered.filter(|(number, event)| is_before(*number) && asked.wants(event)).take(MAX_EVENTS + 1).collect();
    let has_more = shown.len() > MAX_EVENTS;
    shown.truncate(MAX_EVENTS);
    let link = |events_before| format!("?{}#run-events", Asked { events_before, ..asked.clone() }.query());
    html! {
        @if asked.events_before.is_some() { p.pages { a href=(link(None)) { "The newest events" } } }
        @if shown.is_empty() { p.dim { "No event fits." } }
        ol.events {
            @for (number, event) in &shown {
                li.bad[is_failure(event)] {
                    a.number href={ "/runs/" (seen.run.id()) "/journal?event=" (number) } title="The run after this event" { (number) }
                    @if let Some(at) = event.at() { (shown_time(at)) }
                    span.dim { @if let Some(turn) = event.turn() { "turn " (turn) } }
                    bdi { (line(&event.to_string(), MAX_EVENT)) }
                }
            }
        }
        @if let Some((last, _)) = shown.last().filter(|_| has_more) {
            p.pages { a href=(link(Some(*last))) { "Earlier events" } }
        }
    }
}
