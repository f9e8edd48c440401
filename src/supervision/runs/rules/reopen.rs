//! Runs that ended because of concurrent writes, and continue with a person's overwrite (SEMANTICS 6). Pure.
//!
//! The journal has the events in the order in which they happened: the event whose join failed, then the overwrite. The fold
//! applies the overwrite first, so that the join uses it.

use std::sync::Arc;

use crate::messages::{Durability, OpenFailure, RunEvent, Update, Verdict};

use super::decide::{self, DecisionContext};
pub(crate) use super::errors::OverwriteError;
use super::failures::conflict;
use super::history::in_order_of_effect;
use super::run::Run;

/// A run in the state before the event whose failed join ended it.
#[derive(Debug)]
pub(crate) struct Conflicted {
    pub(in crate::supervision::runs) run: Run,
    pub(in crate::supervision::runs) ender: RunEvent,
    /// What lists have of it.
    pub(in crate::supervision::runs) failure: OpenFailure,
}

impl Conflicted {
    /// Restores the state of a run before its conflict; the run is `base` and the events after it.
    ///
    /// # Errors
    /// It has not ended, or not because of a conflict.
    pub(crate) fn find(base: &Run, tail: Vec<RunEvent>) -> Result<Self, OverwriteError> {
        let mut events = in_order_of_effect(tail);
        let mut ended = base.clone();
        let last = events.iter().position(|event| {
            ended.step(event);
            ended.result().is_some()
        });
        let last = last.ok_or(OverwriteError::NotEnded)?;
        let failure = conflict(&ended).ok_or(OverwriteError::NoConflict)?;
        let mut run = base.clone();
        for event in &events[..last] {
            run.step(event);
        }
        Ok(Self { run, ender: events.swap_remove(last), failure })
    }

    /// The durability of the run's writes, if the task sets it.
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
    pub(crate) fn overwrite(
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
        // The join of the children's writes failed before the turn's command was decided, so it is decided now.
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
        match resumed.conflict() {
            Some(left) => Err(left.clone().into()),
            None => Ok(event),
        }
    }
}
