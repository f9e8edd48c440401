//! Why a decision was not taken.

use crate::messages::{ApprovalId, Decision, Timestamp, TooLong};
use crate::storage::StorageError;

/// Why a decision was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// It was decided before.
    #[error("already {} by {} at {}", if decision.approved { "approved" } else { "denied" }, decision.by, decision.at)]
    AlreadyDecided {
        /// The decision that counts.
        decision: Decision,
    },
    /// No such question is open.
    #[error("no approval {id} is open")]
    Unknown {
        /// The id that was given.
        id: ApprovalId,
    },
    /// The question has expired, which denies it.
    #[error("approval {id} expired at {at}")]
    Expired {
        /// The id that was given.
        id: ApprovalId,
        /// When it expired.
        at: Timestamp,
    },
    /// It is a question that is asked each time, or a handoff: it cannot be decided for a whole run. Nothing was decided.
    #[error("approval {id} cannot be given for the whole run: it is asked each time")]
    NotForRun {
        /// The id that was given.
        id: ApprovalId,
    },
    /// It is a handoff, what it was changed to nests too deeply, or it cannot be said what it would be done to. Nothing was
    /// decided.
    #[error("approval {id} cannot be given with other arguments: deny it, and say what to do instead")]
    NotEditable {
        /// The id that was given.
        id: ApprovalId,
    },
    /// Who decides, or why, is said at too great a length. Nothing was decided.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The decision could not be stored. Nobody knows whether it will be found later, and everybody is asked again.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
