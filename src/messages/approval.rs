use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::visible::visible;
use super::{AgentName, Json, RequestId, Timestamp};

/// What an approval policy is asked about (SEMANTICS 9). The runtime sets it; a name that an agent or a tool chose says nothing
/// about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionKind {
    /// Control passes to another agent.
    Handoff,
    /// An agent gives another one a task.
    Delegation,
    /// A turn asks before it does something: [`Turn::approve`](crate::Turn::approve), and tools that need consent.
    Requested,
}

/// The place of a turn's handoff among its requests: after all of them, so that no request has it.
pub(crate) const HANDOFF_ORDINAL: u32 = u32::MAX;

/// Something that an agent wants to do and that may need a human's consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// What kind of thing, such as `handoff` or `write_file`.
    pub action: Arc<str>,
    /// What it is done to, such as an agent or a path.
    pub target: Arc<str>,
    /// The full arguments: what will be executed.
    pub arguments: Json,
}

impl Action {
    /// The same with other arguments. A target that one of the arguments names is what that argument says now; `None` if it
    /// cannot be said which of them does.
    #[must_use]
    pub fn edited(&self, arguments: Json) -> Option<Self> {
        let names_target = |value: &serde_json::Value| !self.target.is_empty() && value.as_str() == Some(&*self.target);
        let before = self.arguments.value().as_object().into_iter().flatten();
        let mut naming = before.filter(|(_, value)| names_target(value)).map(|(key, _)| key);
        let target = match (naming.next(), naming.next()) {
            (None, _) => Arc::clone(&self.target),
            (Some(key), None) => arguments.get(key)?.as_str()?.into(),
            (Some(_), Some(_)) => return None,
        };
        Some(Self { target, arguments, ..self.clone() })
    }

    /// An action.
    #[must_use]
    pub fn new(action: &str, target: &str, arguments: impl Into<Json>) -> Self {
        Self { action: action.into(), target: target.into(), arguments: arguments.into() }
    }
}

/// `write_file REVIEW.md`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", visible(&self.action), visible(&self.target))
    }
}

/// What a policy says about an action before anybody is asked (SEMANTICS 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consent {
    /// It may go ahead.
    #[default]
    Auto,
    /// A human decides.
    Ask,
    /// It may not.
    Deny,
}

/// The policy of a question that may be decided for a whole run.
pub const ASK: &str = "ask";

/// The policy of a question that is asked each time, whatever was decided before.
pub const EACH_TIME: &str = "ask each time";

/// One question to a human, bound to the exact bytes that will be executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Who asks for what: run, turn and which of its requests.
    pub request: RequestId,
    /// The asking agent.
    pub agent: AgentName,
    /// What it wants to do.
    pub action: Action,
    /// The policy that asked for a decision: [`ASK`], or [`EACH_TIME`].
    pub policy: Arc<str>,
    /// Makes two otherwise equal questions different.
    pub nonce: u64,
    /// When silence becomes a denial.
    pub expires_at: Timestamp,
}

impl Envelope {
    /// The canonical bytes: what is shown, hashed, stored and executed.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        Json::from(json!({
            "run": self.request.turn.run.to_string(),
            "turn": self.request.turn.number,
            "ordinal": self.request.ordinal,
            "agent": self.agent,
            "action": self.action.action,
            "target": self.action.target,
            "arguments": self.action.arguments,
            "policy": self.policy,
            "nonce": self.nonce.to_string(),
            "expires_at": self.expires_at,
        }))
        .canonical()
    }

    /// Whether it asks where control goes. Its place says so, which the runtime gives; its action may be called anything.
    pub(crate) fn is_handoff(&self) -> bool {
        self.request.ordinal == HANDOFF_ORDINAL
    }

    /// The hash of the canonical bytes, which names the approval.
    #[must_use]
    pub fn id(&self) -> ApprovalId {
        ApprovalId(Sha256::digest(self.canonical()).into())
    }
}

/// SHA-256 of an [`Envelope`]'s canonical bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ApprovalId(pub [u8; 32]);

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ApprovalId> for String {
    fn from(id: ApprovalId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ApprovalId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.as_bytes();
        let refuse = || format!("an approval id has 64 hexadecimal digits, not {text:?}");
        if digits.len() != 64 {
            return Err(refuse());
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| refuse())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| refuse())?;
        }
        Ok(Self(id))
    }
}

/// What somebody decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Yes or no.
    pub approved: bool,
    /// Who decided, as the channel authenticated them; `expiry` or `policy` when nobody did.
    pub by: Arc<str>,
    /// Why, if a reason was given.
    pub reason: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// What exactly is approved.
    pub terms: Terms,
}

/// What a decision approves, beside the question as it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Terms {
    /// Nothing else.
    #[default]
    Once,
    /// The same agent may do the same with the same arguments again in this run, until then.
    Run {
        /// When that ends.
        until: Timestamp,
    },
    /// Not that, but the same with these arguments: a question of its own, answered at once (SEMANTICS 9).
    Edited {
        /// What is done instead.
        arguments: Json,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{RunId, TurnId};

    fn envelope() -> Envelope {
        Envelope {
            request: RequestId { turn: TurnId { run: RunId(uuid::Uuid::nil()), number: 1 }, ordinal: 0 },
            agent: AgentName::new("writer").unwrap(),
            action: Action::new("write_file", "REVIEW.md", json!({ "text": "a" })),
            policy: "ask".into(),
            nonce: 7,
            expires_at: Timestamp::from_millis(1),
        }
    }

    #[test]
    fn a_target_is_what_the_argument_says_that_names_it() {
        let action = Action::new("write", "a.md", json!({ "path": "a.md", "text": "x" }));
        let edited = |action: &Action, now| action.edited(Json::from(now)).map(|action| action.target.to_string());
        assert_eq!(edited(&action, json!({ "path": "b.md" })).as_deref(), Some("b.md"));
        assert_eq!(edited(&action, json!({ "text": "y" })), None, "it is gone");
        assert_eq!(edited(&action, json!({ "path": 7 })), None);
        let by_none = Action::new("write", "a.md", json!({ "name": "a" }));
        assert_eq!(edited(&by_none, json!({ "name": "b" })).as_deref(), Some("a.md"));
        let by_two = Action::new("copy", "a.md", json!({ "from": "a.md", "to": "a.md" }));
        assert_eq!(edited(&by_two, json!({ "from": "a.md", "to": "b.md" })), None);
        let without = Action::new("wait", "", json!({ "why": "" }));
        assert_eq!(edited(&without, json!({ "why": "rm" })).as_deref(), Some(""));
    }

    #[test]
    fn an_approval_is_bound_to_every_field() {
        let changes: [fn(&mut Envelope); 9] = [
            |e| e.request.turn.run = RunId(uuid::Uuid::max()),
            |e| e.request.turn.number = 2,
            |e| e.request.ordinal = 1,
            |e| e.agent = AgentName::new("reader").unwrap(),
            |e| e.action = Action::new("write_file", "OTHER.md", json!({ "text": "a" })),
            |e| e.action = Action::new("write_file", "REVIEW.md", json!({ "text": "b" })),
            |e| e.policy = "always".into(),
            |e| e.nonce = 8,
            |e| e.expires_at = Timestamp::from_millis(2),
        ];
        let ids: std::collections::BTreeSet<ApprovalId> = changes
            .iter()
            .map(|change| {
                let mut changed = envelope();
                change(&mut changed);
                changed.id()
            })
            .chain([envelope().id()])
            .collect();
        assert_eq!(ids.len(), changes.len() + 1);
        let id = envelope().id();
        assert_eq!(ApprovalId::try_from(id.to_string()), Ok(id));
        assert_eq!(format!("{id:?}"), id.to_string());
        let stored = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<ApprovalId>(&stored).unwrap(), id);
        assert!(ApprovalId::try_from("0123".to_owned()).is_err());
        assert_eq!(envelope().action.to_string(), "write_file REVIEW.md");
    }
}
