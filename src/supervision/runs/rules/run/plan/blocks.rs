//! The part of the fold that follows a workflow (SEMANTICS 7): how nodes start, and what their ends lead to.
//!
//! A block that runs is a branch with a [`Scope`]; each running node is a branch of its own below it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::state::{Delta, StateError};
use crate::messages::{Command, Goto, Json, On, Outcome, Refusal, State};
use crate::supervision::runs::rules::run::branch::{Branch, BranchEnd, Brief, Now, Origin};
use crate::supervision::runs::rules::run::effect::Effect;
use crate::supervision::runs::rules::run::fold::Run;
use crate::supervision::runs::rules::run::turn::Phase;
use crate::workflow::graph::{Level, Task};
use crate::workflow::progress::{Act, Stage};

use super::scope::{Inside, NodeEnd, Round, Scope, Todo};
use super::seen::Seen;

impl Run {
    /// Begins a block in a branch.
    pub(in crate::supervision::runs) fn begin_block(&mut self, branch: u32, block: u32, input: Json) {
        self.begin_body(branch, block, input, Round { iteration: 1, ..Round::default() });
    }

    pub(super) fn begin_body(&mut self, id: u32, block: u32, input: Json, round: Round) {
        let Some(graph) = self.plan.shared_graph() else { return };
        let scope = Scope::new(&graph, block, input, round);
        if let Some(branch) = self.branches.get_mut(id) {
            branch.now = Now::Plan(Box::new(scope));
        }
        self.plan.extend(graph.level(block).shape.sources().map(|node| Todo::Start(id, node)));
    }

    /// Processes the agenda of the plan.
    pub(in crate::supervision::runs) fn drain_agenda(&mut self, effects: &mut Vec<Effect>) {
        while let Some(todo) = self.plan.pop() {
            match todo {
                Todo::Start(branch, node) => self.start_node(branch, node, effects),
                Todo::Ended { branch, node, end, is_all } => self.node_ended(branch, node, end, is_all, effects),
            }
        }
    }

    /// Records that the command of a node's turn goes to nodes by name.
    pub(in crate::supervision::runs) fn note_goto(&mut self, branch: u32, command: &Command) {
        let targets = match &command.goto {
            Goto::Next | Goto::End => return,
            Goto::Agent(name) => vec![(Arc::clone(name), None)],
            Goto::Many(sends) => sends.iter().map(|send| (Arc::clone(&send.to), Some(send.input.clone()))).collect(),
        };
        self.note_targets(branch, targets, command.keeps_edges);
    }

    pub(super) fn note_targets(&mut self, branch: u32, targets: Vec<(Arc<str>, Option<Json>)>, keeps_edges: bool) {
        let Some(graph) = self.plan.shared_graph() else { return };
        let Some(Origin::Node { parent, node }) = self.branches.get(branch).map(|branch| branch.origin) else {
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

    fn start_node(&mut self, id: u32, node: u32, effects: &mut Vec<Effect>) {
        let Some(graph) = self.plan.shared_graph() else { return };
        let may_start = |scope: &&Scope| scope.progress.stage(node) == Stage::Ready && !self.is_taken_back(id);
        let Some(scope) = self.scope(id).filter(may_start) else { return };
        let level = graph.level(scope.block);
        let station = &level.nodes[node as usize];
        if self.is_escalated(id) {
            return self.skip_node(id, level, node, effects);
        }
        let taken = scope.progress.taken(&level.shape, node);
        let before: Vec<u32> = scope.progress.before(node).collect();
        let view = match self.joined(id, &before, level.shape.nodes[node as usize].dominator) {
            Ok(view) => view,
            Err(error) => {
                let problem = error.to_string();
                self.conflict = Some(Box::new(error));
                let view = self.branches.get(id).map(|branch| branch.view.clone()).unwrap_or_default();
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
        let Some(branch) = self.branches.get_mut(id) else { return };
        let (chain, brief) = (branch.chain.clone(), Brief { deadline: None, ..branch.brief.clone() });
        if let Now::Plan(scope) = &mut branch.now {
            scope.progress.start(node);
        }
        if let Task::Join = station.task {
            let end = Box::new(NodeEnd::new(Outcome::Finished, input, view));
            return self.plan.push(Todo::Ended { branch: id, node, end, is_all: false });
        }
        let origin = Origin::Node { parent: id, node };
        let child = self.branches.add(Branch { brief, ..Branch::new(origin, view, chain) });
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

    /// Whether a command has addressed the plan around the workflow of this block: nothing more begins in it.
    pub(super) fn is_escalated(&self, block: u32) -> bool {
        let within = self.workflow_within(block).and_then(|within| self.scope(within));
        within.is_some_and(|scope| !scope.escalations.is_empty())
    }

    /// Begins a turn of an agent of the plan's cast.
    pub(super) fn start_cast(&mut self, branch: u32, agent: u32, input: Json, waits: bool, effects: &mut Vec<Effect>) {
        let Some(agent) = self.submission.cast.get(agent as usize).cloned() else {
            let outcome = Outcome::Failed { error: "nobody was cast for a node of the workflow".to_owned() };
            return self.end_branch(branch, outcome, Json::null(), effects);
        };
        self.tally.cast.insert(agent.clone());
        let number = self.turns.next_number();
        let start = self.open_turn(branch, agent, input);
        if waits {
            self.turns.set_phase(number, Phase::Interrupted);
            effects.push(Effect::Interrupted(number));
        } else {
            effects.push(start);
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
        let Some(graph) = self.plan.shared_graph() else { return };
        let Some(view) = self.branches.get(id).map(|branch| branch.view.clone()) else { return };
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
        let Some(parent) = self.branches.get(id) else { return };
        let (view, chain, brief) = (parent.view.clone(), parent.chain.clone(), parent.brief.clone());
        let mut children = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let origin = Origin::Fork { parent: id, index };
            let child =
                self.branches.add(Branch { brief: brief.clone(), ..Branch::new(origin, view.clone(), chain.clone()) });
            children.push((child, Json::from(item.clone())));
        }
        let open = children.len();
        let ids: Vec<u32> = children.iter().map(|(child, _)| *child).collect();
        if let Some(parent) = self.branches.get_mut(id) {
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

    /// Ends a node that has failed before its work began. Its successors see the state that it would have seen.
    pub(super) fn node_failed(&mut self, id: u32, node: u32, problem: String, view: State) {
        let end = Box::new(NodeEnd::failed(problem, view));
        self.plan.push(Todo::Ended { branch: id, node, end, is_all: false });
    }

    /// Carries out the consequences of marked edges.
    fn act(&mut self, id: u32, acts: Vec<Act>, effects: &mut Vec<Effect>) {
        for act in acts {
            match act {
                Act::Start(node) => self.plan.push(Todo::Start(id, node)),
                Act::Cancel(node) => {
                    let child = self.scope_mut(id).and_then(|scope| scope.children.remove(&node));
                    if let (Some(child), Some(graph)) = (child, self.plan.shared_graph()) {
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
                end.deltas.push(Delta { turn: self.turn_id(number), update: update.into() });
                Ok::<_, StateError>(())
            });
            self.make_reversible(parent, node, &mut end);
            if let Err(error) = saved {
                self.fail_after(parent, node, error.to_string(), &mut end);
            }
        }
        self.plan.push(Todo::Ended { branch: parent, node, end: Box::new(end), is_all });
    }

    /// The results of nodes in a block that templates outside of it read.
    fn read_inside(&self, parent: u32, node: u32, scope: &Scope) -> BTreeMap<u32, Inside> {
        let is_read = self
            .plan
            .graph()
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
        let Some(graph) = self.plan.shared_graph() else { return };
        // Nodes that had ended beside a failed one no longer count.
        let is_taken_back = self.is_taken_back(id);
        let Some(scope) = self.scope_mut(id).filter(|_| !is_taken_back) else { return };
        scope.children.remove(&node);
        if !matches!(scope.progress.stage(node), Stage::Running | Stage::Ready) {
            return;
        }
        let level = graph.level(scope.block);
        let outs = &level.shape.nodes[node as usize].outs;
        let is_finished = end.outcome.is_finished();
        // After a failure only edges for failures are taken: conditions of others might read the output that is missing.
        let conditions = outs.iter().filter_map(|edge| Some((*edge, level.conditions[*edge as usize].as_ref()?)));
        let mut tests = conditions
            .filter(|(edge, _)| is_finished != (level.shape.edges[*edge as usize].on == On::Failure))
            .peekable();
        let mut holds: BTreeMap<u32, bool> = BTreeMap::new();
        if tests.peek().is_some() {
            // The templates may name the node itself.
            if let Some(scope) = self.scope_mut(id) {
                scope.ends[node as usize] = Some(end.clone());
            }
            let seen = Seen { run: self, graph: &graph, branch: id, view: &end.view };
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

    pub(super) fn finish_if_over(&mut self, id: u32, effects: &mut Vec<Effect>) {
        if self.scope(id).is_some_and(|scope| scope.progress.is_over()) {
            self.finish_block(id, None, effects);
        }
    }

    /// Fails a node after its work has finished: its writes are dropped.
    pub(super) fn fail_after(&mut self, id: u32, node: u32, problem: String, end: &mut NodeEnd) {
        if let Some(scope) = self.scope_mut(id) {
            scope.given_up.append(&mut end.reversible);
        }
        *end = NodeEnd::failed(problem, self.seen_before(id, node));
    }

    /// Whether a block or a map is being compensated.
    pub(super) fn is_taken_back(&self, id: u32) -> bool {
        self.branches.get(id).is_some_and(|branch| branch.undo.is_some())
    }
}
