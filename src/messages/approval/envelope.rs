//! The exact question behind an approval: its canonical bytes, which name it, and how it is stored.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Action, ActionKind, ApprovalId, Deciders, HANDOFF_ORDINAL, Rationale, Vote};
use crate::messages::{AgentName, Json, RequestId, RunId, Timestamp, TurnId};

/// One question to a human, bound to the exact bytes that will be executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// Which fields the canonical bytes have: [`Envelope::VERSION`] for new questions, 0 for those that were asked before there
    /// were versions. A stored question keeps its version, and so its id.
    pub version: u16,
    /// What kind of action it is, as the runtime knows it.
    pub kind: ActionKind,
    /// Who asks for what: run, turn and which of its requests.
    pub request: RequestId,
    /// The agent whose turn asks.
    pub agent: AgentName,
    /// The action to approve or deny, with the full arguments that will be executed.
    pub action: Action,
    /// The policy that asked for a decision: [`Envelope::ASK`], or [`Envelope::EACH_TIME`].
    pub policy: Arc<str>,
    /// Makes two otherwise equal questions different.
    pub nonce: u64,
    /// When the question is denied if nobody has decided it by then; a time of the wall clock.
    pub expires_at: Timestamp,
    /// When people are reminded that it is still open; `None` if they are not.
    pub remind_at: Option<Timestamp>,
    /// Who decides. Questions of versions 0 and 1 have [`Deciders::default`].
    pub deciders: Deciders,
    /// Who asked for the run from outside of the board ([`Task::from_agent`](crate::messages::Task::from_agent)); of a run that a turn has
    /// submitted, who asked for the first one.
    pub requester: Option<Arc<str>>,
    /// From when on the group of the escalation may decide as well; `None` without one.
    pub escalates_at: Option<Timestamp>,
    /// The person who has changed what an earlier question asked for to this, which is their approval.
    pub edited_by: Option<Vote>,
    /// Why people are asked. Questions of versions before 3 have [`Rationale::default`].
    pub rationale: Rationale,
}

impl Envelope {
    /// The version of new questions. A stored question with a higher version cannot be read.
    pub const VERSION: u16 = 3;
    /// The policy of a question that may be decided for a whole run.
    pub const ASK: &str = "ask";
    /// The policy of a question that is asked each time, whatever was decided before.
    pub const EACH_TIME: &str = "ask each time";

    /// The canonical bytes: what is shown, hashed, stored and executed.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let mut fields = json!({
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
        });
        if self.version > 0 {
            fields["version"] = self.version.into();
            fields["kind"] = json!(self.kind);
            fields["remind_at"] = json!(self.remind_at);
        }
        if self.version > 1 {
            fields["deciders"] = json!(self.deciders);
            fields["requester"] = json!(self.requester);
            fields["escalates_at"] = json!(self.escalates_at);
            fields["edited_by"] = json!(self.edited_by);
        }
        if self.version > 2 {
            fields["rationale"] = json!(self.rationale);
        }
        Json::from(fields).canonical()
    }

    /// Whether it is the question about a handoff.
    pub(crate) fn is_handoff(&self) -> bool {
        self.kind == ActionKind::Handoff
    }

    /// The hash of the canonical bytes, which names the approval.
    #[must_use]
    pub fn id(&self) -> ApprovalId {
        ApprovalId(Sha256::digest(self.canonical()).into())
    }
}

/// The form for people and other programs, such as JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Envelope")]
struct Shown {
    #[serde(default)]
    version: u16,
    #[serde(default)]
    kind: Option<ActionKind>,
    request: RequestId,
    agent: AgentName,
    action: Action,
    policy: Arc<str>,
    nonce: u64,
    expires_at: Timestamp,
    #[serde(default)]
    remind_at: Option<Timestamp>,
    #[serde(default)]
    deciders: Deciders,
    #[serde(default)]
    requester: Option<Arc<str>>,
    #[serde(default)]
    escalates_at: Option<Timestamp>,
    #[serde(default)]
    edited_by: Option<Vote>,
    #[serde(default)]
    rationale: Rationale,
}

/// The stored fields after the version. From version 2 on, [`Later`] follows, and from version 3 on also the [`Rationale`].
#[derive(Serialize, Deserialize)]
struct Stored {
    kind: ActionKind,
    request: RequestId,
    agent: AgentName,
    action: Action,
    policy: Arc<str>,
    nonce: u64,
    expires_at: Timestamp,
    remind_at: Option<Timestamp>,
}

/// The fields that came with version 2.
#[derive(Default, Serialize, Deserialize)]
struct Later {
    deciders: Deciders,
    requester: Option<Arc<str>>,
    escalates_at: Option<Timestamp>,
    edited_by: Option<Vote>,
}

/// A question as it was stored before there were versions.
#[derive(Serialize)]
struct Unversioned<'a> {
    request: RequestId,
    agent: &'a AgentName,
    action: &'a Action,
    policy: &'a str,
    nonce: u64,
    expires_at: Timestamp,
}

/// The fields after the first number of an [`Unversioned`], which is the length of the run's id.
#[derive(Deserialize)]
struct UnversionedRest {
    run: [u8; ID_LENGTH],
    turn: u32,
    ordinal: u32,
    agent: AgentName,
    action: Action,
    policy: Arc<str>,
    nonce: u64,
    expires_at: Timestamp,
}

/// The length of a run's id in bytes. It is never used as a version.
const ID_LENGTH: usize = 16;

/// Before there were versions, a handoff was identified only by its ordinal.
fn kind_by_place(request: RequestId) -> ActionKind {
    if request.ordinal == HANDOFF_ORDINAL { ActionKind::Handoff } else { ActionKind::Requested }
}

impl Envelope {
    fn of(version: u16, stored: Stored, later: Later, rationale: Rationale) -> Self {
        let Stored { kind, request, agent, action, policy, nonce, expires_at, remind_at } = stored;
        let Later { deciders, requester, escalates_at, edited_by } = later;
        Self {
            version,
            kind,
            request,
            agent,
            action,
            policy,
            nonce,
            expires_at,
            remind_at,
            deciders,
            requester,
            escalates_at,
            edited_by,
            rationale,
        }
    }
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { version, kind, request, agent, action, policy, nonce, expires_at, remind_at, .. } = self.clone();
        let Self { deciders, requester, escalates_at, edited_by, rationale, .. } = self.clone();
        if serializer.is_human_readable() {
            let shown = Shown {
                version,
                kind: Some(kind),
                request,
                agent,
                action,
                policy,
                nonce,
                expires_at,
                remind_at,
                deciders,
                requester,
                escalates_at,
                edited_by,
                rationale,
            };
            return shown.serialize(serializer);
        }
        if version == 0 {
            return Unversioned { request, agent: &agent, action: &action, policy: &policy, nonce, expires_at }
                .serialize(serializer);
        }
        let mut stored = serializer.serialize_tuple(4)?;
        stored.serialize_element(&u64::from(version))?;
        stored.serialize_element(&Stored { kind, request, agent, action, policy, nonce, expires_at, remind_at })?;
        if version > 1 {
            stored.serialize_element(&Later { deciders, requester, escalates_at, edited_by })?;
        }
        if version > 2 {
            stored.serialize_element(&rationale)?;
        }
        stored.end()
    }
}

impl<'de> Deserialize<'de> for Envelope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return deserializer.deserialize_tuple(4, StoredVisitor);
        }
        let shown = Shown::deserialize(deserializer)?;
        let Shown { version, kind, request, agent, action, policy, nonce, expires_at, remind_at, .. } = shown;
        let Shown { deciders, requester, escalates_at, edited_by, rationale, .. } = shown;
        let later = Later { deciders, requester, escalates_at, edited_by };
        let kind = kind.unwrap_or_else(|| kind_by_place(request));
        let stored = Stored { kind, request, agent, action, policy, nonce, expires_at, remind_at };
        Ok(Self::of(version, stored, later, rationale))
    }
}

/// Reads all stored forms, distinguished by their first number.
struct StoredVisitor;

impl<'de> Visitor<'de> for StoredVisitor {
    type Value = Envelope;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stored question about an action")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Envelope, A::Error> {
        let ends = || de::Error::custom("the question about an action ends early");
        let first: u64 = fields.next_element()?.ok_or_else(ends)?;
        if first == ID_LENGTH as u64 {
            let UnversionedRest { run, turn, ordinal, agent, action, policy, nonce, expires_at } =
                fields.next_element()?.ok_or_else(ends)?;
            let turn = TurnId { run: RunId(Uuid::from_bytes(run)), number: turn };
            let request = RequestId { turn, ordinal };
            let (kind, remind_at) = (kind_by_place(request), None);
            let stored = Stored { kind, request, agent, action, policy, nonce, expires_at, remind_at };
            return Ok(Envelope::of(0, stored, Later::default(), Rationale::default()));
        }
        let version = u16::try_from(first).ok().filter(|version| (1..=Envelope::VERSION).contains(version));
        let version =
            version.ok_or_else(|| de::Error::custom(format!("questions of version {first} are not known")))?;
        let stored = fields.next_element()?.ok_or_else(ends)?;
        let later = if version > 1 { fields.next_element()?.ok_or_else(ends)? } else { Later::default() };
        let rationale = if version > 2 { fields.next_element()?.ok_or_else(ends)? } else { Rationale::default() };
        Ok(Envelope::of(version, stored, later, rationale))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::messages::{Effect, Escalation};

    fn envelope() -> Envelope {
        Envelope {
            version: Envelope::VERSION,
            kind: ActionKind::Requested,
            request: RequestId { turn: TurnId { run: RunId(Uuid::nil()), number: 1 }, ordinal: 0 },
            agent: AgentName::new("writer").unwrap(),
            action: Action::new("write_file", "REVIEW.md", json!({ "text": "a" })),
            policy: "ask".into(),
            nonce: 7,
            expires_at: Timestamp::from_millis(1),
            remind_at: None,
            deciders: Deciders::default(),
            requester: None,
            escalates_at: None,
            edited_by: None,
            rationale: Rationale::default(),
        }
    }

    #[test]
    fn an_approval_is_bound_to_every_field() {
        let changes: [fn(&mut Envelope); 23] = [
            |e| e.version = 0,
            |e| e.kind = ActionKind::Handoff,
            |e| e.request.turn.run = RunId(Uuid::max()),
            |e| e.request.turn.number = 2,
            |e| e.request.ordinal = 1,
            |e| e.agent = AgentName::new("reader").unwrap(),
            |e| e.action = Action::new("write_file", "OTHER.md", json!({ "text": "a" })),
            |e| e.action = Action::new("write_file", "REVIEW.md", json!({ "text": "b" })),
            |e| e.policy = "always".into(),
            |e| e.nonce = 8,
            |e| e.expires_at = Timestamp::from_millis(2),
            |e| e.remind_at = Some(Timestamp::from_millis(1)),
            |e| e.deciders.group = Some("ops".into()),
            |e| e.deciders.at_least = 2,
            |e| e.deciders.excludes_requester = true,
            |e| e.deciders.escalation = Some(Escalation { after: Duration::from_secs(1), group: "leads".into() }),
            |e| e.requester = Some("ann".into()),
            |e| e.escalates_at = Some(Timestamp::from_millis(1)),
            |e| e.edited_by = Some(Vote { by: "ann".into(), at: Timestamp::from_millis(1), until: None }),
            |e| e.rationale.reason = Some("the tests need it".into()),
            |e| e.rationale.effect = Some(Effect::Writes),
            |e| e.rationale.tier = Some("dynamic".into()),
            |e| e.rationale.rule = Some("each write".into()),
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
        assert_eq!(
            ApprovalId::try_from("0123".to_owned()).unwrap_err(),
            "an approval id has 64 hexadecimal digits, not \"0123\""
        );
        assert_eq!(envelope().action.to_string(), "write_file REVIEW.md");
    }

    #[test]
    fn the_canonical_bytes_have_version_and_kind_and_those_of_older_questions_stay() {
        let text = |envelope: &Envelope| String::from_utf8(envelope.canonical()).unwrap();
        let older = Envelope { version: 0, ..envelope() };
        assert_eq!(
            text(&older),
            r#"{"action":"write_file","agent":"writer","arguments":{"text":"a"},"expires_at":1,"nonce":"7","ordinal":0,"policy":"ask","run":"00000000-0000-0000-0000-000000000000","target":"REVIEW.md","turn":1}"#
        );
        let newer = text(&Envelope { version: 1, ..envelope() });
        assert_eq!(
            newer,
            r#"{"action":"write_file","agent":"writer","arguments":{"text":"a"},"expires_at":1,"kind":"requested","nonce":"7","ordinal":0,"policy":"ask","remind_at":null,"run":"00000000-0000-0000-0000-000000000000","target":"REVIEW.md","turn":1,"version":1}"#
        );
        let newer = text(&Envelope { version: 2, ..envelope() });
        assert!(newer.contains(r#""deciders":{"at_least":1,"#) && newer.contains(r#""version":2"#), "{newer}");
        assert!(!newer.contains("rationale"), "{newer}");
        let newest = text(&envelope());
        let rationale = r#""rationale":{"effect":null,"reason":null,"rule":null,"tier":null}"#;
        assert!(newest.contains(rationale) && newest.contains(r#""version":3"#), "{newest}");
    }

    #[test]
    fn json_keeps_all_of_it() {
        for version in [0, 1, 2, Envelope::VERSION] {
            let envelope = Envelope { version, ..envelope() };
            let json = serde_json::to_value(&envelope).unwrap();
            assert_eq!(serde_json::from_value::<Envelope>(json).unwrap(), envelope);
        }
    }
}
