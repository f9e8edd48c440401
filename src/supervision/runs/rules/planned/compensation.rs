//! Taking back what a workflow has done before it failed (SEMANTICS 7), the last first. A node that names somebody for that
//! is taken back by that agent alone; of one that names nobody, what was done within it.

use serde::{Deserialize, Serialize};

use crate::messages::state::StateError;
use crate::messages::{Json, Outcome, State};
use crate::workflow::graph::Graph;

use super::super::run::{Branch, Brief, Now, Origin, Run};
use super::super::step::Effect;
use super::NodeEnd;

/// A node that has finished, and that somebody was named to take back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Reversible {
    block: u32,
    node: u32,
    view: State,
    output: Json,
}

/// Compensation under way: how the branch will end, which node is taken back now and by which branch, and what is left, the
/// next one last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Undo {
    outcome: Outcome,
    at: Option<(u32, u32)>,
    pub(in crate::supervision::runs) by: Option<u32>,
    left: Vec<Reversible>,
}

impl Run {
    /// A node has finished: if it names who takes it back, that is for the whole of it.
    pub(super) fn make_reversible(&self, id: u32, node: u32, end: &mut NodeEnd) {
        let Some((graph, scope)) = self.graph.as_deref().zip(self.scope(id)) else { return };
        let block = scope.block;
        if graph.level(block).nodes[node as usize].rules.compensation.is_some() {
            let (view, output) = (end.view.clone(), end.output.clone());
            end.reversible = vec![Reversible { block, node, view, output }];
        }
    }

    /// Takes out what can be taken back of what was done in a branch and below it, the first first.
    pub(in crate::supervision::runs) fn take_reversible(&mut self, graph: &Graph, id: u32) -> Vec<Reversible> {
        let Some(branch) = self.branches.get_mut(&id).filter(|_| graph.is_reversible) else { return Vec::new() };
        let mut found = std::mem::take(&mut branch.reversible);
        let below: Vec<u32> = match &mut branch.now {
            Now::Plan(scope) => {
                for node in scope.progress.finished(&graph.level(scope.block).shape) {
                    if let Some(end) = &mut scope.ends[node as usize] {
                        found.append(&mut end.reversible);
                    }
                }
                found.append(&mut scope.given_up);
                scope.children.values().copied().collect()
            }
            Now::Forked { children, ends, .. } => {
                ends.iter_mut().flatten().for_each(|end| found.append(&mut end.reversible));
                children.clone()
            }
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) => Vec::new(),
        };
        for child in below {
            found.append(&mut self.take_reversible(graph, child));
        }
        found
    }

    /// A block or a map fails: what is at work in it is cancelled, what it has done is taken back, and then its branch ends. A
    /// conflict takes nothing back by itself: a person may have the run go on from there. If somebody deals with it, what was
    /// done goes up with what else there is to be taken back.
    pub(in crate::supervision::runs) fn take_back(&mut self, id: u32, outcome: Outcome, effects: &mut Vec<Effect>) {
        let Some(graph) = self.graph.clone() else { return };
        let left = self.take_reversible(&graph, id);
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let is_conflict = matches!(self.conflict.as_deref(), Some(StateError::ConcurrentWrite { .. }));
        let (up, left) = if is_conflict { (left, Vec::new()) } else { (Vec::new(), left) };
        branch.reversible = up;
        branch.undo = Some(Box::new(Undo { outcome, at: None, by: None, left }));
        let children: Vec<u32> = match &mut branch.now {
            Now::Plan(scope) => std::mem::take(&mut scope.children).into_values().collect(),
            Now::Forked { children, .. } => children.clone(),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) => Vec::new(),
        };
        for child in children {
            self.cancel_branch(child, effects);
        }
        self.take_back_next(id, effects);
    }

    /// Takes back what is next, or ends the branch if nothing is left. What cannot be taken back does not keep the rest from
    /// it.
    pub(in crate::supervision::runs) fn take_back_next(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(graph) = self.graph.clone() else { return };
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let (chain, brief) = (branch.chain.clone(), Brief { deadline: None, ..branch.brief.clone() });
        let Some(undo) = &mut branch.undo else { return };
        let Some(Reversible { block, node, view, output }) = undo.left.pop() else {
            let outcome = undo.outcome.clone();
            return self.end_branch(id, outcome, Json::null(), effects);
        };
        undo.at = Some((block, node));
        let Some(agent) = graph.level(block).nodes[node as usize].rules.compensation else { return };
        let origin = Origin::Compensation { parent: id };
        let child = self.add_branch(Branch { brief, ..Branch::new(origin, view, chain) });
        if let Some(undo) = self.branches.get_mut(&id).and_then(|branch| branch.undo.as_mut()) {
            undo.by = Some(child);
        }
        self.start_cast(child, agent, output, false, effects);
    }

    /// The nodes on the way to the one that a branch takes back now, from the inside.
    pub(super) fn way_taken_back(&self, graph: &Graph, branch: u32) -> Vec<String> {
        let Some((mut block, mut node)) = self.taken_back(branch) else { return Vec::new() };
        let own = self.branches.get(&branch).and_then(|branch| self.station(graph, branch));
        let mut way = Vec::new();
        loop {
            let level = graph.level(block);
            way.push(level.nodes[node as usize].name.to_string());
            if self.scope(branch).is_some_and(|scope| scope.block == block) {
                return way;
            }
            let Some(around) = level.within else { return way };
            (block, node) = around;
            if let Some((level, own, _)) = own
                && std::ptr::eq(level, graph.level(block))
                && own == node
            {
                return way;
            }
        }
    }

    /// The node that a branch takes back now, with the block that it lies in.
    pub(in crate::supervision::runs) fn taken_back(&self, branch: u32) -> Option<(u32, u32)> {
        self.branches.get(&branch)?.undo.as_ref()?.at
    }
}
