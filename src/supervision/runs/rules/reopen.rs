//! Runs that ended because branches wrote one place side by side, and go on once a person says what is to stand there
//! (SEMANTICS 6). Pure.
//!
//! The journal keeps the order in which things happened: the event whose join failed, then the overwrite. The fold applies
//! them the other way round, so that the join finds what was written over.

use std::sync::Arc;

use crate::messages::state::StateError;
use crate::messages::{Durability, RunEvent, Timestamp, TooLong, Update, Verdict};
use crate::storage::StorageError;

use super::decide::{self, DecisionContext};
use super::run::Run;

/// Why a run was not resumed with an overwrite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverwriteError {
    /// The store does not know the run.
    #[error("there is no such run")]
    Unknown,
    /// It is being worked on.
    #[error("the run has not ended")]
    NotEnded,
    /// It ended for another reason.
    #[error("the run did not end because of concurrent writes")]
    NoConflict,
    /// The overwrites leave a conflict, or a channel does not take them. Nothing has changed.
    #[error(transparent)]
    State(#[from] StateError),
    /// It could not go on from there: an agent that it names is gone, or a custom reducer panicked.
    #[error("{0}")]
    CannotGoOn(String),
    /// The values are larger than a command may be.
    #[error("the overwrite has {size} bytes; at most {} are allowed", decide::MAX_COMMAND)]
    TooLarge {
        /// The size in bytes.
        size: usize,
    },
    /// Who writes is named at too great a length.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// A value is nested too deeply to be stored.
    #[error("a value is nested deeper than {} levels", crate::messages::MAX_JSON_DEPTH)]
    TooDeep,
    /// Nobody said whether the overwrite was journaled; the run tells.
    #[error("nothing is known about the overwrite; look at the run")]
    Interrupted,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A run as it was before the event whose join failed and ended it.
#[derive(Debug)]
pub struct Conflicted {
    pub(in crate::supervision::runs) run: Run,
    pub(in crate::supervision::runs) ender: RunEvent,
    pub(in crate::supervision::runs) ended_at: Timestamp,
}

impl Conflicted {
    /// Takes a run, read as `base` and the events after it, back to before its conflict.
    ///
    /// # Errors
    /// It has not ended, or not because of a conflict.
    pub fn find(base: &Run, tail: Vec<RunEvent>) -> Result<Self, OverwriteError> {
        let mut events = in_order_of_effect(tail);
        let mut ended = base.clone();
        let last = events.iter().position(|event| {
            ended.step(event);
            ended.result().is_some()
        });
        let last = last.ok_or(OverwriteError::NotEnded)?;
        if !matches!(ended.conflict.as_deref(), Some(StateError::ConcurrentWrite { .. })) {
            return Err(OverwriteError::NoConflict);
        }
        let mut run = base.clone();
        for event in &events[..last] {
            run.step(event);
        }
        Ok(Self { run, ender: events.swap_remove(last), ended_at: ended.last_at() })
    }

    /// How durable the run's writes are, if the task says so.
    pub(in crate::supervision::runs) fn durability(&self) -> Option<Durability> {
        self.run.submission().task.durability
    }

    /// The overwrite as an event, if the join succeeds with it.
    ///
    /// # Errors
    /// It does not, or the ended turn cannot go where it wants.
    ///
    /// # Panics
    /// When a custom reducer does.
    pub fn overwrite(
        &self,
        update: Update,
        by: Arc<str>,
        context: &DecisionContext<'_>,
    ) -> Result<RunEvent, OverwriteError> {
        let turn = self.ender.turn().ok_or(OverwriteError::NoConflict)?;
        let event = |verdict| RunEvent::Overwritten {
            turn,
            update: update.clone(),
            verdict,
            by: Arc::clone(&by),
            at: context.now.wall,
        };
        let mut resumed = self.run.clone();
        resumed.step(&event(Verdict::Nothing));
        // A turn whose children's writes met was not asked where it goes: their join came first.
        let verdict = match &self.ender {
            RunEvent::TurnEnded { command, verdict: Verdict::Nothing, .. } => {
                decide::on_resumed_end(&resumed, turn, command, context)?
            }
            _ => Verdict::Nothing,
        };
        let event = event(verdict);
        let mut resumed = self.run.clone();
        resumed.step(&event);
        resumed.step(&self.ender);
        match resumed.conflict {
            Some(left) => Err((*left).into()),
            None => Ok(event),
        }
    }
}

/// Journaled events in the order in which the fold takes them: an overwrite comes before the event that it is about.
#[must_use]
pub fn in_order_of_effect(mut events: Vec<RunEvent>) -> Vec<RunEvent> {
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
