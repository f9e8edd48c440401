//! The ids of runs, turns, requests and traces.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names a run (UUID version 7: sorts by submission time).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

/// Names a turn: its run and its number in it, from 1 in order of admission. All attempts of a turn share it; it is the
/// idempotency key for what a turn causes outside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnId {
    /// The run that the turn belongs to.
    pub run: RunId,
    /// The turn's number in the run, from 1; 0 in the id of a run that is a delegation ([`RequestId::of_run`]).
    pub number: u32,
}

/// Names something that a turn asked for: a step, delegation, question, reservation or approval. Ordinals count from 0
/// in the order of the calls, so a repeated attempt asks under the same ids; those of reservations count over the whole run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// The turn that made the request.
    pub turn: TurnId,
    /// The position of the request among those of its turn, from 0; `u32::MAX` for a handoff at the end of the turn.
    pub ordinal: u32,
}

/// Follows a task through everything that it causes, also across runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TraceId(pub Uuid);

impl RunId {
    /// The namespace of the shared context that belongs to the run: `run:` and its id. The run's agents, if they were
    /// granted no others, call it `run`; it is removed together with the run (SEMANTICS 12).
    ///
    /// ```
    /// use callboard::messages::RunId;
    ///
    /// let run: RunId = "019a0000-0000-7000-8000-000000000001".parse().unwrap();
    /// assert_eq!(run.namespace(), "run:019a0000-0000-7000-8000-000000000001");
    /// ```
    #[must_use]
    pub fn namespace(self) -> String {
        format!("run:{self}")
    }
}

impl RequestId {
    /// The id of a run as a delegation from outside ([`Task::from_agent`](super::Task::from_agent)): no turn of a board has asked for
    /// it, so its turn has the number 0.
    #[must_use]
    pub const fn of_run(run: RunId) -> Self {
        Self { turn: TurnId { run, number: 0 }, ordinal: 0 }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.number)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.ordinal)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

macro_rules! debug_as_display {
    ($($id:ty),*) => {$(
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_as_display!(RunId, TurnId, RequestId, TraceId);
