//! Nodes of a plan that start when a person resumes them. Pure.

use std::sync::Arc;

use crate::messages::{Interrupt, PendingId, Resume, RunEvent, Timestamp, TurnId};

use super::errors::AnswerError;
use super::run::{Phase, Run};

impl Run {
    /// The nodes that wait for a person, in the order of their turns.
    pub(crate) fn interrupts(&self) -> impl Iterator<Item = Interrupt> {
        let waiting = self.turns().held_for_people().filter(|(_, turn)| *turn.phase() == Phase::Interrupted);
        waiting.map(|(number, turn)| Interrupt {
            turn: self.turn_id(number),
            node: self.node_of(number).unwrap_or_default(),
            agent: turn.agent.clone(),
            input: turn.input.clone(),
            state: self.branch_of(turn).view.to_json(),
        })
    }

    /// The event that resumes a turn.
    ///
    /// # Errors
    /// The turn does not wait, or a channel does not accept its value.
    ///
    /// # Panics
    /// When a custom reducer does.
    pub(in crate::supervision::runs) fn resumed(
        &self,
        turn: TurnId,
        resume: Resume,
        by: Arc<str>,
        at: Timestamp,
    ) -> Result<RunEvent, AnswerError> {
        let open = self.turn(turn.number).filter(|open| *open.phase() == Phase::Interrupted);
        let open = open.ok_or(AnswerError::NotOpen(PendingId::Node(turn)))?;
        self.branch_of(open).view.clone().apply(&resume.update, self.rules())?;
        let Resume { input, update } = resume;
        Ok(RunEvent::Resumed { turn: turn.number, input, update, by, at })
    }
}
