//! Turns that other boards have taken, each as a run of one turn: what such a run waits for, the run of the turn waits for (SEMANTICS 16).

use futures::future::{BoxFuture, try_join_all};

use crate::messages::{PlacedTurn, RunId};

use super::fold::Run;
use super::turn::Phase;

/// An open turn as a run at another board.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    turn: u32,
    run: Run,
}

impl Run {
    /// The runs that open turns of this one are at other boards, if these have begun them.
    fn taken_elsewhere(&self) -> impl Iterator<Item = (u32, RunId)> {
        let taken = self.turns.iter().filter(|(_, turn)| turn.is_taken_elsewhere());
        taken.map(|(turn, _)| (turn, PlacedTurn::run_of(self.turn_id(turn))))
    }

    /// Reads those of its open turns that other boards have taken (SEMANTICS 16), at any depth, for [`Run::with_placed`]. `read` returns a
    /// run that the store has.
    ///
    /// # Errors
    /// Those of `read`.
    pub async fn read_placed<'r, E>(
        &self,
        read: impl Fn(RunId) -> BoxFuture<'r, Result<Option<Run>, E>>,
    ) -> Result<Vec<Run>, E> {
        let mut wanted: Vec<RunId> = self.taken_elsewhere().map(|(_, run)| run).collect();
        let mut placed = Vec::new();
        while !wanted.is_empty() {
            let there = try_join_all(wanted.drain(..).map(&read)).await?;
            let open = there.into_iter().flatten().filter(|run| run.result().is_none() && run.is_placed());
            for run in open {
                wanted.extend(run.taken_elsewhere().map(|(_, run)| run));
                placed.push(run);
            }
        }
        Ok(placed)
    }

    /// The same run with turns of it that [`Run::read_placed`] has read: what they wait for is in [`Run::pending`] and in
    /// [`Run::waits_for_people`], as if they were taken by the board of the run. Those of an earlier call are forgotten.
    #[must_use]
    pub fn with_placed(mut self, all: &[Run]) -> Self {
        let of_turn = |(turn, id): (u32, RunId)| {
            let run = all.iter().find(|run| run.id() == id)?;
            Some(Placed { turn, run: run.clone().with_placed(all) })
        };
        self.placed = self.taken_elsewhere().filter_map(of_turn).collect();
        self
    }

    /// Whether it is the turn of another run, by which it is known.
    fn is_placed(&self) -> bool {
        self.submission().task.placed.as_ref().is_some_and(|placed| PlacedTurn::run_of(placed.turn) == self.id())
    }

    /// The open turns that other boards have taken, as far as they were read, as runs.
    pub(super) fn placed(&self) -> impl Iterator<Item = &Run> {
        self.placed.iter().filter(|placed| self.turn(placed.turn).is_some()).map(|placed| &placed.run)
    }

    /// Those of these turns whose runs are so. One that is to be tried again waits for nothing.
    pub(super) fn placed_that(&self, is_so: impl Fn(&Run) -> bool) -> impl Iterator<Item = u32> {
        let is_leased = |turn: u32| self.turn(turn).is_some_and(|open| *open.phase() == Phase::Leased);
        let placed = self.placed.iter().filter(move |placed| is_leased(placed.turn) && is_so(&placed.run));
        placed.map(|placed| placed.turn)
    }
}
