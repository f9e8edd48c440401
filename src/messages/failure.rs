//! Why an attempt of a turn failed, and what follows from it.

use callboard_text::visible_lines;
use serde::{Deserialize, Serialize};

use super::{Outcome, Refusal};

/// The error of a failed attempt, as the journal and dead letters hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}{}", kind.prefix(), visible_lines(text))]
pub struct Failure {
    /// What kind of failure; it decides whether the turn is tried again.
    pub kind: FailureKind,
    /// The error message, without the prefix for the kind that `Display` puts before it.
    pub text: String,
    /// The refusal of the guard or of a person, when that is why the turn could not continue.
    pub refusal: Option<Box<Refusal>>,
}

impl Failure {
    /// Creates a failure without a refusal; [`Failure::refused`] creates one from a refusal.
    #[must_use]
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), refusal: None }
    }

    /// The failure of a turn that cannot continue after a refusal.
    #[must_use]
    pub fn refused(refusal: Refusal) -> Self {
        let kind = if refusal.is_denial() { FailureKind::Denied } else { FailureKind::Refused };
        Self { kind, text: refusal.to_string(), refusal: Some(Box::new(refusal)) }
    }

    /// How a branch ends whose turn failed like this for good.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match &self.refusal {
            Some(refusal) if self.kind.is_refusal() => Outcome::refused((**refusal).clone()),
            None if self.kind == FailureKind::Denied => Outcome::Denied { reason: self.text.clone() },
            Some(_) | None => Outcome::Failed { error: self.to_string() },
        }
    }
}

/// The kind of a failure. It decides whether the turn is tried again, becomes a dead letter, or waits for a person
/// (SEMANTICS 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// An error that may pass: tried again with backoff.
    Transient,
    /// An error that will not pass: the turn ends.
    Terminal,
    /// The turn panicked: its agent is rebuilt, and the turn tried again.
    Panic,
    /// The turn took longer than its agent allows: tried again.
    Timeout,
    /// The turn returned a command that the run cannot apply: not tried again, because its code would return it again.
    InvalidCommand,
    /// A repeated turn asked for other things than before: a person has to look.
    ChangedTurn,
    /// The guard refused something that the turn could not do without: the turn ends.
    Refused,
    /// People, or a policy, did not consent to something that the turn could not do without: its branch ends denied.
    Denied,
    /// The turn's agent is not registered: a person has to look.
    Unregistered,
    /// It is unknown whether something that must not be repeated has happened: the turn ends.
    OutcomeUnknown,
    /// Something outside needs a person first, such as the key or the payment of a provider: never tried again by itself.
    NeedsPerson,
}

impl FailureKind {
    /// Whether the turn was refused or denied something: it failed of nothing else, and may continue in another way.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        match self {
            Self::Refused | Self::Denied => true,
            Self::Transient
            | Self::Terminal
            | Self::Panic
            | Self::Timeout
            | Self::InvalidCommand
            | Self::ChangedTurn
            | Self::Unregistered
            | Self::OutcomeUnknown
            | Self::NeedsPerson => false,
        }
    }

    /// The prefix of a failure's text; none where the text stands alone.
    fn prefix(self) -> String {
        match self {
            Self::Transient => String::new(),
            Self::Terminal
            | Self::Panic
            | Self::Timeout
            | Self::InvalidCommand
            | Self::ChangedTurn
            | Self::Refused
            | Self::Denied
            | Self::Unregistered
            | Self::OutcomeUnknown
            | Self::NeedsPerson => format!("{self}: "),
        }
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Transient => "error",
            Self::Terminal => "terminal error",
            Self::Panic => "crash",
            Self::Timeout => "timeout",
            Self::InvalidCommand => "invalid command",
            Self::ChangedTurn => "changed turn",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Unregistered => "unregistered",
            Self::OutcomeUnknown => "outcome unknown",
            Self::NeedsPerson => "a person is needed",
        })
    }
}
