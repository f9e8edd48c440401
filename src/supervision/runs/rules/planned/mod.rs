//! The part of the fold that follows a workflow (SEMANTICS 7): what a node sees when it starts, and what its end leads to.
//!
//! A block that is worked on is a branch with a [`Scope`]; each node at work is a branch of its own below it. A node sees
//! what the nodes wrote that it came after, joined in plan order, and nothing of the nodes beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::{Delta, StateError, compact, join};
use crate::messages::{Command, Goto, Json, On, Outcome, Refusal, Scope as Scoped, State, Update};
use crate::workflow::graph::{Exit, Graph, Level, Station, Task};
use crate::workflow::progress::{Act, Progress, Stage};

use self::escalation::Escalation;
use self::seen::Seen;
use super::run::{Branch, BranchEnd, Brief, Now, Origin, Phase, Run};
use super::step::Effect;

mod compensation;
mod escalation;
mod seen;

pub(in crate::supervision::runs) use self::compensation::{Reversible, Undo};

/// A block that is worked on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Scope {
    /// Which block of the graph.
    block: u32,
    /// What its first nodes work on unless they say otherwise.
    input: Json,
    progress: Progress,
    ends: Vec<Option<Box<NodeEnd>>>,
    /// The branches of nodes at work.
    pub(in crate::supervision::runs) children: BTreeMap<u32, u32>,
    /// Where commands went in place of the edges, with inputs if they gave any.
    gotos: BTreeMap<u32, Gotos>,
    round: Round,
    /// Commands that speak to the plan around this workflow, by the plan order of their nodes. Nothing begins after the first.
    escalations: BTreeMap<Vec<u32>, Escalation>,
    /// What was done in nodes that have not finished, and is to be taken back with the rest.
    given_up: Vec<Reversible>,
}

/// Where the command of a node's turn went, with inputs if it gave any.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Gotos {
    to: Vec<(u32, Option<Json>)>,
    /// The edges of the node count as well.
    keeps_edges: bool,
}

/// Which time a body is worked on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Round {
    /// How often a loop has begun, from 1.
    iteration: u32,
    /// What the iteration before it came to.
    previous: Json,
    /// A command went back to its beginning.
    is_repeated: bool,
    /// The item of a map, and its place.
    item: Option<(u32, Json)>,
    /// Where commands go around the loop, which ends with that.
    exits: Vec<(Arc<str>, Option<Json>)>,
}

/// What came of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct NodeEnd {
    outcome: Outcome,
    output: Json,
    view: State,
    deltas: Vec<Delta>,
    /// What came of the nodes within it, where templates outside read that.
    inside: BTreeMap<u32, Inside>,
    /// What can be taken back of what was done within it, the first first.
    reversible: Vec<Reversible>,
    /// Its failure tells the node within it that it comes from.
    has_failed_within: bool,
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
pub(in crate::supervision::runs) enum Todo {
    /// A node of the branch's block may start.
    Start(u32, u32),
    /// A node has ended; `is_all` if the workflow around it ends with it.
    Ended { branch: u32, node: u32, end: Box<NodeEnd>, is_all: bool },
}

impl Scope {
    fn new(graph: &Graph, block: u32, input: Json, round: Round) -> Self {
        let level = graph.level(block);
        let progress = Progress::new(&level.shape);
        let ends = vec![None; level.nodes.len()];
        let (children, gotos) = (BTreeMap::new(), BTreeMap::new());
        let (escalations, given_up) = (BTreeMap::new(), Vec::new());
        Self { block, input, progress, ends, children, gotos, round, escalations, given_up }
    }

    fn end(&self, node: u32) -> Option<&NodeEnd> {
        self.ends.get(node as usize)?.as_deref()
    }

    /// The block.
    pub(in crate::supervision::runs) fn level<'g>(&self, graph: &'g Graph) -> &'g Level {
        graph.level(self.block)
    }

    /// Where a node of it stands.
    pub(in crate::supervision::runs) fn stage(&self, node: u32) -> Stage {
        self.progress.stage(node)
    }

    /// How often the loop whose body it is has begun, from 1.
    pub(in crate::supervision::runs) fn iteration(&self) -> u32 {
        self.round.iteration
    }
}

impl NodeEnd {
    fn new(outcome: Outcome, output: Json, view: State) -> Self {
        let (deltas, inside, reversible) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { outcome, output, view, deltas, inside, reversible, has_failed_within: false }
    }

    fn failed(problem: String, view: State) -> Self {
        Self::new(Outcome::Failed { error: problem }, Json::null(), view)
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
        let Some(graph) = self.graph.as_deref() else { return String::new() };
        let mut way: Vec<String> = node.map(str::to_owned).into_iter().collect();
        let (mut next, mut place) = (Some(branch), String::new());
        while let Some(branch) = next.and_then(|id| self.branches.get(&id)) {
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
    pub(in crate::supervision::runs) fn begin_block(&mut self, branch: u32, block: u32, input: Json) {
        self.begin_body(branch, block, input, Round { iteration: 1, ..Round::default() });
    }

    fn begin_body(&mut self, id: u32, block: u32, input: Json, round: Round) {
        let Some(graph) = self.graph.clone() else { return };
        let scope = Scope::new(&graph, block, input, round);
        if let Some(branch) = self.branches.get_mut(&id) {
            branch.now = Now::Plan(Box::new(scope));
        }
        self.agenda.extend(graph.level(block).shape.sources().map(|node| Todo::Start(id, node)));
    }

    /// Does what is to be done in blocks.
    pub(in crate::supervision::runs) fn work_off(&mut self, effects: &mut Vec<Effect>) {
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
    pub(in crate::supervision::runs) fn check_writes(
        &self,
        turn: u32,
        view: &State,
        command: &Command,
    ) -> Result<(), String> {
        let Some(graph) = self.graph.as_deref() else { return Ok(()) };
        let origin = self.turns.get(&turn).map(|turn| self.branch_of(turn).origin);
        let saved = origin.and_then(|origin| self.saved(origin, command.output.as_ref().unwrap_or(&Json::null())));
        let written = command.update.writes().iter().map(|write| &*write.channel);
        let Some(saved) = saved else { return graph.checks.check(view, written) };
        let mut view = view.clone();
        view.apply(&saved, &self.rules).map_err(|error| error.to_string())?;
        graph.checks.check(&view, written.chain(saved.writes().iter().map(|write| &*write.channel)))
    }

    /// The command of a node's turn goes to nodes by name.
    pub(in crate::supervision::runs) fn note_goto(&mut self, branch: u32, command: &Command) {
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
                scope.round.exits.push((name, input));
            } else {
                scope.round.is_repeated |= rules.may_repeat && level.begins_with(&name);
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
    pub(in crate::supervision::runs) fn state_so_far(&mut self) -> State {
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
        let may_start = |scope: &&Scope| scope.progress.stage(node) == Stage::Ready && !self.is_taken_back(id);
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
                let problem = error.to_string();
                self.conflict = Some(Box::new(error));
                let view = self.branches.get(&id).map(|branch| branch.view.clone()).unwrap_or_default();
                return self.node_failed(id, node, problem, view);
            }
        };
        let begun = {
            let seen = Seen { run: self, graph: &graph, branch: id, view: &view };
            seen.input_of(node, &taken, station)
        };
        let input = match begun {
            Ok(Some(input)) => input,
            Ok(None) => return self.skip_node(id, level, node, effects),
            Err(problem) => return self.node_failed(id, node, problem, view),
        };
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let (chain, brief) = (branch.chain.clone(), Brief { deadline: None, ..branch.brief.clone() });
        if let Now::Plan(scope) = &mut branch.now {
            scope.progress.start(node);
        }
        if let Task::Join = station.task {
            let end = Box::new(NodeEnd::new(Outcome::Finished, input, view));
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
        over: &callboard_documents::template::Compiled<crate::workflow::graph::vars::Var>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(graph) = self.graph.clone() else { return };
        let Some(view) = self.branches.get(&id).map(|branch| branch.view.clone()) else { return };
        let list = over.value(&Seen { run: self, graph: &graph, branch: around, view: &view });
        let outcome = match &list {
            Err(problem) => Outcome::Failed { error: problem.clone() },
            Ok(list) => match &**list {
                serde_json::Value::Array(items) if items.len() <= max as usize => Outcome::Finished,
                serde_json::Value::Array(items) => {
                    Outcome::refused(Refusal::MapLimit { max, items: u32::try_from(items.len()).unwrap_or(u32::MAX) })
                }
                other => {
                    let what = Json::from(other.clone()).to_string();
                    let what = callboard_text::cut(&what);
                    Outcome::Failed { error: format!("a map needs a list, and there is {what}") }
                }
            },
        };
        let items = match list.as_deref() {
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
            let round = Round { iteration: 1, item: Some((index, item.clone())), ..Round::default() };
            self.begin_body(child, body, item, round);
        }
        if open == 0 {
            self.end_branch(id, Outcome::Finished, Json::from(Vec::<serde_json::Value>::new()), effects);
        }
    }

    /// A node has failed before its work began. What comes after it sees what it would have seen.
    fn node_failed(&mut self, id: u32, node: u32, problem: String, view: State) {
        let end = Box::new(NodeEnd::failed(problem, view));
        self.agenda.push_back(Todo::Ended { branch: id, node, end, is_all: false });
    }

    /// What follows from the marks of edges.
    fn act(&mut self, id: u32, acts: Vec<Act>, effects: &mut Vec<Effect>) {
        for act in acts {
            match act {
                Act::Start(node) => self.agenda.push_back(Todo::Start(id, node)),
                Act::Cancel(node) => {
                    let child = self.scope_mut(id).and_then(|scope| scope.children.remove(&node));
                    if let (Some(child), Some(graph)) = (child, self.graph.clone()) {
                        let mut left = self.take_reversible(&graph, child);
                        self.cancel_branch(child, effects);
                        self.scope_mut(id).into_iter().for_each(|scope| scope.given_up.append(&mut left));
                    }
                }
                Act::OutOfReach(node) => {
                    let view = self.seen_before(id, node);
                    self.node_failed(id, node, "too few of the nodes before it can finish".to_owned(), view);
                }
            }
        }
    }

    /// The branch of a node has ended.
    pub(in crate::supervision::runs) fn node_branch_ended(
        &mut self,
        branch: Box<Branch>,
        end: BranchEnd,
        is_all: bool,
    ) {
        let Origin::Node { parent, node } = branch.origin else { return };
        let BranchEnd { outcome, output, deltas, reversible } = end;
        let Branch { has_failed_within, view, .. } = *branch;
        let mut end = NodeEnd { deltas, reversible, has_failed_within, ..NodeEnd::new(outcome, output, view) };
        if let Now::Plan(scope) = &branch.now {
            end.inside = self.read_inside(parent, node, scope);
        }
        if end.outcome.is_finished() {
            let saved = self.saved(branch.origin, &end.output).map_or(Ok(()), |update| {
                let number = match branch.now {
                    Now::Turn(number) => number,
                    Now::Awaiting | Now::Parked(_) | Now::Forked { .. } | Now::Plan(_) => {
                        end.deltas.last().map_or(0, |delta| delta.turn.number)
                    }
                };
                end.view.apply(&update, &self.rules)?;
                end.deltas.push(Delta { turn: self.turn_id(number), update: Arc::new(update) });
                Ok::<_, StateError>(())
            });
            self.make_reversible(parent, node, &mut end);
            if let Err(error) = saved {
                self.fail_after(parent, node, error.to_string(), &mut end);
            }
        }
        self.agenda.push_back(Todo::Ended { branch: parent, node, end: Box::new(end), is_all });
    }

    /// What is written besides when a node finishes with this output, if its author has it saved.
    pub(in crate::supervision::runs) fn saved(&self, origin: Origin, output: &Json) -> Option<Update> {
        let Origin::Node { parent, node } = origin else { return None };
        let (graph, scope) = self.graph.as_ref().zip(self.scope(parent))?;
        let channel = graph.level(scope.block).nodes[node as usize].rules.saves.as_ref()?;
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
        // What had ended beside a failure is of no account any more.
        let is_taken_back = self.is_taken_back(id);
        let Some(scope) = self.scope_mut(id).filter(|_| !is_taken_back) else { return };
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
                    self.fail_after(id, node, format!("the condition of what comes after it: {problem}"), &mut end)
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
        if !end.outcome.is_finished() {
            scope.given_up.append(&mut end.reversible);
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
        let escalations = std::mem::take(&mut scope.escalations);
        let reversible = self.take_reversible(&graph, id);
        let Some(branch) = self.branches.get_mut(&id) else { return };
        branch.reversible = reversible;
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
        // Not every edge was taken: a way may have ended before it came there.
        let is_waist = |waist: &u32| scope.progress.all_came_after(&level.shape, *waist, &last);
        let waist = level.waist.filter(|waist| last.len() > 1 && is_waist(waist));
        let joined = self.joined(id, &last, waist);
        if let Some(failed) = failed {
            // What was finished is shown with the failure.
            if let (Some(root), Ok(view)) =
                (self.branches.get_mut(&id).filter(|branch| branch.origin == Origin::Root), joined)
            {
                root.view = view;
            }
            let outcome = self.failure_of(id, failed);
            if let Some(branch) = self.branches.get_mut(&id) {
                branch.has_failed_within = true;
            }
            return self.take_back(id, outcome, effects);
        }
        let view = match joined {
            Ok(view) => view,
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.conflict = Some(Box::new(error));
                return self.take_back(id, outcome, effects);
            }
        };
        let output = match &forced {
            Some(output) => Ok(output.clone()),
            None => Seen { run: self, graph: &graph, branch: id, view: &view }.output_of(&last),
        };
        let output = match output {
            Ok(output) => output,
            Err(error) => return self.take_back(id, Outcome::Failed { error }, effects),
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
            Err(outcome) => self.take_back(id, outcome, effects),
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
        // A loop that commands make goes by the name of the node to which they go back.
        let level = scope.level(graph);
        let first = level.shape.sources().next().map_or(station, |first| &level.nodes[first as usize]);
        let named = if matches!(until, Exit::NotRepeated) { first } else { station };
        Err(Outcome::refused(Refusal::LoopLimit { node: named.name.to_string(), max: *max }))
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
        let (block, input, iteration) = (scope.block, scope.input.clone(), scope.round.iteration + 1);
        let round = Round { iteration, previous: output, ..Round::default() };
        self.begin_body(id, block, input, round);
    }

    /// Ends the branch of a block; with `is_all`, what is around it ends with it.
    fn close_block(&mut self, id: u32, output: Json, is_all: bool, effects: &mut Vec<Effect>) {
        let Some(graph) = self.graph.clone().filter(|_| is_all) else {
            return self.end_branch(id, Outcome::Finished, output, effects);
        };
        // The item of a map: its siblings are not needed any more, and what has finished stays.
        let mut ended = id;
        while let Some(Origin::Fork { parent, index }) = self.branches.get(&ended).map(|branch| branch.origin) {
            let Some(Now::Forked { children, ends, .. }) = self.branches.get_mut(&parent).map(|branch| &mut branch.now)
            else {
                break;
            };
            let (children, mut ends) = (children.clone(), std::mem::take(ends));
            let reversible = self.take_reversible(&graph, parent);
            if let Some(map) = self.branches.get_mut(&parent) {
                map.reversible = reversible;
            }
            children.into_iter().filter(|child| *child != ended).for_each(|child| self.cancel_branch(child, effects));
            self.note_end_of(ended);
            if let (Some(mut item), Some(end)) = (self.branches.remove(&ended), ends.get_mut(index)) {
                *end = Some(BranchEnd::of(&mut item, Outcome::Finished, output.clone()));
            }
            let (outcome, _) = self.join_ends(parent, ends, Some(&output));
            if !outcome.is_finished() {
                return self.take_back(parent, outcome, effects);
            }
            ended = parent;
        }
        self.note_end_of(ended);
        if let Some(mut branch) = self.branches.remove(&ended) {
            let end = BranchEnd::of(&mut branch, Outcome::Finished, output);
            self.node_branch_ended(branch, end, true);
        }
    }

    /// With what a block fails in which nobody deals with the failure of this node.
    fn failure_of(&self, id: u32, node: u32) -> Outcome {
        let end = self.graph.as_deref().zip(self.scope(id)).and_then(|(graph, scope)| {
            let name = &graph.level(scope.block).nodes[node as usize].name;
            Some((name, scope.end(node)?))
        });
        match end {
            Some((name, NodeEnd { outcome: Outcome::Failed { error }, has_failed_within: false, .. })) => {
                Outcome::Failed { error: format!("node {}: {error}", self.way_to(id, Some(name))) }
            }
            Some((_, end)) => end.outcome.clone(),
            None => Outcome::Failed { error: "a node failed".to_owned() },
        }
    }

    /// A node fails for what comes after its work, which has finished: what it wrote is dropped.
    fn fail_after(&mut self, id: u32, node: u32, problem: String, end: &mut NodeEnd) {
        if let Some(scope) = self.scope_mut(id) {
            scope.given_up.append(&mut end.reversible);
        }
        *end = NodeEnd::failed(problem, self.seen_before(id, node));
    }

    /// Whether what was done in a block or a map is taken back.
    fn is_taken_back(&self, id: u32) -> bool {
        self.branches.get(&id).is_some_and(|branch| branch.undo.is_some())
    }
}
