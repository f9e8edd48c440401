//! A run's history: its events in the order in which the fold takes them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::messages::{RunEvent, Submission};

/// Why [`Replay::of`](crate::supervision::runs::Replay::of) cannot replay a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The history has no events: the store does not know the run.
    #[error("there is no such run: its journal is empty")]
    Empty,
    /// The first event is not a submission: a run that lived in memory only has forgotten how it began.
    #[error("the journal does not go back to the run's beginning")]
    Trimmed,
    /// A later event is a submission too.
    #[error("event {event} is a second submission: this is the history of more than one run")]
    Joined {
        /// The place of the second submission in the history, from 1.
        event: usize,
    },
}

/// The events of a history that begins with a submission, in the order in which they take effect.
pub(in crate::supervision::runs) fn from_submission(
    history: Vec<RunEvent>,
) -> Result<(Arc<Submission>, impl Iterator<Item = RunEvent>), ReplayError> {
    let is_submission = |event: &RunEvent| matches!(event, RunEvent::Submitted(_));
    if let Some(later) = history.iter().skip(1).position(is_submission) {
        return Err(ReplayError::Joined { event: later + 2 });
    }
    let mut events = in_order_of_effect(history).into_iter();
    let first = events.next().ok_or(ReplayError::Empty)?;
    let RunEvent::Submitted(submission) = first else { return Err(ReplayError::Trimmed) };
    Ok((submission, events))
}

/// As [`in_order_of_effect`], without a copy if that is the order in which they were journaled.
pub(in crate::supervision::runs) fn by_effect(events: &[RunEvent]) -> Cow<'_, [RunEvent]> {
    if events.iter().any(|event| matches!(event, RunEvent::Overwritten { .. })) {
        return Cow::Owned(in_order_of_effect(events.to_vec()));
    }
    Cow::Borrowed(events)
}

/// Journaled events in the order in which the fold takes them: an overwrite comes before the event that it is about.
#[must_use]
pub(crate) fn in_order_of_effect(mut events: Vec<RunEvent>) -> Vec<RunEvent> {
    for overwrite in 0..events.len() {
        let RunEvent::Overwritten { turn, .. } = events[overwrite] else { continue };
        let is_its_end = |event: &RunEvent| match event {
            RunEvent::TurnEnded { turn: ended, .. }
            | RunEvent::TurnFailed { turn: ended, .. }
            | RunEvent::Decided { turn: ended, .. } => *ended == turn,
            _ => false,
        };
        if let Some(end) = events[..overwrite].iter().rposition(is_its_end) {
            events[end..=overwrite].rotate_right(1);
        }
    }
    events
}
