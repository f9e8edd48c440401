//! Causes that several errors share.

use serde::{Deserialize, Serialize};

use super::{MAX_JSON_DEPTH, RequestId, RunId, TurnId};

/// A value that is beyond a limit. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverLimit {
    /// A JSON value is nested too deeply: a journal could not read it back.
    #[error("{what} is nested deeper than {max} levels")]
    Depth {
        /// The value that is too deep, as the error text names it, such as `the input`.
        what: &'static str,
        /// The number of levels that are allowed: [`Json::MAX_DEPTH`](super::Json::MAX_DEPTH).
        max: usize,
    },
    /// A name or a reason is too long to be shown to others.
    #[error("{what} has {length} characters; at most {max} are allowed; {advice}")]
    Length {
        /// The text that is too long, as the error text names it, such as `the reason`.
        what: &'static str,
        /// The length of the text, in characters.
        length: usize,
        /// The greatest length that is allowed, in characters.
        max: usize,
        /// What to write instead; the error text ends with it.
        advice: &'static str,
    },
}

impl OverLimit {
    pub(crate) const fn depth(what: &'static str) -> Self {
        Self::Depth { what, max: MAX_JSON_DEPTH }
    }
}

/// A call that was not acknowledged: the run's supervisor was restarted, or the board ended, before it replied. It is not
/// known whether the call was journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Unacknowledged {
    /// A task. Submitting it again is safe for one with an id of its own.
    #[error("the task was not journaled; submit it again")]
    Submission,
    /// The answer to this question. The run's open questions show whether it was journaled.
    #[error("nothing is known about the answer to {0}; look at the open questions")]
    Answer(RequestId),
    /// The resumption of this turn. The run's open interrupts show whether it was journaled.
    #[error("nothing is known about turn {0}; look at the open interrupts")]
    Resume(TurnId),
    /// The restart of this turn. The run's turns that need attention show whether it was journaled.
    #[error("nothing is known about the restart of turn {0}; look at the turns that need attention")]
    Restart(TurnId),
    /// An overwrite. The run shows whether it was journaled.
    #[error("nothing is known about the overwrite; look at the run")]
    Overwrite,
    /// A fork or a migration, with the id that the new run was to have. If there is a run with this id, it was
    /// journaled.
    #[error("nothing is known about the fork; look whether there is a run {0}")]
    Fork(RunId),
    /// The retry of this dead letter. Retrying it again is safe.
    #[error("nothing is known about the retry of {0}; ask for it again")]
    Retry(TurnId),
}
