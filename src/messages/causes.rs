//! Causes that several errors share.

use super::{MAX_JSON_DEPTH, RequestId, RunId, TurnId};

/// A value that is beyond a limit. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverLimit {
    /// A JSON value is nested too deeply: a journal could not read it back.
    #[error("{what} is nested deeper than {max} levels")]
    Depth {
        /// What is too deep.
        what: &'static str,
        /// How many levels are allowed.
        max: usize,
    },
    /// A name or a reason is too long to be shown to others.
    #[error("{what} has {length} characters; at most {max} are allowed; {advice}")]
    Length {
        /// What is too long.
        what: &'static str,
        /// How many characters it has.
        length: usize,
        /// How many it may have.
        max: usize,
        /// What to do instead.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// A fork that was to become this run.
    #[error("nothing is known about the fork; look whether there is a run {0}")]
    Fork(RunId),
    /// The retry of this dead letter. Retrying it again is safe.
    #[error("nothing is known about the retry of {0}; ask for it again")]
    Retry(TurnId),
}
