//! Compensation of a failed workflow's finished nodes, in reverse order (SEMANTICS 7). A node with a compensating agent is
//! compensated by that agent alone; for a node without one, the nodes within it are compensated.

use crate::messages::state::StateError;
use crate::messages::{Json, Outcome};
use crate::supervision::runs::rules::run::branch::{Branch, Brief, Forked, Now, Origin};
use crate::supervision::runs::rules::run::effect::Effect;
use crate::supervision::runs::rules::run::fold::Run;
use crate::workflow::graph::Graph;

use super::scope::{NodeEnd, Reversible, Undo};

impl Run {
    /// Makes a finished node reversible as a whole, if it has a compensating agent.
    pub(super) fn make_reversible(&self, id: u32, node: u32, end: &mut NodeEnd) {
        let Some((graph, scope)) = self.plan.graph().zip(self.scope(id)) else { return };
        let block = scope.block;
        if graph.level(block).nodes[node as usize].rules.compensation.is_some() {
            let (view, output) = (end.view.clone(), end.output.clone());
            end.reversible = vec![Reversible { block, node, view, output }];
        }
    }

    /// Removes and returns the reversible nodes of a branch and the branches below it, oldest first.
    pub(in crate::supervision::runs) fn take_reversible(&mut self, graph: &Graph, id: u32) -> Vec<Reversible> {
        let Some(branch) = self.branches.get_mut(id).filter(|_| graph.is_reversible) else { return Vec::new() };
        let reversible = branch.extras.get_mut().map(|extras| std::mem::take(&mut extras.reversible));
        let mut found = reversible.unwrap_or_default();
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
            Now::Forked(forked) => {
                let Forked { children, ends, .. } = &mut **forked;
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

    /// Fails a block or a map: running nodes are cancelled, finished ones are compensated, and then its branch ends. A conflict
    /// compensates nothing at once: a person may resume the run from there. If the failure is handled, the reversible nodes are
    /// passed to the enclosing block.
    pub(in crate::supervision::runs) fn compensate(&mut self, id: u32, outcome: Outcome, effects: &mut Vec<Effect>) {
        let Some(graph) = self.plan.shared_graph() else { return };
        let left = self.take_reversible(&graph, id);
        let Some(branch) = self.branches.get_mut(id) else { return };
        let is_conflict = matches!(self.extras.conflict.as_deref(), Some(StateError::ConcurrentWrite { .. }));
        let (up, left) = if is_conflict { (left, Vec::new()) } else { (Vec::new(), left) };
        branch.extras.reversible = up;
        branch.extras.undo = Some(Box::new(Undo { outcome, at: None, by: None, left }));
        let children: Vec<u32> = match &mut branch.now {
            Now::Plan(scope) => std::mem::take(&mut scope.children).into_values().collect(),
            Now::Forked(forked) => forked.children.clone(),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) => Vec::new(),
        };
        for child in children {
            self.cancel_branch(child, effects);
        }
        self.compensate_next(id, effects);
    }

    /// Compensates the next node, or ends the branch if none is left. A failed compensation does not prevent the remaining ones.
    pub(in crate::supervision::runs) fn compensate_next(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(graph) = self.plan.shared_graph() else { return };
        let Some(branch) = self.branches.get_mut(id) else { return };
        let (chain, brief) = (branch.chain.clone(), Brief { deadline: None, ..branch.extras.brief.clone() });
        let Some(undo) = branch.extras.get_mut().and_then(|extras| extras.undo.as_mut()) else { return };
        let Some(Reversible { block, node, view, output }) = undo.left.pop() else {
            let outcome = undo.outcome.clone();
            return self.end_branch(id, outcome, Json::null(), effects);
        };
        undo.at = Some((block, node));
        let Some(agent) = graph.level(block).nodes[node as usize].rules.compensation else { return };
        let origin = Origin::Compensation { parent: id };
        let child = self.branches.add(Branch::new(origin, view, chain).with_brief(brief));
        if let Some(undo) = self.branches.get_mut(id).and_then(|branch| branch.extras.get_mut()?.undo.as_mut()) {
            undo.by = Some(child);
        }
        self.start_cast(child, agent, output, false, effects);
    }
}
