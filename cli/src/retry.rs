//! Retries: the turn at which the new run forks off the failed one, and its limits.

use std::collections::BTreeMap;

use callboard::messages::{Cost, Outcome, Refusal, RunEvent, RunResult, StateRules, Submission, Verdict, visible};
use callboard::supervision::runs::{Cause, Fork, Replay};
use serde_json::json;

use crate::limits::LimitChoice;
use crate::page::Failure;
use crate::quote::quoted;
use crate::run_names::short;
use crate::stores::store::Loaded;

/// The turn that failed last in a run.
struct FailedTurn(u32);

impl FailedTurn {
    /// The failed turn in the history of a run; `outcome` is `None` while the run is open.
    fn of(history: &[RunEvent], outcome: Option<&Outcome>) -> Option<Self> {
        let failed = history.iter().rev().find_map(|event| match event {
            RunEvent::TurnFailed { turn, .. } => Some(Self(*turn)),
            _ => None,
        });
        // A refused handoff ends the turn and its run without a `TurnFailed`.
        let refused = || {
            history.iter().rev().find_map(|event| match event {
                RunEvent::TurnEnded { turn, verdict: Verdict::Refused(_), .. } => Some(Self(*turn)),
                _ => None,
            })
        };
        failed.or_else(|| outcome.filter(|outcome| matches!(outcome, Outcome::Refused(_))).and_then(|_| refused()))
    }

    /// As [`FailedTurn::of`]; `None` if [`retry_of`] would refuse to retry the run.
    fn to_retry(history: &[RunEvent], outcome: &Outcome) -> Option<Self> {
        let replay = Replay::of(history.to_vec(), &StateRules::default());
        Self::of(history, Some(outcome)).filter(|_| !replay.is_ok_and(|replay| has_compensated(&replay)))
    }

    /// A line for people: the command line that retries the turn.
    fn advice(&self, limits: Option<&str>, line: &str) -> String {
        let how = if limits.is_some() { " with a higher limit" } else { "" };
        format!("to retry turn {}{how}, in a new run: {}", self.0, visible(line))
    }
}

/// The value of `--limits` that raises the limits by which a run has ended; `None` if it ended for another reason. It has enough tokens
/// for all that the run has used and for the reservation that was refused, and half as much again, because a turn that is taken once more
/// does not use the same tokens; and at least twice the earlier ones, because a turn that lacked some for one call has more calls to make.
pub(crate) fn raised_limits(history: &[RunEvent], result: &RunResult) -> Option<String> {
    let Some(RunEvent::Submitted(submission)) = history.first() else { return None };
    let failures = history.iter().filter_map(|event| match event {
        RunEvent::TurnFailed { failure, .. } => failure.refusal.as_deref(),
        _ => None,
    });
    let outcome = match &result.outcome {
        Outcome::Refused(refusal) => Some(refusal),
        Outcome::Finished | Outcome::Failed { .. } | Outcome::Denied { .. } | Outcome::Cancelled { .. } => None,
    };
    let mut raised: BTreeMap<&'static str, u64> = BTreeMap::new();
    for refusal in failures.chain(outcome) {
        let Some((limit, needed)) = refusal.needed_limit() else { continue };
        let least = match refusal {
            Refusal::TokenBudget { asked, .. } => {
                let used = result.metrics.tokens_spent.saturating_add(result.metrics.overrun);
                with_reserve(used.saturating_add(*asked)).max(submission.limits().tokens.saturating_mul(2))
            }
            Refusal::CostBudget { asked: Some(asked), .. } => {
                let needed = result.metrics.usage.cost.0.saturating_add(asked.0);
                let doubled = submission.limits().cost.unwrap_or_default().0.saturating_mul(2);
                in_cents(needed.saturating_add(needed / 2)).max(doubled)
            }
            // A turn that lacked one has more to make.
            Refusal::HandoffLimit { max, .. } | Refusal::AgentLimit { max, .. } => u64::from(*max).saturating_mul(2),
            Refusal::MaxDepth { max, .. } => (*max as u64).saturating_mul(2),
            _ => 0,
        };
        let to = raised.entry(limit).or_default();
        *to = needed.max(least).max(*to);
    }
    let value = |(limit, to): (&'static str, u64)| match limit {
        "cost" => (limit, json!(Cost(to).decimal())),
        _ => (limit, json!(to)),
    };
    (!raised.is_empty()).then(|| json!(raised.into_iter().map(value).collect::<BTreeMap<_, _>>()).to_string())
}

/// Rounded up to a whole cent if it has one.
fn in_cents(billionths: u64) -> u64 {
    const CENT: u64 = 10_000_000;
    if billionths < CENT { billionths } else { billionths.div_ceil(CENT).saturating_mul(CENT) }
}

/// Half as much again, in whole thousands if it has some.
fn with_reserve(tokens: u64) -> u64 {
    let tokens = tokens.saturating_add(tokens / 2);
    if tokens < 1_000 { tokens } else { tokens.div_ceil(1_000).saturating_mul(1_000) }
}

/// The line about how to continue after a run that did not finish: the command line that retries its failed turn, which `line` makes for
/// these limits, or the limits for another run. `line` is `None` for a run that is not stored.
pub(crate) fn advice(
    history: &[RunEvent],
    result: &RunResult,
    line: Option<impl FnOnce(&Submission, Option<&str>) -> String>,
) -> Option<String> {
    let Some(RunEvent::Submitted(submission)) = history.first() else { return None };
    if result.outcome.is_finished() {
        return None;
    }
    let limits = raised_limits(history, result);
    match (FailedTurn::to_retry(history, &result.outcome), line) {
        (Some(failed), Some(line)) => Some(failed.advice(limits.as_deref(), &line(submission, limits.as_deref()))),
        (None, _) | (_, None) => {
            limits.map(|limits| format!("to run it with a higher limit: --limits {}", quoted(&limits)))
        }
    }
}

/// The text of an error without the library's advice on raising a limit: [`advice`] has it, with the limits of the command line.
pub(crate) fn without_limits(text: &str) -> String {
    const BEGIN: &str = "raise `limits.";
    const END: &str = " in Rust";
    let (mut rest, mut kept) = (text, String::new());
    while let Some((before, advice)) = rest.split_once(BEGIN) {
        let Some((_, after)) = advice.split_once(END) else { break };
        kept.push_str(before.strip_suffix(", or ").or(before.strip_suffix("; ")).unwrap_or(before));
        rest = after;
    }
    kept + rest
}

/// Whether the run has compensated nodes: their effects are undone, so a copy of these nodes would be wrong.
fn has_compensated(replay: &Replay) -> bool {
    replay.turns().any(|turn| matches!(turn.cause, Cause::Compensation { .. }))
}

/// The turn at which a retry of a run forks, and the changes of the fork. `resumption` is the command line that resumes the run.
pub(crate) fn retry_of(
    run: &Loaded,
    limits: Option<&LimitChoice>,
    resumption: impl FnOnce() -> String,
) -> Result<(u32, Fork), Failure> {
    let trouble = |error: String| Failure::usage(format!("run {}: {error}", short(run.id)));
    if has_compensated(&run.replay) {
        return Err(trouble(
            "its workflow has compensated nodes that had finished, so these have to run again: start a new run"
                .to_owned(),
        ));
    }
    let outcome = run.replay.result().map(|result| &result.outcome);
    let failed = FailedTurn::of(&run.history, outcome).ok_or_else(|| {
        trouble(format!("no turn of it has failed; to continue it, or to print its result: {}", visible(&resumption())))
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
    Ok((failed.0, fork))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::{Limits, Usage};
    use callboard::prelude::{Callboard, Command, Task, Turn, TurnError};

    use super::*;

    #[tokio::test]
    async fn a_raised_limit_has_room_for_all_that_was_used_and_for_what_was_refused() {
        let limits = |used: u64, budget: u64| async move {
            let spend = move |turn: Turn| async move {
                turn.reserve(60).await?.settle(Usage::of(used, 0));
                drop(turn.reserve(60).await?);
                Ok::<_, TurnError>(Command::output("done"))
            };
            let board = Callboard::builder().agent("a", spend).start().await.unwrap();
            let task = Task { limits: Some(Limits { tokens: budget, ..Limits::default() }), ..Task::new("x").to("a") };
            let run = board.submit(task).await.unwrap();
            let (result, history) = (run.result().await.unwrap(), run.history().await.unwrap());
            board.shutdown().await;
            assert!(!result.outcome.is_finished(), "{}", result.outcome);
            raised_limits(&history, &result).unwrap()
        };
        assert_eq!(limits(400, 100).await, "{\"tokens\":690}", "the provider reported more than was left");
        assert_eq!(limits(50, 100).await, "{\"tokens\":200}", "twice the limit is more than enough");
        let many = |turn: Turn| async move {
            for _ in 0..3 {
                turn.delegate("b", "x").await?;
            }
            Ok::<_, TurnError>(Command::output("done"))
        };
        let done = |_: Turn| async { Ok::<_, TurnError>(Command::output("done")) };
        let board = Callboard::builder().agent("a", many).agent("b", done).start().await.unwrap();
        let task = Task { limits: Some(Limits { handoffs: 2, ..Limits::default() }), ..Task::new("x").to("a") };
        let run = board.submit(task).await.unwrap();
        let (result, history) = (run.result().await.unwrap(), run.history().await.unwrap());
        board.shutdown().await;
        assert_eq!(raised_limits(&history, &result).unwrap(), "{\"handoffs\":4}", "one more lets one more delegate");
        // Once 5,409 were printed, and the retry needed 5,449.
        assert_eq!([5_409, 6_000, u64::MAX].map(with_reserve), [9_000, 9_000, u64::MAX]);
    }

    #[test]
    fn the_advice_on_limits_is_cut_from_an_error_and_nothing_else() {
        let tokens = |unsettled| Refusal::TokenBudget {
            budget: 10,
            spent: 6,
            unsettled,
            reserved: 1,
            asked: 5,
            is_delegated: false,
        };
        for (refusal, cut) in [
            (tokens(0), "5 tokens do not fit the budget of 10 (6 spent, 1 reserved)"),
            (
                tokens(2),
                "5 tokens do not fit the budget of 10 (6 spent, of which 2 by calls that never reported, 1 reserved); settle or \
                 release them before the attempt ends",
            ),
            (
                Refusal::HandoffLimit { max: 2, asked: 1 },
                "the run has used its 2 handoffs and delegations, and 1 more is asked for",
            ),
        ] {
            assert_eq!(without_limits(&format!("node a: {refusal}.")), format!("node a: {cut}."));
        }
        for kept in ["", "raise `limits.tokens` of the task", "in Rust; raise its `max`"] {
            assert_eq!(without_limits(kept), kept);
        }
    }
}
