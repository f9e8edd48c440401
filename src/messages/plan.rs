//! A workflow as a run carries it: which turns may start when. `workflow` makes it from what people write.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Json, Schema};

/// Decides which turns of a run may start next (SEMANTICS 7). Made and checked by
/// [`Workflow`](crate::workflow::Workflow); a run keeps the one that it started with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The workflow's name. A conversation of its runs belongs to `workflow` and this name
    /// ([`Submission::owner`](super::Submission::owner)).
    pub name: Arc<str>,
    /// The channels of its runs' state, unless the task declares others ([`Task::schema`](super::Task::schema)).
    pub schema: Arc<Schema>,
    /// JSON Schemas that what a channel holds after a write must meet.
    pub checks: BTreeMap<Arc<str>, Json>,
    pub(crate) body: Block,
    #[serde(skip)]
    compiled: Compiled,
}

/// The graph that a plan was compiled to, shared by all holders of the plan. It is not stored.
#[derive(Clone, Default)]
struct Compiled(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl PartialEq for Compiled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "compiled" } else { "not compiled" })
    }
}

/// A block: nodes that run together and end together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Block {
    /// In the author's order.
    pub nodes: Vec<PlanNode>,
    /// Its result, as a template; the output of its last node, or an object of several, if none is given.
    pub output: Option<Json>,
}

impl Block {
    fn saves_outputs(&self) -> bool {
        self.nodes.iter().any(|node| {
            let within = match &node.work {
                Work::Block { body, .. } | Work::Loop { body, .. } | Work::Map { body, .. } => body.saves_outputs(),
                Work::Agent(_) | Work::Join => false,
            };
            node.saves.is_some() || within
        })
    }
}

/// The deepest nesting of nodes within nodes. Deeper plans are refused already when they are read, because stored bytes are not
/// trusted.
pub(crate) const MAX_PLAN_DEPTH: usize = 64;

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        thread_local! {
            /// The number of nested blocks that are being read on this thread.
            static DEPTH: Cell<usize> = const { Cell::new(0) };
        }
        #[derive(Deserialize)]
        #[serde(rename = "Block")]
        struct Read {
            nodes: Vec<PlanNode>,
            output: Option<Json>,
        }
        let depth = DEPTH.get();
        if depth > MAX_PLAN_DEPTH {
            return Err(D::Error::custom(format!("nodes lie more than {MAX_PLAN_DEPTH} levels deep within nodes")));
        }
        DEPTH.set(depth + 1);
        let read = Read::deserialize(deserializer);
        DEPTH.set(depth);
        read.map(|Read { nodes, output }| Self { nodes, output })
    }
}

/// A node of a workflow's graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanNode {
    /// Its name: an identifier, unique in the workflow, by which templates see its output.
    pub name: Arc<str>,
    /// What is done there.
    pub work: Work,
    /// The edges that lead to it.
    pub after: Vec<Edge>,
    /// How many of them it takes to start it.
    pub join: JoinPolicy,
    /// It is skipped unless this holds when it could start.
    pub when: Option<Condition>,
    /// What it works on: JSON in which strings are templates. By default the predecessor's output, and the input
    /// of the workflow for the first.
    pub input: Option<Json>,
    /// The channel that its output is written to as well.
    pub saves: Option<Arc<str>>,
    /// Its command may have the loop that it lies in begin again.
    pub may_repeat: bool,
    /// The nodes outside its loop that its command may go to: the loop then ends.
    pub exits: Vec<Arc<str>>,
    /// How often a turn is tried; by default as often as the run's limits allow.
    pub attempts: Option<u32>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// Who takes back what it has done, if its block fails later.
    pub compensation: Option<Arc<str>>,
    /// It starts when a person resumes it.
    pub is_interrupted: bool,
}

impl PlanNode {
    /// A node that starts when its predecessors allow it, with nothing set but its name and its work.
    #[must_use]
    pub(crate) fn new(name: &str, work: Work) -> Self {
        Self {
            name: name.into(),
            work,
            after: Vec::new(),
            join: JoinPolicy::default(),
            when: None,
            input: None,
            saves: None,
            may_repeat: false,
            exits: Vec::new(),
            attempts: None,
            timeout: None,
            compensation: None,
            is_interrupted: false,
        }
    }
}

/// The work of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// A turn of an agent: its name, a role or a capability.
    Agent(Arc<str>),
    /// No work: its output is its input.
    Join,
    /// A nested workflow.
    Block {
        /// Its nodes.
        body: Block,
        /// It sees only its own input, and nothing of the enclosing blocks.
        is_closed: bool,
    },
    /// The body in iterations.
    Loop {
        /// The body.
        body: Block,
        /// The condition that ends the loop.
        until: Until,
        /// The most iterations, from 1.
        max: u32,
        /// At `max` it ends as if the condition held; otherwise the run is refused.
        ends_at_max: bool,
    },
    /// The body for each item of a list, concurrently.
    Map {
        /// The body for one item.
        body: Block,
        /// The expression for the list.
        over: Arc<str>,
        /// The most items.
        max: u32,
    },
}

/// The condition that ends a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Until {
    /// After `max` iterations.
    Bound,
    /// When this condition holds after an iteration.
    Holds(Condition),
    /// When no command of an iteration went back to the first node.
    NotRepeated,
}

/// An edge to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Edge {
    /// The position of the node that it comes from.
    pub from: u32,
    /// When it is taken.
    pub on: On,
    /// It is taken only if this holds when that node has ended.
    pub when: Option<Condition>,
}

/// The result of a node for which an edge from it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum On {
    /// It finished, and its command had no other target.
    #[default]
    Success,
    /// It failed, was refused or denied.
    Failure,
    /// Its command goes to the node of this name.
    Goto,
}

/// The number of edges that have to be taken to start a node (SEMANTICS 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JoinPolicy {
    /// All that are not skipped.
    #[default]
    All,
    /// This many; nodes that only lead to the others are cancelled.
    AtLeast(u32),
    /// All have ended, whether they finished or failed.
    Settled,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Condition {
    /// An expression over inputs, outputs and state.
    Expression(Arc<str>),
    /// The predicate that was registered under this name.
    Predicate(Arc<str>),
    /// The negation of that predicate.
    NotPredicate(Arc<str>),
}

impl Plan {
    /// Whether a node of it writes its output to a channel.
    #[must_use]
    pub fn saves_outputs(&self) -> bool {
        self.body.saves_outputs()
    }

    /// How many nodes it has, with those within nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.body.count()
    }

    /// A plan of one block.
    #[must_use]
    pub(crate) fn new(name: &str, schema: Arc<Schema>, body: Block) -> Self {
        let (checks, compiled) = (BTreeMap::new(), Compiled::default());
        Self { name: name.into(), schema, checks, body, compiled }
    }

    /// Sets a JSON Schema for the value of a channel.
    #[must_use]
    pub(crate) fn check(mut self, channel: &str, schema: Json) -> Self {
        self.checks.insert(channel.into(), schema);
        self.compiled = Compiled::default();
        self
    }

    /// The graph, if the plan was compiled.
    pub(crate) fn compiled<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        Arc::downcast(Arc::clone(self.compiled.0.get()?)).ok()
    }

    /// Stores the graph.
    pub(crate) fn keep_compiled<T: Send + Sync + 'static>(&self, graph: Arc<T>) {
        // If another thread was faster, it has stored an equal graph.
        let _ = self.compiled.0.set(graph);
    }

    /// Who has to be there for it: the agents, roles and capabilities of its nodes, and of what compensates them, in the order
    /// in which they are written.
    #[must_use]
    pub fn cast(&self) -> Vec<&Arc<str>> {
        let mut cast = Vec::new();
        self.body.add_cast(&mut cast);
        cast
    }
}

impl Block {
    /// The number of nodes, including inner ones.
    pub(crate) fn count(&self) -> usize {
        self.nodes.iter().map(|node| 1 + node.work.body().map_or(0, Self::count)).sum()
    }

    fn add_cast<'a>(&'a self, cast: &mut Vec<&'a Arc<str>>) {
        for node in &self.nodes {
            match &node.work {
                Work::Agent(agent) => cast.push(agent),
                Work::Join => {}
                Work::Block { body, .. } | Work::Loop { body, .. } | Work::Map { body, .. } => body.add_cast(cast),
            }
            cast.extend(&node.compensation);
        }
    }
}

impl Work {
    /// The agent, if the work is a turn.
    #[must_use]
    pub(crate) fn agent(&self) -> Option<&Arc<str>> {
        match self {
            Self::Agent(agent) => Some(agent),
            Self::Join | Self::Block { .. } | Self::Loop { .. } | Self::Map { .. } => None,
        }
    }

    /// The inner nodes.
    #[must_use]
    pub(crate) fn body(&self) -> Option<&Block> {
        match self {
            Self::Agent(_) | Self::Join => None,
            Self::Block { body, .. } | Self::Loop { body, .. } | Self::Map { body, .. } => Some(body),
        }
    }
}
