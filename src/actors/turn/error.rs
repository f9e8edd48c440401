//! The errors of turns.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::messages::{Failure, FailureKind, Json, Outcome, Refusal};
use crate::supervision::runs::rules::requests::TurnReply;

/// Why an attempt failed. Any error becomes a transient one through `?`; wrap it in [`Terminal`] to say that trying again
/// is of no use.
///
/// ```
/// use callboard::{Terminal, TurnError};
/// fn read() -> Result<String, TurnError> {
///     let number: u32 = "12x".parse().map_err(Terminal)?; // will not parse next time either
///     Ok(number.to_string())
/// }
/// assert_eq!(read().unwrap_err().to_string(), "terminal error: invalid digit found in string");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TurnError {
    pub(in crate::actors) failure: Failure,
}

/// An error that will not pass: the turn ends without another attempt.
#[derive(Debug)]
pub struct Terminal<E>(pub E);

impl TurnError {
    /// Creates an error that may pass: the turn is tried again after a backoff, as long as it has attempts left.
    #[must_use]
    pub fn transient(text: impl Into<String>) -> Self {
        Self { failure: Failure::new(FailureKind::Transient, text.into()) }
    }

    /// Creates an error that will not pass: the turn ends without another attempt.
    #[must_use]
    pub fn terminal(text: impl Into<String>) -> Self {
        Self { failure: Failure::new(FailureKind::Terminal, text.into()) }
    }

    /// Creates an error that only a person can remove, such as an unpaid bill: the run waits until somebody has the turn begin
    /// again, and no attempt is made before that (SEMANTICS 2).
    #[must_use]
    pub fn needs_person(text: impl Into<String>) -> Self {
        Self { failure: Failure::new(FailureKind::NeedsPerson, text.into()) }
    }

    /// What the agent is made of has broken, such as its process: it counts as a panic does, and the agent is rebuilt.
    #[must_use]
    pub fn broken(text: impl Into<String>) -> Self {
        Self { failure: Failure::new(FailureKind::Panic, text.into()) }
    }

    /// Returns the kind of failure, which decides whether the turn is tried again.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.failure.kind
    }

    /// The refusal of the guard or of a person, if that is why the turn cannot continue.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        self.failure.refusal.as_deref()
    }
}

impl fmt::Display for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.failure, f)
    }
}

impl fmt::Debug for TurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.failure, f)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for TurnError {
    fn from(error: E) -> Self {
        let any: &dyn Any = &error;
        let (refusal, delegation) = match any.downcast_ref::<DelegationError>() {
            Some(DelegationError::Refused(refusal)) => (Some(refusal), None),
            Some(DelegationError::Turn(error)) => return error.clone(),
            delegation => (any.downcast_ref::<Refusal>(), delegation),
        };
        let kind = match (refusal, delegation) {
            (Some(refusal), _) if refusal.is_denial() => FailureKind::Denied,
            (Some(_), _) => FailureKind::Refused,
            (None, Some(_)) => FailureKind::Terminal,
            (None, None) => FailureKind::Transient,
        };
        let refusal = refusal.cloned().map(Box::new);
        Self { failure: Failure { kind, text: with_sources(&error), refusal } }
    }
}

impl<E: Error> From<Terminal<E>> for TurnError {
    fn from(Terminal(error): Terminal<E>) -> Self {
        Self { failure: Failure::new(FailureKind::Terminal, with_sources(&error)) }
    }
}

/// Why a [`Delegation`](super::Delegation) has no answer. `?` makes it a [`TurnError`] after which the turn is not
/// tried again, except that [`DelegationError::Turn`] keeps its kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegationError {
    /// The delegation was not admitted: its target is unknown or has no room, or the guard or the approval policy
    /// refused it.
    #[error(transparent)]
    Refused(Refusal),
    /// The delegated branch ended otherwise than finished.
    #[error("the delegation to {agent} did not finish: {outcome}")]
    NotFinished {
        /// The name, role or capability that [`Turn::delegate`](super::Turn::delegate) was given.
        agent: Arc<str>,
        /// How the branch ended; never [`Outcome::Finished`].
        outcome: Outcome,
        /// The output that the branch ended with; null if it has none, as after a failed turn.
        output: Json,
    },
    /// The asking turn itself cannot continue; `?` passes this error on as it is.
    #[error("{0}")]
    Turn(TurnError),
}

pub(super) fn no_longer_wanted() -> TurnError {
    TurnError::transient("the attempt is no longer wanted")
}

pub(in crate::actors) fn changed(text: String) -> TurnError {
    TurnError { failure: Failure::new(FailureKind::ChangedTurn, text) }
}

pub(super) fn unexpected(reply: &TurnReply) -> TurnError {
    TurnError::terminal(format!("the run answered something else: {reply:?}"))
}

/// The error's text, with its sources.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
