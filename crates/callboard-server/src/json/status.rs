//! The status of a run that has not ended, as lists, JSON and `--state` name it.

use callboard::messages::{Pending, Timestamp};
use callboard::supervision::runs::Run;

/// The status of an open run: the greatest of what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// It waits for nothing from people.
    Open,
    /// It waits for an answer to a question, or for a decision about an interrupted node.
    WaitsForAnswer,
    /// It waits for a decision about an action.
    WaitsForConsent,
    /// A turn of it cannot continue by itself.
    NeedsAttention,
}

impl Status {
    /// Returns the status of a run that has not ended; what has expired at `now` does not count.
    #[must_use]
    pub fn of(run: &Run, now: Timestamp) -> Self {
        let open = run.pending().into_iter().filter(|wait| !wait.is_expired(now));
        open.map(|wait| Self::of_one(&wait)).max().unwrap_or(Self::Open)
    }

    fn of_one(wait: &Pending) -> Self {
        match wait {
            Pending::Approval(_) => Self::WaitsForConsent,
            Pending::Question(_) | Pending::Node(_) => Self::WaitsForAnswer,
            Pending::Attention { .. } => Self::NeedsAttention,
        }
    }

    /// Returns its name in JSON and for `--state`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::WaitsForAnswer => "waits_for_answer",
            Self::WaitsForConsent => "waits_for_consent",
            Self::NeedsAttention => "needs_attention",
        }
    }
}
