//! Lowers steps to nodes with edges.
//!
//! The predecessor of a step must be one node. If it is several nodes, or one under a condition, a join is inserted: between a
//! group and a group or a branching, before a branching without a predecessor, and at the end of an arm or a branch. At the end
//! of a block it is inserted for another policy than all, or a condition.

use std::collections::HashSet;

use callboard_documents::{Place, Placed};

use crate::messages::{Condition, JoinPolicy, On};
use crate::workflow::draft::{EdgeDraft, Node, RepeatDraft, WorkDraft};

use super::steps::{NodeStep, Sequence, Step};

/// The predecessors of the next node.
#[derive(Clone, Debug, Default)]
pub(super) struct Front {
    pub(super) edges: Vec<EdgeDraft>,
    pub(super) join: Placed<JoinPolicy>,
    /// The position before it.
    pub(super) place: Place,
}

impl Front {
    pub(super) fn after(edge: EdgeDraft) -> Self {
        Self { place: edge.from.place.clone(), edges: vec![edge], join: Placed::default() }
    }

    /// Whether it is the success edge of one node.
    pub(super) fn is_node(&self) -> bool {
        self.edges.len() == 1 && self.is_plain()
    }

    /// Whether all branches of a group can begin after it.
    pub(super) fn is_narrow(&self) -> bool {
        self.edges.len() <= 1 && self.join.value == JoinPolicy::All
    }

    /// Whether a block can end with it.
    pub(super) fn is_plain(&self) -> bool {
        self.join.value == JoinPolicy::All && self.edges.iter().all(is_success)
    }
}

/// Whether it is taken after every success.
pub(super) fn is_success(edge: &EdgeDraft) -> bool {
    edge.on == On::Success && edge.when.is_none()
}

/// The edge that is taken after every success of `from`.
pub(super) fn success(from: &Placed<String>) -> EdgeDraft {
    EdgeDraft { from: from.clone(), on: On::Success, when: None }
}

/// The edge that is taken when `from` has failed.
pub(super) fn failure(from: &Placed<String>) -> EdgeDraft {
    EdgeDraft { from: from.clone(), on: On::Failure, when: None }
}

/// The negation of a condition.
pub(super) fn negated(condition: &Placed<Condition>) -> Placed<Condition> {
    let value = match &condition.value {
        Condition::Expression(expression) => Condition::Expression(format!("not ({expression})").into()),
        Condition::Predicate(name) => Condition::NotPredicate(name.clone()),
        Condition::NotPredicate(name) => Condition::Predicate(name.clone()),
    };
    Placed { value, place: condition.place.clone() }
}

/// The keyword of nodes whose names can be generated.
pub(super) fn word(node: &Node) -> Option<&'static str> {
    match (&node.work, &node.repeat) {
        (WorkDraft::Join, _) => Some("join"),
        (WorkDraft::Nodes { .. }, None | Some(RepeatDraft::Back { .. })) => Some("block"),
        (WorkDraft::Nodes { .. }, Some(RepeatDraft::Loop { .. })) => Some("loop"),
        (WorkDraft::Nodes { .. }, Some(RepeatDraft::Map { .. })) => Some("map"),
        (WorkDraft::Agent(_) | WorkDraft::Workflow(_), _) => None,
    }
}

/// Generates names: `join_2` for the second join of a text, even if the first has a name of its own.
#[derive(Default)]
pub(super) struct Names {
    seen: [(&'static str, u32); 4],
}

impl Names {
    /// Counts a node, and returns its generated name.
    pub(super) fn make(&mut self, node: &Node, is_taken: impl Fn(&str) -> bool) -> Option<String> {
        let word = word(node)?;
        let count = self.seen.iter_mut().find(|(seen, _)| seen.is_empty() || *seen == word)?;
        *count = (word, count.1 + 1);
        let mut name = format!("{word}_{}", count.1);
        while is_taken(&name) {
            name.push('_');
        }
        Some(name)
    }
}

/// The nodes of a workflow.
pub(super) fn nodes(steps: &[Step]) -> Vec<Node> {
    let mut taken = HashSet::new();
    add_names(steps, &mut taken);
    Lowering { taken, names: Names::default() }.block(steps)
}

/// Adds the names that are written.
fn add_names<'a>(steps: &'a [Step], names: &mut HashSet<&'a str>) {
    for step in steps {
        match step {
            Step::Node(step) => {
                names.insert(&step.node.name.value);
                step.body.iter().chain(&step.rescue).for_each(|steps| add_names(steps, names));
            }
            Step::Group { branches, .. } => branches.iter().for_each(|steps| add_names(steps, names)),
            Step::If { then, otherwise, .. } => {
                add_names(then, names);
                otherwise.iter().for_each(|steps| add_names(steps, names));
            }
        }
    }
}

struct Lowering<'a> {
    taken: HashSet<&'a str>,
    names: Names,
}

impl Lowering<'_> {
    fn block(&mut self, steps: &[Step]) -> Vec<Node> {
        let mut nodes = Vec::new();
        let last = self.sequence(steps, Front::default(), &mut nodes);
        if !last.is_plain() {
            self.join(last, &mut nodes);
        }
        nodes
    }

    fn sequence(&mut self, steps: &[Step], first: Front, nodes: &mut Vec<Node>) -> Front {
        steps.iter().fold(first, |front, step| match step {
            Step::Node(step) => self.node(step, front, nodes),
            Step::Group { branches, policy, place } => {
                let front = if front.is_narrow() { front } else { self.join(front, nodes) };
                let edges = branches.iter().flat_map(|steps| self.closed(steps, front.clone(), nodes)).collect();
                Front { edges, join: policy.clone(), place: place.clone() }
            }
            Step::If { condition, then, otherwise, place } => {
                let front = if front.is_node() { front } else { self.join(front, nodes) };
                let arm = |condition: Placed<Condition>| {
                    let edges =
                        front.edges.iter().map(|edge| EdgeDraft { when: Some(condition.clone()), ..edge.clone() });
                    Front { edges: edges.collect(), ..front.clone() }
                };
                let (taken, not_taken) = (arm(condition.clone()), arm(negated(condition)));
                let mut edges = self.closed(then, taken, nodes);
                edges.extend(match otherwise {
                    Some(steps) => self.closed(steps, not_taken, nodes),
                    None => not_taken.edges,
                });
                Front { edges, join: Placed::default(), place: place.clone() }
            }
        })
    }

    /// Lowers a branch or an arm: it ends with one node, from which one edge leads on.
    fn closed(&mut self, steps: &Sequence, first: Front, nodes: &mut Vec<Node>) -> Vec<EdgeDraft> {
        let last = self.sequence(steps, first, nodes);
        if last.is_node() { last.edges } else { self.join(last, nodes).edges }
    }

    fn node(&mut self, step: &NodeStep, front: Front, nodes: &mut Vec<Node>) -> Front {
        let mut node = step.node.clone();
        self.name(&mut node);
        node.after = front.edges;
        node.join = front.join;
        if let (WorkDraft::Nodes { nodes, .. }, Some(body)) = (&mut node.work, &step.body) {
            *nodes = self.block(body);
        }
        let name = node.name.clone();
        nodes.push(node);
        let mut last = Front::after(success(&name));
        if let Some(rescue) = &step.rescue {
            last.edges.extend(self.closed(rescue, Front::after(failure(&name)), nodes));
        }
        last
    }

    fn join(&mut self, front: Front, nodes: &mut Vec<Node>) -> Front {
        let name = Placed { value: String::new(), place: front.place.clone() };
        let step = NodeStep { node: Node::new(name, WorkDraft::Join), body: None, rescue: None };
        self.node(&step, front, nodes)
    }

    /// Counts a node, and generates its name if it has none.
    fn name(&mut self, node: &mut Node) {
        let made = self.names.make(node, |name| self.taken.contains(name));
        if let (true, Some(made)) = (node.name.value.is_empty(), made) {
            node.name.value = made;
        }
    }
}
