//! The bodies of messages, as JSON.

use callboard::actors::approvals::Card;
use callboard::messages::{ApprovalId, Decision, Envelope, PendingId, Terms, Timestamp, visible};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::texts::{self, EXPIRY};

/// The name of the channel.
pub(super) const NAME: &str = "webhooks";

/// The longest card, in units of UTF-16, without how to see what is cut.
const MAX_CARD: usize = 12_000;
/// The longest other text, in characters.
const MAX_TEXT: usize = 256;
/// The digits of the id of a message.
const ID_DIGITS: usize = 32;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Opened,
    Reminded,
    Closed,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Opened => "approval.opened",
            Self::Reminded => "approval.reminded",
            Self::Closed => "approval.closed",
        }
    }
}

/// What all messages about a question have in `data`, as it is kept.
pub(super) fn card(envelope: &Envelope, how: &str, now: Timestamp) -> String {
    let cut = |text: &str| visible(&text.chars().take(MAX_TEXT).collect::<String>());
    let card = texts::card(envelope, how, MAX_CARD);
    let is_whole = card == Card::of(envelope).whole().trim_end();
    json!({
        "approval": PendingId::Approval(envelope.id()).to_string(),
        "run": envelope.request.turn.run.to_string(),
        "agent": cut(envelope.agent.as_str()),
        "action": cut(&envelope.action.action),
        "target": cut(&envelope.action.target),
        "card": card,
        "is_cut": !is_whole,
        "asked_at": now.to_string(),
        "remind_at": envelope.remind_at.map(|at| at.to_string()),
        "expires_at": envelope.expires_at.to_string(),
    })
    .to_string()
}

/// A decision, as it is kept.
pub(super) fn decided(decision: &Decision, is_here: bool) -> String {
    let is_expired = &*decision.by == EXPIRY;
    let state = match &decision.terms {
        _ if is_expired => "expired",
        Terms::Edited { .. } => "replaced",
        Terms::Once | Terms::Run { .. } if decision.approved => "approved",
        Terms::Once | Terms::Run { .. } => "denied",
    };
    let text = texts::outcome(Some(decision), is_here.then_some(NAME));
    json!({
        "state": state,
        "person": (!is_expired).then(|| visible(&decision.by)),
        "reason": visible(&decision.reason),
        "at": decision.at.to_string(),
        "text": text,
    })
    .to_string()
}

/// What is kept of a question that was withdrawn.
pub(super) fn withdrawn(at: Timestamp) -> String {
    json!({ "state": "withdrawn", "at": at.to_string(), "text": texts::outcome(None, None) }).to_string()
}

/// What is kept of a question about which nobody asks any more.
pub(super) fn given_up() -> String {
    json!({ "state": "unknown", "text": texts::GIVEN_UP }).to_string()
}

/// The words of an outcome that is kept.
pub(super) fn words(outcome: &str) -> String {
    fields(outcome).get("text").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The body of a message. It is the same whenever it is made again.
pub(super) fn body(kind: Kind, card: &str, more: (&'static str, Value)) -> String {
    let mut data = fields(card);
    let timestamp = match kind {
        Kind::Opened => data.get("asked_at").cloned(),
        Kind::Reminded => data.get("remind_at").cloned(),
        Kind::Closed => more.1.get("at").cloned(),
    };
    data.insert(more.0.to_owned(), more.1);
    let mut body = json!({ "type": kind.name(), "data": data });
    if let Some(timestamp) = timestamp {
        body["timestamp"] = timestamp;
    }
    body.to_string()
}

/// The body of a message that is about nothing.
pub(super) fn ping() -> String {
    json!({ "type": "ping", "data": {} }).to_string()
}

/// The fields of an object that is kept.
pub(super) fn fields(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
}

/// The id of a message. It follows from the nonce of the question, and does not show it.
pub(super) fn id(kind: Kind, approval: ApprovalId, nonce: &str) -> String {
    let digest = Sha256::digest(format!("{approval}.{nonce}.{}", kind.name()));
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("msg_{}", &digits[..ID_DIGITS])
}
