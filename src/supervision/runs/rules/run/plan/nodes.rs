//! Which node of the plan a branch works on, the path to it, and what may be done in it.

use crate::messages::{Command, Json, Refusal, Scope as Scoped, State, Update};
use crate::supervision::runs::rules::run::branch::{Branch, Now, Origin};
use crate::supervision::runs::rules::run::fold::Run;
use crate::supervision::runs::rules::run::turn::OpenTurn;
use crate::workflow::graph::{Graph, Level, Rules, Station, Task};

use super::scope::Scope;

impl Run {
    /// The block that a branch works on.
    pub(super) fn scope(&self, branch: u32) -> Option<&Scope> {
        match &self.branches.get(branch)?.now {
            Now::Plan(scope) => Some(scope),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) | Now::Forked { .. } => None,
        }
    }

    pub(super) fn scope_mut(&mut self, branch: u32) -> Option<&mut Scope> {
        match &mut self.branches.get_mut(branch)?.now {
            Now::Plan(scope) => Some(scope),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) | Now::Forked { .. } => None,
        }
    }

    /// The node of the graph that a branch works on.
    pub(in crate::supervision::runs) fn station<'g>(
        &self,
        graph: &'g Graph,
        branch: &Branch,
    ) -> Option<(&'g Level, u32, &'g Station)> {
        let (block, node) = match branch.origin {
            Origin::Node { parent, node } => (self.scope(parent)?.block, node),
            Origin::Compensation { parent } => self.taken_back(parent)?,
            Origin::Root | Origin::Fork { .. } | Origin::Delegation { .. } => return None,
        };
        let level = graph.level(block);
        Some((level, node, &level.nodes[node as usize]))
    }

    /// The way to the node that a branch works on, or to the node of this name in its block.
    pub(in crate::supervision::runs) fn way_to(&self, branch: u32, node: Option<&str>) -> String {
        let Some(graph) = self.plan.graph() else { return String::new() };
        let mut way: Vec<String> = node.map(str::to_owned).into_iter().collect();
        let (mut next, mut place) = (Some(branch), String::new());
        while let Some(branch) = next.and_then(|id| self.branches.get(id)) {
            if let Now::Plan(scope) = &branch.now
                && matches!(self.station(graph, branch), Some((_, _, Station { task: Task::Loop { .. }, .. })))
            {
                place = format!("#{}", scope.round.iteration);
            }
            match branch.origin {
                Origin::Fork { index, .. } => place = format!("[{index}]"),
                Origin::Node { .. } => {
                    let name = self.station(graph, branch).map(|(_, _, station)| station.name.to_string());
                    way.push(name.unwrap_or_default() + &std::mem::take(&mut place));
                }
                Origin::Compensation { parent } => way.extend(self.way_taken_back(graph, parent)),
                Origin::Root | Origin::Delegation { .. } => {}
            }
            next = branch.origin.parent();
        }
        way.reverse();
        // The one node of a repeated body goes by the name of what is repeated.
        if let [.., around, own] = way.as_slice()
            && around.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with(['#', '[']))
        {
            way.pop();
        }
        way.join("/")
    }

    /// Where a command of a node's turn goes, as it would be journaled.
    ///
    /// # Errors
    /// It names a node that its own does not declare.
    pub(in crate::supervision::runs) fn check_goto(&self, branch: &Branch, command: &Command) -> Result<(), Refusal> {
        let around = match command.scope {
            Scoped::Current => None,
            Scoped::Parent => branch.origin.parent().and_then(|block| self.workflow_within(block)),
        };
        let branch = around.and_then(|around| self.branches.get(around)).map_or(branch, |around| around);
        let Some(graph) = self.plan.graph() else { return Ok(()) };
        let Some((level, node, station)) = self.station(graph, branch) else { return Ok(()) };
        for target in command.goto.targets() {
            let repeats = station.rules.may_repeat && level.begins_with(target);
            if level.target(node, target).is_none() && !repeats && !station.rules.exits.contains(target) {
                let nearest = level.nearest_target(node, target);
                return Err(Refusal::UnknownNode {
                    target: target.to_string(),
                    node: station.name.to_string(),
                    nearest,
                });
            }
        }
        Ok(())
    }

    /// What a command of a turn writes, in the view that it makes, is fit for the channels of the plan; so is its output for
    /// the channel that it is saved to.
    ///
    /// # Errors
    /// The first channel for which it is not, and why.
    pub(in crate::supervision::runs) fn check_writes(
        &self,
        turn: u32,
        view: &State,
        command: &Command,
    ) -> Result<(), String> {
        let Some(graph) = self.plan.graph() else { return Ok(()) };
        let origin = self.turns.get(turn).map(|turn| self.branch_of(turn).origin);
        let saved = origin.and_then(|origin| self.saved(origin, command.output.as_ref().unwrap_or(&Json::null())));
        let written = command.update.writes().iter().map(|write| &*write.channel);
        let Some(saved) = saved else { return graph.checks.check(view, written) };
        let mut view = view.clone();
        view.apply(&saved, &self.rules).map_err(|error| error.to_string())?;
        graph.checks.check(&view, written.chain(saved.writes().iter().map(|write| &*write.channel)))
    }

    /// What is written besides when a node finishes with this output, if its author has it saved.
    pub(in crate::supervision::runs) fn saved(&self, origin: Origin, output: &Json) -> Option<Update> {
        let Origin::Node { parent, node } = origin else { return None };
        let (graph, scope) = self.plan.graph().zip(self.scope(parent))?;
        let channel = graph.level(scope.block).nodes[node as usize].rules.saves.as_ref()?;
        let mut update = Update::default();
        update.push(channel, output.clone(), false);
        Some(update)
    }

    /// Whether a turn is that of a node of its plan.
    pub(in crate::supervision::runs) fn is_planned(&self, turn: &OpenTurn) -> bool {
        matches!(self.branch_of(turn).origin, Origin::Node { .. } | Origin::Compensation { .. })
    }

    /// Whether an open turn takes back what its node has done.
    #[must_use]
    pub fn is_compensation(&self, turn: u32) -> bool {
        self.turns.get(turn).is_some_and(|turn| matches!(self.branch_of(turn).origin, Origin::Compensation { .. }))
    }

    /// The way to the node of the plan that an open turn belongs to: names from the outermost block on, as in
    /// `group/review`, with the iteration of a loop (`implement#2`) and the index of an item (`each[0]`). `None` for a turn
    /// that agents brought about.
    #[must_use]
    pub fn node_of(&self, turn: u32) -> Option<String> {
        let turn = self.turns.get(turn).filter(|turn| self.is_planned(turn))?;
        Some(self.way_to(turn.branch, None))
    }

    /// The rules of the plan for the turns of a node.
    pub(in crate::supervision::runs) fn rules_of(&self, turn: u32) -> Option<&Rules> {
        let branch = self.branch_of(self.turns.get(turn)?);
        self.station(self.plan.graph()?, branch).map(|(_, _, station)| &station.rules)
    }

    /// The nodes on the way to the one that a branch takes back now, from the inside.
    fn way_taken_back(&self, graph: &Graph, branch: u32) -> Vec<String> {
        let Some((mut block, mut node)) = self.taken_back(branch) else { return Vec::new() };
        let own = self.branches.get(branch).and_then(|branch| self.station(graph, branch));
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
        self.branches.get(branch)?.undo.as_ref()?.at
    }
}
