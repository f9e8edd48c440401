//! A recorder of the `metrics` facade. Installed for one thread, it sees what the boards on that thread count.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use parking_lot::Mutex;

/// Keeps what was counted, by name and labels: `callboard_turns_total{agent=lead}`.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<BTreeMap<String, Arc<Meter>>>>);

/// A counter holds its sum, a gauge its last value, a histogram everything that was recorded.
#[derive(Default)]
struct Meter(Mutex<Vec<f64>>);

impl Recorder {
    /// The value of a counter or gauge; `None` if it was never reported.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.values(name).last().copied()
    }

    /// What a histogram has recorded, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        self.0.lock().get(name).map(|meter| meter.0.lock().clone()).unwrap_or_default()
    }

    /// Everything of one name that is not empty, with its labels.
    pub(crate) fn all(&self, name: &str) -> Vec<(String, f64)> {
        let meters = self.0.lock();
        let named = meters.iter().filter_map(|(key, meter)| {
            let labels = key.strip_prefix(name)?.strip_prefix('{')?.strip_suffix('}')?;
            Some((labels.to_owned(), *meter.0.lock().last()?))
        });
        named.collect()
    }

    fn meter(&self, key: &Key) -> Arc<Meter> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        Arc::clone(self.0.lock().entry(format!("{}{labels}", key.name())).or_default())
    }
}

impl Meter {
    fn replace(&self, change: impl FnOnce(f64) -> f64) {
        let mut values = self.0.lock();
        let changed = change(values.pop().unwrap_or_default());
        values.push(changed);
    }
}

impl CounterFn for Meter {
    fn increment(&self, value: u64) {
        self.replace(|sum| sum + value as f64);
    }

    fn absolute(&self, value: u64) {
        self.replace(|sum| sum.max(value as f64));
    }
}

impl GaugeFn for Meter {
    fn increment(&self, value: f64) {
        self.replace(|last| last + value);
    }

    fn decrement(&self, value: f64) {
        self.replace(|last| last - value);
    }

    fn set(&self, value: f64) {
        self.replace(|_| value);
    }
}

impl HistogramFn for Meter {
    fn record(&self, value: f64) {
        self.0.lock().push(value);
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.meter(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.meter(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.meter(key))
    }
}
