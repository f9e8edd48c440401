//! Decides what follows the end of an attempt: returns the event to journal.

use std::sync::Arc;

use callboard_text::quoted;

use crate::messages::state::StateError;
use crate::messages::{Command, Failure, FailureKind, Goto, Outcome, Refusal, RunEvent, Scope, Verdict};
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
    let is_for_another_board = run.is_for_another_board(turn);
    // Of a turn for another board, that run applies the last command alone, once all answers have come.
    let leaves_answers = match is_for_another_board {
        true => turn.leaves_answers(),
        false => turn.has_detached(),
    } || !run.branch_of(turn).outbound.is_empty();
    if goes_elsewhere && leaves_answers {
        return Err(invalid(
            "it hands control on while answers to detached delegations are to come; end with `Next`, or wait for them"
                .into(),
        ));
    }
    let command = match is_for_another_board {
        true => for_another_board(number, turn, command, leaves_answers).map_err(invalid)?,
        false => command,
    };
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
    let command = Arc::new(command);
    let fingerprint = handoff_fingerprint(turn, &command);
    let (settled, verdict) = match run.settle_end(number, turn.branch, &turn.children(), &command) {
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
    let event = RunEvent::TurnEnded { turn: number, agent, attempt, command, verdict, at };
    Ok((event, WorkedOut { settled, fingerprint }))
}

/// The end of a turn for the run of another board: its command is the output, as text, since it counts in that run. If answers are to
/// come, the turns that have them see its writes.
fn for_another_board(
    number: u32,
    turn: &OpenTurn,
    mut command: Command,
    leaves_answers: bool,
) -> Result<Command, String> {
    if leaves_answers && command.scope == Scope::Parent {
        return Err("it speaks to the parent's plan while answers to detached delegations are to come".into());
    }
    // That run knows the input of the first turn alone.
    if number > 1 && matches!(command.goto, Goto::Agent(_)) {
        command.output.get_or_insert_with(|| turn.input.clone());
    }
    let text = serde_json::to_string(&command).map_err(|error| error.to_string())?;
    let mut end = Command::output(text);
    if command.goto == Goto::End {
        end = end.end();
    } else if leaves_answers {
        end.update = command.update;
    }
    Ok(end)
}

/// The verdict on the command of a turn whose end is applied again, with an overwrite of its children's writes.
///
/// # Errors
/// Their writes conflict all the same, or a target is not known any more.
pub(in crate::supervision::runs) fn on_resumed_end(
    run: &Run,
    number: u32,
    command: &Arc<Command>,
    context: &DecisionContext<'_>,
) -> Result<Verdict, OverwriteError> {
    let Some(turn) = run.turn(number) else { return Ok(Verdict::Nothing) };
    run.settle(number, turn.branch, &run.children_of(turn), command)?;
    let verdict = route(run, number, turn, command, handoff_fingerprint(turn, command), CheckTime::AtTheEnd, context);
    verdict.map_err(|refusal| OverwriteError::CannotGoOn(refusal.to_string()))
}

/// The event for a run whose deadline has passed.
#[must_use]
pub(crate) fn on_deadline(context: &DecisionContext<'_>) -> RunEvent {
    RunEvent::Stopped { outcome: Outcome::refused(Refusal::DeadlinePassed), at: context.now.wall }
}
