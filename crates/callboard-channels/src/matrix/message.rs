//! The contents of the messages that the channel sends.

use std::sync::Arc;

use callboard::messages::{ApprovalId, Decision, Envelope};
use serde_json::{Map, Value, json};

use super::ledger::Offered;
use crate::texts;

/// The longest text of a message, in units of UTF-16, of which each is at most three bytes: an event of Matrix has 64 KiB.
const MAX_TEXT: usize = 12_000;
/// How much of it is for what was decided, and for how to see what is cut.
const RESERVED: usize = 1_100;
/// The version of the data of a question.
const VERSION: u32 = 1;

/// The card of a question, which fits with what comes of it.
pub(super) fn card(envelope: &Envelope, how: &str) -> String {
    texts::card(envelope, how, MAX_TEXT - RESERVED)
}

/// What was decided: by whom, when, and whether through this channel.
pub(super) fn outcome(decision: Option<&Decision>, is_here: bool) -> String {
    texts::outcome(decision, is_here.then_some("Matrix"))
}

/// What a person may reply, as a message says it.
pub(super) fn how_to_decide(offered: Offered) -> &'static str {
    if offered.for_run {
        "To decide, reply to this message: \"approve\", \"approve for this run\", or \"deny\" and a reason."
    } else {
        "To decide, reply to this message: \"approve\", or \"deny\" and a reason."
    }
}

/// The contents of messages, with this type of the data.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    pub(super) event_type: Arc<str>,
}

impl Contents {
    /// The message that asks.
    pub(super) fn asks(&self, id: ApprovalId, nonce: &str, card: &str, offered: Offered) -> Value {
        let mut content = message(&format!("{card}\n\n{}", how_to_decide(offered)));
        let mut decisions = vec!["approve", "deny"];
        if offered.for_run {
            decisions.insert(1, "approve_for_run");
        }
        let data = json!({
            "version": VERSION, "approval": id.to_string(), "nonce": nonce, "status": "open", "decisions": decisions,
        });
        self.add(&mut content, data);
        content
    }

    /// The message that replaces the one that has asked.
    pub(super) fn closes(&self, id: ApprovalId, event: &str, card: &str, outcome: &str) -> Value {
        let mut new = message(&format!("{outcome}\n\n{card}"));
        self.add(
            &mut new,
            json!({ "version": VERSION, "approval": id.to_string(), "status": "closed", "outcome": outcome }),
        );
        let mut content = message(&format!("* {outcome}"));
        content["m.new_content"] = new;
        content["m.relates_to"] = json!({ "rel_type": "m.replace", "event_id": event });
        content
    }

    fn add(&self, content: &mut Value, data: Value) {
        content[&*self.event_type] = data;
    }
}

/// A reply to a message.
pub(super) fn replies(to: &str, text: &str) -> Value {
    let mut content = message(text);
    content["m.relates_to"] = json!({ "m.in_reply_to": { "event_id": to } });
    content
}

/// A reply to a message, as a program sends it, which other programs do not answer.
pub(super) fn notice(to: &str, text: &str) -> Value {
    let mut content = replies(to, text);
    content["msgtype"] = json!("m.notice");
    content
}

/// A text that notifies nobody by a name in it.
fn message(text: &str) -> Value {
    let mut content = Map::new();
    content.insert("msgtype".to_owned(), json!("m.text"));
    content.insert("body".to_owned(), json!(text));
    content.insert("m.mentions".to_owned(), json!({}));
    Value::Object(content)
}
