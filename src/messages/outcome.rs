//! How a run ended, and what it took.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_text::{visible, visible_lines};
use serde::{Deserialize, Serialize};

use super::state::FinalState;
use super::{AgentName, Handoffs, Json, Refusal, RunId, Usage};

/// How a run, or a branch of it, ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every branch has ended.
    Finished,
    /// A turn failed for good.
    Failed {
        /// What went wrong, and where.
        error: String,
    },
    /// The guard refused what came next.
    Refused(Refusal),
    /// A person or a policy denied it, or it was not decided in time.
    Denied {
        /// What was asked for, by whom it was denied, and why.
        reason: String,
    },
    /// It was cancelled.
    Cancelled {
        /// The reason that was given.
        reason: String,
    },
}

impl Outcome {
    /// The outcome of work that stops at a refusal.
    #[must_use]
    pub fn refused(refusal: Refusal) -> Self {
        if refusal.is_denial() { Self::Denied { reason: refusal.to_string() } } else { Self::Refused(refusal) }
    }

    /// The variant's name, for metrics and for programs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed { .. } => "failed",
            Self::Refused(_) => "refused",
            Self::Denied { .. } => "denied",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// Whether it is [`Outcome::Finished`].
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Finished)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::Failed { error } => write!(f, "failed: {}", visible_lines(error)),
            Self::Refused(refusal) => write!(f, "refused ({}): {refusal}", refusal.name()),
            Self::Denied { reason } => write!(f, "denied: {}", visible_lines(reason)),
            Self::Cancelled { reason } => write!(f, "cancelled: {}", visible_lines(reason)),
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub outcome: Outcome,
    /// The last branch's output, or an array of them in the order of the sends; null if there is none.
    pub output: Json,
    /// The channels at the end.
    pub state: FinalState,
    /// What it took.
    pub metrics: RunMetrics,
    /// Whether agents might pass control on in it.
    pub handoffs: Handoffs,
    /// It had read untrusted input (SEMANTICS 13).
    pub is_tainted: bool,
    /// The turns that finished alone what they would have handed on.
    pub alone: Vec<Alone>,
}

/// An agent that asked whether it may pass control on, was refused, and finished by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alone {
    /// Its turn.
    pub turn: u32,
    /// The agent.
    pub agent: AgentName,
    /// To whom control would have gone, as the agent wrote it.
    pub to: Vec<Arc<str>>,
    /// Why not.
    pub refusal: Refusal,
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, to, refusal, .. } = self;
        write!(f, "{agent} finished alone what was to go to {}: {refusal}", visible(&to.join(", ")))
    }
}

/// The output as text, fit for a terminal ([`visible_lines`]): a string by itself, anything else as JSON. An outcome other
/// than finished comes first, and is all when there is no output.
impl fmt::Display for RunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.outcome.is_finished() {
            self.outcome.fmt(f)?;
            if self.output.is_null() {
                return Ok(());
            }
            f.write_str("\n")?;
        }
        match self.output.as_str() {
            Some(text) => f.write_str(&visible_lines(text)),
            None => f.write_str(&visible(&self.output.to_string())),
        }
    }
}

/// What a run took so far, counted by the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMetrics {
    /// Turns that ended.
    pub turns: u32,
    /// Handoffs and delegations that were admitted.
    pub handoffs: u32,
    /// Distinct agents.
    pub agents: u32,
    /// Attempts after the first, of any turn.
    pub retries: u32,
    /// Tokens that providers reported.
    pub usage: Usage,
    /// Tokens counted against the budget: reported ones, and reservations whose calls never reported.
    pub tokens_spent: u64,
    /// Tokens that providers reported beyond what had been reserved and fit the budget.
    pub overrun: u64,
    /// From submission to the last event.
    pub elapsed: Duration,
}
