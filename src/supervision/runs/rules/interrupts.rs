//! Nodes of a plan that start when a person resumes them. Pure.

use std::sync::Arc;

use crate::messages::state::StateError;
use crate::messages::{AgentName, Json, RunEvent, Timestamp, TooDeep, TooLong, TurnId, Unacknowledged, Update};
use crate::storage::StorageError;

use super::run::{Phase, Run};

/// A node that waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupt {
    /// Names it: needed to resume.
    pub turn: TurnId,
    /// The way to the node, as in [`Run::node_of`].
    pub node: String,
    /// Who takes the turn.
    pub agent: AgentName,
    /// What it will work on.
    pub input: Json,
    /// The channels as it will see them.
    pub state: Json,
}

/// How an interrupted node continues: unchanged, or with what a person changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resume {
    /// Replaces its input.
    pub input: Option<Json>,
    /// Writes to channels, applied before it starts.
    pub update: Update,
}

/// Why an interrupted node was not resumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The run is not in memory, or the turn does not wait for a person; another person may have been quicker.
    #[error("turn {0} does not wait to be resumed")]
    NotInterrupted(TurnId),
    /// A channel does not take what was written.
    #[error(transparent)]
    State(#[from] StateError),
    /// A custom reducer panicked over it.
    #[error("a reducer panicked: {0}")]
    Panicked(String),
    /// A value is nested too deeply to be stored.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// The name of the person is too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// It is not known whether it was journaled.
    #[error(transparent)]
    Unacknowledged(#[from] Unacknowledged),
    /// It could not be journaled.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Run {
    /// The nodes that wait for a person, in the order of their turns.
    pub fn interrupts(&self) -> impl Iterator<Item = Interrupt> {
        let waiting = self.turns().iter().filter(|(_, turn)| turn.phase == Phase::Interrupted);
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
    /// It does not wait, or a channel does not take what was written.
    ///
    /// # Panics
    /// When a custom reducer does.
    pub(in crate::supervision::runs) fn resumed(
        &self,
        turn: TurnId,
        resume: Resume,
        by: Arc<str>,
        at: Timestamp,
    ) -> Result<RunEvent, ResumeError> {
        let open = self.turn(turn.number).filter(|open| open.phase == Phase::Interrupted);
        let open = open.ok_or(ResumeError::NotInterrupted(turn))?;
        self.branch_of(open).view.clone().apply(&resume.update, self.rules())?;
        let Resume { input, update } = resume;
        Ok(RunEvent::Resumed { turn: turn.number, input, update, by, at })
    }
}
