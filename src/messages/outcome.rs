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
    /// The last branch finished, or a command ended the run with [`Goto::End`](super::Goto::End).
    Finished,
    /// A turn failed for good, or the runtime could not continue, for example because of concurrent writes
    /// ([`StateError::ConcurrentWrite`](super::StateError::ConcurrentWrite)).
    Failed {
        /// What went wrong. If a node of a workflow failed, the text begins with `node` and its name.
        error: String,
    },
    /// A refusal that is no denial ended the work, for example a limit of the run or a deadline that passed.
    Refused(Refusal),
    /// A person or a policy denied it, or it was not decided in time.
    Denied {
        /// What was asked for, by whom it was denied, and why.
        reason: String,
    },
    /// The run was cancelled, for example with [`RunHandle::cancel`](crate::RunHandle::cancel), or another branch ended
    /// it before this branch had ended.
    Cancelled {
        /// The reason that was given; for a branch that another branch ended, a fixed text.
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

    /// Returns whether the outcome is [`Outcome::Finished`].
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

/// The result of a run that has ended, as [`RunHandle::result`](crate::RunHandle::result) returns it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The run that ended.
    pub run: RunId,
    /// How the run ended. After a fan-out, it is the first outcome, in the order of the sends, that is not finished, if
    /// there is one.
    pub outcome: Outcome,
    /// The last branch's output, or an array of them in the order of the sends; null if there is none.
    pub output: Json,
    /// The channels at the end of the run. Of a run that was stopped, what had been written and joined by then.
    pub state: FinalState,
    /// Turns, handoffs, tokens and time that the run used.
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
    /// The number of the turn in its run.
    pub turn: u32,
    /// The agent that took the turn.
    pub agent: AgentName,
    /// To whom control would have gone, as the agent wrote it.
    pub to: Vec<Arc<str>>,
    /// The refusal that [`Turn::check_handoff`](crate::Turn::check_handoff) returned: the first one, if the turn asked
    /// more than once.
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
    /// Turns that ended with a command or failed for good; cancelled turns do not count.
    pub turns: u32,
    /// Handoffs and delegations that were admitted.
    pub handoffs: u32,
    /// Distinct agents that took part, those of the run's plan included.
    pub agents: u32,
    /// Attempts after the first, of any turn.
    pub retries: u32,
    /// Tokens of settled model calls and their cost, tokens beyond the budget included.
    pub usage: Usage,
    /// Tokens counted against the budget: those that calls have reported, and the whole reservation of each call that has
    /// not reported, whether it is still under way or its attempt has ended. A call that was not sent counts nothing once that
    /// is known.
    pub tokens_spent: u64,
    /// Tokens that providers reported beyond what had been reserved and fit the budget.
    pub overrun: u64,
    /// Time from the submission to the last event of the run, by the wall clock.
    pub elapsed: Duration,
}
