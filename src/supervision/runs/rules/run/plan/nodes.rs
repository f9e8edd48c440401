//! The plan node on which a branch works, the path to it, and the rules for it.

use std::sync::Arc;

use crate::messages::{Command, Json, Refusal, Scope as Scoped, State, Update, write_integer};
use crate::supervision::runs::rules::run::branch::{Branch, BranchEnd, Now, Origin};
use crate::supervision::runs::rules::run::fold::Run;
use crate::supervision::runs::rules::run::turn::OpenTurn;
use crate::workflow::graph::{Graph, Level, Rules, Station, Task};

use super::scope::Scope;

impl Run {
    /// The block that a branch works on.
    pub(super) fn scope(&self, branch: u32) -> Option<&Scope> {
        match &self.branches.get(branch)?.now {
            Now::Plan(scope) => Some(scope),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) | Now::Forked(_) => None,
        }
    }

    pub(super) fn scope_mut(&mut self, branch: u32) -> Option<&mut Scope> {
        match &mut self.branches.get_mut(branch)?.now {
            Now::Plan(scope) => Some(scope),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) | Now::Forked(_) => None,
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
            Origin::Compensation { parent } => self.compensated_node(parent)?,
            Origin::Root | Origin::Fork { .. } | Origin::Delegation { .. } => return None,
        };
        let level = graph.level(block);
        Some((level, node, &level.nodes[node as usize]))
    }

    /// Whether a node is all that a map does for an item, so that nothing reads the state after it.
    pub(in crate::supervision::runs) fn is_whole_item(&self, graph: &Graph, block: u32) -> bool {
        self.whole_item(graph, block).is_some()
    }

    /// The branch of an item of a map, if all that is done for it is one node of its block, and nothing reads the state after that.
    fn whole_item(&self, graph: &Graph, block: u32) -> Option<&Branch> {
        let branch = self.branches.get(block).filter(|branch| matches!(branch.origin, Origin::Fork { .. }))?;
        let Now::Plan(scope) = &branch.now else { return None };
        let level = graph.level(scope.block);
        let [Station { rules: Rules { saves: None, compensation: None, .. }, .. }] = level.nodes.as_slice() else {
            return None;
        };
        (level.output.is_none() && graph.checks.is_empty()).then_some(branch)
    }

    /// The item of a map that ends with the branch of its only node, with the output and the writes of that. The agenda would come to the same
    /// when it has come to this end, which is next if the agenda is empty.
    pub(in crate::supervision::runs) fn item_ended_by(&self, branch: &Branch, end: &BranchEnd) -> Option<u32> {
        let Origin::Node { parent, .. } = branch.origin else { return None };
        let item = self.whole_item(self.plan.graph()?, parent)?;
        let is_all = end.outcome.is_finished()
            && end.reversible.is_empty()
            && item.extras.undo.is_none()
            && item.deltas.is_empty()
            && self.plan.is_idle();
        is_all.then_some(parent)
    }

    /// The path to the node that a branch works on, or to the node of this name in its block.
    pub(super) fn path_to(&self, branch: &Branch, node: Option<&str>) -> String {
        let mut path = String::new();
        self.write_path(branch, node, &mut path);
        path
    }

    /// Appends [`Run::path_to`] a node.
    fn write_path(&self, branch: &Branch, node: Option<&str>, path: &mut String) {
        let Some(graph) = self.plan.graph() else { return };
        // Collected from the inside. The path is made for each turn of a plan, so each branch is looked up only once.
        let mut parts: Vec<Part<'_>> = node.map(|name| Part { name, place: Place::Only }).into_iter().collect();
        let (mut next, mut place) = (Some(branch), Place::Only);
        while let Some(branch) = next {
            let parent = branch.origin.parent().and_then(|id| self.branches.get(id));
            let station = match (branch.origin, parent.map(|parent| &parent.now)) {
                (Origin::Node { node, .. }, Some(Now::Plan(scope))) => {
                    Some(&graph.level(scope.block).nodes[node as usize])
                }
                (Origin::Compensation { .. }, _) => self.station(graph, branch).map(|(_, _, station)| station),
                _ => None,
            };
            if let (Now::Plan(scope), Some(Station { task: Task::Loop { .. }, .. })) = (&branch.now, station) {
                place = Place::Iteration(scope.round.iteration);
            }
            match branch.origin {
                Origin::Fork { index, .. } => place = Place::Item(index),
                Origin::Node { .. } => {
                    let name = station.map(|station| &*station.name).unwrap_or_default();
                    parts.push(Part { name, place: std::mem::replace(&mut place, Place::Only) });
                }
                Origin::Compensation { parent } => self.add_compensated_path(graph, parent, &mut parts),
                Origin::Root | Origin::Delegation { .. } => {}
            }
            next = parent;
        }
        // The only node of a repeated body has the name of the loop or map.
        let is_body =
            matches!(&*parts, [own, around, ..] if own.is_only() && !around.is_only() && own.name == around.name);
        write_joined(&parts[usize::from(is_body)..], path);
    }

    /// The target of a command of a node's turn, in the form that is journaled.
    ///
    /// # Errors
    /// It names a node that its own node does not declare as a target.
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

    /// Checks that the writes of a turn's command, in the view that they make, match the schemas of the plan's channels; also its
    /// output, if that is saved to a channel.
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

    /// The update that saves the output of a finished node to a channel, if its author has set one.
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
        self.branch_of(turn).is_planned()
    }

    /// Whether an open turn takes back what its node has done.
    #[must_use]
    pub fn is_compensation(&self, turn: u32) -> bool {
        self.turns.get(turn).is_some_and(|turn| matches!(self.branch_of(turn).origin, Origin::Compensation { .. }))
    }

    /// The path to the node of the plan that an open turn belongs to: names from the outermost block on, as in
    /// `group/review`, with the iteration of a loop (`implement#2`) and the index of an item (`each[0]`). `None` for a turn
    /// that agents brought about.
    #[must_use]
    pub fn node_of(&self, turn: u32) -> Option<String> {
        let branch = self.branch_of(self.turns.get(turn)?);
        branch.is_planned().then(|| self.path_to(branch, None))
    }

    /// [`Run::node_of`] the turn of this branch. It is made for each turn of a plan, so its text is written into scratch space.
    pub(in crate::supervision::runs) fn node_of_branch(&self, branch: &Branch) -> Option<Arc<str>> {
        let shared = |path: &mut String| {
            self.write_path(branch, None, path);
            Arc::from(path.as_str())
        };
        branch.is_planned().then(|| Json::with_scratch(shared))
    }

    /// The rules of the plan for the turns of a node.
    pub(in crate::supervision::runs) fn rules_of(&self, turn: u32) -> Option<&Rules> {
        self.rules_of_branch(self.branch_of(self.turns.get(turn)?))
    }

    /// [`Run::rules_of`] the turn of this branch.
    pub(in crate::supervision::runs) fn rules_of_branch(&self, branch: &Branch) -> Option<&Rules> {
        self.station(self.plan.graph()?, branch).map(|(_, _, station)| &station.rules)
    }

    /// Adds the nodes on the path to the one that a branch compensates, from the inside.
    fn add_compensated_path<'g>(&self, graph: &'g Graph, branch: u32, parts: &mut Vec<Part<'g>>) {
        let Some((mut block, mut node)) = self.compensated_node(branch) else { return };
        let own = self.branches.get(branch).and_then(|branch| self.station(graph, branch));
        loop {
            let level = graph.level(block);
            parts.push(Part { name: &level.nodes[node as usize].name, place: Place::Only });
            if self.scope(branch).is_some_and(|scope| scope.block == block) {
                return;
            }
            let Some(around) = level.within else { return };
            (block, node) = around;
            if let Some((level, own, _)) = own
                && std::ptr::eq(level, graph.level(block))
                && own == node
            {
                return;
            }
        }
    }

    /// The node that a branch compensates now, and its block.
    pub(in crate::supervision::runs) fn compensated_node(&self, branch: u32) -> Option<(u32, u32)> {
        self.branches.get(branch)?.extras.undo.as_ref()?.at
    }
}

/// One node on the path to another.
struct Part<'g> {
    name: &'g str,
    place: Place,
}

/// The repetition of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is not repeated.
    Only,
    /// An iteration of a loop, from 1.
    Iteration(u32),
    /// An item of a map, from 0.
    Item(usize),
}

impl Part<'_> {
    fn is_only(&self) -> bool {
        self.place == Place::Only
    }
}

/// Appends the path as text; its parts are given from the inside.
fn write_joined(parts: &[Part<'_>], path: &mut String) {
    for (index, Part { name, place }) in parts.iter().rev().enumerate() {
        if index > 0 {
            path.push('/');
        }
        path.push_str(name);
        match place {
            Place::Only => {}
            Place::Iteration(iteration) => {
                path.push('#');
                write_integer((*iteration).into(), path);
            }
            Place::Item(item) => {
                path.push('[');
                write_integer(*item as u64, path);
                path.push(']');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    use crate::messages::state::StateRules;
    use crate::messages::{
        AgentName, Chain, Failure, FailureKind, Reducer, RunEvent, RunId, Submission, Timestamp, TraceId, Verdict,
    };
    use crate::workflow::{Node, Workflow};

    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_000);

    /// A map over the input, by what it does for an item, and what comes after it.
    fn plan(body: u8, is_last: bool) -> Workflow {
        let (one, other) = (|| Node::agent("a", "x"), || Node::agent("b", "x").after("a"));
        let body = match body {
            0 => vec![one()],
            1 => vec![one().saved_to("list")],
            2 => vec![one().compensated_by("x")],
            3 => vec![one(), other()],
            4 => vec![one().for_each("[1, 2]")],
            5 => vec![one().for_each("[]")],
            6 => vec![Node::nodes("inner", [one()])],
            _ => vec![one().when("input == 2")],
        };
        let map = Node::nodes("each", body).for_each("input");
        let after = (!is_last).then(|| Node::agent("after", "x").after("each"));
        let builder = Workflow::builder("map").channel("list", Reducer::Append).node(map);
        after.into_iter().fold(builder, |builder, node| builder.node(node)).build().unwrap()
    }

    /// The run, also as one that keeps the states of nodes, so that each end goes over the agenda.
    fn runs(plan: &Workflow) -> [Run; 2] {
        let (id, agent) = (Uuid::from_u128(7), AgentName::new("x").unwrap());
        let cast = plan.plan().cast().iter().map(|_| agent.clone()).collect();
        let (run, trace, chain) = (RunId(id), TraceId(id), Chain::default());
        let submission = Submission { run, trace, task: plan.task(json!([1, 2, 3])), agent, cast, chain, at: AT };
        let submission = Arc::new(submission);
        [None, Some(Box::default())]
            .map(|states| Run::begin_watched(Arc::clone(&submission), StateRules::default(), states).0)
    }

    /// How the turn ends.
    fn end(run: &Run, turn: u32, how: u8) -> RunEvent {
        let (agent, attempt, at) = (run.agent_of(turn).unwrap().clone(), 1, AT);
        let command = match how {
            0 | 1 => Command::output(turn),
            2 | 3 => Command::output(turn).with("list", turn),
            4 => Command::update("other", turn),
            5 => Command::output(turn).end(),
            _ => {
                let (input, failure) = (Json::null(), Failure::new(FailureKind::Terminal, "no"));
                return RunEvent::TurnFailed { turn, agent, input, attempt, failure, at };
            }
        };
        RunEvent::TurnEnded { turn, agent, attempt, command: Arc::new(command), verdict: Verdict::Nothing, at }
    }

    proptest! {
        #[test]
        fn items_that_end_with_their_turn_end_as_over_the_agenda(
            body in 0..8_u8,
            is_last in any::<bool>(),
            ends in prop::collection::vec((any::<prop::sample::Index>(), 0..7_u8), 0..12),
        ) {
            let mut runs = runs(&plan(body, is_last));
            for (turn, how) in ends {
                let open: Vec<u32> = runs[0].open_turns().collect();
                if open.is_empty() {
                    break;
                }
                let event = end(&runs[0], open[turn.index(open.len())], how);
                let [effects, expected] = runs.each_mut().map(|run| run.step(&event));
                prop_assert_eq!(effects, expected);
                let [state, expected] =
                    runs.each_ref().map(|run| format!("{:?}", (&run.branches, &run.turns, &run.result)));
                prop_assert_eq!(state, expected);
            }
        }
    }
}
