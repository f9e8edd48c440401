//! The blocks of a plan as data: their running and ended nodes, and the nodes to compensate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::Delta;
use crate::messages::{Command, Json, Outcome, State};
use crate::supervision::runs::rules::small_map::SmallMap;
use crate::workflow::NodeStates;
use crate::workflow::graph::{Graph, Level};
use crate::workflow::progress::{Progress, Stage};

/// A running block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Scope {
    /// The index of the block in the graph.
    pub(super) block: u32,
    /// The input of its first nodes, if they have no template of their own.
    pub(super) input: Json,
    pub(super) progress: Progress,
    pub(super) ends: Vec<Option<Box<NodeEnd>>>,
    /// The branches of running nodes.
    pub(in crate::supervision::runs) children: SmallMap<u32, u32>,
    /// The targets of commands, which replace edges, with their inputs if they have any.
    pub(super) gotos: BTreeMap<u32, Gotos>,
    pub(super) round: Round,
    /// Commands that address the plan around this workflow, by the plan order of their nodes. Nothing begins after the first.
    pub(super) escalations: BTreeMap<Vec<u32>, Escalation>,
    /// Finished work in nodes that did not finish, to be compensated with the rest.
    pub(super) given_up: Vec<Reversible>,
}

impl Scope {
    pub(super) fn new(graph: &Graph, block: u32, input: Json, round: Round) -> Self {
        let level = graph.level(block);
        let progress = Progress::new(&level.shape);
        let ends = vec![None; level.nodes.len()];
        let (children, gotos) = (SmallMap::new(), BTreeMap::new());
        let (escalations, given_up) = (BTreeMap::new(), Vec::new());
        Self { block, input, progress, ends, children, gotos, round, escalations, given_up }
    }

    pub(super) fn end(&self, node: u32) -> Option<&NodeEnd> {
        self.ends.get(node as usize)?.as_deref()
    }

    /// The block.
    pub(in crate::supervision::runs) fn level<'g>(&self, graph: &'g Graph) -> &'g Level {
        graph.level(self.block)
    }

    /// The stage of a node in it.
    pub(in crate::supervision::runs) fn stage(&self, node: u32) -> Stage {
        self.progress.stage(node)
    }

    /// The iteration of the loop whose body it is, from 1.
    pub(in crate::supervision::runs) fn iteration(&self) -> u32 {
        self.round.iteration
    }
}

/// The targets of the command of a node's turn, with their inputs if they have any.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Gotos {
    pub(super) to: Vec<(u32, Option<Json>)>,
    /// The edges of the node count as well.
    pub(super) keeps_edges: bool,
}

/// One iteration of a body.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Round {
    /// The number of the iteration, from 1.
    pub(super) iteration: u32,
    /// The output of the iteration before it.
    pub(super) previous: Json,
    /// A command went back to the loop's first node.
    pub(super) is_repeated: bool,
    /// The index and the value of a map's item.
    pub(super) item: Option<(u32, Json)>,
    /// Targets outside of the loop, which ends with these commands.
    pub(super) exits: Vec<(Arc<str>, Option<Json>)>,
}

/// The end of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct NodeEnd {
    pub(super) outcome: Outcome,
    pub(super) output: Json,
    pub(super) view: State,
    pub(super) deltas: Vec<Delta>,
    /// The ends of nodes within it that templates outside read.
    pub(super) inside: BTreeMap<u32, Inside>,
    /// The reversible nodes within it, oldest first.
    pub(super) reversible: Vec<Reversible>,
    /// Its failure names the node within it that failed.
    pub(super) has_failed_within: bool,
}

impl NodeEnd {
    pub(super) fn new(outcome: Outcome, output: Json, view: State) -> Self {
        let (deltas, inside, reversible) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { outcome, output, view, deltas, inside, reversible, has_failed_within: false }
    }

    pub(super) fn failed(problem: String, view: State) -> Self {
        Self::new(Outcome::Failed { error: problem }, Json::null(), view)
    }
}

/// The end of a node within a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Inside {
    pub(super) outcome: Outcome,
    pub(super) output: Json,
    pub(super) inside: BTreeMap<u32, Inside>,
}

/// A command that addresses the plan around its workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Escalation {
    pub(super) command: Arc<Command>,
    pub(super) output: Json,
    /// The writes of its turn, including those of its delegations.
    pub(super) deltas: Vec<Delta>,
}

/// A finished node for which a compensating agent is named.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Reversible {
    pub(super) block: u32,
    pub(super) node: u32,
    pub(super) view: State,
    pub(super) output: Json,
}

/// Compensation in progress: the outcome of the branch, the node that is being compensated and by which branch, and the remaining
/// nodes, the next one last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Undo {
    pub(super) outcome: Outcome,
    pub(super) at: Option<(u32, u32)>,
    pub(in crate::supervision::runs) by: Option<u32>,
    pub(super) left: Vec<Reversible>,
}

/// Pending work in blocks, processed as part of the current event.
#[derive(Clone, Debug)]
pub(in crate::supervision::runs) enum Todo {
    /// A node of the branch's block may start.
    Start(u32, u32),
    /// A node has ended; `is_all` if the workflow around it ends with it.
    Ended { branch: u32, node: u32, end: Box<NodeEnd>, is_all: bool },
}

/// The states of nodes in ended blocks. Kept only on request: the fold itself does not need them.
#[derive(Clone, Debug, Default)]
pub(in crate::supervision::runs) struct EndStates {
    /// The states of nodes at the end of their blocks, by the enclosing map items and the path.
    pub(super) ends: BTreeMap<NodePath, NodeStates>,
    /// The paths of the nodes that were compensated.
    pub(super) undone: BTreeSet<String>,
}

/// The indices of the enclosing map items, outermost first, and the names on the path to the node.
pub(super) type NodePath = (Vec<usize>, String);
