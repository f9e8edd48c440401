//! Decides what follows a failed attempt (SEMANTICS 8). Pure.

use std::time::Duration;

use crate::messages::{Backoff, FailureKind};

use super::breaker::Signal;
use super::requests::Attempt;

/// The consequence of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The turn is tried again after this time.
    Retry(Duration),
    /// The turn is a dead letter and its branch fails.
    GiveUp,
    /// A person has to intervene; the run waits.
    NeedAttention,
}

/// Decides after this failed attempt of a turn that may have `attempts` attempts.
#[must_use]
pub(crate) fn decide(
    kind: FailureKind,
    attempt: Attempt,
    attempts: u32,
    backoff: &Backoff,
    random: u64,
) -> AfterFailure {
    match kind {
        // A command that cannot be applied comes from code that would return it again.
        FailureKind::Terminal
        | FailureKind::Refused
        | FailureKind::Denied
        | FailureKind::InvalidCommand
        | FailureKind::OutcomeUnknown => AfterFailure::GiveUp,
        FailureKind::ChangedTurn | FailureKind::Unregistered | FailureKind::NeedsPerson => AfterFailure::NeedAttention,
        FailureKind::Transient | FailureKind::Panic | FailureKind::Timeout => {
            if attempt.0 >= attempts {
                AfterFailure::GiveUp
            } else {
                AfterFailure::Retry(backoff.delay(attempt.0, random))
            }
        }
    }
}

/// The signal to the agent's breaker about a turn that failed for good.
#[must_use]
pub(crate) fn signal(kind: FailureKind) -> Signal {
    match kind {
        FailureKind::Transient | FailureKind::Panic | FailureKind::Timeout => Signal::Failure,
        FailureKind::Terminal
        | FailureKind::InvalidCommand
        | FailureKind::Refused
        | FailureKind::Denied
        | FailureKind::ChangedTurn
        | FailureKind::OutcomeUnknown
        | FailureKind::Unregistered
        | FailureKind::NeedsPerson => Signal::Neutral,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_failure_decides_between_retry_and_end() {
        let after = |kind, failures| decide(kind, Attempt(failures), 3, &Backoff::default(), 0);
        for kind in [FailureKind::Transient, FailureKind::Panic, FailureKind::Timeout] {
            assert!(matches!(after(kind, 1), AfterFailure::Retry(_)));
            assert!(matches!(after(kind, 2), AfterFailure::Retry(_)));
            assert_eq!(after(kind, 3), AfterFailure::GiveUp);
            assert_eq!(signal(kind), Signal::Failure);
        }
        for kind in [FailureKind::Terminal, FailureKind::InvalidCommand] {
            assert_eq!((after(kind, 1), signal(kind)), (AfterFailure::GiveUp, Signal::Neutral));
        }
        for kind in [FailureKind::ChangedTurn, FailureKind::Unregistered, FailureKind::NeedsPerson] {
            assert_eq!((after(kind, 1), signal(kind)), (AfterFailure::NeedAttention, Signal::Neutral));
        }
    }
}
