//! The failures of a run that wait for a person: turns that failed for good, and writes that conflict. Pure.

use crate::messages::state::StateError;
use crate::messages::{Failure, FailureKind, OpenFailure, RunEvent, Submission, TurnId};

use super::run::Run;

/// The longest text of a failure in lists, in characters; the journal has all of it.
const MAX_TEXT: usize = 4_000;

/// The turns that failed for good, of these events of a run, but for those that were denied: that was decided. One that failed before
/// the run's submission was copied by a fork: it is one of the old run.
pub(crate) fn failed_turns<'a>(
    submission: &'a Submission,
    events: &'a [RunEvent],
) -> impl Iterator<Item = OpenFailure> + use<'a> {
    events.iter().filter_map(|event| match event {
        RunEvent::TurnFailed { turn, agent, input: _, attempt, failure, at }
            if *at >= submission.at && failure.kind != FailureKind::Denied =>
        {
            let turn = TurnId { run: submission.run, number: *turn };
            let failure = Failure { kind: failure.kind, text: cut(&failure.text), refusal: None };
            let (agent, attempts, at) = (agent.clone(), *attempt, *at);
            Some(OpenFailure { turn, agent, attempts, failure, at, is_conflict: false })
        }
        _ => None,
    })
}

/// The conflict that ended a run, if one did.
pub(crate) fn conflict(run: &Run) -> Option<OpenFailure> {
    run.result()?;
    let error @ StateError::ConcurrentWrite { turns: (_, turn), .. } = run.conflict()? else { return None };
    Some(OpenFailure {
        turn: *turn,
        agent: run.submission().agent.clone(),
        attempts: 1,
        failure: Failure::new(FailureKind::InvalidCommand, cut(&error.to_string())),
        at: run.last_at(),
        is_conflict: true,
    })
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
