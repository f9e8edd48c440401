//! A plan made ready to run: who comes after whom, in what order, and what every template reads. What cannot be made ready
//! is told defect by defect.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::messages::names::{did_you_mean, nearest};
use crate::messages::visible::{cut, quoted};
use crate::messages::{
    Block, Condition, JoinPolicy, Json, MAX_JSON_DEPTH, On, Plan, PlanNode, Reducer, Schema, Until, Work,
};

use super::checks::Checks;
use super::progress::{Line, Point, Shape};
use super::template::{Compiled, Fault, Names, Part, Template, Var, is_free_name};

/// The most nodes of a workflow, with those within nodes.
pub(crate) const MAX_NODES: usize = 10_000;

/// How deep nodes may lie within nodes.
pub(crate) const MAX_DEPTH: usize = crate::messages::MAX_PLAN_DEPTH;

/// The most items that a map takes unless it says otherwise (SEMANTICS 2).
pub(crate) const MAP_BOUND: u32 = 1_000;

/// The most iterations of a loop, and items of a map.
const MAX_BOUND: u32 = 1_000_000;

/// The longest name of a node, in bytes. Every edge from a node may hold it, and every event of its turns.
pub(crate) const MAX_NAME: usize = 128;

/// The most defects that are told at once.
const MAX_FLAWS: usize = 100;

/// A plan made ready.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The first is the workflow's own.
    blocks: Vec<Level>,
    /// The fields that templates need of the workflow's input.
    inputs: BTreeSet<Arc<str>>,
    /// What the channels have to meet.
    pub(crate) checks: Checks,
    /// Somebody is named to take back what a node has done.
    pub(crate) is_reversible: bool,
}

/// A block made ready.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) shape: Shape,
    pub(crate) nodes: Vec<Station>,
    /// For each edge, what has to hold for it.
    pub(crate) conditions: Vec<Option<Test>>,
    pub(crate) output: Option<Template>,
    /// The nearest node that every way through the block passes.
    pub(crate) waist: Option<u32>,
    names: BTreeMap<Arc<str>, u32>,
    /// The block around it, and the node there that it is the work of.
    pub(crate) within: Option<(u32, u32)>,
    kind: LevelKind,
    /// The closed block that it belongs to.
    closed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LevelKind {
    /// A workflow by itself: it sees its input and nothing else.
    Closed,
    Group,
    Loop,
    Map,
}

/// A node made ready.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) name: Arc<str>,
    pub(crate) task: Task,
    pub(crate) when: Option<Test>,
    pub(crate) input: Option<Template>,
    pub(crate) rules: Rules,
    /// Nodes outside read what nodes within it have come to.
    pub(crate) is_read_inside: bool,
}

/// What a node's author said about its turns.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) saves: Option<Arc<str>>,
    pub(crate) may_repeat: bool,
    pub(crate) exits: Vec<Arc<str>>,
    pub(crate) attempts: Option<u32>,
    pub(crate) timeout: Option<std::time::Duration>,
    /// Its place in the plan's cast.
    pub(crate) compensation: Option<u32>,
    pub(crate) is_interrupted: bool,
}

/// What is done at a node.
#[derive(Debug)]
pub(crate) enum Task {
    /// A turn of the agent with this place in the plan's cast.
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
        over: Compiled,
        max: u32,
    },
}

/// When a loop ends.
#[derive(Debug)]
pub(crate) enum Exit {
    Bound,
    Holds(Test),
    NotRepeated,
}

/// A condition made ready.
#[derive(Debug)]
pub(crate) enum Test {
    Expression(Compiled),
    /// The predicate of this name, and what it has to say.
    Predicate(Arc<str>, bool),
}

/// A predicate, and the node that asks it.
pub(crate) struct Predicated<'a> {
    pub(crate) node: &'a str,
    pub(crate) name: &'a str,
}

/// Something that is wrong with a plan, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) spot: Spot,
    pub(crate) fault: Fault,
}

/// A part of a plan: the positions that lead to the node, and which part of it. No position: the workflow itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
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
    Saves,
    Attempts,
    Timeout,
    Output,
}

/// What is said of more than [`MAX_NODES`].
pub(super) fn too_many_nodes() -> Fault {
    let fault = Fault::new(format!("the workflow has more than {MAX_NODES} nodes"));
    fault.advise("run parts of it as workflows of their own")
}

impl Graph {
    /// Makes a plan ready.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn of(plan: &Plan) -> Result<Arc<Self>, Vec<Flaw>> {
        if let Some(made) = plan.prepared() {
            return Ok(made);
        }
        let (maker, checks) = Maker::made(plan, true);
        let Maker { mut levels, flaws, inputs, read_inside, .. } = maker;
        if !flaws.is_empty() {
            return Err(flaws);
        }
        for (place, node) in read_inside {
            levels[place as usize].nodes[node as usize].is_read_inside = true;
        }
        let is_reversible = levels.iter().flat_map(|level| &level.nodes).any(|node| node.rules.compensation.is_some());
        let made = Arc::new(Self { blocks: levels, inputs, checks, is_reversible });
        plan.keep_prepared(Arc::clone(&made));
        Ok(made)
    }

    /// What is wrong with a plan of which some edges are not known, beside that.
    pub(super) fn flaws_of(plan: &Plan) -> Vec<Flaw> {
        Maker::made(plan, false).0.flaws
    }

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
    /// Whether a turn's `goto` within it speaks to it, and its end ends it.
    pub(crate) fn is_closed(&self) -> bool {
        self.kind == LevelKind::Closed
    }

    /// The node that a command of `node` goes to by this name, if it may.
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

/// Makes blocks ready: first their outlines, so that templates can name whatever lies in them.
struct Maker<'a> {
    levels: Vec<Level>,
    flaws: Vec<Flaw>,
    inputs: BTreeSet<Arc<str>>,
    /// For each closed block, where the nodes are that belong to it.
    places: BTreeMap<u32, BTreeMap<Arc<str>, (u32, u32)>>,
    /// Nodes within which nodes are read.
    read_inside: BTreeSet<(u32, u32)>,
    cast: u32,
    nodes: usize,
    /// Who comes after whom is certain: names are not unknown, and there is no circle. Else nothing is said that would follow
    /// from it.
    knows_edges: bool,
    /// It is too large, or no plan that anybody has checked: the rest is not looked at.
    is_broken: bool,
    schema: &'a Schema,
}

impl<'a> Maker<'a> {
    /// Makes ready what can be of a plan, and tells what is wrong with it.
    fn made(plan: &'a Plan, knows_edges: bool) -> (Self, Checks) {
        let (levels, inputs) = (Vec::new(), BTreeSet::new());
        let (places, read_inside) = (BTreeMap::new(), BTreeSet::new());
        let (checks, faults) = Checks::of(plan);
        let flaw = |(channel, fault)| Flaw { spot: Spot { node: Vec::new(), aspect: Aspect::Channel(channel) }, fault };
        let flaws = faults.into_iter().map(flaw).collect();
        let (cast, nodes, is_broken, schema) = (0, 0, false, &*plan.schema);
        let mut maker =
            Self { levels, flaws, inputs, places, read_inside, cast, nodes, knows_edges, is_broken, schema };
        maker.outline(&plan.body, &[], None, LevelKind::Closed);
        if !maker.is_broken {
            maker.fill(&plan.body, 0, &[]);
        }
        maker.flaws.truncate(MAX_FLAWS);
        (maker, checks)
    }

    fn flaw(&mut self, node: &[u32], aspect: Aspect, fault: Fault) {
        self.flaws.push(Flaw { spot: Spot { node: node.to_vec(), aspect }, fault });
    }

    /// Enters a block with its edges and names, and the blocks in it.
    fn outline(&mut self, block: &Block, path: &[u32], within: Option<(u32, u32)>, kind: LevelKind) {
        let place = u32::try_from(self.levels.len()).unwrap_or(u32::MAX);
        let closed = match within {
            Some((around, _)) if kind != LevelKind::Closed => self.levels[around as usize].closed,
            Some(_) | None => place,
        };
        self.levels.push(Level {
            shape: Shape::default(),
            nodes: Vec::new(),
            conditions: Vec::new(),
            output: None,
            waist: None,
            names: BTreeMap::new(),
            within,
            kind,
            closed,
        });
        self.nodes += block.nodes.len();
        if self.nodes > MAX_NODES {
            self.is_broken = true;
            return self.flaw(path, Aspect::Whole, too_many_nodes());
        }
        if path.len() >= MAX_DEPTH {
            self.is_broken = true;
            let problem = format!("nodes lie more than {MAX_DEPTH} levels deep within nodes");
            return self.flaw(path, Aspect::Whole, Fault::new(problem));
        }
        if block.nodes.is_empty() {
            self.flaw(path, Aspect::Whole, Fault::new("there is nothing to do: it has no nodes"));
        }
        for (position, node) in (0..).zip(&block.nodes) {
            let own = [path, &[position]].concat();
            if !is_free_name(&node.name) {
                let fault = Fault::new(format!("{} cannot be the name of a node", quoted(&node.name)));
                let advice = "use letters, digits and `_`, beginning with a letter, and no word of the templates' own";
                self.flaw(&own, Aspect::Name, fault.advise(advice));
            }
            if node.name.len() > MAX_NAME {
                let problem =
                    format!("the name of a node has {} bytes; at most {MAX_NAME} are allowed", node.name.len());
                self.flaw(&own, Aspect::Name, Fault::new(problem));
            }
            // The one node of a repeated body goes by the name of what is repeated.
            let is_body = |outer: &Level, at: u32| outer.names.get(&node.name) == Some(&at) && kind != LevelKind::Group;
            let around = within.filter(|_| block.nodes.len() == 1);
            let is_its_body = around.is_some_and(|(around, at)| is_body(&self.levels[around as usize], at));
            let places = self.places.entry(closed).or_default();
            if !is_its_body && places.insert(Arc::clone(&node.name), (place, position)).is_some() {
                let fault = Fault::new(format!("there are two nodes named {}", quoted(&node.name)));
                self.flaw(&own, Aspect::Name, fault.advise("give one of them another name"));
            }
            self.levels[place as usize].names.insert(Arc::clone(&node.name), position);
            let kind = match &node.work {
                Work::Agent(_) | Work::Join => continue,
                Work::Block { is_closed: true, .. } => LevelKind::Closed,
                Work::Block { is_closed: false, .. } => LevelKind::Group,
                Work::Loop { .. } => LevelKind::Loop,
                Work::Map { .. } => LevelKind::Map,
            };
            if let Work::Loop { body, until: Until::NotRepeated, .. } = &node.work {
                // A command that goes to the node with which it begins goes to the loop.
                let heads = body.nodes.iter().filter(|node| node.after.is_empty());
                let names = &mut self.levels[place as usize].names;
                heads.for_each(|head| _ = names.entry(Arc::clone(&head.name)).or_insert(position));
            }
            if let Some(body) = node.work.body() {
                self.outline(body, &own, Some((place, position)), kind);
            }
        }
        let shape = self.shape(block, path);
        let level = &mut self.levels[place as usize];
        let ends = (0..).zip(&shape.nodes).filter(|(_, node)| node.outs.is_empty()).map(|(node, _)| node);
        level.waist = shape.meeting_point(ends);
        level.shape = shape;
    }

    /// The edges of a block, and the order of its nodes.
    fn shape(&mut self, block: &Block, path: &[u32]) -> Shape {
        let mut shape = Shape { nodes: vec![Point::default(); block.nodes.len()], edges: Vec::new() };
        for (to, node) in (0_u32..).zip(&block.nodes) {
            let own = [path, &[to]].concat();
            let ways = node.after.iter().filter(|edge| edge.on != On::Failure).count();
            shape.nodes[to as usize].join = node.join;
            if let JoinPolicy::AtLeast(needed) = node.join
                && self.knows_edges
                && (needed == 0 || needed as usize > node.after.len())
            {
                let problem = format!("{needed} nodes are to finish of the {} that it comes after", node.after.len());
                self.flaw(&own, Aspect::Join, Fault::new(problem).advise("ask for 1 up to all of them"));
            }
            if node.join != JoinPolicy::All && ways == 0 && self.knows_edges {
                self.flaw(&own, Aspect::Join, Fault::new("there is nothing to join: it comes after no node"));
            }
            for (position, edge) in node.after.iter().enumerate() {
                if edge.from as usize >= block.nodes.len() {
                    self.is_broken = true;
                    self.flaw(&own, Aspect::Edge(position), Fault::new("it comes after a node that is not there"));
                    continue;
                }
                let is_double = |line: &Line| (line.from, line.to) == (edge.from, to) && line.on == edge.on;
                if shape.nodes[to as usize].ins.iter().any(|other| is_double(&shape.edges[*other as usize])) {
                    let name = quoted(&block.nodes[edge.from as usize].name);
                    self.flaw(&own, Aspect::Edge(position), Fault::new(format!("it comes after {name} twice")));
                }
                let number = u32::try_from(shape.edges.len()).unwrap_or(u32::MAX);
                shape.edges.push(Line { from: edge.from, to, on: edge.on });
                shape.nodes[edge.from as usize].outs.push(number);
                shape.nodes[to as usize].ins.push(number);
            }
        }
        if let Err(circle) = shape.put_in_order() {
            if !std::mem::take(&mut self.knows_edges) {
                return shape;
            }
            let names: Vec<String> = circle.iter().map(|node| block.nodes[*node as usize].name.to_string()).collect();
            let own = [path, &circle[..1]].concat();
            let fault = Fault::new(format!("nodes wait for each other in a circle: {}", cut(&names.join(" -> "))));
            let advice = "use a loop with a bound, or let a command go back with `goto` and `max`";
            self.flaw(&own, Aspect::Edge(0), fault.advise(advice));
        }
        shape
    }

    /// Makes the nodes of a block ready, in the order of the cast.
    fn fill(&mut self, block: &Block, place: u32, path: &[u32]) {
        // Blocks lie in the order in which they were outlined.
        for (position, node) in (0..).zip(&block.nodes) {
            let own = [path, &[position]].concat();
            let station = self.station(node, place, position, &own);
            if let Some(station) = station {
                self.levels[place as usize].nodes.push(station);
            }
        }
        let mut conditions = Vec::new();
        for (to, node) in (0_u32..).zip(&block.nodes) {
            for (position, edge) in node.after.iter().enumerate() {
                let here = Here { place, node: Some(edge.from), is_after: true };
                let own = [path, &[to]].concat();
                conditions.push(self.test(edge.when.as_ref(), here, &own, Aspect::EdgeCondition(position)));
            }
        }
        self.levels[place as usize].conditions = conditions;
        let anywhere = Here { place, node: None, is_after: true };
        if let Some(output) = &block.output {
            let output = self.ready(anywhere, path, Aspect::Output, |names| template_of(output, names));
            self.levels[place as usize].output = output;
        }
        self.saved_side_by_side(block, place, path);
    }

    fn station(&mut self, node: &PlanNode, place: u32, position: u32, path: &[u32]) -> Option<Station> {
        let before = Here { place, node: Some(position), is_after: false };
        let body = self.levels.iter().position(|level| level.within == Some((place, position)));
        let body = u32::try_from(body.unwrap_or_default()).unwrap_or_default();
        let task = match &node.work {
            Work::Agent(_) => {
                self.cast += 1;
                Some(Task::Agent(self.cast - 1))
            }
            Work::Join => Some(Task::Join),
            Work::Block { body: block, .. } => {
                self.fill(block, body, path);
                Some(Task::Block(body))
            }
            Work::Loop { body: block, until, max, ends_at_max } => {
                self.fill(block, body, path);
                self.bound(*max, path, "iterations");
                let inside = Here { place: body, node: None, is_after: true };
                let until = match until {
                    Until::Bound => Some(Exit::Bound),
                    Until::NotRepeated => Some(Exit::NotRepeated),
                    Until::Holds(condition) => {
                        self.test(Some(condition), inside, path, Aspect::Repeat).map(Exit::Holds)
                    }
                };
                until.map(|until| Task::Loop { body, until, max: *max, ends_at_max: *ends_at_max })
            }
            Work::Map { body: block, over, max } => {
                self.fill(block, body, path);
                self.bound(*max, path, "items");
                let over = self.ready(before, path, Aspect::Repeat, |names| Compiled::of(over, names));
                over.map(|over| Task::Map { body, over, max: *max })
            }
        };
        let compensation = node.compensation.as_ref().map(|_| {
            self.cast += 1;
            self.cast - 1
        });
        let when = self.test(node.when.as_ref(), before, path, Aspect::When);
        let input = node
            .input
            .as_ref()
            .and_then(|input| self.ready(before, path, Aspect::Input, |names| template_of(input, names)));
        if let Some(channel) = &node.saves
            && let Err(error) = self.schema.reducer(channel)
        {
            self.flaw(path, Aspect::Saves, Fault::new(error.to_string()));
        }
        if node.attempts == Some(0) {
            self.flaw(path, Aspect::Attempts, Fault::new("a turn is tried at least once"));
        }
        let is_turn = matches!(node.work, Work::Agent(_));
        if node.is_interrupted && !is_turn {
            let fault = Fault::new("only the turn of an agent is interrupted");
            self.flaw(path, Aspect::Name, fault.advise("interrupt the first nodes within"));
        }
        for (is_set, aspect, what) in [
            (node.attempts.is_some(), Aspect::Attempts, "attempts"),
            (node.timeout.is_some(), Aspect::Timeout, "a timeout"),
        ] {
            if is_set && !is_turn {
                let fault = Fault::new(format!("only the turn of an agent has {what}"));
                self.flaw(path, aspect, fault.advise("set it for the nodes within"));
            }
        }
        let rules = Rules {
            saves: node.saves.clone(),
            may_repeat: node.may_repeat,
            exits: node.exits.clone(),
            attempts: node.attempts,
            timeout: node.timeout,
            compensation,
            is_interrupted: node.is_interrupted,
        };
        let name = Arc::clone(&node.name);
        task.map(|task| Station { name, task, when, input, rules, is_read_inside: false })
    }

    fn bound(&mut self, max: u32, path: &[u32], what: &str) {
        if max == 0 || max > MAX_BOUND {
            let problem = format!("{max} is no bound for {what}; it is from 1 to {MAX_BOUND}");
            self.flaw(path, Aspect::Repeat, Fault::new(problem));
        }
    }

    fn test(&mut self, condition: Option<&Condition>, here: Here, path: &[u32], aspect: Aspect) -> Option<Test> {
        match condition? {
            Condition::Expression(source) => {
                self.ready(here, path, aspect, |names| Compiled::of(source, names)).map(Test::Expression)
            }
            Condition::Predicate(name) => Some(Test::Predicate(Arc::clone(name), true)),
            Condition::NotPredicate(name) => Some(Test::Predicate(Arc::clone(name), false)),
        }
    }

    /// Makes a template ready, with what it reads noted.
    fn ready<T>(
        &mut self,
        here: Here,
        path: &[u32],
        aspect: Aspect,
        make: impl FnOnce(&dyn Names) -> Result<T, Fault>,
    ) -> Option<T> {
        let scope = Scope { maker: self, here, fields: RefCell::default(), inner: RefCell::default() };
        let made = make(&scope);
        let Scope { fields, inner, .. } = scope;
        let (fields, inner) = (fields.into_inner(), inner.into_inner());
        self.inputs.extend(fields);
        self.read_inside.extend(inner);
        match made {
            Ok(made) => Some(made),
            Err(fault) => {
                self.flaw(path, aspect, fault);
                None
            }
        }
    }

    /// Nodes that run beside each other for certain, and write their outputs to one last-value channel.
    fn saved_side_by_side(&mut self, block: &Block, place: u32, path: &[u32]) {
        let is_last = |channel: &Arc<str>| matches!(self.schema.reducer(channel), Ok(Reducer::LastValue));
        let level = &self.levels[place as usize];
        let is_certain = |node: &PlanNode| {
            let is_plain = |edge: &crate::messages::Edge| edge.on == On::Success && edge.when.is_none();
            node.when.is_none() && node.join == JoinPolicy::All && node.after.iter().all(is_plain)
        };
        if !self.knows_edges || !block.nodes.iter().all(is_certain) {
            return;
        }
        let mut writers: BTreeMap<&Arc<str>, Vec<u32>> = BTreeMap::new();
        for (position, node) in (0..).zip(&block.nodes) {
            if let Some(channel) = node.saves.as_ref().filter(|channel| is_last(channel)) {
                writers.entry(channel).or_default().push(position);
            }
        }
        let mut clashes = Vec::new();
        for (channel, nodes) in writers {
            // In plan order: if each comes after the one before, none is beside another.
            let mut nodes = nodes;
            nodes.sort_unstable_by_key(|node| level.shape.nodes[*node as usize].rank);
            let beside = |pair: &&[u32]| !level.shape.leads_to(pair[0], pair[1]);
            let clash = nodes.windows(2).find(beside).map(|pair| (pair[0].min(pair[1]), pair[0].max(pair[1])));
            clashes.extend(clash.map(|clash| (Arc::clone(channel), clash)));
        }
        for (channel, (one, other)) in clashes {
            let name = quoted(&block.nodes[one as usize].name);
            let fault =
                Fault::new(format!("it writes {} beside {name}, and only one value can stay", quoted(&channel)));
            let own = [path, &[other]].concat();
            self.flaw(&own, Aspect::Saves, fault.advise("let one come after the other, or give the channel a reducer"));
        }
    }
}

/// A value with templates, made ready. A journal could not read a deeper one back.
fn template_of(value: &Json, names: &dyn Names) -> Result<Template, Fault> {
    if value.is_too_deep() {
        return Err(Fault::new(format!("it nests deeper than {MAX_JSON_DEPTH} levels")));
    }
    Template::compile(value.value(), names)
}

/// Where a template is written.
#[derive(Clone, Copy)]
struct Here {
    place: u32,
    /// The node that it belongs to; none if it is read when the block has ended.
    node: Option<u32>,
    /// It is read when the node has ended, and may name it.
    is_after: bool,
}

struct Scope<'a, 'b> {
    maker: &'a Maker<'b>,
    here: Here,
    /// The fields of the workflow's input that were named.
    fields: RefCell<Vec<Arc<str>>>,
    /// The nodes within which nodes were named.
    inner: RefCell<Vec<(u32, u32)>>,
}

impl Scope<'_, '_> {
    fn level(&self, place: u32) -> &Level {
        &self.maker.levels[place as usize]
    }

    /// How far up the first block is that is so.
    fn up(&self, is_it: impl Fn(&Level) -> bool) -> Option<(u32, u32)> {
        let (mut up, mut place) = (0, self.here.place);
        loop {
            let level = self.level(place);
            if is_it(level) {
                return Some((up, place));
            }
            if level.is_closed() {
                return None;
            }
            (up, place) = (up + 1, level.within?.0);
        }
    }

    fn field(&self, name: &str) -> Var {
        let (up, place) = self.up(Level::is_closed).unwrap_or_default();
        if place == 0 {
            self.fields.borrow_mut().push(name.into());
        }
        Var::Field { up, name: name.into() }
    }

    /// A node of the workflow, seen from here.
    fn node(&self, name: &str, part: Part) -> Option<Result<Var, Fault>> {
        let closed = self.level(self.here.place).closed;
        // The one node of a repeated body goes by the name of what is repeated, and is nearer.
        let own =
            Some(self.level(self.here.place)).filter(|level| level.names.len() == 1 && level.kind == LevelKind::Loop);
        let own = own.and_then(|level| level.names.get(name)).map(|node| (self.here.place, *node));
        let (mut place, mut node) = own.or_else(|| self.maker.places.get(&closed)?.get(name).copied())?;
        // The blocks around the template, with the nodes there that it lies in.
        let mut around = vec![(self.here.place, self.here.node, self.here.is_after)];
        while let Some((place, _, _)) = around.last().copied()
            && place != closed
            && let Some((outer, node)) = self.level(place).within
        {
            around.push((outer, Some(node), false));
        }
        let mut inside = Vec::new();
        loop {
            let seen = around.iter().position(|(around, _, _)| *around == place);
            if let Some(up) = seen {
                let (_, here, is_after) = around[up];
                let is_before = match here {
                    _ if !self.maker.knows_edges => true,
                    None => true,
                    Some(here) if here == node => is_after,
                    Some(here) => self.level(place).shape.leads_to(node, here),
                };
                if !is_before {
                    let fault = Fault::new(format!("{} has not ended when this is read", quoted(name)));
                    return Some(Err(fault.advise(format!("let it come after {name}"))));
                }
                let up = u32::try_from(up).unwrap_or(u32::MAX);
                return Some(Ok(Var::Node { up, node, inside: inside.into(), part }));
            }
            let level = self.level(place);
            if level.kind == LevelKind::Map {
                let fault = Fault::new(format!("{} is done for several items", quoted(name)));
                return Some(Err(fault.advise("read the output of the node that has them all: it is a list")));
            }
            inside.insert(0, node);
            (place, node) = level.within?;
            self.inner.borrow_mut().push((place, node));
        }
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let closed = self.level(self.here.place).closed;
        nearest(name, self.maker.places.get(&closed)?.keys().map(|name| &**name))
    }
}

impl Names for Scope<'_, '_> {
    fn resolve(&self, path: &[&str]) -> Result<(Var, usize), Fault> {
        let in_kind = |kind: LevelKind, what: &str| {
            let outside = || Fault::new(format!("`{}` is known only within a {what}", path[0]));
            self.up(|level| level.kind == kind).map(|(up, _)| up).ok_or_else(outside)
        };
        match (path[0], path.get(1)) {
            ("input", Some(field)) => Ok((self.field(field), 2)),
            ("input", None) => {
                let (up, _) = self.up(Level::is_closed).unwrap_or_default();
                Ok((Var::Input { up }, 1))
            }
            ("state", Some(channel)) => match self.maker.schema.reducer(channel) {
                Ok(_) => Ok((Var::Channel((*channel).into()), 2)),
                Err(error) => Err(Fault::new(error.to_string())),
            },
            ("state", None) => Ok((Var::State, 1)),
            ("item", _) => Ok((Var::Item { up: in_kind(LevelKind::Map, "map")? }, 1)),
            ("index", _) => Ok((Var::Index { up: in_kind(LevelKind::Map, "map")? }, 1)),
            ("iteration", _) => Ok((Var::Iteration { up: in_kind(LevelKind::Loop, "loop")? }, 1)),
            ("previous", _) => Ok((Var::Previous { up: in_kind(LevelKind::Loop, "loop")? }, 1)),
            (name, part) => {
                let part = match part {
                    None => Some(Part::All),
                    Some(&"output") => Some(Part::Output),
                    Some(&"outcome") => Some(Part::Outcome),
                    Some(&"error") => Some(Part::Error),
                    Some(_) => None,
                };
                match self.node(name, part.unwrap_or(Part::All)) {
                    Some(Ok(_)) if part.is_none() => {
                        let fault = Fault::new(format!(
                            "of a node there are `output`, `outcome` and `error`, and no `{}`",
                            path[1]
                        ));
                        Err(fault.advise(format!("write `{name}.output.{}`", path[1])))
                    }
                    Some(found) => found.map(|var| (var, path.len().min(2))),
                    None if part.is_some() && part != Some(Part::All) => {
                        let problem =
                            format!("no node is named {}{}", quoted(name), did_you_mean(self.nearest(name).as_deref()));
                        let advice = format!("if the input has a field of this name, write `input.{}`", path.join("."));
                        Err(Fault::new(problem).advise(advice))
                    }
                    None => Ok((self.field(name), 1)),
                }
            }
        }
    }
}

impl Shape {
    /// Gives each node its rank and its dominator.
    ///
    /// # Errors
    /// Nodes that lead to each other in a circle.
    fn put_in_order(&mut self) -> Result<(), Vec<u32>> {
        let mut left: Vec<usize> = self.nodes.iter().map(|node| node.ins.len()).collect();
        let mut free: std::collections::BinaryHeap<Reverse<u32>> = self.sources().map(Reverse).collect();
        let mut rank = 0;
        while let Some(Reverse(node)) = free.pop() {
            self.nodes[node as usize].rank = rank;
            rank += 1;
            let before = self.nodes[node as usize].ins.iter().map(|edge| self.edges[*edge as usize].from);
            let dominator = if self.nodes[node as usize].ins.is_empty() { None } else { self.meeting_point(before) };
            self.nodes[node as usize].dominator = dominator;
            for edge in self.nodes[node as usize].outs.clone() {
                let to = self.edges[edge as usize].to;
                left[to as usize] -= 1;
                if left[to as usize] == 0 {
                    free.push(Reverse(to));
                }
            }
        }
        if rank as usize == self.nodes.len() { Ok(()) } else { Err(self.circle(&left)) }
    }

    /// The nearest node that every way to all of these passes, these among them. They have been put in order.
    fn meeting_point(&self, nodes: impl Iterator<Item = u32>) -> Option<u32> {
        let rank = |node: u32| self.nodes[node as usize].rank;
        let meet = |one: u32, other: u32| {
            let (mut one, mut other) = (Some(one), Some(other));
            while one != other {
                let (a, b) = (one?, other?);
                if rank(a) > rank(b) {
                    one = self.nodes[a as usize].dominator;
                } else {
                    other = self.nodes[b as usize].dominator;
                }
            }
            one
        };
        let mut met: Option<Option<u32>> = None;
        for node in nodes {
            met = Some(match met {
                None => Some(node),
                Some(sofar) => sofar.and_then(|sofar| meet(sofar, node)),
            });
        }
        met.flatten()
    }

    /// Nodes that each wait for the next, beginning and ending with the same.
    fn circle(&self, left: &[usize]) -> Vec<u32> {
        let Some(start) = left.iter().position(|left| *left > 0) else { return Vec::new() };
        let mut way = vec![u32::try_from(start).unwrap_or_default()];
        let mut is_on_way = vec![false; self.nodes.len()];
        loop {
            let here = *way.last().unwrap_or(&0);
            if std::mem::replace(&mut is_on_way[here as usize], true) {
                let first = way.iter().position(|node| *node == here).unwrap_or_default();
                let mut circle = way.split_off(first);
                // Waiting for is the other way round than leading to.
                circle.reverse();
                return circle;
            }
            let before = self.nodes[here as usize].ins.iter().map(|edge| self.edges[*edge as usize].from);
            let Some(next) = before.into_iter().find(|node| left[*node as usize] > 0) else { return way };
            way.push(next);
        }
    }

    /// Whether `later` comes after `earlier` by edges.
    fn leads_to(&self, earlier: u32, later: u32) -> bool {
        let rank = self.nodes[earlier as usize].rank;
        let mut is_seen = vec![false; self.nodes.len()];
        let mut next = vec![later];
        while let Some(node) = next.pop() {
            for edge in &self.nodes[node as usize].ins {
                let before = self.edges[*edge as usize].from;
                if before == earlier {
                    return true;
                }
                if self.nodes[before as usize].rank > rank && !std::mem::replace(&mut is_seen[before as usize], true) {
                    next.push(before);
                }
            }
        }
        false
    }
}
