//! The state that a node sees, and how a block ends (SEMANTICS 7).
//!
//! A node sees the writes of the nodes that it comes after, joined in plan order, and none of the nodes beside it.

use crate::messages::state::{Delta, StateError, compact, join};
use crate::messages::{Json, Outcome, Refusal, State};
use crate::supervision::runs::rules::run::branch::{BranchEnd, Now, Origin};
use crate::supervision::runs::rules::run::effect::Effect;
use crate::supervision::runs::rules::run::fold::Run;
use crate::workflow::graph::{Exit, Graph, Task};

use super::scope::{NodeEnd, Round};
use super::seen::Seen;

impl Run {
    /// The state seen after these nodes: their writes and those of the nodes before them, in plan order.
    pub(super) fn joined(&mut self, id: u32, after: &[u32], base: Option<u32>) -> Result<State, StateError> {
        let Some(graph) = self.plan.shared_graph() else { return Ok(State::default()) };
        let over = self.extras.overwrite.is_some();
        let Some(branch) = self.branches.get_mut(id) else { return Ok(State::default()) };
        let Now::Plan(scope) = &mut branch.now else { return Ok(branch.view.clone()) };
        let shape = &graph.level(scope.block).shape;
        let single = match after {
            [] => return Ok(branch.view.clone()),
            [only] => Some(*only),
            // One of the two may have come after the other.
            [one, other] => {
                let rank = |node: &u32| shape.nodes[*node as usize].rank;
                let (earlier, later) = if rank(one) < rank(other) { (*one, *other) } else { (*other, *one) };
                scope.progress.came_before(shape, earlier, later).then_some(later)
            }
            [..] => None,
        };
        if let Some(end) = single.and_then(|node| scope.end(node)) {
            return Ok(end.view.clone());
        }
        let base = base.filter(|base| scope.end(*base).is_some());
        let mut region = scope.progress.region(shape, after, base);
        region.retain(|node| scope.end(*node).is_some_and(|end| !end.deltas.is_empty()));
        if over {
            let mut written: Vec<Vec<Delta>> = Vec::new();
            for node in &region {
                let end = scope.ends[*node as usize].as_mut();
                written.push(end.map(|end| std::mem::take(&mut end.deltas)).unwrap_or_default());
            }
            if let Some(over) = &self.extras.overwrite {
                crate::messages::state::overwrite(written.iter_mut(), &over.written);
            }
            for (node, deltas) in region.iter().zip(written) {
                if let Some(end) = &mut scope.ends[*node as usize] {
                    end.deltas = deltas;
                }
            }
        }
        let view = base.and_then(|base| scope.end(base)).map_or(&branch.view, |end| &end.view);
        let writers: Vec<&[Delta]> =
            region.iter().map(|node| scope.end(*node).map_or([].as_slice(), |end| &end.deltas)).collect();
        let concurrent = |a: usize, b: usize| !scope.progress.came_before(shape, region[a], region[b]);
        join(view, &writers, concurrent, &self.rules)
    }

    /// The state of the run so far: what the root sees; with a plan, the joined writes of its finished nodes, or the first state
    /// if these conflict.
    pub(in crate::supervision::runs) fn state_so_far(&mut self) -> State {
        let finished = self
            .plan
            .graph()
            .zip(self.scope(0))
            .map(|(graph, scope)| scope.progress.finished(&graph.level(scope.block).shape));
        let joined = finished.and_then(|finished| self.joined(0, &finished, None).ok());
        joined.or_else(|| self.branches.get(0).map(|root| root.view.clone())).unwrap_or_default()
    }

    /// The state before a node that does not start; the first state of its block if the writes before the node conflict.
    pub(super) fn seen_before(&mut self, id: u32, node: u32) -> State {
        let begun = |run: &Self| run.branches.get(id).map(|branch| branch.view.clone()).unwrap_or_default();
        let (Some(graph), Some(scope)) = (self.plan.shared_graph(), self.scope(id)) else { return begun(self) };
        let dominator = graph.level(scope.block).shape.nodes[node as usize].dominator;
        let before: Vec<u32> = scope.progress.before(node).collect();
        self.joined(id, &before, dominator).unwrap_or_else(|_| begun(self))
    }

    /// Ends a block that is complete; with `forced`, ends it with that output.
    pub(super) fn finish_block(&mut self, id: u32, forced: Option<Json>, effects: &mut Vec<Effect>) {
        let Some(graph) = self.plan.shared_graph() else { return };
        let Some(scope) = self.scope_mut(id) else { return };
        let escalations = std::mem::take(&mut scope.escalations);
        let reversible = self.take_reversible(&graph, id);
        let Some(branch) = self.branches.get_mut(id) else { return };
        branch.keep_reversible(reversible);
        let Now::Plan(scope) = &mut branch.now else { return };
        for child in std::mem::take(&mut scope.children).into_values() {
            self.cancel_branch(child, effects);
        }
        if !escalations.is_empty() {
            return self.end_escalated(id, escalations, effects);
        }
        let Some(scope) = self.scope(id) else { return };
        let level = graph.level(scope.block);
        let failed = scope.progress.failed().filter(|_| forced.is_none());
        let last = match failed {
            Some(_) => scope.progress.finished(&level.shape),
            None => scope.progress.last(&level.shape),
        };
        // Not every edge was taken: a path may have ended before this node.
        let is_waist = |waist: &u32| scope.progress.all_came_after(&level.shape, *waist, &last);
        let waist = level.waist.filter(|waist| last.len() > 1 && is_waist(waist));
        let joined = self.joined(id, &last, waist);
        if let Some(failed) = failed {
            // The state of a failed run includes the finished nodes.
            if let (Some(root), Ok(view)) =
                (self.branches.get_mut(id).filter(|branch| branch.origin == Origin::Root), joined)
            {
                root.view = view;
            }
            let outcome = self.failure_of(id, failed);
            if let Some(branch) = self.branches.get_mut(id) {
                branch.extras.has_failed_within = true;
            }
            return self.compensate(id, outcome, effects);
        }
        let view = match joined {
            Ok(view) => view,
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.extras.conflict = Some(Box::new(error));
                return self.compensate(id, outcome, effects);
            }
        };
        let output = match &forced {
            Some(output) => Ok(output.clone()),
            None => Seen { run: self, graph: &graph, branch: id, view: &view }.output_of(&last),
        };
        let output = match output {
            Ok(output) => output,
            Err(error) => return self.compensate(id, Outcome::Failed { error }, effects),
        };
        let again = match &forced {
            Some(_) => Ok(false),
            None => self.is_repeated(&graph, id, &view, &output),
        };
        let Some(branch) = self.branches.get_mut(id) else { return };
        branch.view = view;
        if let (Now::Plan(scope), true) = (&mut branch.now, branch.origin != Origin::Root) {
            let region = scope.progress.region(&level.shape, &last, None);
            for node in region {
                if let Some(end) = &mut scope.ends[node as usize] {
                    branch.deltas.append(&mut end.deltas);
                }
            }
        }
        let exits = self.scope_mut(id).map(|scope| std::mem::take(&mut scope.round.exits)).unwrap_or_default();
        if !exits.is_empty() {
            self.note_targets(id, exits, false);
        }
        match again {
            Ok(true) => {
                self.shorten(id);
                self.begin_again(id, output);
            }
            Ok(false) => self.close_block(id, output, forced.is_some() && !level.is_closed(), effects),
            Err(outcome) => self.compensate(id, outcome, effects),
        }
    }

    /// Whether the body of a loop begins another iteration.
    fn is_repeated(&self, graph: &Graph, id: u32, view: &State, output: &Json) -> Result<bool, Outcome> {
        let Some(branch) = self.branches.get(id) else { return Ok(false) };
        let Some((_, _, station)) = self.station(graph, branch) else { return Ok(false) };
        let (Task::Loop { until, max, ends_at_max, .. }, Some(scope)) = (&station.task, self.scope(id)) else {
            return Ok(false);
        };
        let is_enough = match until {
            Exit::Bound => false,
            Exit::NotRepeated => !scope.round.is_repeated || !scope.round.exits.is_empty(),
            Exit::Holds(test) => {
                let seen = Seen { run: self, graph, branch: id, view };
                let failed = |problem| Outcome::Failed { error: format!("its exit condition: {problem}") };
                seen.holds(test, output).map_err(failed)?
            }
        };
        if is_enough || self.is_escalated(id) {
            return Ok(false);
        }
        if scope.round.iteration < *max {
            return Ok(true);
        }
        if *ends_at_max {
            return Ok(false);
        }
        // A loop made by commands is named by the node to which they go back.
        let level = scope.level(graph);
        let first = level.shape.sources().next().map_or(station, |first| &level.nodes[first as usize]);
        let named = if matches!(until, Exit::NotRepeated) { first } else { station };
        Err(Outcome::refused(Refusal::LoopLimit { node: named.name.to_string(), max: *max }))
    }

    /// Compacts the writes of a loop each time they have doubled.
    fn shorten(&mut self, id: u32) {
        let Some(branch) = self.branches.get_mut(id) else { return };
        if branch.deltas.len() >= branch.shortened * 2 + 16 {
            compact(&mut branch.deltas, &self.rules);
            branch.shortened = branch.deltas.len();
        }
    }

    fn begin_again(&mut self, id: u32, output: Json) {
        self.forget_within(id);
        let Some(scope) = self.scope(id) else { return };
        let (block, input, iteration) = (scope.block, scope.input.clone(), scope.round.iteration + 1);
        let round = Round { iteration, previous: output, ..Round::default() };
        self.begin_body(id, block, input, round);
    }

    /// Ends the branch of a block; with `is_all`, the enclosing block ends with it.
    fn close_block(&mut self, id: u32, output: Json, is_all: bool, effects: &mut Vec<Effect>) {
        let Some(graph) = self.plan.shared_graph().filter(|_| is_all) else {
            return self.end_branch(id, Outcome::Finished, output, effects);
        };
        // The item of a map: its siblings are cancelled, and finished ones stay.
        let mut ended = id;
        while let Some(Origin::Fork { parent, index }) = self.branches.get(ended).map(|branch| branch.origin) {
            let Some(Now::Forked(forked)) = self.branches.get_mut(parent).map(|branch| &mut branch.now) else { break };
            let (children, mut ends) = (forked.children.clone(), std::mem::take(&mut forked.ends));
            let reversible = self.take_reversible(&graph, parent);
            if let Some(map) = self.branches.get_mut(parent) {
                map.keep_reversible(reversible);
            }
            children.into_iter().filter(|child| *child != ended).for_each(|child| self.cancel_branch(child, effects));
            self.note_end_of(ended);
            if let (Some(mut item), Some(end)) = (self.branches.remove(ended), ends.get_mut(index)) {
                *end = Some(BranchEnd::of(&mut item, Outcome::Finished, output.clone()));
            }
            let (outcome, _) = self.join_ends(parent, ends, Some(&output));
            if !outcome.is_finished() {
                return self.compensate(parent, outcome, effects);
            }
            ended = parent;
        }
        self.note_end_of(ended);
        if let Some(mut branch) = self.branches.remove(ended) {
            let end = BranchEnd::of(&mut branch, Outcome::Finished, output);
            self.node_branch_ended(*branch, end, true);
        }
    }

    /// The outcome of a block whose node failed without a handler.
    pub(super) fn failure_of(&self, id: u32, node: u32) -> Outcome {
        let end = self.plan.graph().zip(self.scope(id)).and_then(|(graph, scope)| {
            let name = &graph.level(scope.block).nodes[node as usize].name;
            Some((self.path_to(self.branches.get(id)?, Some(name)), scope.end(node)?))
        });
        match end {
            Some((node, NodeEnd { outcome: Outcome::Failed { error }, has_failed_within: false, .. })) => {
                Outcome::Failed { error: format!("node {node}: {error}") }
            }
            Some((_, end)) => end.outcome.clone(),
            None => Outcome::Failed { error: "a node failed".to_owned() },
        }
    }
}
