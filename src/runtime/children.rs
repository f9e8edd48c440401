//! The runs that turns of a run have begun.

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::future::join_all;

use crate::messages::{Pending, PlacedTurn, RunEvent, RunId, TurnId};
use crate::supervision::runs::run::Run;
use crate::supervision::runs::snapshot::load;

use super::run_handle::{RunError, RunHandle};

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
            for child in [turn.workflow_run(), PlacedTurn::run_of(turn)] {
                if self.board.board.journal.has(child).await? {
                    children.push(self.board.run(child));
                }
            }
        }
        Ok(children)
    }

    /// As [`RunHandle::read`], with the turns that other boards on the store have taken ([`Run::with_placed`]): what they wait for, the run
    /// waits for. Costs a reading of each of them.
    ///
    /// # Errors
    /// The run is unknown, or a journal cannot be read.
    pub async fn read_with_placed(&self) -> Result<Run, RunError> {
        let run = self.read().await?;
        let placed = self.placed_of(&run).await?;
        Ok(if placed.is_empty() { run } else { run.with_placed(&placed) })
    }

    /// The open turns of a run that other boards have taken, at any depth.
    pub(super) async fn placed_of(&self, run: &Run) -> Result<Vec<Run>, RunError> {
        let board = &self.board.board;
        if !board.boards.has_met_others() && !board.journal.storage().is_shared() {
            return Ok(Vec::new());
        }
        let read = |run| async move { Ok(load(&board.journal, run, &board.rules).await?.run) }.boxed();
        run.read_placed(read).await
    }

    /// What turns of the run wait for people with that other boards have taken, as those that work on them have it.
    pub(super) async fn pending_of_placed(&self) -> Vec<Pending> {
        let placed = async { self.placed_of(&self.read().await?).await };
        let waiting: Vec<RunId> = match placed.await {
            Ok(placed) => placed.iter().filter(|run| !run.pending().is_empty()).map(Run::id).collect(),
            Err(error) => {
                tracing::warn!(run = %self.id(), %error, "what its turns at other boards wait for is not known now");
                Vec::new()
            }
        };
        let asked = waiting.into_iter().map(|run| async move { self.board.run(run).pending_of_run().await });
        join_all(asked).await.into_iter().flatten().collect()
    }
}
