//! Prints one line per case, as text or as JSON.

use serde_json::{Value, json};

/// The target of a case.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// The value is at most this; the second number is a stricter aim.
    AtMost(f64, Option<f64>),
    /// Value divided by reference is at most this.
    RatioAtMost(f64, Option<f64>),
    /// Value divided by reference is at least this.
    RatioAtLeast(f64),
    /// Value divided by reference is within 1 ± this.
    Within(f64),
    /// Measured for comparison only.
    None,
}

/// The result of a case.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The reference that it is compared with, and its value in the same unit.
    pub(crate) reference: Option<(&'static str, f64)>,
    pub(crate) target: Target,
}

pub(crate) struct Report {
    as_json: bool,
    lines: Vec<Value>,
}

impl Report {
    pub(crate) fn new(as_json: bool) -> Self {
        if !as_json {
            println!(
                "{:<44} {:>10} {:<8} {:<26} {:>10} {:>7}  {:<18} met",
                "case", "value", "unit", "reference", "its value", "ratio", "target"
            );
        }
        Self { as_json, lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, line: Line) {
        let Line { name, value, unit, reference, target } = line;
        let ratio = reference.map(|(_, reference)| value / reference);
        let (text, is_met) = judge(target, value, ratio);
        let verdict = is_met.map_or("", |is_met| if is_met { "met" } else { "missed" });
        if self.as_json {
            self.lines.push(json!({
                "name": name, "value": value, "unit": unit, "reference": reference.map(|(name, _)| name),
                "reference_value": reference.map(|(_, value)| value), "ratio": ratio, "target": text, "met": is_met,
            }));
            return;
        }
        let (reference, compared) = reference.map_or(("", String::new()), |(name, value)| (name, digits(value)));
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let value = digits(value);
        println!("{name:<44} {value:>10} {unit:<8} {reference:<26} {compared:>10} {ratio:>7}  {text:<18} {verdict}");
    }

    pub(crate) fn finish(self) {
        if self.as_json {
            println!("{:#}", Value::Array(self.lines));
        }
    }
}

fn judge(target: Target, value: f64, ratio: Option<f64>) -> (String, Option<bool>) {
    let ratio = ratio.unwrap_or(f64::NAN);
    let aiming = |aim: Option<f64>| aim.map_or(String::new(), |aim| format!(", aim {aim}"));
    match target {
        Target::AtMost(most, aim) => (format!("≤ {most}{}", aiming(aim)), Some(value <= most)),
        Target::RatioAtMost(most, aim) => (format!("ratio ≤ {most}{}", aiming(aim)), Some(ratio <= most)),
        Target::RatioAtLeast(least) => (format!("ratio ≥ {least}"), Some(ratio >= least)),
        Target::Within(part) => (format!("ratio 1 ± {part}"), Some((ratio - 1.0).abs() <= part)),
        Target::None => (String::new(), None),
    }
}

/// The value with three significant digits.
fn digits(value: f64) -> String {
    match value {
        0.0..0.1 => format!("{value:.4}"),
        0.1..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
