//! The state of a run as words and a colour.

use maud::{Markup, html};

/// The words for a state of `/v1/runs`, and the class of its colour.
pub(crate) fn words(state: &str) -> (&'static str, &'static str) {
    match state {
        "open" => ("Running", "info"),
        "waits_for_answer" => ("Waits for people", "warn"),
        "waits_for_consent" => ("Waits for consent", "warn"),
        "needs_attention" => ("Needs attention", "bad"),
        "finished" => ("Finished", "good"),
        "failed" => ("Failed", "bad"),
        "refused" => ("Refused", "bad"),
        "denied" => ("Denied", "bad"),
        "cancelled" => ("Cancelled", "dim"),
        _ => ("Unknown", "dim"),
    }
}

/// A state as a badge.
pub(crate) fn badge(state: &str) -> Markup {
    let (words, tone) = words(state);
    html! { span.kind.(tone) { (words) } }
}
