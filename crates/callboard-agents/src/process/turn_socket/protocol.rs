//! The lines on the socket of a turn. Pure: only the format, not the effects.

use callboard::actors::{DelegationError, Turn};
use callboard::messages::{AgentName, Json, Refusal, RequestId, RunId};
use serde::{Deserialize, Serialize};

use super::super::protocol::{BadLine, Id, object};

/// The protocol version of the socket.
pub(super) const VERSION: u64 = 1;

/// A line from a program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    /// Asks whose socket this is.
    Hello { id: Id, protocol: u64 },
    /// Gives a task to another agent.
    Delegate {
        id: Id,
        to: String,
        body: String,
        #[serde(default, deserialize_with = "super::super::protocol::present")]
        input: Option<Json>,
        tokens: Option<u64>,
        deadline_seconds: Option<u64>,
        reference: Option<String>,
        /// The turn waits for the answer, which `wait` reads.
        #[serde(default)]
        wait: bool,
    },
    /// Reads where a delegation stands.
    Status { id: Id, request: String },
    /// As `status`; the turn waits for the delegation meanwhile.
    Wait { id: Id, request: String },
}

/// A line to a program.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Answer {
    Turn {
        id: Id,
        protocol: u64,
        run: RunId,
        turn: u32,
        agent: AgentName,
    },
    Delegated {
        id: Id,
        request: String,
    },
    Status {
        id: Id,
        request: String,
        status: Stage,
        detail: String,
        body: Json,
    },
    Failed {
        id: Option<Id>,
        kind: Kind,
        error: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        refusal: Option<Refusal>,
    },
}

/// The status of a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Ack,
    Complete,
    Fail,
}

/// Why a request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// The line is none of this protocol.
    Unfit,
    /// No turn is open.
    Closed,
    /// The guard, a policy or a person refused it.
    Refused,
    /// The turn has no such delegation, or cannot delegate.
    Turn,
}

impl Request {
    pub(super) fn id(&self) -> Id {
        match self {
            Self::Hello { id, .. } | Self::Delegate { id, .. } | Self::Status { id, .. } | Self::Wait { id, .. } => *id,
        }
    }
}

/// The meaning of a line; an error is its answer.
pub(super) fn read(line: &[u8]) -> Result<Request, Answer> {
    let unfit = |id, bad: &BadLine| Answer::failed(id, Kind::Unfit, bad.to_string());
    let fields = object(line).map_err(|bad| unfit(None, &bad))?;
    let id = fields.get("id").and_then(serde_json::Value::as_u64);
    Request::deserialize(serde_json::Value::Object(fields)).map_err(|error| unfit(id, &BadLine::new(line, error)))
}

/// The id of a delegation of this turn, from its text.
pub(super) fn request_of(turn: &Turn, text: &str) -> Option<RequestId> {
    let ordinal = text.strip_prefix(&turn.id().to_string())?.strip_prefix('.')?;
    let request = RequestId { turn: turn.id(), ordinal: ordinal.parse().ok()? };
    (request.to_string() == text).then_some(request)
}

impl Answer {
    pub(super) fn failed(id: Option<Id>, kind: Kind, error: impl Into<String>) -> Self {
        Self::Failed { id, kind, error: error.into(), refusal: None }
    }

    /// Where a delegation stands: `None` while it is open.
    pub(super) fn standing(id: Id, request: String, answer: Option<Result<Json, DelegationError>>) -> Self {
        let (status, detail, body) = match answer {
            None => (Stage::Ack, String::new(), Json::null()),
            Some(Ok(output)) => (Stage::Complete, String::new(), output),
            Some(Err(DelegationError::NotFinished { outcome, output, .. })) => {
                (Stage::Fail, outcome.to_string(), output)
            }
            Some(Err(error)) => return Self::refused(id, error),
        };
        Self::Status { id, request, status, detail, body }
    }

    pub(super) fn refused(id: Id, error: DelegationError) -> Self {
        match error {
            DelegationError::Refused(refusal) => {
                let (kind, error) = (Kind::Refused, refusal.to_string());
                Self::Failed { id: Some(id), kind, error, refusal: Some(refusal) }
            }
            error => Self::failed(Some(id), Kind::Turn, error.to_string()),
        }
    }

    /// The line, with its line feed; at most `most` bytes of it.
    pub(super) fn line(&self, most: usize) -> Vec<u8> {
        let written = serde_json::to_vec(self).map_err(|error| error.to_string()).and_then(|line| {
            let size = line.len();
            if size < most {
                Ok(line)
            } else {
                Err(format!("the answer has {size} bytes, and at most {most} are sent"))
            }
        });
        let mut line = written.unwrap_or_else(|error| {
            let line = Self::failed(self.id(), Kind::Turn, error);
            serde_json::to_vec(&line).unwrap_or_default()
        });
        line.push(b'\n');
        line
    }

    fn id(&self) -> Option<Id> {
        match self {
            Self::Turn { id, .. } | Self::Delegated { id, .. } | Self::Status { id, .. } => Some(*id),
            Self::Failed { id, .. } => *id,
        }
    }
}
