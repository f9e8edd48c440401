//! Consent to actions: what is asked, of whom, and what was decided (SEMANTICS 9).

use std::fmt;
use std::sync::{Arc, LazyLock};

use callboard_text::visible;
use serde::{Deserialize, Serialize};

use super::{AgentName, Json, Timestamp};

mod consent;
mod deciders;
mod envelope;
mod rationale;
mod votes;

pub use consent::Consent;
pub use deciders::{Deciders, Escalation, Groups};
pub use envelope::Envelope;
pub use rationale::Rationale;
pub(crate) use votes::Barred;
pub use votes::{Vote, Votes};

/// What an approval policy is asked about (SEMANTICS 9). The runtime sets it; a name that an agent or a tool chose proves nothing
/// about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// The command of a turn passes control to other agents ([`Command::goto`](super::Command::goto)).
    Handoff,
    /// An agent gives another agent a task. People are never asked about a delegation: where a policy answers
    /// [`Consent::Ask`], it is refused.
    Delegation,
    /// A turn asks before it does something: [`TurnPeople::approve`](crate::actors::TurnPeople::approve), and tools that need consent.
    Requested,
}

/// The ordinal of a turn's handoff among its requests: after all of them, so that no request has it.
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
    /// The same with other arguments. A target that one of the arguments names follows that argument; `None` if it
    /// is ambiguous which of them does.
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

    /// The action that a parked handoff asks consent for.
    pub(crate) fn handoff(to: &AgentName, input: &Json) -> Self {
        static HANDOFF: LazyLock<Arc<str>> = LazyLock::new(|| "handoff".into());
        Self { action: Arc::clone(&HANDOFF), target: to.into(), arguments: input.clone() }
    }

    /// Creates an action from its kind, its target and its arguments.
    #[must_use]
    pub fn new(action: &str, target: &str, arguments: impl Into<Json>) -> Self {
        Self { action: action.into(), target: target.into(), arguments: arguments.into() }
    }
}

/// Writes the kind and the target, such as `write_file REVIEW.md`, with control characters and invisible ones as
/// escapes.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", visible(&self.action), visible(&self.target))
    }
}

/// The name of the decider for decisions by the policy.
pub(crate) const POLICY: &str = "policy";

/// The name of the decider for expired questions.
pub(crate) const EXPIRY: &str = "expiry";

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

/// The decision on an approval, by a person, by the policy or by expiry. Of several, the first one counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether the action may be executed, under [`Decision::terms`].
    pub approved: bool,
    /// The person who decided, as the channel authenticated them; `expiry` or `policy` otherwise. Where several people had to
    /// approve, the last of them.
    pub by: Arc<str>,
    /// Why, in at most 4,096 characters; empty if no reason was given.
    pub reason: Arc<str>,
    /// When the decision was made, by the wall clock.
    pub at: Timestamp,
    /// What an approval covers: this question only, the same action for a time, or other arguments.
    pub terms: Terms,
    /// All who had approved by then, where several people have to ([`Deciders::at_least`]); empty otherwise. It is stored beside a
    /// decision.
    #[serde(default, with = "beside")]
    pub votes: Vec<Vote>,
    /// Where it was made: the name of a channel, or what a front end has set ([`PeopleHandle::via`](crate::runtime::PeopleHandle::via));
    /// empty if that is not known, as of decisions in journals. It is stored beside a decision.
    #[serde(skip)]
    pub via: Arc<str>,
}

/// Writes what was decided, by whom, when and where, such as `denied by ann at 2026-01-08T10:00:00Z (telegram): not today`.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.terms {
            Terms::Edited { .. } if self.approved => "replaced with other arguments",
            Terms::Run { .. } if self.approved => "approved for the run",
            Terms::Once | Terms::Run { .. } | Terms::Edited { .. } if self.approved => "approved",
            Terms::Once | Terms::Run { .. } | Terms::Edited { .. } => "denied",
        };
        write!(f, "{what} by {} at {}", visible(&self.by), self.at)?;
        if !self.via.is_empty() {
            write!(f, " ({})", visible(&self.via))?;
        }
        if !self.reason.is_empty() {
            write!(f, ": {}", visible(&self.reason))?;
        }
        Ok(())
    }
}

/// Votes are a part of a decision in JSON. Decisions that are stored had none at first, so these are stored beside them.
mod beside {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Vote;

    pub(super) fn serialize<S: Serializer>(votes: &[Vote], serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { votes.serialize(serializer) } else { ().serialize(serializer) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vote>, D::Error> {
        if deserializer.is_human_readable() {
            return Vec::deserialize(deserializer);
        }
        <()>::deserialize(deserializer).map(|()| Vec::new())
    }
}

/// What a decision approves, beside the question as it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Terms {
    /// The decision covers this question only.
    #[default]
    Once,
    /// The same agent may do the same with the same arguments again in this run, until then.
    Run {
        /// The time from which people are asked again.
        until: Timestamp,
    },
    /// Not that, but the same with these arguments: a question of its own, answered at once (SEMANTICS 9).
    Edited {
        /// The arguments that are executed, in place of all those that were asked about.
        arguments: Json,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_target_is_the_value_of_the_argument_that_names_it() {
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
}
