//! Decides what follows the end of an attempt: returns the event to journal.

use std::sync::Arc;

use callboard_text::quoted;

use crate::messages::state::StateError;
use crate::messages::{Command, Failure, FailureKind, Goto, Outcome, Refusal, RunEvent, Verdict};
use crate::supervision::runs::rules::errors::OverwriteError;
use crate::supervision::runs::rules::requests::{Attempt, MAX_COMMAND, TurnOutcome};
use crate::supervision::runs::rules::retry::{self, AfterFailure};
use crate::supervision::runs::rules::run::{OpenTurn, Run, WorkedOut};

use super::context::DecisionContext;
use super::routes::{CheckTime, handoff_fingerprint, route};

/// Decides about an attempt's outcome; `None` if the attempt is no longer the turn's current one.
#[must_use]
pub(crate) fn on_outcome(
    run: &Run,
    number: u32,
    attempt: Attempt,
    outcome: TurnOutcome,
    context: &DecisionContext<'_>,
) -> Option<(RunEvent, WorkedOut)> {
    let turn = run.turn(number).filter(|turn| turn.attempt == attempt)?;
    let failure = match outcome {
        TurnOutcome::Command(command) => match on_command(run, number, turn, command, context) {
            Ok(decided) => return Some(decided),
            Err(failure) => failure,
        },
        TurnOutcome::Failed(failure) => failure,
    };
    Some((on_failure(run, number, turn, failure, context), WorkedOut::default()))
}

/// The notices about an ended turn whose command writes a new channel with a likely misspelling.
#[must_use]
pub(crate) fn likely_misspellings(run: &Run, ended: &RunEvent) -> Vec<String> {
    let RunEvent::TurnEnded { turn, command, .. } = ended else { return Vec::new() };
    let Some(turn) = run.turn(*turn).filter(|_| !command.update.is_empty()) else { return Vec::new() };
    let notice = |(new, known)| format!("the channel {} is new; did you mean {}?", quoted(new), quoted(known));
    run.branch_of(turn).view.typos(&command.update, &run.rules().schema).map(notice).collect()
}

fn on_failure(run: &Run, turn: u32, open: &OpenTurn, failure: Failure, context: &DecisionContext<'_>) -> RunEvent {
    let attempt = open.attempt;
    let at = context.now.wall;
    let has_changed = failure.kind == FailureKind::ChangedTurn;
    let attempts = run.rules_of(turn).and_then(|rules| rules.attempts).unwrap_or(run.submission().limits().attempts);
    match retry::decide(failure.kind, attempt, attempts, context.backoff, context.random) {
        AfterFailure::Retry(after) => {
            RunEvent::AttemptFailed { turn, attempt: attempt.0, failure, retry_at: at + after, at }
        }
        AfterFailure::GiveUp => {
            let (agent, input) = (open.agent.clone(), open.input.clone());
            RunEvent::TurnFailed { turn, agent, input, attempt: attempt.0, failure, at }
        }
        AfterFailure::NeedAttention => RunEvent::NeedsAttention { turn, has_changed, why: failure.text.into(), at },
    }
}

fn on_command(
    run: &Run,
    number: u32,
    turn: &OpenTurn,
    command: Command,
    context: &DecisionContext<'_>,
) -> Result<(RunEvent, WorkedOut), Failure> {
    let invalid = |text: String| Failure::new(FailureKind::InvalidCommand, text);
    if let Some(reason) = &command.unserializable {
        return Err(invalid(format!("its output or a write has no JSON form: {reason}")));
    }
    if command.is_too_deep() {
        return Err(invalid("its output, a write or a send is nested too deeply".into()));
    }
    let goes_elsewhere = matches!(command.goto, Goto::Agent(_) | Goto::Many(_));
    if goes_elsewhere && (turn.has_detached() || !run.branch_of(turn).outbound.is_empty()) {
        return Err(invalid(
            "it hands control on while answers to detached delegations are to come; end with `Next`, or wait for them"
                .into(),
        ));
    }
    let size = command.size();
    if size > MAX_COMMAND {
        return Err(invalid(format!("the command has {size} bytes; at most {MAX_COMMAND} are allowed")));
    }
    if run.is_planned(turn)
        && let Some(twice) = command.goto.target_named_twice()
    {
        let twice = quoted(twice);
        return Err(invalid(format!("two sends go to the node {twice}, which is begun once; do it in a map")));
    }
    run.check_goto(run.branch_of(turn), &command).map_err(Failure::refused)?;
    let fingerprint = handoff_fingerprint(turn, &command);
    let (settled, verdict) = match run.settle(number, turn.branch, &turn.children(), &command.update) {
        Ok(settled) => {
            run.check_writes(number, &settled.0, &command).map_err(invalid)?;
            let verdict = route(run, number, turn, &command, fingerprint, CheckTime::AtTheEnd, context);
            (Some(settled), verdict.map_err(Failure::refused)?)
        }
        // The join's own failure: the same children would fail every attempt, so the fold ends the branch.
        Err(StateError::ConcurrentWrite { .. }) => (None, Verdict::Nothing),
        Err(error) => return Err(invalid(error.to_string())),
    };
    let at = context.now.wall;
    let (agent, attempt) = (turn.agent.clone(), turn.attempt.0);
    let event = RunEvent::TurnEnded { turn: number, agent, attempt, command: Arc::new(command), verdict, at };
    Ok((event, WorkedOut { settled, fingerprint }))
}

/// The verdict on the command of a turn whose end is applied again, with an overwrite of its children's writes.
///
/// # Errors
/// Their writes conflict all the same, or a target is not known any more.
pub(in crate::supervision::runs) fn on_resumed_end(
    run: &Run,
    number: u32,
    command: &Command,
    context: &DecisionContext<'_>,
) -> Result<Verdict, OverwriteError> {
    let Some(turn) = run.turn(number) else { return Ok(Verdict::Nothing) };
    run.settle(number, turn.branch, &run.children_of(turn), &command.update)?;
    let verdict = route(run, number, turn, command, handoff_fingerprint(turn, command), CheckTime::AtTheEnd, context);
    verdict.map_err(|refusal| OverwriteError::CannotGoOn(refusal.to_string()))
}

/// The event for a run whose deadline has passed.
#[must_use]
pub(crate) fn on_deadline(context: &DecisionContext<'_>) -> RunEvent {
    RunEvent::Stopped { outcome: Outcome::refused(Refusal::DeadlinePassed), at: context.now.wall }
}
