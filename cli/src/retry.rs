//! What a failed run is continued from, in a new run, and with which limits.

use callboard::messages::state::StateRules;
use callboard::messages::{Limits, Outcome, Refusal, RunEvent, Verdict};
use callboard::supervision::runs::fork::Fork;
use callboard::supervision::runs::replay::{Cause, Replay};
use serde_json::json;

use crate::limits::LimitChoice;
use crate::page::Failure;
use crate::stores::store::Loaded;

/// The turn that failed last in a run.
pub(crate) struct FailedTurn {
    pub(crate) number: u32,
    refusal: Option<Refusal>,
}

impl FailedTurn {
    /// That of a run; `outcome` is how the run ended, if it has.
    fn of(history: &[RunEvent], outcome: Option<&Outcome>) -> Option<Self> {
        let failed = history.iter().rev().find_map(|event| match event {
            RunEvent::TurnFailed { turn, failure, .. } => {
                Some(Self { number: *turn, refusal: failure.refusal.as_deref().cloned() })
            }
            _ => None,
        });
        // A turn whose handoff was refused has ended, and its run with it.
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

    /// As [`FailedTurn::of`], unless a retry of the run is refused.
    pub(crate) fn to_retry(history: &[RunEvent], outcome: &Outcome) -> Option<Self> {
        let replay = Replay::of(history.to_vec(), &StateRules::default());
        Self::of(history, Some(outcome)).filter(|_| !replay.is_ok_and(|replay| has_taken_back(&replay)))
    }

    /// The value of `--limits` with which the turn has what it lacked; `None` if no limit of the run was why it failed. Tokens
    /// are at least doubled, because a turn that lacked some for a call has more calls to make.
    pub(crate) fn raised_limits(&self, limits: &Limits) -> Option<String> {
        let (limit, needed) = self.refusal.as_ref()?.needed_limit()?;
        let to = if limit == "tokens" { needed.max(limits.tokens.saturating_mul(2)) } else { needed };
        Some(json!({ limit: to }).to_string())
    }

    /// A line for people: how the turn is done again, by this command line.
    pub(crate) fn advice(&self, limits: Option<&str>, line: &str) -> String {
        let how = if limits.is_some() { "again with a higher limit" } else { "again" };
        format!("to do turn {} {how}, in a new run: {line}", self.number)
    }
}

/// Whether what nodes had done was taken back, so that a copy of these nodes is not true any more.
fn has_taken_back(replay: &Replay) -> bool {
    replay.turns().any(|turn| matches!(turn.cause, Cause::Compensation { .. }))
}

/// The turn that a retry of a run begins at, and what is different about it.
pub(crate) fn retry_of(run: &Loaded, limits: Option<&LimitChoice>) -> Result<(u32, Fork), Failure> {
    let trouble = |error: String| Failure::trouble(format!("run {}: {error}", run.id));
    if has_taken_back(&run.replay) {
        return Err(trouble(
            "its workflow has taken back what its nodes had done, so they have to run again: begin a new run"
                .to_owned(),
        ));
    }
    let outcome = run.replay.result().map(|result| &result.outcome);
    let failed = FailedTurn::of(&run.history, outcome).ok_or_else(|| {
        let line = if run.replay.submission().task.plan.is_some() { "workflow resume" } else { "run --resume" };
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
