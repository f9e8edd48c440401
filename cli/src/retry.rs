//! Retries: the turn at which the new run forks off the failed one, and its limits.

use callboard::messages::{Limits, Outcome, Refusal, RunEvent, StateRules, Verdict};
use callboard::supervision::runs::{Cause, Fork, Replay};
use serde_json::json;

use crate::agents::patterns::is_of_workflow;
use crate::limits::LimitChoice;
use crate::page::Failure;
use crate::stores::store::Loaded;

/// The turn that failed last in a run.
pub(crate) struct FailedTurn {
    pub(crate) number: u32,
    refusal: Option<Refusal>,
}

impl FailedTurn {
    /// The failed turn in the history of a run; `outcome` is `None` while the run is open.
    fn of(history: &[RunEvent], outcome: Option<&Outcome>) -> Option<Self> {
        let failed = history.iter().rev().find_map(|event| match event {
            RunEvent::TurnFailed { turn, failure, .. } => {
                Some(Self { number: *turn, refusal: failure.refusal.as_deref().cloned() })
            }
            _ => None,
        });
        // A refused handoff ends the turn and its run without a `TurnFailed`.
        let refused = || {
            history.iter().rev().find_map(|event| match event {
                RunEvent::TurnEnded { turn, verdict: Verdict::Refused(refusal), .. } => {
                    Some(Self { number: *turn, refusal: Some(refusal.clone()) })
                }
                _ => None,
            })
        };
        failed.or_else(|| outcome.filter(|outcome| matches!(outcome, Outcome::Refused(_))).and_then(|_| refused()))
    }

    /// As [`FailedTurn::of`]; `None` if [`retry_of`] would refuse to retry the run.
    pub(crate) fn to_retry(history: &[RunEvent], outcome: &Outcome) -> Option<Self> {
        let replay = Replay::of(history.to_vec(), &StateRules::default());
        Self::of(history, Some(outcome)).filter(|_| !replay.is_ok_and(|replay| has_compensated(&replay)))
    }

    /// The value of `--limits` that raises the limit by which the turn failed; `None` if it failed for another reason. Tokens are at
    /// least doubled, because a turn that lacked some for one call has more calls to make.
    pub(crate) fn raised_limits(&self, limits: &Limits) -> Option<String> {
        let (limit, needed) = self.refusal.as_ref()?.needed_limit()?;
        let to = if limit == "tokens" { needed.max(limits.tokens.saturating_mul(2)) } else { needed };
        Some(json!({ limit: to }).to_string())
    }

    /// A line for people: the command line that retries the turn.
    pub(crate) fn advice(&self, limits: Option<&str>, line: &str) -> String {
        let how = if limits.is_some() { " with a higher limit" } else { "" };
        format!("to retry turn {}{how}, in a new run: {line}", self.number)
    }
}

/// Whether the run has compensated nodes: their effects are undone, so a copy of these nodes would be wrong.
fn has_compensated(replay: &Replay) -> bool {
    replay.turns().any(|turn| matches!(turn.cause, Cause::Compensation { .. }))
}

/// The turn at which a retry of a run forks, and the changes of the fork.
pub(crate) fn retry_of(run: &Loaded, limits: Option<&LimitChoice>) -> Result<(u32, Fork), Failure> {
    let trouble = |error: String| Failure::trouble(format!("run {}: {error}", run.id));
    if has_compensated(&run.replay) {
        return Err(trouble(
            "its workflow has compensated nodes that had finished, so these have to run again: start a new run"
                .to_owned(),
        ));
    }
    let outcome = run.replay.result().map(|result| &result.outcome);
    let failed = FailedTurn::of(&run.history, outcome).ok_or_else(|| {
        let line = if is_of_workflow(run.replay.submission()) { "workflow resume" } else { "run --resume" };
        trouble(format!("no turn of it has failed; `callboard {line} {}` continues it, or prints its result", run.id))
    })?;
    let mut fork = Fork::new().in_conversation();
    if let Some(choice) = limits {
        let limits = choice.over(run.replay.submission().limits());
        let used = run.replay.run().metrics().tokens_spent;
        if limits.tokens < used {
            let text =
                format!("it has used {used} tokens, and --limits allows {}: give it {used} or more", limits.tokens);
            return Err(trouble(text));
        }
        fork = fork.limits(limits);
    }
    Ok((failed.number, fork))
}
