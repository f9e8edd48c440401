//! The figures of handoffs as a page: how many a run has, what agents use, how long turns wait, what was refused, and the circuit breakers.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::response::Response;
use callboard::supervision::runs::BreakerState;
use maud::{Markup, html};

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
                div { dt { "Handoffs a run" } dd { (average(sum("callboard_handoffs_per_run_sum"), runs, 1)) } }
                div { dt { "Average handoff latency" } dd { (millis(sum("callboard_handoff_latency_seconds_sum"), turns)) } }
                div { dt { "Runs that have ended" } dd { (whole(runs)) } }
                div { dt { "Turns" } dd { (whole(sum("callboard_turns_total"))) } }
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
                        (whole(value("callboard_turns_total"))) " turns · "
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

/// Figures as Prometheus reads them: a name and the value of its first label, with a number.
struct Figures<'t>(BTreeMap<(&'t str, &'t str), f64>);

impl<'t> Figures<'t> {
    fn read(text: &'t str) -> Self {
        let mut figures = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let label =
                labels.split_once("=\"").and_then(|(_, rest)| rest.split_once('"')).map_or("", |(label, _)| label);
            let value: f64 = value.parse().unwrap_or_default();
            if !labels.contains("le=\"") {
                *figures.entry((name, label)).or_default() += value;
            }
        }
        Self(figures)
    }

    fn value(&self, name: &str, label: &str) -> f64 {
        self.0.get(&(name, label)).copied().unwrap_or_default()
    }

    /// The values of a name, the largest first.
    fn by_label(&self, name: &str) -> Vec<(&'t str, f64)> {
        let of_name = self.0.iter().filter(|((own, _), _)| *own == name);
        let mut values: Vec<_> = of_name.map(|((_, label), value)| (*label, *value)).collect();
        values.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        values
    }

    fn sum(&self, name: &str) -> f64 {
        self.by_label(name).iter().map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_prometheus_reads_them() {
        let text = "# HELP a x\na_total{agent=\"one\"} 2\na_total{agent=\"two\"} 3.5\nb_bucket{agent=\"one\",le=\"1\"} 9\nb_sum 4\nwrong\n";
        let figures = Figures::read(text);
        assert_eq!(figures.by_label("a_total"), [("two", 3.5), ("one", 2.0)]);
        assert_eq!([figures.sum("a_total"), figures.value("b_sum", ""), figures.sum("b_bucket")], [5.5, 4.0, 0.0]);
        assert_eq!([average(3.0, 2.0, 1), millis(0.5, 100.0), millis(0.0, 0.0)], ["1.5", "5.00 ms", "–"]);
    }
}
