//! A few lines for the terminal.

use super::{Review, counted};
use crate::advising::proposals;
use crate::escaping::visible;
use crate::findings::{Kind, Severity};

/// The compact summary.
pub(crate) fn terminal(review: &Review<'_>) -> String {
    if review.measurements.is_empty() {
        return format!("{}: no source file was measured\n", visible(review.title));
    }
    let mut lines = vec![format!(
        "{}: score {} of 100, {} in {}, {}% of the source measured",
        visible(review.title),
        review.score().value(),
        review.counted_findings(),
        counted(review.measurements.len(), "file", "files"),
        review.measured_percent(),
    )];
    for kind in Kind::ALL {
        let counts = [Severity::High, Severity::Medium, Severity::Low].map(|severity| review.count(kind, severity));
        let [high, medium, low] = counts;
        if high + medium + low > 0 {
            lines.push(format!("  {:<26}{high:>6} high {medium:>6} medium {low:>6} low", kind.label()));
        }
    }
    if let Some(changes) = review.changes {
        let (new, fixed, unchanged) = (changes.new.len(), changes.fixed.len(), changes.unchanged.len());
        lines.push(format!("  since the last review: {new} new, {fixed} fixed, {unchanged} unchanged"));
    }
    if let Some(first) = proposals(&review.findings()).first() {
        lines.push(format!("  start here: {}", first.action));
    }
    lines.join("\n") + "\n"
}
