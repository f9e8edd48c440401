//! The figures of handoffs as a page: how many a run has, what agents use, how long turns wait, what was refused, and the circuit breakers.

use axum::extract::{Request, State};
use axum::response::Response;
use callboard::supervision::runs::BreakerState;
use maud::{Markup, html};

use super::measured::Figures;
use super::pages::{self, Reader};
use super::run::texts::{line, shown_time};
use crate::context::{Context, Shared};

/// The most rows of a table, and the most characters of a name.
const MAX_ROWS: usize = 100;
const MAX_NAME: usize = 60;

/// The page with the figures.
pub(super) async fn page(State(context): Shared, request: Request) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Handoffs") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    pages::answer("Handoffs", "/handoffs", &Reader { caller: &caller, csrf }, Ok(shown(&context)))
}

fn shown(context: &Context) -> Markup {
    let text = context.measured.as_ref().map(|measured| measured());
    let figures = Figures::read(text.as_deref().unwrap_or_default());
    let sum = |name: &str| figures.sum(name);
    let (runs, turns) = (sum("callboard_handoffs_per_run_count"), sum("callboard_handoff_latency_seconds_count"));
    let cycles = figures.value("callboard_refusals_total", "WaitCycle");
    html! {
        h1 { "Handoffs" }
        p.dim { "Since this server started. The same figures are in " code { "/v1/metrics" } "." }
        @if text.is_none() {
            section.empty {
                h2 { "This server measures nothing" }
                p { "Give it the text of a recorder for Prometheus with " code { "Server::measured" } "." }
            }
        } @else {
            dl.figures {
                div { dt { "Handoffs and delegations a run" } dd { (average(sum("callboard_handoffs_per_run_sum"), runs, 1)) } }
                div { dt { "Average handoff latency" } dd { (millis(sum("callboard_handoff_latency_seconds_sum"), turns)) } }
                div { dt { "Runs that have ended" } dd { (whole(runs)) } }
                div { dt { "Ended turns" } dd { (whole(sum("callboard_turns_total"))) } }
                div { dt { "Refusals" } dd { (whole(sum("callboard_refusals_total"))) } }
                div { dt { "Cycles of waits refused" } dd { (whole(cycles)) } }
            }
        }
        h2 { "By agent" }
        (by_agent(context, &figures))
        @let refused = figures.by_label("callboard_refusals_total");
        @if !refused.is_empty() {
            h2 { "Refusals" }
            ul.rows { @for (name, value) in refused.iter().take(MAX_ROWS) { li { code { (line(name, MAX_NAME)) } span.dim { (whole(*value)) } } } }
        }
    }
}

fn by_agent(context: &Context, figures: &Figures<'_>) -> Markup {
    let agents = context.board.agents();
    let names = agents.names();
    html! {
        @if names.is_empty() { p.dim { "There are no agents." } }
        ul.rows {
            @for name in names.iter().take(MAX_ROWS) {
                @let (name, breaker) = (name.as_str(), agents.breaker(name.as_str()));
                @let value = |figure: &str| figures.value(figure, name);
                @let count = value("callboard_handoff_latency_seconds_count");
                @let (words, tone) = match breaker.state {
                    BreakerState::Closed => ("breaker closed", "good"),
                    BreakerState::HalfOpen => ("breaker half open", "warn"),
                    BreakerState::Open => ("breaker open", "bad"),
                };
                li {
                    b { bdi { (line(name, MAX_NAME)) } }
                    span.kind.(tone) { (words) }
                    span.dim {
                        (whole(value("callboard_turns_total"))) " ended turns · "
                        (whole(value("callboard_tokens_total"))) " tokens · "
                        (whole(value("callboard_failed_attempts_total"))) " failed attempts · latency "
                        (millis(value("callboard_handoff_latency_seconds_sum"), count))
                        @if let Some(at) = breaker.last_failure { " · last failure " (shown_time(at)) }
                    }
                }
            }
            @if names.len() > MAX_ROWS { li.dim { (names.len() - MAX_ROWS) " more are in " code { "/v1/metrics" } } }
        }
    }
}

/// A count, without a fraction.
fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn average(sum: f64, count: f64, digits: usize) -> String {
    if count > 0.0 { format!("{:.digits$}", sum / count) } else { "–".to_owned() }
}

/// An average of seconds, in milliseconds.
fn millis(sum: f64, count: f64) -> String {
    if count > 0.0 { format!("{} ms", average(1_000.0 * sum, count, 2)) } else { "–".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_of_nothing_is_none() {
        assert_eq!([average(3.0, 2.0, 1), millis(0.5, 100.0), millis(0.0, 0.0)], ["1.5", "5.00 ms", "–"]);
    }
}
