//! The runs that turns of a run have begun.

use std::collections::BTreeSet;

use crate::messages::{RunEvent, TurnId};

use super::run_handle::{RunError, RunHandle};
use super::{placed_turns, workflow_agents};

impl RunHandle {
    /// The runs that turns of this one have begun, in the order of the turns: because their agents are workflows, or because another board
    /// on the store hosts their agents (SEMANTICS 16).
    ///
    /// # Errors
    /// The run is unknown, or its journal cannot be read.
    pub async fn children(&self) -> Result<Vec<RunHandle>, RunError> {
        let turns: BTreeSet<u32> = self.history().await?.iter().filter_map(RunEvent::turn).collect();
        let mut children = Vec::new();
        for number in turns {
            let turn = TurnId { run: self.id(), number };
            for child in [workflow_agents::run_of(turn), placed_turns::run_of(turn)] {
                if self.board.board.journal.has(child).await? {
                    children.push(self.board.run(child));
                }
            }
        }
        Ok(children)
    }
}
