use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AgentName, Json, Outcome, RequestId, Timestamp, TraceId};

/// A task that one participant gives another and waits for (SEMANTICS 11).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelegationRequest {
    /// Names the delegation; the same id again is the same delegation.
    pub request_id: RequestId,
    /// Who asks; stamped by the runtime.
    pub from_agent: AgentName,
    /// Who is to do it.
    pub to_agent: AgentName,
    /// The trace that it belongs to.
    pub trace_id: TraceId,
    /// What is asked, in words.
    pub body: Arc<str>,
    /// What to work on.
    pub input: Json,
    /// An outside resource that the task is about, such as an issue or a merge request. Only the requester changes it.
    pub reference: Option<Arc<str>>,
}

/// Where a delegation stands. Statuses only move forward, and one of the last two comes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The target has it.
    Ack,
    /// The target reports progress.
    Notice,
    /// The answer is there.
    Complete,
    /// There will be no answer.
    Fail,
}

impl Status {
    /// Whether nothing comes after it.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Complete | Self::Fail => true,
            Self::Ack | Self::Notice => false,
        }
    }

    /// Whether `next` may follow: never after a terminal status, and never back to `Ack`.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        !self.is_terminal() && !matches!(next, Self::Ack)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ack => "ack",
            Self::Notice => "notice",
            Self::Complete => "complete",
            Self::Fail => "fail",
        })
    }
}

/// One status of a delegation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusUpdate {
    /// The delegation.
    pub request_id: RequestId,
    /// Who reports: the target or the router.
    pub from_agent: AgentName,
    /// Who asked.
    pub to_agent: AgentName,
    /// Where it stands.
    pub status: Status,
    /// A line for people.
    pub detail: Arc<str>,
    /// The answer, with `Complete`.
    pub body: Json,
    /// When it was reported, by the wall clock.
    pub at: Timestamp,
}

/// The result of a delegation, as the asking turn sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// How the delegated branch ended.
    pub outcome: Outcome,
    /// Its output.
    pub output: Json,
}
