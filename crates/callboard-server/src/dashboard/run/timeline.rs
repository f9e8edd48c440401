//! The turns of a run in time: a row for each, with a bar for when it was at work, its steps, its failures and what was handed to it.

use std::time::Duration;

use callboard::messages::{RunId, Timestamp};
use maud::{Markup, html};

use super::story::{End, Handoff, Step, TurnRow};
use super::texts::{line, lines, shown_time, span, tokens};

/// The width of the bars' picture, which is scaled to that of the page.
const WIDTH: u64 = 1_000;
/// The least width of a bar.
const LEAST: u64 = 4;
/// The most characters of a name, and of the text of a failure.
const MAX_NAME: usize = 80;
const MAX_FAILURE: usize = 1_000;

/// The time that the bars are in.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    from: Timestamp,
    until: Timestamp,
}

impl Axis {
    /// The time of these turns, of which those that are open last until `now`.
    pub(super) fn of(turns: &[&TurnRow], now: Timestamp) -> Self {
        let from = turns.iter().map(|turn| turn.begun_at).min().unwrap_or(now);
        let until = turns.iter().map(|turn| turn.ended_at.unwrap_or(now)).max().unwrap_or(now);
        Self { from, until: until.max(from) }
    }

    /// Where a bar begins, and how wide it is.
    fn bar(self, begun_at: Timestamp, ended_at: Option<Timestamp>) -> (u64, u64) {
        let whole = u64::try_from(self.until.since(self.from).as_millis()).unwrap_or(u64::MAX).max(1);
        let place = |at: Timestamp| {
            let millis = u64::try_from(at.since(self.from).as_millis()).unwrap_or(u64::MAX).min(whole);
            u64::try_from(u128::from(millis) * u128::from(WIDTH) / u128::from(whole)).unwrap_or(WIDTH)
        };
        let begin = place(begun_at).min(WIDTH - LEAST);
        let end = place(ended_at.unwrap_or(self.until));
        (begin, end.saturating_sub(begin).max(LEAST).min(WIDTH - begin))
    }
}

/// The words for an end, and the class of its colour.
fn ended(turn: &TurnRow) -> (&'static str, &'static str) {
    match turn.end {
        End::Open if turn.retry_at.is_some() => ("waits to try again", "warn"),
        End::Open => ("open", "info"),
        End::Ended => ("ended", "good"),
        End::HandedOn => ("handed on", "good"),
        End::Refused => ("refused", "bad"),
        End::Failed => ("failed", "bad"),
        End::Cancelled => ("cancelled", "dim"),
    }
}

/// A turn as a row.
pub(super) fn row(run: RunId, turn: &TurnRow, axis: Axis, now: Timestamp) -> Markup {
    let (words, tone) = ended(turn);
    let took = turn.ended_at.unwrap_or(now).since(turn.begun_at);
    html! {
        li.turn {
            div.head {
                a.number href={ "/runs/" (run) "/turns/" (turn.number) } title="This turn: its input, messages and state" { (turn.number) }
                b { bdi { @match &turn.agent { Some(agent) => (line(agent.as_str(), MAX_NAME)), None => "–" } } }
                span.kind.(tone) { (words) }
                span.dim { (span(took)) @if let Some(used) = tokens(turn.usage) { " · " (used) } }
                @if turn.retries > 0 { span.warn { (turn.retries) @if turn.retries == 1 { " retry" } @else { " retries" } } }
                (shown_time(turn.begun_at))
            }
            (bar(axis.bar(turn.begun_at, turn.ended_at), tone))
            @if let Some(summary) = &turn.summary { p.summary dir="auto" { (line(summary, 200)) } }
            (steps(turn, axis))
            @if !turn.failures.is_empty() { (failures(turn)) }
            @if let Some(handoff) = &turn.handoff { (handed(turn.number, handoff)) }
        }
    }
}

fn bar((x, width): (u64, u64), tone: &str) -> Markup {
    html! {
        svg.span viewBox={ "0 0 " (WIDTH) " 8" } preserveAspectRatio="none" aria-hidden="true" {
            rect.(tone) x=(x) y="0" width=(width) height="8" {}
        }
    }
}

fn steps(turn: &TurnRow, axis: Axis) -> Markup {
    html! {
        @if turn.left_out > 0 { p.dim { (turn.left_out) " earlier steps" } }
        @if !turn.steps.is_empty() {
            ol.steps { @for step in &turn.steps { (step_row(step, axis)) } }
        }
    }
}

fn step_row(step: &Step, axis: Axis) -> Markup {
    let tone = match (step.is_failed, step.ended_at) {
        (true, _) => "bad",
        (false, Some(_)) => "dim",
        (false, None) => "info",
    };
    html! {
        li {
            code { bdi { (line(&step.name, MAX_NAME)) } }
            span.dim {
                @match step.ended_at { Some(at) => (span(at.since(step.begun_at))), None => "open" }
                @if step.is_failed { " · failed" }
            }
            (bar(axis.bar(step.begun_at, step.ended_at), tone))
        }
    }
}

fn failures(turn: &TurnRow) -> Markup {
    html! {
        details data-key={ "failures-" (turn.number) } {
            summary { @if turn.failures.len() == 1 { "Its error" } @else { "Its last errors" } }
            @for failure in &turn.failures { pre.text dir="auto" { (lines(failure, MAX_FAILURE)) } }
        }
    }
}

fn handed(number: u32, handoff: &Handoff) -> Markup {
    let (from, metrics) = (line(handoff.previous_agent.as_str(), MAX_NAME), handoff.metrics.value());
    let elapsed = metrics["time_elapsed"].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let tools = metrics["tools_used"].as_object();
    let tools = tools.map(|tools| tools.iter().map(|(name, uses)| format!("{name} ({uses})")).collect::<Vec<_>>());
    html! {
        details data-key={ "handoff-" (number) } {
            summary { "From " bdi { (from) } }
            dl.facts {
                div { dt { "previous_agent" } dd { bdi { (from) } } }
                div { dt { "tokens_used" } dd { (metrics["tokens_used"]) } }
                @if let Some(elapsed) = elapsed { div { dt { "time_elapsed" } dd { (span(elapsed)) } } }
                div { dt { "retry_count" } dd { (metrics["retry_count"]) } }
                @if let Some(tools) = tools {
                    div { dt { "tools_used" } dd { bdi { (line(&tools.join(", "), 4 * MAX_NAME)) } } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_in_the_picture_and_is_seen() {
        let at = Timestamp::from_millis;
        let axis = Axis { from: at(1_000), until: at(2_000) };
        assert_eq!(axis.bar(at(1_000), Some(at(1_500))), (0, 500));
        assert_eq!(axis.bar(at(1_500), None), (500, 500));
        assert_eq!(axis.bar(at(2_000), Some(at(2_000))), (996, 4), "an instant at the end");
        let instant = Axis { from: at(5), until: at(5) };
        assert_eq!(instant.bar(at(5), Some(at(5))), (0, 4));
    }
}
