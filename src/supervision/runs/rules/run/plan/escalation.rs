//! Commands of a nested workflow that address the plan around it, and end the nested workflow (SEMANTICS 5).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::state::{Delta, join};
use crate::messages::{Command, Goto, Json, Outcome, Scope as Scoped};
use crate::supervision::runs::rules::run::branch::{BranchEnd, Origin};
use crate::supervision::runs::rules::run::effect::Effect;
use crate::supervision::runs::rules::run::fold::Run;

use super::scope::Escalation;

impl Run {
    /// The branch of the nested workflow that a branch works on or is part of.
    pub(super) fn workflow_within(&self, mut branch: u32) -> Option<u32> {
        let graph = self.plan.graph().filter(|graph| graph.has_workflows)?;
        while !self.scope(branch).is_some_and(|scope| graph.level(scope.block).is_closed()) {
            branch = self.branches.get(branch)?.origin.parent()?;
        }
        matches!(self.branches.get(branch)?.origin, Origin::Node { .. }).then_some(branch)
    }

    /// Keeps a command for the plan around its workflow, if it addresses that plan and there is one.
    pub(in crate::supervision::runs) fn escalate(
        &mut self,
        id: u32,
        command: &Arc<Command>,
        output: Option<&Json>,
    ) -> bool {
        let Some(Origin::Node { parent, .. }) = self.branches.get(id).map(|branch| branch.origin) else {
            return false;
        };
        let (Scoped::Parent, Some(within)) = (command.scope, self.workflow_within(parent)) else { return false };
        let place = self.place_in(id, within);
        let deltas = self.branches.get_mut(id).map(|branch| std::mem::take(&mut branch.deltas)).unwrap_or_default();
        let Some(scope) = self.scope_mut(within) else { return false };
        let output = output.cloned().unwrap_or_default();
        scope.escalations.insert(place, Escalation { command: Arc::clone(command), output, deltas });
        true
    }

    /// The position in plan order of a branch within an enclosing block.
    fn place_in(&self, id: u32, around: u32) -> Vec<u32> {
        let mut place = Vec::new();
        let mut next = Some(id).filter(|id| *id != around);
        while let Some(branch) = next.and_then(|id| self.branches.get(id)) {
            match branch.origin {
                Origin::Fork { index, .. } => place.push(u32::try_from(index).unwrap_or(u32::MAX)),
                Origin::Node { .. } => {
                    let station = self.plan.graph().and_then(|graph| self.station(graph, branch));
                    place.push(station.map_or(0, |(level, node, _)| level.shape.nodes[node as usize].rank));
                }
                Origin::Root | Origin::Compensation { .. } | Origin::Delegation { .. } => {}
            }
            next = branch.origin.parent().filter(|parent| *parent != around);
        }
        place.reverse();
        place
    }

    /// Ends a nested workflow with its commands to the plan around it: its writes are dropped.
    pub(super) fn end_escalated(
        &mut self,
        id: u32,
        escalations: BTreeMap<Vec<u32>, Escalation>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(branch) = self.branches.get_mut(id) else { return };
        branch.deltas.clear();
        let mut writers: Vec<Vec<Delta>> = escalations.values().map(|escalation| escalation.deltas.clone()).collect();
        self.put_overwrite(writers.iter_mut());
        let Some(branch) = self.branches.get_mut(id) else { return };
        match join(&branch.view, &writers, |_, _| true, &self.rules) {
            Ok(view) => branch.view = view,
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.extras.conflict = Some(Box::new(error));
                return self.compensate(id, outcome, effects);
            }
        }
        branch.deltas.extend(writers.into_iter().flatten());
        let outputs: Vec<Json> = escalations.values().map(|escalation| escalation.output.clone()).collect();
        let output = match outputs.as_slice() {
            [only] => only.clone(),
            several => Json::from(several.iter().map(|output| output.value().clone()).collect::<Vec<_>>()),
        };
        for Escalation { command, .. } in escalations.values() {
            self.note_goto(id, command);
        }
        let is_all = escalations.values().any(|escalation| escalation.command.goto == Goto::End);
        if let Some(mut branch) = self.branches.remove(id) {
            let end = BranchEnd::of(&mut branch, Outcome::Finished, output);
            self.node_branch_ended(*branch, end, is_all);
        }
    }
}
