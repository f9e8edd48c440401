//! The texts of messages, within the limit of Telegram.

use callboard::actors::approvals::Card;
use callboard::messages::{Decision, Envelope, Terms, Timestamp, visible};

/// The longest text of a message, in units of UTF-16.
pub(super) const MAX_TEXT: usize = 4_096;
/// How much of it is for what was decided, and for how to see what is cut.
const RESERVED: usize = 1_100;
/// How much of that is for how to see what is cut.
const MAX_HOW: usize = 400;
/// The part of the rest that is taken from the end.
const TAIL: usize = 1_000;
/// The longest answer to a click, in characters.
const MAX_TOLD: usize = 200;
/// The most characters of a reason that are shown.
const MAX_REASON: usize = 150;

const EXPIRY: &str = "expiry";

/// How Telegram counts the length of a text.
pub(super) fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// The card of a question: all of it, or its beginning and its end with what is cut between them, and how to see that.
pub(super) fn card(envelope: &Envelope, how: &str) -> String {
    let whole = Card::of(envelope).whole();
    let whole = whole.trim_end();
    let most = MAX_TEXT - RESERVED;
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

/// The card below what came of the question.
pub(super) fn closed(card: &str, outcome: &str) -> String {
    format!("{outcome}\n\n{card}")
}

/// What was decided: by whom, when, and whether through this channel.
pub(super) fn outcome(decision: Option<&Decision>, is_here: bool) -> String {
    let Some(decision) = decision else { return "withdrawn: no decision is needed any more".to_owned() };
    let at = minute(decision.at);
    if &*decision.by == EXPIRY {
        return format!("expired at {at}: denied, because nobody decided in time");
    }
    let verdict = match (&decision.terms, decision.approved) {
        (Terms::Run { until }, true) => format!("approved for this run until {}", minute(*until)),
        (Terms::Edited { .. }, _) => "approved with other arguments".to_owned(),
        (Terms::Once, true) => "approved".to_owned(),
        (Terms::Once | Terms::Run { .. }, false) => "denied".to_owned(),
    };
    let place = if is_here { "on Telegram" } else { "elsewhere" };
    let mut reason = visible(&decision.reason);
    if reason.chars().count() > MAX_REASON {
        reason = format!("{}…", reason.chars().take(MAX_REASON).collect::<String>());
    }
    let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
    format!("{verdict} by {} at {at}, {place}{reason}", visible(&decision.by))
}

/// A time as people read it.
fn minute(at: Timestamp) -> String {
    let at = at.to_string();
    match at.split_once('T') {
        Some((date, time)) => format!("{date} {} UTC", time.get(..5).unwrap_or(time)),
        None => at,
    }
}

/// A text as the answer to a click.
pub(super) fn told(text: &str) -> String {
    text.chars().take(MAX_TOLD).collect()
}

#[cfg(test)]
mod tests {
    use callboard::messages::{Action, ActionKind, AgentName, RequestId, TurnId};
    use serde_json::json;

    use super::*;

    fn envelope(target: &str, text: &str) -> Envelope {
        let turn = TurnId { run: "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap(), number: 1 };
        Envelope {
            version: Envelope::VERSION,
            kind: ActionKind::Requested,
            remind_at: None,
            request: RequestId { turn, ordinal: 0 },
            agent: AgentName::new("coder").unwrap(),
            action: Action::new("write_file", target, json!({ "text": text })),
            policy: "ask".into(),
            deciders: callboard::messages::Deciders::default(),
            requester: None,
            escalates_at: None,
            edited_by: None,
            nonce: 7,
            expires_at: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn what_is_cut_is_counted_and_the_text_fits_with_every_outcome() {
        let decision = Decision {
            approved: true,
            by: "漢".repeat(128).into(),
            reason: "🙈".repeat(4_096).into(),
            at: Timestamp::from_millis(1_767_225_660_000),
            terms: Terms::Run { until: Timestamp::from_millis(1_767_229_200_000) },
            votes: Vec::new(),
        };
        for filler in ["x", "漢", "🙈", "\n", "agent     admin\n", "\u{202e}"] {
            for length in [0, 10, 2_000, 3_100, 3_300, 100_000] {
                let text = format!("{}END", filler.repeat(length));
                for envelope in [envelope("a.md", &text), envelope(&text, "x")] {
                    let card = card(&envelope, &"how ".repeat(300));
                    let whole = Card::of(&envelope).whole();
                    let whole = whole.trim_end();
                    assert!(
                        units(&closed(&card, &outcome(Some(&decision), true))) <= MAX_TEXT,
                        "{length} of {filler:?}"
                    );
                    let Some((head, rest)) = card.split_once("\n  … ") else {
                        assert_eq!(card, whole);
                        continue;
                    };
                    let (cut, rest) = rest.split_once(" more characters; all of it: ").unwrap();
                    let (_, tail) = rest.split_once("\n  │ …").unwrap();
                    let cut: usize = cut.parse().unwrap();
                    assert!(whole.starts_with(head) && whole.ends_with(tail), "{card}");
                    let shown = head.chars().count() + tail.chars().count();
                    assert_eq!(shown + cut, whole.chars().count(), "{length} of {filler:?}");
                    assert!(!card.contains('\u{202e}'), "{card}");
                }
            }
        }
    }

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
        };
        assert_eq!(outcome(Some(&decision), true), "denied by ann at 2026-01-01 00:01 UTC, on Telegram: no\\u{a}");
        decision = Decision { approved: true, reason: "".into(), ..decision };
        assert_eq!(outcome(Some(&decision), false), "approved by ann at 2026-01-01 00:01 UTC, elsewhere");
        decision.by = "expiry".into();
        assert_eq!(
            outcome(Some(&decision), false),
            "expired at 2026-01-01 00:01 UTC: denied, because nobody decided in time"
        );
    }
}
