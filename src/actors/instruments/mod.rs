//! Instruments of the `metrics` facade: measurements go to the recorder of the process, if there is one.

use metrics::SharedString;
pub(crate) use metrics::{Counter, Histogram};

/// Describes a counter.
pub(crate) fn describe_counter(name: &'static str, text: &'static str) {
    metrics::describe_counter!(name, text);
}

/// Describes a histogram.
pub(crate) fn describe_histogram(name: &'static str, text: &'static str) {
    metrics::describe_histogram!(name, text);
}

/// Describes a gauge.
pub(crate) fn describe_gauge(name: &'static str, text: &'static str) {
    metrics::describe_gauge!(name, text);
}

/// The counter of this name and label.
pub(crate) fn counter(name: &'static str, label: &'static str, value: impl Into<SharedString>) -> Counter {
    metrics::counter!(name, label => value)
}

/// Records a measurement about a run.
pub(crate) fn record(histogram: &'static str, value: f64) {
    metrics::histogram!(histogram).record(value);
}

/// The histogram of an agent.
pub(crate) fn histogram_of(name: &'static str, agent: String) -> Histogram {
    metrics::histogram!(name, "agent" => agent)
}

/// Sets a gauge of the board.
pub(crate) fn set(gauge: &'static str, value: f64) {
    metrics::gauge!(gauge).set(value);
}

/// Sets a gauge of an agent.
pub(crate) fn set_of(gauge: &'static str, agent: &str, value: f64) {
    metrics::gauge!(gauge, "agent" => agent.to_owned()).set(value);
}
