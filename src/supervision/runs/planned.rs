//! The part of the fold that follows a workflow (SEMANTICS 7): what a node sees when it starts, and what its end leads to.
//!
//! A block that is worked on is a branch with a [`Scope`]; each node at work is a branch of its own below it. A node sees
//! what the nodes wrote that it came after, joined in plan order, and nothing of the nodes beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::{Delta, StateError, compact, join};
use crate::messages::{Command, Goto, Json, On, Outcome, Refusal, Scope as Scoped, State, Update};
use crate::workflow::graph::{Exit, Graph, Level, Station, Task, Test};
use crate::workflow::progress::{Act, Progress, Stage};
use crate::workflow::template::{Lookup, Part, Var};

use super::run::{Branch, BranchEnd, Brief, Now, Origin, Phase, Run};
use super::step::Effect;

/// A block that is worked on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Scope {
    /// Which block of the graph.
    block: u32,
    /// What its first nodes work on unless they say otherwise.
    input: Json,
    progress: Progress,
    ends: Vec<Option<Box<NodeEnd>>>,
    /// The branches of nodes at work.
    pub(super) children: BTreeMap<u32, u32>,
    /// Where commands went in place of the edges, with inputs if they gave any.
    gotos: BTreeMap<u32, Gotos>,
    turn_of: Turn,
    /// Commands that speak to the plan around this workflow, by the plan order of their nodes. Nothing begins after the first.
    escalations: BTreeMap<Vec<u32>, Escalation>,
    /// Nodes whose work is taken back after a failure.
    undo: Option<Box<Undo>>,
}

/// Where the command of a node's turn went, with inputs if it gave any.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Gotos {
    to: Vec<(u32, Option<Json>)>,
    /// The edges of the node count as well.
    keeps_edges: bool,
}

/// A command that speaks to the plan around its workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Escalation {
    command: Arc<Command>,
    output: Json,
    /// What its turn wrote, its delegations included.
    deltas: Vec<Delta>,
}

/// Which time a body is worked on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Turn {
    /// How often a loop has begun, from 1.
    iteration: u32,
    /// What its last iteration came to.
    last: Json,
    /// A command went back to its beginning.
    is_repeated: bool,
    /// The item of a map, and its place.
    item: Option<(u32, Json)>,
    /// Where commands go around the loop, which ends with that.
    exits: Vec<(Arc<str>, Option<Json>)>,
}

/// Compensation under way: how the block will end, the node that is taken back now, and those that are left, the next one
/// last.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Undo {
    outcome: Outcome,
    at: Option<u32>,
    left: Vec<u32>,
}

/// What came of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NodeEnd {
    outcome: Outcome,
    output: Json,
    view: State,
    deltas: Vec<Delta>,
    /// What came of the nodes within it, where templates outside read that.
    inside: BTreeMap<u32, Inside>,
}

/// What came of a node within a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Inside {
    outcome: Outcome,
    output: Json,
    inside: BTreeMap<u32, Inside>,
}

/// What is to be done in blocks before the event is dealt with.
#[derive(Clone, Debug)]
pub(super) enum Todo {
    /// A node of the branch's block may start.
    Start(u32, u32),
    /// A node has ended; `is_all` if the workflow around it ends with it.
    Ended { branch: u32, node: u32, end: Box<NodeEnd>, is_all: bool },
}

impl Scope {
    fn new(graph: &Graph, block: u32, input: Json, turn_of: Turn) -> Self {
        let level = graph.level(block);
        let progress = Progress::new(&level.shape);
        let ends = vec![None; level.nodes.len()];
        let (children, gotos) = (BTreeMap::new(), BTreeMap::new());
        let escalations = BTreeMap::new();
        Self { block, input, progress, ends, children, gotos, turn_of, escalations, undo: None }
    }

    fn end(&self, node: u32) -> Option<&NodeEnd> {
        self.ends.get(node as usize)?.as_deref()
    }

    /// The block.
    pub(super) fn level<'g>(&self, graph: &'g Graph) -> &'g Level {
        graph.level(self.block)
    }

    /// Where a node of it stands.
    pub(super) fn stage(&self, node: u32) -> Stage {
        self.progress.stage(node)
    }

    /// How often the loop whose body it is has begun, from 1.
    pub(super) fn iteration(&self) -> u32 {
        self.turn_of.iteration
    }
}

impl NodeEnd {
    fn failed(outcome: Outcome, view: State) -> Self {
        Self { outcome, output: Json::null(), view, deltas: Vec::new(), inside: BTreeMap::new() }
    }
}

impl Run {
    /// The block that a branch works on.
    fn scope(&self, branch: u32) -> Option<&Scope> {
        match &self.branches.get(&branch)?.now {
            Now::Plan(scope) => Some(scope),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) | Now::Forked { .. } => None,
        }
    }

    fn scope_mut(&mut self, branch: u32) -> Option<&mut Scope> {
        match &mut self.branches.get_mut(&branch)?.now {
            Now::Plan(scope) => Some(scope),
            Now::Turn(_) | Now::Awaiting | Now::Parked(_) | Now::Forked { .. } => None,
        }
    }

    /// The node of the graph that a branch works on.
    pub(super) fn station<'g>(&self, graph: &'g Graph, branch: &Branch) -> Option<(&'g Level, u32, &'g Station)> {
        let Origin::Node { parent, node } = branch.origin else { return None };
        let level = graph.level(self.scope(parent)?.block);
        Some((level, node, &level.nodes[node as usize]))
    }

    /// The nodes that a branch lies in, the innermost first.
    pub(super) fn way_to(&self, branch: u32) -> Vec<String> {
        let Some(graph) = self.graph.as_deref() else { return Vec::new() };
        let (mut way, mut next, mut place) = (Vec::new(), Some(branch), String::new());
        while let Some(branch) = next.and_then(|id| self.branches.get(&id)) {
            if let Now::Plan(scope) = &branch.now
                && matches!(self.station(graph, branch), Some((_, _, Station { task: Task::Loop { .. }, .. })))
            {
                place = format!("#{}", scope.turn_of.iteration);
            }
            match branch.origin {
                Origin::Fork { index, .. } => place = format!("[{index}]"),
                Origin::Node { .. } => {
                    let name = self.station(graph, branch).map(|(_, _, station)| station.name.to_string());
                    way.push(name.unwrap_or_default() + &std::mem::take(&mut place));
                }
                Origin::Root | Origin::Delegation { .. } => {}
            }
            next = branch.origin.parent();
        }
        way
    }

    /// Where a command of a node's turn goes, as it would be journaled.
    ///
    /// # Errors
    /// It names a node that its own does not declare.
    pub(super) fn check_goto(&self, branch: &Branch, command: &Command) -> Result<(), Refusal> {
        let around = match command.scope {
            Scoped::Current => None,
            Scoped::Parent => branch.origin.parent().and_then(|block| self.workflow_within(block)),
        };
        let branch = around.and_then(|around| self.branches.get(&around)).map_or(branch, |around| around);
        let Some(graph) = self.graph.as_deref() else { return Ok(()) };
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

    /// Begins a block in a branch.
    pub(super) fn begin_block(&mut self, branch: u32, block: u32, input: Json) {
        self.begin_body(branch, block, input, Turn { iteration: 1, ..Turn::default() });
    }

    fn begin_body(&mut self, id: u32, block: u32, input: Json, turn_of: Turn) {
        let Some(graph) = self.graph.clone() else { return };
        let scope = Scope::new(&graph, block, input, turn_of);
        if let Some(branch) = self.branches.get_mut(&id) {
            branch.now = Now::Plan(Box::new(scope));
        }
        self.agenda.extend(graph.level(block).shape.sources().map(|node| Todo::Start(id, node)));
    }

    /// Does what is to be done in blocks.
    pub(super) fn work_off(&mut self, effects: &mut Vec<Effect>) {
        while let Some(todo) = self.agenda.pop_front() {
            match todo {
                Todo::Start(branch, node) => self.start_node(branch, node, effects),
                Todo::Ended { branch, node, end, is_all } => self.node_ended(branch, node, end, is_all, effects),
            }
        }
    }

    /// What a command of a turn writes, in the view that it makes, is fit for the channels of the plan; so is its output for
    /// the channel that it is saved to.
    ///
    /// # Errors
    /// The first channel for which it is not, and why.
    pub(super) fn check_writes(&self, turn: u32, view: &State, command: &Command) -> Result<(), String> {
        let Some(graph) = self.graph.as_deref() else { return Ok(()) };
        let saves = self.rules_of(turn).and_then(|rules| rules.saves.clone());
        if graph.checks.is_empty() && saves.is_none() {
            return Ok(());
        }
        let written = command.update.writes().iter().map(|write| &*write.channel);
        let Some(channel) = saves else { return graph.checks.check(view, written) };
        let mut saved = Update::default();
        saved.push(&channel, command.output.clone().unwrap_or_default(), false);
        let mut view = view.clone();
        view.apply(&saved, &self.rules).map_err(|error| error.to_string())?;
        graph.checks.check(&view, written.chain([&*channel]))
    }

    /// The branch of the workflow within a workflow that a branch works on or lies in.
    fn workflow_within(&self, mut branch: u32) -> Option<u32> {
        let graph = self.graph.as_deref()?;
        while !self.scope(branch).is_some_and(|scope| graph.level(scope.block).is_closed()) {
            branch = self.branches.get(&branch)?.origin.parent()?;
        }
        matches!(self.branches.get(&branch)?.origin, Origin::Node { .. }).then_some(branch)
    }

    /// Keeps a command for the plan around its workflow, if it speaks to that and there is one.
    pub(super) fn escalate(&mut self, id: u32, command: &Arc<Command>, output: Json) -> bool {
        let Some(Origin::Node { parent, .. }) = self.branches.get(&id).map(|branch| branch.origin) else {
            return false;
        };
        let (Scoped::Parent, Some(within)) = (command.scope, self.workflow_within(parent)) else { return false };
        let place = self.place_in(id, within);
        let deltas = self.branches.get_mut(&id).map(|branch| std::mem::take(&mut branch.deltas)).unwrap_or_default();
        let Some(scope) = self.scope_mut(within) else { return false };
        scope.escalations.insert(place, Escalation { command: Arc::clone(command), output, deltas });
        true
    }

    /// The plan order of a branch within a block around it.
    fn place_in(&self, id: u32, around: u32) -> Vec<u32> {
        let mut place = Vec::new();
        let mut next = Some(id).filter(|id| *id != around);
        while let Some(branch) = next.and_then(|id| self.branches.get(&id)) {
            match branch.origin {
                Origin::Fork { index, .. } => place.push(u32::try_from(index).unwrap_or(u32::MAX)),
                Origin::Node { .. } => {
                    let station = self.graph.as_deref().and_then(|graph| self.station(graph, branch));
                    place.push(station.map_or(0, |(level, node, _)| level.shape.nodes[node as usize].rank));
                }
                Origin::Root | Origin::Delegation { .. } => {}
            }
            next = branch.origin.parent().filter(|parent| *parent != around);
        }
        place.reverse();
        place
    }

    /// A workflow within a workflow ends with what was said to the plan around it: what was written in it is dropped.
    fn end_escalated(&mut self, id: u32, escalations: BTreeMap<Vec<u32>, Escalation>, effects: &mut Vec<Effect>) {
        let Some(branch) = self.branches.get_mut(&id) else { return };
        branch.deltas.clear();
        let mut writers: Vec<Vec<Delta>> = escalations.values().map(|escalation| escalation.deltas.clone()).collect();
        self.put_overwrite(writers.iter_mut());
        let Some(branch) = self.branches.get_mut(&id) else { return };
        match join(&branch.view, &writers, |_, _| true, &self.rules) {
            Ok(view) => branch.view = view,
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.conflict = Some(Box::new(error));
                return self.end_branch(id, outcome, Json::null(), effects);
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
        if let Some(mut branch) = self.branches.remove(&id) {
            let deltas = std::mem::take(&mut branch.deltas);
            self.node_branch_ended(branch, BranchEnd { outcome: Outcome::Finished, output, deltas }, is_all);
        }
    }

    /// The command of a node's turn goes to nodes by name.
    pub(super) fn note_goto(&mut self, branch: u32, command: &Command) {
        let targets = match &command.goto {
            Goto::Next | Goto::End => return,
            Goto::Agent(name) => vec![(Arc::clone(name), None)],
            Goto::Many(sends) => sends.iter().map(|send| (Arc::clone(&send.to), Some(send.input.clone()))).collect(),
        };
        self.note_targets(branch, targets, command.keeps_edges);
    }

    fn note_targets(&mut self, branch: u32, targets: Vec<(Arc<str>, Option<Json>)>, keeps_edges: bool) {
        let Some(graph) = self.graph.clone() else { return };
        let Some(Origin::Node { parent, node }) = self.branches.get(&branch).map(|branch| branch.origin) else {
            return;
        };
        let Some(scope) = self.scope_mut(parent) else { return };
        let level = graph.level(scope.block);
        let rules = &level.nodes[node as usize].rules;
        let chosen = scope.gotos.entry(node).or_default();
        chosen.keeps_edges |= keeps_edges;
        for (name, input) in targets {
            if let Some(to) = level.target(node, &name) {
                chosen.to.push((to, input));
            } else if rules.exits.contains(&name) {
                scope.turn_of.exits.push((name, input));
            } else {
                scope.turn_of.is_repeated |= rules.may_repeat && level.begins_with(&name);
            }
        }
    }

    /// What a node sees that came after these: what they wrote, and what the nodes before them wrote, in plan order.
    fn joined(&mut self, id: u32, after: &[u32], base: Option<u32>) -> Result<State, StateError> {
        let Some(graph) = self.graph.clone() else { return Ok(State::default()) };
        let over = self.overwrite.is_some();
        let Some(branch) = self.branches.get_mut(&id) else { return Ok(State::default()) };
        let Now::Plan(scope) = &mut branch.now else { return Ok(branch.view.clone()) };
        let shape = &graph.level(scope.block).shape;
        let single = match after {
            [] => return Ok(branch.view.clone()),
            [only] => Some(*only),
            // One of them may have come after the other.
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
            if let Some(over) = &self.overwrite {
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

    /// What the root sees, or, of a plan, what the nodes have written that have finished; what the run began with, if that was
    /// written side by side.
    pub(super) fn state_so_far(&mut self) -> State {
        let finished = self
            .graph
            .as_deref()
            .zip(self.scope(0))
            .map(|(graph, scope)| scope.progress.finished(&graph.level(scope.block).shape));
        let joined = finished.and_then(|finished| self.joined(0, &finished, None).ok());
        joined.or_else(|| self.branches.get(&0).map(|root| root.view.clone())).unwrap_or_default()
    }

    /// What a node that does not start has come after; what its block began with, if that was written side by side.
    fn seen_before(&mut self, id: u32, node: u32) -> State {
        let begun = |run: &Self| run.branches.get(&id).map(|branch| branch.view.clone()).unwrap_or_default();
        let (Some(graph), Some(scope)) = (self.graph.clone(), self.scope(id)) else { return begun(self) };
        let dominator = graph.level(scope.block).shape.nodes[node as usize].dominator;
        let before: Vec<u32> = scope.progress.before(node).collect();
        self.joined(id, &before, dominator).unwrap_or_else(|_| begun(self))
    }

    fn start_node(&mut self, id: u32, node: u32, effects: &mut Vec<Effect>) {
        let Some(graph) = self.graph.clone() else { return };
        let may_start = |scope: &&Scope| scope.undo.is_none() && scope.progress.stage(node) == Stage::Ready;
        let Some(scope) = self.scope(id).filter(may_start) else { return };
        let level = graph.level(scope.block);
        let station = &level.nodes[node as usize];
        if self.is_escalated(id) {
            return self.skip_node(id, level, node, effects);
        }
        let taken = scope.progress.taken(node).to_vec();
        let before: Vec<u32> = scope.progress.before(node).collect();
        let view = match self.joined(id, &before, level.shape.nodes[node as usize].dominator) {
            Ok(view) => view,
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.conflict = Some(Box::new(error));
                let view = self.branches.get(&id).map(|branch| branch.view.clone()).unwrap_or_default();
                return self.node_failed(id, node, outcome, view);
            }
        };
        let begun = {
            let seen = Seen { run: self, graph: &graph, branch: id, view: &view };
            seen.input_of(node, &taken, station)
        };
        let input = match begun {
            Ok(Some(input)) => input,
            Ok(None) => return self.skip_node(id, level, node, effects),
            Err(problem) => {
                let outcome = Outcome::Failed { error: format!("node {}: {problem}", station.name) };
                return self.node_failed(id, node, outcome, view);
            }
        };
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let (chain, brief) = (branch.chain.clone(), Brief { deadline: None, ..branch.brief.clone() });
        if let Now::Plan(scope) = &mut branch.now {
            scope.progress.start(node);
        }
        if let Task::Join = station.task {
            let (deltas, inside) = (Vec::new(), BTreeMap::new());
            let end = Box::new(NodeEnd { outcome: Outcome::Finished, output: input, view, deltas, inside });
            return self.agenda.push_back(Todo::Ended { branch: id, node, end, is_all: false });
        }
        let origin = Origin::Node { parent: id, node };
        let child = self.add_branch(Branch { brief, ..Branch::new(origin, view, chain) });
        if let Some(scope) = self.scope_mut(id) {
            scope.children.insert(node, child);
        }
        match &station.task {
            Task::Join => {}
            Task::Agent(agent) => self.start_cast(child, *agent, input, station.rules.is_interrupted, effects),
            Task::Block(block) | Task::Loop { body: block, .. } => self.begin_block(child, *block, input),
            Task::Map { body, over, max } => self.begin_map(child, id, (*body, *max), over, effects),
        }
    }

    fn skip_node(&mut self, id: u32, level: &Level, node: u32, effects: &mut Vec<Effect>) {
        let mut acts = Vec::new();
        if let Some(scope) = self.scope_mut(id) {
            scope.progress.skip(&level.shape, node, &mut acts);
        }
        self.act(id, acts, effects);
        self.finish_if_over(id, effects);
    }

    /// Whether a command has spoken to the plan around the workflow that a block belongs to: nothing more begins in it.
    fn is_escalated(&self, block: u32) -> bool {
        let within = self.workflow_within(block).and_then(|within| self.scope(within));
        within.is_some_and(|scope| !scope.escalations.is_empty())
    }

    /// A turn of an agent of the plan's cast.
    fn start_cast(&mut self, branch: u32, agent: u32, input: Json, waits: bool, effects: &mut Vec<Effect>) {
        let Some(agent) = self.submission.cast.get(agent as usize).cloned() else {
            let outcome = Outcome::Failed { error: "nobody was cast for a node of the workflow".to_owned() };
            return self.end_branch(branch, outcome, Json::null(), effects);
        };
        self.cast.insert(agent.clone());
        let number = self.next_turn;
        let start = self.open_turn(branch, agent, input);
        match self.turns.get_mut(&number).filter(|_| waits) {
            Some(turn) => {
                turn.phase = Phase::Interrupted;
                effects.push(Effect::Interrupted(number));
            }
            None => effects.push(start),
        }
    }

    fn begin_map(
        &mut self,
        id: u32,
        around: u32,
        (body, max): (u32, u32),
        over: &crate::workflow::template::Compiled,
        effects: &mut Vec<Effect>,
    ) {
        let Some(graph) = self.graph.clone() else { return };
        let Some(view) = self.branches.get(&id).map(|branch| branch.view.clone()) else { return };
        let list = over.value(&Seen { run: self, graph: &graph, branch: around, view: &view });
        let outcome = match &list {
            Err(problem) => Outcome::Failed { error: problem.clone() },
            Ok(list) => match list.value() {
                serde_json::Value::Array(items) if items.len() <= max as usize => Outcome::Finished,
                serde_json::Value::Array(items) => {
                    Outcome::refused(Refusal::MapLimit { max, items: u32::try_from(items.len()).unwrap_or(u32::MAX) })
                }
                other => {
                    let what = Json::from(other.clone()).to_string();
                    let what = crate::messages::visible::cut(&what);
                    Outcome::Failed { error: format!("a map needs a list, and there is {what}") }
                }
            },
        };
        let items = match list.as_ref().map(|list| list.value()) {
            Ok(serde_json::Value::Array(items)) if outcome.is_finished() => items.as_slice(),
            Ok(_) | Err(_) => return self.end_branch(id, outcome, Json::null(), effects),
        };
        self.forget_within(id);
        let Some(parent) = self.branches.get(&id) else { return };
        let (view, chain, brief) = (parent.view.clone(), parent.chain.clone(), parent.brief.clone());
        let mut children = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let origin = Origin::Fork { parent: id, index };
            let child =
                self.add_branch(Branch { brief: brief.clone(), ..Branch::new(origin, view.clone(), chain.clone()) });
            children.push((child, Json::from(item.clone())));
        }
        let open = children.len();
        let ids: Vec<u32> = children.iter().map(|(child, _)| *child).collect();
        if let Some(parent) = self.branches.get_mut(&id) {
            parent.now = Now::Forked { children: ids, ends: vec![None; open], open };
        }
        for (index, (child, item)) in (0..).zip(children) {
            let turn_of = Turn { iteration: 1, item: Some((index, item.clone())), ..Turn::default() };
            self.begin_body(child, body, item, turn_of);
        }
        if open == 0 {
            self.end_branch(id, Outcome::Finished, Json::from(Vec::<serde_json::Value>::new()), effects);
        }
    }

    /// A node has failed before its work began. What comes after it sees what it would have seen.
    fn node_failed(&mut self, id: u32, node: u32, outcome: Outcome, view: State) {
        let end = Box::new(NodeEnd::failed(outcome, view));
        self.agenda.push_back(Todo::Ended { branch: id, node, end, is_all: false });
    }

    /// What follows from the marks of edges.
    fn act(&mut self, id: u32, acts: Vec<Act>, effects: &mut Vec<Effect>) {
        for act in acts {
            match act {
                Act::Start(node) => self.agenda.push_back(Todo::Start(id, node)),
                Act::Cancel(node) => {
                    let child = self.scope_mut(id).and_then(|scope| scope.children.remove(&node));
                    if let Some(child) = child {
                        self.cancel_branch(child, effects);
                    }
                }
                Act::OutOfReach(node) => {
                    let error = "too few of the nodes before it can finish".to_owned();
                    let name = self
                        .graph
                        .as_ref()
                        .zip(self.scope(id))
                        .map(|(graph, scope)| Arc::clone(&graph.level(scope.block).nodes[node as usize].name));
                    let error = name.map_or(error.clone(), |name| format!("node {name}: {error}"));
                    let view = self.seen_before(id, node);
                    self.node_failed(id, node, Outcome::Failed { error }, view);
                }
            }
        }
    }

    /// The branch of a node has ended.
    pub(super) fn node_branch_ended(&mut self, branch: Box<Branch>, end: BranchEnd, is_all: bool) {
        let Origin::Node { parent, node } = branch.origin else { return };
        let inside = BTreeMap::new();
        let mut end =
            NodeEnd { outcome: end.outcome, output: end.output, view: branch.view, deltas: end.deltas, inside };
        if let Now::Plan(scope) = &branch.now {
            end.inside = self.read_inside(parent, node, scope);
        }
        let saved = self.saved(branch.origin, &end.output);
        if let Some(update) = saved.filter(|_| end.outcome.is_finished()) {
            let number = match branch.now {
                Now::Turn(number) => number,
                Now::Awaiting | Now::Parked(_) | Now::Forked { .. } | Now::Plan(_) => {
                    end.deltas.last().map_or(0, |delta| delta.turn.number)
                }
            };
            match end.view.apply(&update, &self.rules) {
                Ok(()) => end.deltas.push(Delta { turn: self.turn_id(number), update: Arc::new(update) }),
                Err(error) => end = NodeEnd::failed(Outcome::Failed { error: error.to_string() }, end.view),
            }
        }
        self.agenda.push_back(Todo::Ended { branch: parent, node, end: Box::new(end), is_all });
    }

    /// What is written besides when a node finishes with this output, if its author has it saved.
    pub(super) fn saved(&self, origin: Origin, output: &Json) -> Option<Update> {
        let Origin::Node { parent, node } = origin else { return None };
        let (graph, scope) = self.graph.as_ref().zip(self.scope(parent))?;
        let is_undone = scope.undo.is_some();
        let channel = graph.level(scope.block).nodes[node as usize].rules.saves.as_ref().filter(|_| !is_undone)?;
        let mut update = Update::default();
        update.push(channel, output.clone(), false);
        Some(update)
    }

    /// What templates outside may read of the nodes in a block.
    fn read_inside(&self, parent: u32, node: u32, scope: &Scope) -> BTreeMap<u32, Inside> {
        let is_read = self
            .graph
            .as_ref()
            .zip(self.scope(parent))
            .is_some_and(|(graph, outer)| graph.level(outer.block).nodes[node as usize].is_read_inside);
        let ends = (0..).zip(&scope.ends).filter(|_| is_read);
        let inside = ends.filter_map(|(node, end)| {
            let NodeEnd { outcome, output, inside, .. } = &**end.as_ref()?;
            Some((node, Inside { outcome: outcome.clone(), output: output.clone(), inside: inside.clone() }))
        });
        inside.collect()
    }

    fn node_ended(&mut self, id: u32, node: u32, mut end: Box<NodeEnd>, is_all: bool, effects: &mut Vec<Effect>) {
        let Some(graph) = self.graph.clone() else { return };
        let Some(scope) = self.scope_mut(id) else { return };
        if let Some(undo) = &scope.undo {
            // What had ended beside the failure is of no account any more.
            if undo.at == Some(node) {
                scope.children.remove(&node);
                self.undo_next(id, effects);
            }
            return;
        }
        scope.children.remove(&node);
        if !matches!(scope.progress.stage(node), Stage::Running | Stage::Ready) {
            return;
        }
        let level = graph.level(scope.block);
        let outs = &level.shape.nodes[node as usize].outs;
        let has_conditions = outs.iter().any(|edge| level.conditions[*edge as usize].is_some());
        let is_finished = end.outcome.is_finished();
        let mut holds: BTreeMap<u32, bool> = BTreeMap::new();
        if has_conditions {
            // They may name the node itself.
            if let Some(scope) = self.scope_mut(id) {
                scope.ends[node as usize] = Some(end.clone());
            }
            let seen = Seen { run: self, graph: &graph, branch: id, view: &end.view };
            let tests = outs.iter().filter_map(|edge| Some((*edge, level.conditions[*edge as usize].as_ref()?)));
            let tested: Result<_, String> =
                tests.map(|(edge, test)| Ok((edge, seen.holds(test, &end.output)?))).collect();
            match tested {
                Ok(tested) => holds = tested,
                Err(problem) => {
                    let name = &level.nodes[node as usize].name;
                    let outcome = Outcome::Failed { error: format!("what comes after {name}: {problem}") };
                    end = Box::new(NodeEnd::failed(outcome, end.view));
                }
            }
        }
        let is_broken = is_finished && !end.outcome.is_finished();
        let Some(scope) = self.scope_mut(id) else { return };
        let mut acts = Vec::new();
        let chosen = scope.gotos.get(&node);
        let takes = |edge: u32, line: crate::workflow::progress::Line| {
            let is_open = holds.get(&edge).copied().unwrap_or(true);
            is_open
                && match line.on {
                    On::Success => chosen.is_none_or(|chosen| chosen.keeps_edges) && !is_all,
                    On::Failure => !is_broken,
                    On::Goto => chosen.is_some_and(|chosen| chosen.to.iter().any(|(to, _)| *to == line.to)),
                }
        };
        if end.outcome.is_finished() {
            scope.progress.finish(
                &level.shape,
                node,
                |edge, line| line.on != On::Failure && takes(edge, line),
                &mut acts,
            );
        } else {
            scope.progress.fail(&level.shape, node, takes, &mut acts);
        }
        let output = end.output.clone();
        scope.ends[node as usize] = Some(end);
        if is_all {
            return self.finish_block(id, Some(output), effects);
        }
        self.act(id, acts, effects);
        self.finish_if_over(id, effects);
    }

    fn finish_if_over(&mut self, id: u32, effects: &mut Vec<Effect>) {
        if self.scope(id).is_some_and(|scope| scope.progress.is_over()) {
            self.finish_block(id, None, effects);
        }
    }

    /// A block has come to its end, or, with `forced`, is ended with that output.
    fn finish_block(&mut self, id: u32, forced: Option<Json>, effects: &mut Vec<Effect>) {
        let Some(graph) = self.graph.clone() else { return };
        let Some(scope) = self.scope_mut(id) else { return };
        let children: Vec<u32> = std::mem::take(&mut scope.children).into_values().collect();
        let escalations = std::mem::take(&mut scope.escalations);
        for child in children {
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
        // Not every edge was taken: a way may have ended before it came there.
        let is_waist = |waist: &u32| scope.progress.all_came_after(&level.shape, *waist, &last);
        let waist = level.waist.filter(is_waist);
        let joined = self.joined(id, &last, waist);
        if let Some(failed) = failed {
            return self.fail_block(id, failed, joined, effects);
        }
        let view = match joined {
            Ok(view) => view,
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.conflict = Some(Box::new(error));
                return self.end_branch(id, outcome, Json::null(), effects);
            }
        };
        let output = match &forced {
            Some(output) => Ok(output.clone()),
            None => Seen { run: self, graph: &graph, branch: id, view: &view }.output_of(&last),
        };
        let output = match output {
            Ok(output) => output,
            Err(error) => return self.end_branch(id, Outcome::Failed { error }, Json::null(), effects),
        };
        let again = match &forced {
            Some(_) => Ok(false),
            None => self.is_repeated(&graph, id, &view, &output),
        };
        let Some(branch) = self.branches.get_mut(&id) else { return };
        branch.view = view;
        if let (Now::Plan(scope), true) = (&mut branch.now, branch.origin != Origin::Root) {
            let region = scope.progress.region(&level.shape, &last, None);
            for node in region {
                if let Some(end) = &mut scope.ends[node as usize] {
                    branch.deltas.append(&mut end.deltas);
                }
            }
        }
        let exits = self.scope_mut(id).map(|scope| std::mem::take(&mut scope.turn_of.exits)).unwrap_or_default();
        if !exits.is_empty() {
            self.note_targets(id, exits, false);
        }
        match again {
            Ok(true) => {
                self.shorten(id);
                self.begin_again(id, output);
            }
            Ok(false) => self.close_block(id, output, forced.is_some() && !level.is_closed(), effects),
            Err(outcome) => self.end_branch(id, outcome, output, effects),
        }
    }

    /// Whether the body of a loop is begun once more.
    fn is_repeated(&self, graph: &Graph, id: u32, view: &State, output: &Json) -> Result<bool, Outcome> {
        let Some(branch) = self.branches.get(&id) else { return Ok(false) };
        let Some((_, _, station)) = self.station(graph, branch) else { return Ok(false) };
        let (Task::Loop { until, max, ends_at_max, .. }, Some(scope)) = (&station.task, self.scope(id)) else {
            return Ok(false);
        };
        let is_enough = match until {
            Exit::Bound => false,
            Exit::NotRepeated => !scope.turn_of.is_repeated || !scope.turn_of.exits.is_empty(),
            Exit::Holds(test) => {
                let seen = Seen { run: self, graph, branch: id, view };
                let failed = |problem| Outcome::Failed { error: format!("loop {}: {problem}", station.name) };
                seen.holds(test, output).map_err(failed)?
            }
        };
        if is_enough || self.is_escalated(id) {
            return Ok(false);
        }
        if scope.turn_of.iteration < *max {
            return Ok(true);
        }
        if *ends_at_max {
            return Ok(false);
        }
        Err(Outcome::refused(Refusal::LoopLimit { node: station.name.to_string(), max: *max }))
    }

    /// Keeps what a loop has written short: as often as it has doubled.
    fn shorten(&mut self, id: u32) {
        let Some(branch) = self.branches.get_mut(&id) else { return };
        if branch.deltas.len() >= branch.shortened * 2 + 16 {
            compact(&mut branch.deltas, &self.rules);
            branch.shortened = branch.deltas.len();
        }
    }

    fn begin_again(&mut self, id: u32, output: Json) {
        self.forget_within(id);
        let Some(scope) = self.scope(id) else { return };
        let (block, input, iteration) = (scope.block, scope.input.clone(), scope.turn_of.iteration + 1);
        let turn_of = Turn { iteration, last: output, ..Turn::default() };
        self.begin_body(id, block, input, turn_of);
    }

    /// Ends the branch of a block; with `is_all`, what is around it ends with it.
    fn close_block(&mut self, id: u32, output: Json, is_all: bool, effects: &mut Vec<Effect>) {
        if !is_all {
            return self.end_branch(id, Outcome::Finished, output, effects);
        }
        // The item of a map: its siblings are not needed any more, and what has finished stays.
        let mut ended = id;
        while let Some(Origin::Fork { parent, index }) = self.branches.get(&ended).map(|branch| branch.origin) {
            let Some(Now::Forked { children, ends, .. }) = self.branches.get_mut(&parent).map(|branch| &mut branch.now)
            else {
                break;
            };
            let (children, mut ends) = (children.clone(), std::mem::take(ends));
            children.into_iter().filter(|child| *child != ended).for_each(|child| self.cancel_branch(child, effects));
            self.note_end_of(ended);
            if let (Some(written), Some(end)) = (self.branches.remove(&ended), ends.get_mut(index)) {
                let (outcome, output) = (Outcome::Finished, output.clone());
                *end = Some(BranchEnd { outcome, output, deltas: written.deltas });
            }
            let (outcome, output) = self.join_ends(parent, ends, Some(&output));
            if !outcome.is_finished() {
                return self.end_branch(parent, outcome, output, effects);
            }
            ended = parent;
        }
        self.note_end_of(ended);
        if let Some(branch) = self.branches.remove(&ended) {
            let deltas = branch.deltas.clone();
            self.node_branch_ended(branch, BranchEnd { outcome: Outcome::Finished, output, deltas }, true);
        }
    }

    /// A block fails: what it has done is taken back where somebody was named for that, the last first.
    fn fail_block(&mut self, id: u32, failed: u32, joined: Result<State, StateError>, effects: &mut Vec<Effect>) {
        let Some(graph) = self.graph.clone() else { return };
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let Now::Plan(scope) = &mut branch.now else { return };
        let level = graph.level(scope.block);
        let outcome = scope.end(failed).map(|end| end.outcome.clone());
        let outcome = outcome.unwrap_or_else(|| Outcome::Failed { error: "a node failed".to_owned() });
        let is_undone = |node: &u32| level.nodes[*node as usize].rules.compensation.is_some();
        let mut left = scope.progress.finished(&level.shape);
        left.retain(is_undone);
        scope.undo = Some(Box::new(Undo { outcome, at: None, left }));
        // What was finished is shown with the failure.
        if let (Origin::Root, Ok(view)) = (branch.origin, joined) {
            branch.view = view;
        }
        self.undo_next(id, effects);
    }

    fn undo_next(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(graph) = self.graph.clone() else { return };
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let (chain, brief) = (branch.chain.clone(), Brief { deadline: None, ..branch.brief.clone() });
        let Now::Plan(scope) = &mut branch.now else { return };
        let Some(undo) = &mut scope.undo else { return };
        undo.at = undo.left.pop();
        let Some(node) = undo.at else {
            let outcome = undo.outcome.clone();
            return self.end_branch(id, outcome, Json::null(), effects);
        };
        let agent = graph.level(scope.block).nodes[node as usize].rules.compensation;
        let (Some(end), Some(agent)) = (scope.end(node), agent) else { return };
        let (view, input) = (end.view.clone(), end.output.clone());
        let child = self.add_branch(Branch { brief, ..Branch::new(Origin::Node { parent: id, node }, view, chain) });
        if let Some(scope) = self.scope_mut(id) {
            scope.children.insert(node, child);
        }
        self.start_cast(child, agent, input, false, effects);
    }
}

/// What templates of a block read.
struct Seen<'a> {
    run: &'a Run,
    graph: &'a Graph,
    /// The branch of the block.
    branch: u32,
    view: &'a State,
}

impl Seen<'_> {
    /// The block so many levels up.
    fn scope(&self, up: u32) -> Option<&Scope> {
        let mut branch = self.branch;
        for _ in 0..up {
            branch = self.run.branches.get(&branch)?.origin.parent()?;
            // Between the item of a map and the block around the map lies the map.
            if self.run.scope(branch).is_none() {
                branch = self.run.branches.get(&branch)?.origin.parent()?;
            }
        }
        self.run.scope(branch)
    }

    fn holds(&self, test: &Test, subject: &Json) -> Result<bool, String> {
        match test {
            Test::Expression(expression) => expression.holds(self),
            Test::Predicate(name, wanted) => {
                let predicate = self.run.rules.predicates.get(name);
                let predicate = predicate.ok_or_else(|| format!("no predicate is named {name:?}"))?;
                Ok(predicate(self.view, subject) == *wanted)
            }
        }
    }

    /// What a node works on; `None` if it is skipped.
    fn input_of(&self, node: u32, taken: &[u32], station: &Station) -> Result<Option<Json>, String> {
        let usual = self.usual_input(node, taken);
        if let Some(test) = &station.when
            && !self.holds(test, &usual)?
        {
            return Ok(None);
        }
        let input = match &station.input {
            Some(template) => template.render(self)?,
            None => usual,
        };
        if input.is_too_deep() {
            return Err(format!("its input nests deeper than {} levels", crate::messages::MAX_JSON_DEPTH));
        }
        Ok(Some(input))
    }

    fn usual_input(&self, node: u32, taken: &[u32]) -> Json {
        let Some(scope) = self.scope(0) else { return Json::null() };
        // Who was first does not matter: the first in plan order counts.
        let ranks = &self.graph.level(scope.block).shape.nodes;
        let mut senders: Vec<u32> = taken.iter().copied().filter(|from| scope.gotos.contains_key(from)).collect();
        senders.sort_unstable_by_key(|from| ranks[*from as usize].rank);
        let sent = senders.iter().filter_map(|from| scope.gotos.get(from)).flat_map(|chosen| &chosen.to);
        if let Some(input) = sent.filter(|(to, _)| *to == node).find_map(|(_, input)| input.clone()) {
            return input;
        }
        match taken {
            [] if scope.turn_of.iteration > 1 => scope.turn_of.last.clone(),
            [] => scope.input.clone(),
            nodes => self.outputs_of(scope, nodes),
        }
    }

    /// The output of one node, or an object of several.
    fn outputs_of(&self, scope: &Scope, nodes: &[u32]) -> Json {
        let output = |node: u32| scope.end(node).map(|end| end.output.clone()).unwrap_or_default();
        match nodes {
            [only] => output(*only),
            nodes => {
                let stations = &self.graph.level(scope.block).nodes;
                let name = |node: u32| stations[node as usize].name.to_string();
                let fields = nodes.iter().map(|node| (name(*node), output(*node).value().clone()));
                Json::from(serde_json::Value::Object(fields.collect()))
            }
        }
    }

    fn output_of(&self, last: &[u32]) -> Result<Json, String> {
        let Some(scope) = self.scope(0) else { return Ok(Json::null()) };
        match &self.graph.level(scope.block).output {
            Some(template) => template.render(self),
            None if last.is_empty() => Ok(Json::null()),
            None => Ok(self.outputs_of(scope, last)),
        }
    }
}

impl Lookup for Seen<'_> {
    fn lookup(&self, var: &Var) -> Result<Json, String> {
        let scope = |up: u32| self.scope(up).ok_or_else(|| "it is read outside of its workflow".to_owned());
        Ok(match var {
            Var::Input { up } => scope(*up)?.input.clone(),
            Var::Field { up, name } => {
                let value = scope(*up)?.input.value().get(&**name);
                value.cloned().map(Json::from).ok_or_else(|| format!("the input has no field `{name}`"))?
            }
            Var::State => self.view.to_json(),
            Var::Channel(channel) => self.view.get(channel).unwrap_or_default(),
            Var::Item { up } => scope(*up)?.turn_of.item.as_ref().map(|(_, item)| item.clone()).unwrap_or_default(),
            Var::Index { up } => Json::from(scope(*up)?.turn_of.item.as_ref().map_or(0, |(index, _)| *index)),
            Var::Iteration { up } => Json::from(scope(*up)?.turn_of.iteration),
            Var::Previous { up } => scope(*up)?.turn_of.last.clone(),
            Var::Node { up, node, inside, part } => {
                let end = scope(*up)?.end(*node);
                match inside.split_first() {
                    None => part_of(end.map(|end| (&end.outcome, &end.output)), *part),
                    Some((first, rest)) => {
                        let first = end.and_then(|end| end.inside.get(first));
                        let found = rest.iter().try_fold(first, |at, node| at.map(|at| at.inside.get(node)));
                        let found = found.flatten();
                        part_of(found.map(|inside| (&inside.outcome, &inside.output)), *part)
                    }
                }
            }
        })
    }
}

/// What of a node is read; null where it was skipped.
fn part_of(end: Option<(&Outcome, &Json)>, part: Part) -> Json {
    let Some((outcome, output)) = end else { return Json::null() };
    let error = || if outcome.is_finished() { Json::null() } else { Json::from(outcome.to_string()) };
    match part {
        Part::Output => output.clone(),
        Part::Outcome => Json::from(outcome.name()),
        Part::Error => error(),
        Part::All => {
            let (output, error) = (output.value().clone(), error());
            Json::from(serde_json::json!({ "output": output, "outcome": outcome.name(), "error": error.value() }))
        }
    }
}
