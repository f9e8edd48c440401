//! A compiled plan: the order of its nodes, its dominators, and the variables of every template. `compile` makes it from a plan,
//! or reports the plan's flaws.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::messages::On;
use callboard_documents::template::{Compiled, Fault, Template};
use callboard_text::nearest;

use super::checks::Checks;
use super::progress::Shape;

use self::vars::Var;

mod compile;
mod names;
mod order;
pub(crate) mod vars;

/// The most nodes of a workflow, with those within nodes.
pub(crate) const MAX_NODES: usize = 10_000;

/// The deepest nesting of nodes within nodes.
pub(crate) const MAX_DEPTH: usize = crate::messages::MAX_PLAN_DEPTH;

/// The most items that a map takes by default (SEMANTICS 2).
pub(crate) const MAP_BOUND: u32 = 1_000;

/// The longest name of a node, in bytes. Every edge from a node may hold it, and every event of its turns.
pub(crate) const MAX_NAME: usize = 128;

/// The advice about an undeclared channel.
const UNDECLARED: &str = "declare it among the channels of the workflow; one in a line has none";

/// A compiled plan.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The first is the workflow's own.
    blocks: Vec<Level>,
    /// The fields that templates need of the workflow's input.
    inputs: BTreeSet<Arc<str>>,
    /// The schemas of the channels.
    pub(crate) checks: Checks,
    /// A node has a compensation.
    pub(crate) is_reversible: bool,
    /// It contains nested workflows.
    pub(crate) has_workflows: bool,
}

/// A compiled block.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) shape: Shape,
    pub(crate) nodes: Vec<Station>,
    /// For each edge, its condition.
    pub(crate) conditions: Vec<Option<Test>>,
    pub(crate) output: Option<Template<Var>>,
    /// The nearest node that every path through the block passes.
    pub(crate) waist: Option<u32>,
    names: BTreeMap<Arc<str>, u32>,
    /// The enclosing block, and the node there whose work it is.
    pub(crate) within: Option<(u32, u32)>,
    kind: LevelKind,
    /// The closed block that it belongs to.
    closed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LevelKind {
    /// A workflow of its own: it sees only its input.
    Closed,
    Group,
    Loop,
    Map,
}

/// A compiled node.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) name: Arc<str>,
    pub(crate) task: Task,
    pub(crate) when: Option<Test>,
    pub(crate) input: Option<Template<Var>>,
    pub(crate) rules: Rules,
    /// Templates outside read the results of nodes within it.
    pub(crate) is_read_inside: bool,
}

/// The settings of a node for its turns.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) saves: Option<Arc<str>>,
    pub(crate) may_repeat: bool,
    pub(crate) exits: Vec<Arc<str>>,
    pub(crate) attempts: Option<u32>,
    pub(crate) timeout: Option<std::time::Duration>,
    /// The index of the compensating agent in the plan's cast.
    pub(crate) compensation: Option<u32>,
    pub(crate) is_interrupted: bool,
}

/// The work of a node.
#[derive(Debug)]
pub(crate) enum Task {
    /// A turn of the agent with this index in the plan's cast.
    Agent(u32),
    Join,
    Block(u32),
    Loop {
        body: u32,
        until: Exit,
        max: u32,
        ends_at_max: bool,
    },
    Map {
        body: u32,
        over: Compiled<Var>,
        max: u32,
    },
}

/// The condition that ends a loop.
#[derive(Debug)]
pub(crate) enum Exit {
    Bound,
    Holds(Test),
    NotRepeated,
}

/// A compiled condition.
#[derive(Debug)]
pub(crate) enum Test {
    Expression(Compiled<Var>),
    /// The predicate of this name, and the result with which the condition holds.
    Predicate(Arc<str>, bool),
}

/// A predicate, and the node that uses it.
pub(crate) struct Predicated<'a> {
    pub(crate) node: &'a str,
    pub(crate) name: &'a str,
}

/// A flaw of a plan, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) part: PlanPart,
    pub(crate) fault: Fault,
}

/// A part of a plan: the positions that lead to the node, and the part of it. Without positions: the workflow itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanPart {
    pub(crate) node: Vec<u32>,
    pub(crate) aspect: Aspect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// The schema of a channel.
    Channel(Arc<str>),
    Whole,
    Name,
    Edge(usize),
    EdgeCondition(usize),
    Join,
    When,
    Input,
    Repeat,
    /// The most iterations or items.
    Bound,
    Saves,
    Attempts,
    Timeout,
    Output,
}

/// The fault of a plan with more than [`MAX_NODES`].
pub(super) fn too_many_nodes() -> Fault {
    let fault = Fault::new(format!("the workflow has more than {MAX_NODES} nodes"));
    fault.advise("run parts of it as workflows of their own")
}

impl Graph {
    /// The fields that its input must have.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().map(|field| &**field)
    }

    /// The predicates that it asks.
    pub(crate) fn predicates(&self) -> impl Iterator<Item = Predicated<'_>> {
        self.blocks.iter().flat_map(|level| {
            let at_edges = level.shape.edges.iter().zip(&level.conditions);
            let at_edges = at_edges.map(|(line, test)| (&level.nodes[line.to as usize].name, test.as_ref()));
            let at_nodes = level.nodes.iter().flat_map(|node| {
                let until = match &node.task {
                    Task::Loop { until: Exit::Holds(test), .. } => Some(test),
                    Task::Loop { .. } | Task::Agent(_) | Task::Join | Task::Block(_) | Task::Map { .. } => None,
                };
                [(&node.name, node.when.as_ref()), (&node.name, until)]
            });
            at_edges.chain(at_nodes).filter_map(|(node, test)| match test? {
                Test::Predicate(name, _) => Some(Predicated { node, name }),
                Test::Expression(_) => None,
            })
        })
    }

    /// A block.
    pub(crate) fn level(&self, block: u32) -> &Level {
        &self.blocks[block as usize]
    }
}

impl Level {
    /// Whether it is the scope for the `goto` of turns within it, and ends with their `end`.
    pub(crate) fn is_closed(&self) -> bool {
        self.kind == LevelKind::Closed
    }

    /// The node of this name, if commands of `node` may go to it.
    pub(crate) fn target(&self, node: u32, name: &str) -> Option<u32> {
        let to = *self.names.get(name)?;
        let mut outs = self.shape.nodes[node as usize].outs.iter().map(|edge| self.shape.edges[*edge as usize]);
        outs.any(|line| line.on == On::Goto && line.to == to).then_some(to)
    }

    /// Whether the block begins with the node of this name.
    pub(crate) fn begins_with(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|node| self.shape.nodes[*node as usize].ins.is_empty())
    }

    /// The most similar name of a node that commands of `node` may go to.
    pub(crate) fn nearest_target(&self, node: u32, name: &str) -> Option<String> {
        let outs = self.shape.nodes[node as usize].outs.iter().map(|edge| self.shape.edges[*edge as usize]);
        let targets = outs.filter(|line| line.on == On::Goto).map(|line| &*self.nodes[line.to as usize].name);
        nearest(name, targets.chain(self.nodes[node as usize].rules.exits.iter().map(|name| &**name)))
    }
}
