//! Turns that other boards have taken, each as a run of one turn: what such a run waits for, the run of the turn waits for (SEMANTICS 16).

use futures::future::{BoxFuture, try_join_all};

use crate::messages::{PlacedTurn, RunId};
use crate::supervision::runs::rules::budget::Share;

use super::fold::Run;
use super::turn::{OpenTurn, Phase};

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

    /// The runs that turns of this one still are at other boards which its end has closed.
    pub(in crate::supervision::runs) fn left_elsewhere(&self) -> impl Iterator<Item = RunId> {
        let left = self.extras.left_elsewhere.iter().filter(|_| self.result().is_some());
        left.map(|turn| PlacedTurn::run_of(self.turn_id(*turn)))
    }

    /// What is set aside for the run that an open turn is at another board: a fourth of what is left, so that others of its run have some
    /// as well; all of it where there can be none: in the run of a turn that is itself passed on, and has given nothing away.
    pub(in crate::supervision::runs) fn share_for(&self, turn: &OpenTurn) -> Share {
        let is_alone = self.is_for_another_board(turn) && self.branches.iter().count() == 1;
        self.budget.share(self.branch_of(turn).extras.brief.sub_budget, if is_alone { 1 } else { 4 })
    }

    /// What an earlier attempt of an open turn has set aside for the run that it is at another board, if that has not reported.
    pub(in crate::supervision::runs) fn share_left(&self, turn: u32) -> Option<(u32, Share)> {
        // From its share on, nothing else is set aside for the turn, so the last one is the share.
        self.turns.get(turn).filter(|open| open.is_taken_elsewhere())?;
        self.budget.last_left_by_attempt_before(turn)
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
        let placed: Vec<Placed> = self.taken_elsewhere().filter_map(of_turn).collect();
        if !placed.is_empty() || !self.extras.placed.is_empty() {
            self.extras.placed = placed;
        }
        self
    }

    /// Whether it is the turn of another run, by which it is known.
    fn is_placed(&self) -> bool {
        self.submission().task.placed.as_ref().is_some_and(|placed| PlacedTurn::run_of(placed.turn) == self.id())
    }

    /// The open turns that other boards have taken, as far as they were read, as runs.
    pub(super) fn placed(&self) -> impl Iterator<Item = &Run> {
        self.extras.placed.iter().filter(|placed| self.turn(placed.turn).is_some()).map(|placed| &placed.run)
    }

    /// Those of these turns whose runs are so. One that is to be tried again waits for nothing.
    pub(super) fn placed_that(&self, is_so: impl Fn(&Run) -> bool) -> impl Iterator<Item = u32> {
        let is_leased = |turn: u32| self.turn(turn).is_some_and(|open| *open.phase() == Phase::Leased);
        let placed = self.extras.placed.iter().filter(move |placed| is_leased(placed.turn) && is_so(&placed.run));
        placed.map(|placed| placed.turn)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::super::effect::Effect;
    use super::*;
    use crate::messages::state::StateRules;
    use crate::messages::{
        AgentName, Chain, Command, Limits, Order, Outcome, RunEvent, State, Submission, Task, Timestamp, TraceId,
        TurnId, Usage, Verdict,
    };

    const AT: Timestamp = Timestamp::from_millis(1_000);

    fn agent() -> AgentName {
        AgentName::new("lead").unwrap()
    }

    /// A run of 800 tokens, which is the turn of another one or is not.
    fn run(is_placed: bool) -> Run {
        let (run, trace, turn) = (RunId(Uuid::from_u128(7)), TraceId(Uuid::from_u128(7)), RunId(Uuid::from_u128(8)));
        let placed = PlacedTurn {
            turn: TurnId { run: turn, number: 3 },
            view: State::default(),
            previous_agent: None,
            figures: None,
            answers: None,
            node: None,
            conversation: None,
        };
        let placed = is_placed.then(|| Box::new(placed));
        let task = Task { placed, ..Task::new("x").limits(Limits { tokens: 800, ..Limits::default() }) };
        let (cast, chain) = (Vec::new(), Chain::default());
        let submission = Submission { run, trace, task, agent: agent(), cast, chain, at: AT };
        Run::begin(Arc::new(submission), StateRules::default()).0
    }

    fn reserved(ordinal: u32, tokens: u64, is_share: bool) -> RunEvent {
        let (verdict, at, cost, charged) = (Verdict::Admitted(Vec::new()), None, None, None);
        RunEvent::Reserved { turn: 1, ordinal, tokens, verdict, at, cost, charged, is_share }
    }

    fn settled(ordinal: u32) -> RunEvent {
        let usage = Some(Usage::of(1, 1));
        RunEvent::Settled { turn: 1, ordinal, usage, at: None, model: None, is_of_run: true }
    }

    fn share_of(run: &Run, turn: u32) -> u64 {
        run.share_for(run.turn(turn).unwrap()).tokens
    }

    #[test]
    fn a_turn_that_is_passed_on_once_more_has_all_that_it_was_given() {
        assert_eq!(share_of(&run(false), 1), 200);
        let mut placed = run(true);
        assert_eq!(share_of(&placed, 1), 800);
        placed.step(&reserved(0, 300, false));
        assert_eq!(share_of(&placed, 1), 500, "less what is set aside already");
        let (order, verdict) = (Order::new("lead", "review"), Verdict::Admitted(vec![agent()]));
        placed.step(&RunEvent::Delegated { turn: 1, ordinal: 0, order, verdict, at: AT });
        assert_eq!((share_of(&placed, 1), share_of(&placed, 2)), (125, 125), "two have a part");
    }

    #[test]
    fn the_share_that_an_earlier_attempt_has_left_is_that_of_a_turn_elsewhere_alone() {
        let mut run = run(false);
        let recovered = RunEvent::Recovered { at: AT, new_process: true };
        run.step(&reserved(0, 40, false));
        run.step(&recovered);
        assert_eq!(run.share_left(1), None, "it is that of a call");
        run.step(&reserved(1, 190, true));
        run.step(&recovered);
        assert_eq!(run.share_left(1), Some((1, Share { tokens: 190, cost: None })));
    }

    #[test]
    fn a_turn_elsewhere_that_is_closed_before_its_run_has_reported_is_left_there() {
        let id = PlacedTurn::run_of(run(false).turn_id(1));
        let stopped = RunEvent::Stopped { outcome: Outcome::Cancelled { reason: "x".into() }, at: AT };
        let after = |events: &[RunEvent]| {
            let mut run = run(false);
            let effects: Vec<Effect> = events.iter().flat_map(|event| run.step(event)).collect();
            (run.left_elsewhere().collect::<Vec<_>>(), effects.contains(&Effect::CancelElsewhere(1)))
        };
        assert_eq!(after(&[reserved(0, 9, false), stopped.clone()]), (vec![], false), "it is taken here");
        assert_eq!(after(&[reserved(0, 9, true)]), (vec![], false), "it is open");
        assert_eq!(after(&[reserved(0, 9, true), stopped.clone()]), (vec![id], true));
        let late = settled(0);
        assert_eq!(after(&[reserved(0, 9, true), stopped, late]), (vec![id], true), "it stays so");
        let (command, verdict) = (Arc::new(Command::output(1)), Verdict::Nothing);
        let ended = RunEvent::TurnEnded { turn: 1, agent: agent(), attempt: 1, command, verdict, at: AT };
        assert_eq!(after(&[reserved(0, 9, true), settled(0), ended]), (vec![], false), "it has ended with its run");
    }
}
