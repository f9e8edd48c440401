//! What a run waits for a person with, and what a person responds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::wait::{request_id, turn_id};
use super::{AgentName, ApprovalId, Envelope, Json, Question, QuestionId, RequestId, RunId, Timestamp, TurnId, Update};

/// Something that a run waits for a person with. It is answered with [`PeopleHandle::answer`](crate::runtime::PeopleHandle::answer).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pending {
    /// An action that may need consent. Takes [`Response::Approve`], [`Response::ApproveForRun`], [`Response::ApproveEdited`] or
    /// [`Response::Deny`].
    Approval(Box<Envelope>),
    /// A question of a turn. Takes [`Response::Value`].
    Question(Question),
    /// A node of the run's plan that starts when a person resumes it. Takes [`Response::Resume`].
    Node(Interrupt),
    /// A turn that cannot continue by itself. Takes [`Response::Restart`]; cancelling the run ends it too.
    Attention {
        /// The turn that [`Response::Restart`] starts again.
        turn: TurnId,
        /// The node of the run's plan that it belongs to; `None` for a turn that agents brought about.
        node: Option<String>,
        /// Whether it takes back what its node has done.
        is_compensation: bool,
        /// What is wrong, in words: what the turn asks for has changed, its agent is not registered, or the turn was
        /// under way at too many starts of the board in a row.
        why: String,
    },
}

/// Names something that a run waits for a person with. Its text is read back: `question:RUN/TURN.REQUEST:NONCE`.
///
/// ```
/// use callboard::messages::{PendingId, TurnId};
///
/// let turn = TurnId { run: "019a0000-0000-7000-8000-000000000001".parse().unwrap(), number: 3 };
/// let id = PendingId::Node(turn);
/// assert_eq!(id.to_string(), "node:019a0000-0000-7000-8000-000000000001/3");
/// assert_eq!(id.to_string().parse(), Ok(id));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PendingId {
    /// An action that may need consent. As text: `approval:` and the hash of its envelope.
    Approval(ApprovalId),
    /// A question of a turn. As text: `question:RUN/TURN.REQUEST:NONCE`.
    Question(QuestionId),
    /// An interrupted node, named by its turn. As text: `node:RUN/TURN`.
    Node(TurnId),
    /// A turn that cannot continue by itself. As text: `attention:RUN/TURN`.
    Attention(TurnId),
}

/// What a person responds. Texts and JSON values are the answers to questions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// Consents to an action once, with exactly the arguments that were shown.
    Approve,
    /// Consents to an action, and that the same agent may do exactly the same again in its run, for this long. With other
    /// arguments it asks again.
    ApproveForRun(Duration),
    /// Denies an action and consents to the same with these arguments. That is an approval of its own, which is journaled and
    /// decided at once.
    ApproveEdited(Json),
    /// Denies an action. A handoff that is denied ends its branch with [`Outcome::Denied`](super::Outcome::Denied).
    Deny {
        /// Why, for the agent: at most (4,096) characters. May be empty.
        reason: String,
    },
    /// Answers a question. Any JSON value is an answer, null too, except to a question about an unknown outcome, which
    /// takes what [`Resolution::of_answer`](super::Resolution::of_answer) does.
    Value(Json),
    /// Starts an interrupted node, unchanged or with what the person changed.
    Resume(Resume),
    /// Has a turn that needs attention start again. What one that has changed had asked for before is forgotten; any other is
    /// answered from what it had.
    Restart,
}

/// A node of a plan that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// The turn of the node. The id that is needed to resume it is [`PendingId::Node`] with this turn.
    pub turn: TurnId,
    /// The path to the node: names from the outermost block on, as in `group/review`.
    pub node: String,
    /// The agent that takes the turn.
    pub agent: AgentName,
    /// The input of the turn, unless [`Resume::input`] replaces it.
    pub input: Json,
    /// The channels as the turn will see them, before [`Resume::update`] is applied.
    pub state: Json,
}

/// How an interrupted node continues: unchanged, or with what a person changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resume {
    /// Replaces the node's input; `None` keeps it.
    pub input: Option<Json>,
    /// Writes to channels, applied before it starts.
    pub update: Update,
}

impl Pending {
    /// Returns the id that [`PeopleHandle::answer`](crate::runtime::PeopleHandle::answer) takes.
    #[must_use]
    pub fn id(&self) -> PendingId {
        match self {
            Self::Approval(envelope) => PendingId::Approval(envelope.id()),
            Self::Question(question) => PendingId::Question(question.id),
            Self::Node(interrupt) => PendingId::Node(interrupt.turn),
            Self::Attention { turn, .. } => PendingId::Attention(*turn),
        }
    }

    /// Returns the run that waits.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.request().turn.run
    }

    /// The turn that waits.
    #[must_use]
    pub fn turn(&self) -> TurnId {
        self.request().turn
    }

    /// When the run stops waiting for it; `None` if it waits as long as it takes.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Approval(envelope) => Some(envelope.expires_at),
            Self::Question(question) => question.expires_at,
            Self::Node(_) | Self::Attention { .. } => None,
        }
    }

    /// Whether it can no longer be answered: its run continues without an answer, also if it has yet to notice.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// The order in which people see what waits: approvals by expiry, questions by age, nodes, turns that need attention.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        let (kind, at) = match self {
            Self::Approval(envelope) => (0, envelope.expires_at),
            Self::Question(question) => (1, question.asked_at),
            Self::Node(_) => (2, Timestamp::default()),
            Self::Attention { .. } => (3, Timestamp::default()),
        };
        (kind, at, self.request())
    }

    /// What asked; the turn itself has ordinal 0.
    fn request(&self) -> RequestId {
        match self {
            Self::Approval(envelope) => envelope.request,
            Self::Question(question) => question.id.request,
            Self::Node(Interrupt { turn, .. }) | Self::Attention { turn, .. } => RequestId { turn: *turn, ordinal: 0 },
        }
    }
}

impl From<Envelope> for Pending {
    fn from(envelope: Envelope) -> Self {
        Self::Approval(Box::new(envelope))
    }
}

impl From<&Pending> for PendingId {
    fn from(pending: &Pending) -> Self {
        pending.id()
    }
}

impl From<ApprovalId> for PendingId {
    fn from(id: ApprovalId) -> Self {
        Self::Approval(id)
    }
}

impl From<QuestionId> for PendingId {
    fn from(id: QuestionId) -> Self {
        Self::Question(id)
    }
}

impl From<&Interrupt> for PendingId {
    fn from(interrupt: &Interrupt) -> Self {
        Self::Node(interrupt.turn)
    }
}

impl fmt::Display for PendingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approval(id) => write!(f, "approval:{id}"),
            Self::Question(QuestionId { request, nonce }) => write!(f, "question:{request}:{nonce}"),
            Self::Node(turn) => write!(f, "node:{turn}"),
            Self::Attention(turn) => write!(f, "attention:{turn}"),
        }
    }
}

impl From<PendingId> for String {
    fn from(id: PendingId) -> Self {
        id.to_string()
    }
}

impl FromStr for PendingId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = text.split_once(':').and_then(|(kind, id)| match kind {
            "approval" => ApprovalId::try_from(id.to_owned()).ok().map(Self::Approval),
            "question" => {
                let (request, nonce) = id.split_once(':')?;
                Some(Self::Question(QuestionId { request: request_id(request)?, nonce: nonce.parse().ok()? }))
            }
            "node" => turn_id(id).map(Self::Node),
            "attention" => turn_id(id).map(Self::Attention),
            _ => None,
        });
        id.ok_or_else(|| {
            format!(
                "{text:?} names nothing that a run waits for: it is approval:ID, question:RUN/TURN.REQUEST:NONCE, node:RUN/TURN or \
                 attention:RUN/TURN"
            )
        })
    }
}

impl TryFrom<String> for PendingId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl<T: Into<Json>> From<T> for Response {
    fn from(answer: T) -> Self {
        Self::Value(answer.into())
    }
}

impl From<Resume> for Response {
    fn from(resume: Resume) -> Self {
        Self::Resume(resume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_from_its_text() {
        let turn = TurnId { run: RunId(uuid::Uuid::from_u128(7)), number: 3 };
        let request = RequestId { turn, ordinal: 2 };
        let ids = [
            PendingId::Approval(ApprovalId([0xa7; 32])),
            PendingId::Question(QuestionId { request, nonce: u64::MAX }),
            PendingId::Node(turn),
            PendingId::Attention(turn),
        ];
        for id in ids {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(serde_json::from_value::<PendingId>(serde_json::json!(id)).unwrap(), id);
        }
        let texts = ids.map(|id| id.to_string());
        let others = [
            "",
            "node",
            "node:",
            "node:x/3",
            "turn:1/3",
            "approval:a7",
            "question:x",
            texts[2].trim_start_matches('n'),
        ];
        for other in others {
            assert!(other.parse::<PendingId>().unwrap_err().contains("names nothing"), "{other}");
        }
    }
}
