//! Raises nodes with edges to steps: the inverse of `lower`.
//!
//! The steps of a text lie one after another among the nodes, and so do the branches and arms within a step. So the nodes are
//! read from the last one back. The edges of what comes after a step name the last nodes of its branches, and the edges of
//! their first nodes name the node before the step.

use std::collections::{HashMap, HashSet};

use callboard_documents::Placed;

use crate::messages::{JoinPolicy, On};
use crate::workflow::draft::{EdgeDraft, Node, WorkDraft};

use super::lower::{self, Front, Names, failure, is_success, success};
use super::steps::{MAX_NESTING, NodeStep, Sequence, Step};

/// How deep sequences may lie within sequences: a bracket can hold branches that each are a group.
const MAX_DEPTH: usize = 2 * MAX_NESTING + 1;

/// The steps that `lower` lowers to these nodes, if there are any.
pub(super) fn steps(nodes: &[Node]) -> Option<Sequence> {
    let mut names = HashSet::new();
    if !add_names(nodes, &mut names, 0) {
        return None;
    }
    let mut made = HashSet::new();
    add_made(nodes, &names, &mut Names::default(), &mut made);
    let steps = block(nodes, &made, 0)?;
    is_same(&lower::nodes(&steps), nodes).then_some(steps)
}

/// Adds all names; `false` if a node is nested too deep.
fn add_names<'a>(nodes: &'a [Node], names: &mut HashSet<&'a str>, depth: usize) -> bool {
    nodes.iter().all(|node| {
        names.insert(&node.name.value);
        depth < MAX_DEPTH && add_names(within(node), names, depth + 1)
    })
}

/// Adds the names that `lower` would have generated for their nodes.
fn add_made<'a>(nodes: &'a [Node], all: &HashSet<&str>, names: &mut Names, made: &mut HashSet<&'a str>) {
    for node in nodes {
        let own = node.name.value.as_str();
        if names.make(node, |name| name != own && all.contains(name)).is_some_and(|name| name == own) {
            made.insert(own);
        }
        add_made(within(node), all, names, made);
    }
}

fn within(node: &Node) -> &[Node] {
    match &node.work {
        WorkDraft::Nodes { nodes, .. } => nodes,
        WorkDraft::Agent(_) | WorkDraft::Join | WorkDraft::Workflow(_) => &[],
    }
}

/// Whether they have the same names and edges; steps keep everything else.
fn is_same(some: &[Node], others: &[Node]) -> bool {
    let same = |(some, other): (&Node, &Node)| {
        some.name.value == other.name.value
            && some.join.value == other.join.value
            && are_same(&some.after, &other.after)
            && is_same(within(some), within(other))
    };
    some.len() == others.len() && some.iter().zip(others).all(same)
}

fn are_same(some: &[EdgeDraft], others: &[EdgeDraft]) -> bool {
    fn parts(edge: &EdgeDraft) -> impl PartialEq {
        (edge.from.value.clone(), edge.on, edge.when.as_ref().map(|when| when.value.clone()))
    }
    some.len() == others.len() && some.iter().zip(others).all(|(some, other)| parts(some) == parts(other))
}

fn block(nodes: &[Node], made: &HashSet<&str>, depth: usize) -> Option<Sequence> {
    let positions: HashMap<&str, usize> = (0..).zip(nodes).map(|(at, node)| (node.name.value.as_str(), at)).collect();
    if positions.len() < nodes.len() {
        return None;
    }
    let edges = nodes.iter().flat_map(|node| &node.after).filter(|edge| edge.on == On::Success);
    let continues: HashSet<&str> = edges.map(|edge| edge.from.value.as_str()).collect();
    let ends = nodes.iter().filter(|node| !continues.contains(node.name.value.as_str()));
    let front = Front { edges: ends.map(|node| success(&node.name)).collect(), ..Front::default() };
    Level { nodes, positions, made }.sequence(0, nodes.len(), &[], front, true, depth)
}

/// The nodes of a block.
struct Level<'a> {
    nodes: &'a [Node],
    positions: HashMap<&'a str, usize>,
    made: &'a HashSet<&'a str>,
}

impl Level<'_> {
    /// The steps from `start` to `end`: the first comes after `entry`, and `front` comes after the last. It ends a block, or
    /// is a branch or an arm.
    fn sequence(
        &self,
        start: usize,
        end: usize,
        entry: &[EdgeDraft],
        mut front: Front,
        ends_block: bool,
        depth: usize,
    ) -> Option<Sequence> {
        if depth > MAX_DEPTH {
            return None;
        }
        // From the last to the first.
        let mut steps: Sequence = Vec::new();
        let mut left = end;
        while left > start {
            let RaisedStep { step, begins, before } = self.step(start, left, entry, &front, depth)?;
            // Edges that lead back have no steps.
            if begins >= left {
                return None;
            }
            left = begins;
            front = before;
            let is_made = left > start || matches!(steps.last(), Some(Step::If { .. }));
            if !(is_made && self.is_made(&step, &front, steps.last(), ends_block)) {
                steps.push(step);
            }
        }
        if steps.is_empty() || left < start || front.join.value != JoinPolicy::All || !are_same(&front.edges, entry) {
            return None;
        }
        steps.reverse();
        Some(steps)
    }

    /// Whether `lower` inserts this step between the ones before and after it.
    fn is_made(&self, step: &Step, before: &Front, after: Option<&Step>, ends_block: bool) -> bool {
        let Step::Node(step) = step else { return false };
        if step.node != Node::new(Placed::default(), WorkDraft::Join) || step.rescue.is_some() {
            return false;
        }
        match after {
            Some(Step::Node(_)) => false,
            Some(Step::Group { .. }) => !before.is_narrow(),
            Some(Step::If { .. }) => !before.is_node(),
            None if ends_block => !before.is_plain(),
            None => !before.is_node(),
        }
    }

    /// The step that ends before `end`, where `front` comes after it, in a sequence that begins at `start` after `entry`.
    fn step(&self, start: usize, end: usize, entry: &[EdgeDraft], front: &Front, depth: usize) -> Option<RaisedStep> {
        let last = end.checked_sub(1)?;
        let is_all = front.join.value == JoinPolicy::All;
        match front.edges.as_slice() {
            [edge] if is_all && is_success(edge) => self.is_at(edge, last).then(|| self.node(last, None, depth))?,
            [node, rescue] if is_all && is_success(node) && is_success(rescue) && self.is_rescue(node, rescue, end) => {
                let at = self.position(node)?;
                let rescue = self.closed(at + 1, end, &[failure(&self.nodes[at].name)], depth)?;
                self.node(at, Some(rescue), depth)
            }
            [then, not_taken] if is_all && is_success(then) && not_taken.when.is_some() => {
                self.branching(start, end, end, not_taken, depth)
            }
            [then, otherwise] if is_all && is_success(then) && is_success(otherwise) => {
                let middle = self.position(then)? + 1;
                let not_taken = self.nodes.get(middle)?.after.as_slice();
                match not_taken {
                    [edge] if edge.when.is_some() && self.is_first_arm(start, middle, edge) => {
                        self.branching(start, middle, end, edge, depth)
                    }
                    _ => self.group(start, end, entry, front, depth),
                }
            }
            edges if edges.len() > 1 && edges.iter().all(is_success) => self.group(start, end, entry, front, depth),
            _ => None,
        }
    }

    fn node(&self, at: usize, rescue: Option<Sequence>, depth: usize) -> Option<RaisedStep> {
        let old = self.nodes.get(at)?;
        let before = Front { edges: old.after.clone(), join: old.join.clone(), place: None };
        let body = match &old.work {
            WorkDraft::Nodes { nodes, .. } => Some(block(nodes, self.made, depth + 1)?),
            WorkDraft::Agent(_) | WorkDraft::Join | WorkDraft::Workflow(_) => None,
        };
        let work = match &old.work {
            WorkDraft::Nodes { output, .. } => WorkDraft::Nodes { nodes: Vec::new(), output: output.clone() },
            WorkDraft::Agent(_) | WorkDraft::Join | WorkDraft::Workflow(_) => old.work.clone(),
        };
        let is_made = lower::word(old).is_some() && self.made.contains(old.name.value.as_str());
        let name = if is_made { Placed::default() } else { old.name.clone() };
        let node = Node {
            name,
            work,
            after: Vec::new(),
            join: Placed::default(),
            when: old.when.clone(),
            input: old.input.clone(),
            goto: old.goto.clone(),
            repeat: old.repeat.clone(),
            repeats: old.repeats.clone(),
            exits: old.exits.clone(),
            saves: old.saves.clone(),
            attempts: old.attempts.clone(),
            timeout: old.timeout.clone(),
            compensation: old.compensation.clone(),
            is_interrupted: old.is_interrupted,
        };
        let step = Step::Node(Box::new(NodeStep { node, body, rescue }));
        Some(RaisedStep { step, begins: at, before })
    }

    /// A branching whose first arm ends before `middle`, and whose second, if there is one, before `end`.
    fn branching(
        &self,
        start: usize,
        middle: usize,
        end: usize,
        not_taken: &EdgeDraft,
        depth: usize,
    ) -> Option<RaisedStep> {
        let begins = self.begin(start, Some(not_taken));
        let taken = self.nodes.get(begins)?.after.clone();
        let condition = taken.first()?.when.clone()?;
        let then = self.closed(begins, middle, &taken, depth)?;
        let otherwise = match middle == end {
            true => None,
            false => Some(self.closed(middle, end, std::slice::from_ref(not_taken), depth)?),
        };
        let before = Front::after(EdgeDraft { when: None, ..not_taken.clone() });
        Some(RaisedStep { step: Step::If { condition, then, otherwise, place: None }, begins, before })
    }

    fn group(&self, start: usize, end: usize, entry: &[EdgeDraft], front: &Front, depth: usize) -> Option<RaisedStep> {
        let ends = front.edges.iter().map(|edge| Some(self.position(edge)? + 1)).collect::<Option<Vec<usize>>>()?;
        if ends.last() != Some(&end) {
            return None;
        }
        // A branch that begins with a branching puts a condition on the edge.
        let second = self.nodes.get(*ends.first()?)?.after.first();
        let begins = self.begin(start, second);
        let entry = match second {
            Some(edge) if begins > start => vec![success(&edge.from)],
            Some(_) | None => entry.to_vec(),
        };
        let begin = std::iter::once(begins).chain(ends.iter().copied());
        let branches = begin.zip(&ends).map(|(begin, end)| self.closed(begin, *end, &entry, depth));
        let branches = branches.collect::<Option<Vec<Sequence>>>()?;
        let before = Front { edges: entry, ..Front::default() };
        Some(RaisedStep { step: Step::Group { branches, policy: front.join.clone(), place: None }, begins, before })
    }

    /// A branch or an arm: it ends with one node.
    fn closed(&self, start: usize, end: usize, entry: &[EdgeDraft], depth: usize) -> Option<Sequence> {
        let last = self.nodes.get(start..end)?.last()?;
        self.sequence(start, end, entry, Front::after(success(&last.name)), false, depth + 1)
    }

    /// The beginning of the step whose first nodes come after this edge.
    fn begin(&self, start: usize, entry: Option<&EdgeDraft>) -> usize {
        entry.and_then(|edge| self.position(edge)).map_or(start, |before| start.max(before + 1))
    }

    fn is_rescue(&self, node: &EdgeDraft, rescue: &EdgeDraft, end: usize) -> bool {
        let first = self.position(node).and_then(|at| self.nodes.get(at + 1));
        first.is_some_and(|first| are_same(&first.after, &[failure(&node.from)])) && self.is_at(rescue, end - 1)
    }

    /// Whether the nodes before `middle` come after the same node as this edge under one other condition. Branches of a group
    /// that begin with branchings come after it under two conditions each.
    fn is_first_arm(&self, start: usize, middle: usize, not_taken: &EdgeDraft) -> bool {
        let arm = self.nodes.get(self.begin(start, Some(not_taken))..middle).unwrap_or_default();
        let mut edges = arm.iter().flat_map(|node| &node.after).filter(|edge| edge.from.value == not_taken.from.value);
        let Some(first) = edges.next() else { return false };
        let is_same = |other: &EdgeDraft| are_same(std::slice::from_ref(first), std::slice::from_ref(other));
        first.when.is_some() && !is_same(not_taken) && edges.all(is_same)
    }

    fn position(&self, edge: &EdgeDraft) -> Option<usize> {
        self.positions.get(edge.from.value.as_str()).copied()
    }

    fn is_at(&self, edge: &EdgeDraft, position: usize) -> bool {
        self.position(edge) == Some(position)
    }
}

/// A raised step, the position where it begins, and its predecessors.
struct RaisedStep {
    step: Step,
    begins: usize,
    before: Front,
}
