//! The texts of messages, within the limit of Telegram.

use callboard::messages::{Decision, Envelope};

use crate::texts;

/// The longest text of a message, in units of UTF-16.
const MAX_TEXT: usize = 4_096;
/// How much of it is for what was decided, and for how to see what is cut.
const RESERVED: usize = 1_100;
/// The longest answer to a click, in characters.
const MAX_TOLD: usize = 200;

/// The card of a question, which fits with what comes of it.
pub(super) fn card(envelope: &Envelope, how: &str) -> String {
    texts::card(envelope, how, MAX_TEXT - RESERVED)
}

/// The card below what came of the question.
pub(super) fn closed(card: &str, outcome: &str) -> String {
    format!("{outcome}\n\n{card}")
}

/// What was decided: by whom, when, and whether through this channel.
pub(super) fn outcome(decision: Option<&Decision>, is_here: bool) -> String {
    texts::outcome(decision, is_here.then_some("Telegram"))
}

/// A text as the answer to a click.
pub(super) fn told(text: &str) -> String {
    text.chars().take(MAX_TOLD).collect()
}

#[cfg(test)]
mod tests {
    use callboard::actors::approvals::Card;
    use callboard::messages::{Action, ActionKind, AgentName, Rationale, RequestId, Terms, Timestamp, TurnId};
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
            rationale: Rationale::default(),
            nonce: 7,
            expires_at: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn what_is_cut_is_counted_and_the_text_fits_with_every_outcome() {
        let units = |text: &str| text.encode_utf16().count();
        let decision = Decision {
            approved: true,
            by: "漢".repeat(128).into(),
            reason: "🙈".repeat(4_096).into(),
            at: Timestamp::from_millis(1_767_225_660_000),
            terms: Terms::Run { until: Timestamp::from_millis(1_767_229_200_000) },
            votes: Vec::new(),
            via: "".into(),
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
}
