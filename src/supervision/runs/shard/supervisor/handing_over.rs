//! Runs between turns that a board which is shut down gives to others.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::messages::{AgentName, Durability, RunId};
use crate::supervision::runs::shard::live::LiveRun;
use crate::supervision::runs::shard::queue::HandingOver;

use super::shard::RunShard;

impl RunShard {
    /// Ends the work on runs of which no turn is at work, and that another board can continue: those are returned, with its id.
    pub(super) fn hand_over(&mut self, handing_over: &HandingOver) -> Vec<(RunId, Arc<str>)> {
        let goes_to = |live: &LiveRun| {
            let agents = is_between_turns(live, handing_over).then(|| agents_of(live))?;
            Some((live.run.id(), (handing_over.choose)(&agents)?))
        };
        let mut going: Vec<_> = self.runs.values().filter_map(|live| goes_to(live)).collect();
        going.sort_unstable_by_key(|(run, _)| *run);
        for (run, _) in &going {
            let Some(live) = self.runs.remove(run) else { continue };
            self.shared.facts.lock().forget_run(*run);
            for number in live.run.open_turns() {
                if let Some(turn) = live.run.turn(number) {
                    self.shared.dispatch.abort(live.run.turn_id(number), &turn.agent);
                }
            }
            self.shared.roster.remove(*run);
        }
        going
    }
}

/// Whether everything that the run has done is journaled, and none of its turns is at work here.
fn is_between_turns(live: &LiveRun, handing_over: &HandingOver) -> bool {
    let begun = handing_over.begun.get(&live.run.id()).map_or(&[][..], Vec::as_slice);
    let waits = |number: u32| live.run.turn(number).is_some_and(|turn| turn.is_waiting());
    live.durability != Durability::Memory
        && live.is_acknowledged()
        && live.waiting.is_empty()
        && live.run.result().is_none()
        && begun.iter().all(|(number, is_at_work)| !is_at_work && waits(*number))
}

/// The agents of its open turns.
fn agents_of(live: &LiveRun) -> BTreeSet<AgentName> {
    let turns = live.run.open_turns().filter_map(|number| live.run.turn(number));
    turns.map(|turn| turn.agent.clone()).collect()
}
