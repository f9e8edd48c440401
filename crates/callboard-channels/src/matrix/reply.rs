//! What an event of a person says about a question. Pure.

use ruma_identifiers_validation::ID_MAX_BYTES;
use serde_json::Value;

use super::synced::{Event, MESSAGE};
use crate::deciding::Choice;

/// What was sent about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The event that it is about.
    pub(super) to: String,
    /// The data that it names the question by. Events of programs have to; a person's reply may have none.
    pub(super) nonce: Option<String>,
    /// What it decides, with the reason; `None` if that is not clear.
    pub(super) choice: Option<(Choice, String)>,
    /// Whether a program has sent it.
    pub(super) is_of_program: bool,
}

/// What an event says about another one; nothing if it is no reply. Changes of messages and states of the room are
/// none, and redacted ones have no content.
pub(super) fn reply(event: &Event, event_type: &str) -> Option<Reply> {
    if event.state_key.is_some() {
        return None;
    }
    if event.kind == MESSAGE {
        return of_person(&event.content(), event_type);
    }
    let is_answer = event.kind.strip_prefix(event_type) == Some(".answer");
    if is_answer { of_program(&event.content()) } else { None }
}

fn of_person(content: &Value, event_type: &str) -> Option<Reply> {
    let related = &content["m.relates_to"];
    // In a thread, what clients without threads show as a reply is none.
    let is_reply = related["rel_type"].is_null() || related["is_falling_back"] == Value::Bool(false);
    if content["msgtype"] != "m.text" || !is_reply || related["rel_type"] == "m.replace" {
        return None;
    }
    let to = related["m.in_reply_to"]["event_id"].as_str()?;
    let nonce = content.get(event_type).map(|data| data["nonce"].as_str().unwrap_or_default().to_owned());
    let choice = choice_of(without_quote(content["body"].as_str()?));
    Some(Reply { to: event_id(to), nonce, choice, is_of_program: false })
}

fn of_program(content: &Value) -> Option<Reply> {
    let text = |key: &str| content[key].as_str().unwrap_or_default().to_owned();
    let choice = match &*text("decision") {
        "approve" => Some((Choice::Approve, String::new())),
        "approve_for_run" => Some((Choice::ApproveForRun, String::new())),
        "deny" => Some((Choice::Deny, text("reason"))),
        _ => None,
    };
    Some(Reply { to: event_id(&text("event_id")), nonce: Some(text("nonce")), choice, is_of_program: true })
}

/// The id of an event; empty if it is too long for one.
fn event_id(text: &str) -> String {
    Some(text).filter(|id| id.len() <= ID_MAX_BYTES).unwrap_or_default().to_owned()
}

/// The text below the quotation of the message that it replies to, which older clients put in front.
fn without_quote(body: &str) -> &str {
    let mut rest = body;
    while rest.starts_with("> ") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest.trim()
}

/// What a text decides. Only a denial has more than its words.
fn choice_of(text: &str) -> Option<(Choice, String)> {
    let lower = text.to_ascii_lowercase();
    match lower.trim_end_matches('.') {
        "approve" => return Some((Choice::Approve, String::new())),
        "approve for this run" => return Some((Choice::ApproveForRun, String::new())),
        _ => {}
    }
    let rest = text.get("deny".len()..).filter(|_| lower.starts_with("deny"))?;
    let is_word = rest.is_empty() || rest.starts_with(|c: char| c.is_whitespace() || ":,.".contains(c));
    let reason = rest.trim_start_matches([':', ',', '.']).trim();
    is_word.then(|| (Choice::Deny, reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TYPE: &str = "com.example.request";

    fn event(kind: &str, content: Value) -> Event {
        Event { kind: kind.to_owned(), content: content.to_string(), ..Event::default() }
    }

    fn says(body: &str) -> Option<(Choice, String)> {
        let content =
            json!({ "msgtype": "m.text", "body": body, "m.relates_to": { "m.in_reply_to": { "event_id": "$1" } } });
        reply(&event("m.room.message", content), TYPE).unwrap().choice
    }

    #[test]
    fn a_reply_says_approve_or_deny_and_nothing_else_decides() {
        for text in ["approve", " Approve.\n", "APPROVE", "> <@bot:b> approve it?\n> deny\n\napprove"] {
            assert_eq!(says(text), Some((Choice::Approve, String::new())), "{text:?}");
        }
        assert_eq!(says("approve for this run"), Some((Choice::ApproveForRun, String::new())));
        for (text, reason) in
            [("deny", ""), ("Deny: not on a Friday", "not on a Friday"), ("deny too much", "too much")]
        {
            assert_eq!(says(text), Some((Choice::Deny, reason.to_owned())), "{text:?}");
        }
        for text in [
            "",
            "yes",
            "approve?",
            "approve it not",
            "don't approve",
            "denying",
            "> approve",
            "де\u{301}ny",
            "\u{202e}approve",
        ] {
            assert_eq!(says(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_reply_says_nothing() {
        let to = json!({ "m.in_reply_to": { "event_id": "$1" } });
        for content in [
            json!({}),
            json!({ "msgtype": "m.text", "body": "approve" }),
            json!({ "msgtype": "m.notice", "body": "approve", "m.relates_to": to }),
            json!({ "msgtype": "m.text", "body": 1, "m.relates_to": to }),
            json!({ "msgtype": "m.text", "body": "approve", "m.relates_to": { "m.in_reply_to": "$1" } }),
            json!({ "msgtype": "m.text", "body": "approve", "m.relates_to": { "rel_type": "m.replace", "event_id": "$1", "m.in_reply_to": { "event_id": "$1" } } }),
            json!({ "msgtype": "m.text", "body": "approve", "m.relates_to": { "rel_type": "m.thread", "is_falling_back": true, "event_id": "$1", "m.in_reply_to": { "event_id": "$1" } } }),
        ] {
            assert_eq!(reply(&event("m.room.message", content.clone()), TYPE), None, "{content}");
        }
        assert_eq!(
            reply(&event("m.reaction", json!({ "m.relates_to": { "event_id": "$1", "key": "👍" } })), TYPE),
            None
        );
        assert_eq!(reply(&event("com.example.requests.answer", json!({})), TYPE), None);
        let content = json!({ "msgtype": "m.text", "body": "approve", "m.relates_to": to });
        let mut message = event(MESSAGE, content);
        assert!(reply(&message, TYPE).is_some());
        message.state_key = Some("$1".to_owned());
        assert_eq!(reply(&message, TYPE), None);
    }

    #[test]
    fn a_program_names_the_message_and_its_data() {
        let content = json!({ "event_id": "$1", "nonce": "ab", "decision": "deny", "reason": "no" });
        let expected = Reply {
            to: "$1".to_owned(),
            nonce: Some("ab".to_owned()),
            choice: Some((Choice::Deny, "no".to_owned())),
            is_of_program: true,
        };
        assert_eq!(reply(&event("com.example.request.answer", content), TYPE), Some(expected));
        let without =
            reply(&event("com.example.request.answer", json!({ "event_id": "$1", "decision": "approve" })), TYPE);
        assert_eq!(without.unwrap().nonce, Some(String::new()));
    }
}
