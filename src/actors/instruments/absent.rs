//! Instruments in a build without the `metrics` facade: they measure nothing.

use std::time::Duration;

/// Counts nothing.
pub(crate) struct Counter;

impl Counter {
    pub(crate) fn increment(&self, _by: u64) {}
}

/// Records nothing.
pub(crate) struct Histogram;

impl Histogram {
    pub(crate) fn record(&self, _time: Duration) {}
}

pub(crate) fn describe_counter(_name: &'static str, _text: &'static str) {}

pub(crate) fn describe_histogram(_name: &'static str, _text: &'static str) {}

pub(crate) fn describe_gauge(_name: &'static str, _text: &'static str) {}

pub(crate) fn counter<V>(_name: &'static str, _label: &'static str, _value: V) -> Counter {
    Counter
}

pub(crate) fn record(_histogram: &'static str, _value: f64) {}

pub(crate) fn histogram_of(_name: &'static str, _agent: String) -> Histogram {
    Histogram
}

pub(crate) fn set(_gauge: &'static str, _value: f64) {}

pub(crate) fn set_of(_gauge: &'static str, _agent: &str, _value: f64) {}
