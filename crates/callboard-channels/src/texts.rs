//! The texts of messages: the card of a question within a limit, and what came of it.

use callboard::actors::approvals::Card;
use callboard::messages::{Decision, Envelope, Terms, Timestamp, visible};

/// The most units of UTF-16 of how to see what is cut.
pub(crate) const MAX_HOW: usize = 400;
/// The part of a card that is cut which is taken from its end.
const TAIL: usize = 1_000;
/// The most characters of a reason that are shown.
const MAX_REASON: usize = 150;

/// Who decides in place of people when the time is over.
pub(crate) const EXPIRY: &str = "expiry";

/// The length of a text in units of UTF-16, which Telegram counts.
fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// The card of a question within so many units of UTF-16: all of it, or its beginning and its end with what is cut between them, and how
/// to see that, which is not counted.
pub(crate) fn card(envelope: &Envelope, how: &str, most: usize) -> String {
    shortened(Card::of(envelope).whole().trim_end(), how, most)
}

/// The same of the lines of a card.
pub(crate) fn shortened(whole: &str, how: &str, most: usize) -> String {
    if units(whole) <= most {
        return whole.to_owned();
    }
    let head = beginning(whole, most - TAIL);
    let tail = end(&whole[head.len()..], TAIL);
    let cut = whole[head.len()..whole.len() - tail.len()].chars().count();
    // The end begins in the middle of a line, which could pass for a line of its own.
    format!("{head}\n  … {cut} more characters; all of it: {}\n  │ …{tail}", beginning(how, MAX_HOW))
}

/// The beginning of a text, of so many units at most.
fn beginning(text: &str, most: usize) -> &str {
    &text[..fitting(text.chars(), most)]
}

/// The end of a text, of so many units at most.
fn end(text: &str, most: usize) -> &str {
    &text[text.len() - fitting(text.chars().rev(), most)..]
}

/// The bytes of those characters that fit.
fn fitting(chars: impl Iterator<Item = char>, most: usize) -> usize {
    let mut left = most;
    let fits = |c: &char| {
        let rest = left.checked_sub(c.len_utf16());
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    chars.take_while(fits).map(char::len_utf8).sum()
}

/// What is shown of a question about which nobody asks any more, as far as is known here.
pub(crate) const GIVEN_UP: &str = "no longer open here: it was withdrawn, or another process has it";

/// What was decided: by whom, when, and where: on this service, if it was decided there.
pub(crate) fn outcome(decision: Option<&Decision>, here: Option<&str>) -> String {
    let Some(decision) = decision else { return "withdrawn: no decision is needed here any more".to_owned() };
    let at = minute(decision.at);
    if &*decision.by == EXPIRY {
        return format!("expired at {at}: denied, because nobody decided in time");
    }
    let verdict = match (&decision.terms, decision.approved) {
        (Terms::Run { until }, true) => format!("approved for this run until {}", minute(*until)),
        (Terms::Edited { .. }, _) => "replaced with other arguments".to_owned(),
        (Terms::Once, true) => "approved".to_owned(),
        (Terms::Once | Terms::Run { .. }, false) => "denied".to_owned(),
    };
    let place = match (here, &*decision.via) {
        (Some(service), _) => format!("on {service}"),
        (None, "") => "elsewhere".to_owned(),
        (None, via) => format!("elsewhere ({})", visible(via)),
    };
    let mut reason = visible(&decision.reason);
    if reason.chars().count() > MAX_REASON {
        reason = format!("{}…", reason.chars().take(MAX_REASON).collect::<String>());
    }
    let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
    format!("{verdict} by {} at {at}, {place}{reason}", visible(&decision.by))
}

/// A time as people read it.
pub(crate) fn minute(at: Timestamp) -> String {
    let at = at.to_string();
    match at.split_once('T') {
        Some((date, time)) => format!("{date} {} UTC", time.get(..5).unwrap_or(time)),
        None => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_says_who_when_and_where() {
        let at = Timestamp::from_millis(1_767_225_660_000);
        let mut decision = Decision {
            approved: false,
            by: "ann".into(),
            reason: "no\n".into(),
            at,
            terms: Terms::Once,
            votes: Vec::new(),
            via: "".into(),
        };
        assert_eq!(
            outcome(Some(&decision), Some("Telegram")),
            "denied by ann at 2026-01-01 00:01 UTC, on Telegram: no\\u{a}"
        );
        decision = Decision { approved: true, reason: "".into(), ..decision };
        assert_eq!(outcome(Some(&decision), None), "approved by ann at 2026-01-01 00:01 UTC, elsewhere");
        decision.via = "dashboard".into();
        assert!(outcome(Some(&decision), None).ends_with(", elsewhere (dashboard)"));
        decision.by = "expiry".into();
        assert_eq!(
            outcome(Some(&decision), None),
            "expired at 2026-01-01 00:01 UTC: denied, because nobody decided in time"
        );
    }
}
