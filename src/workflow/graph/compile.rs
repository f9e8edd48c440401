//! Compiles a plan to its graph: first the outlines of all blocks, so that templates can name all their nodes; then nodes,
//! conditions and templates. All defects are reported, not only the first.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::messages::{
    AgentName, Block, Condition, JoinPolicy, Json, MAX_JSON_DEPTH, On, Plan, PlanNode, Reducer, Schema, Until, Work,
};
use callboard_documents::template::{Compiled, Fault, Names, Template, is_free_name};
use callboard_text::{cut, quoted};

use super::names::{Here, Scope};
use super::vars::Var;
use super::{
    Aspect, Exit, Flaw, Graph, Level, LevelKind, MAX_DEPTH, MAX_NAME, MAX_NODES, PlanPart, Rules, Station, Task, Test,
    UNDECLARED, too_many_nodes,
};
use crate::workflow::checks::Checks;
use crate::workflow::progress::{Line, Point, Shape};

/// The most iterations of a loop, and items of a map.
const MAX_BOUND: u32 = 1_000_000;

/// The most flaws that are reported at once.
const MAX_FLAWS: usize = 100;

impl Graph {
    /// Compiles a plan, or returns its graph from an earlier call.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn of(plan: &Plan) -> Result<Arc<Self>, Vec<Flaw>> {
        if let Some(compiled) = plan.compiled() {
            return Ok(compiled);
        }
        let (compiler, checks) = Compiler::of(plan, true);
        let Compiler { mut levels, flaws, inputs, read_inside, .. } = compiler;
        if !flaws.is_empty() {
            return Err(flaws);
        }
        for (place, node) in read_inside {
            levels[place as usize].nodes[node as usize].is_read_inside = true;
        }
        let is_reversible = levels.iter().flat_map(|level| &level.nodes).any(|node| node.rules.compensation.is_some());
        let has_workflows = levels.iter().skip(1).any(Level::is_closed);
        let compiled = Arc::new(Self { blocks: levels, inputs, checks, is_reversible, has_workflows });
        plan.keep_compiled(Arc::clone(&compiled));
        Ok(compiled)
    }

    /// The flaws of a plan with unknown edges, other than those edges.
    pub(in crate::workflow) fn flaws_of(plan: &Plan) -> Vec<Flaw> {
        Compiler::of(plan, false).0.flaws
    }
}

/// The state of the compilation.
pub(super) struct Compiler<'a> {
    pub(super) levels: Vec<Level>,
    flaws: Vec<Flaw>,
    inputs: BTreeSet<Arc<str>>,
    /// For each closed block, the positions of its nodes by name.
    pub(super) places: BTreeMap<u32, BTreeMap<Arc<str>, (u32, u32)>>,
    /// Nodes of which templates read inner nodes.
    read_inside: BTreeSet<(u32, u32)>,
    cast: u32,
    nodes: usize,
    /// The edges are valid: all names are known, and there is no cycle. Otherwise flaws that follow from edges are not reported.
    pub(super) knows_edges: bool,
    /// The plan is too large, or has invalid positions: the rest is not compiled.
    is_broken: bool,
    pub(super) schema: &'a Schema,
}

impl<'a> Compiler<'a> {
    /// Compiles what can be compiled of a plan, and collects its flaws.
    fn of(plan: &'a Plan, knows_edges: bool) -> (Self, Checks) {
        let (levels, inputs) = (Vec::new(), BTreeSet::new());
        let (places, read_inside) = (BTreeMap::new(), BTreeSet::new());
        let (checks, faults) = Checks::of(plan);
        let part = |channel| PlanPart { node: Vec::new(), aspect: Aspect::Channel(channel) };
        let flaw = |(channel, fault)| Flaw { part: part(channel), fault };
        let flaws = faults.into_iter().map(flaw).collect();
        let (cast, nodes, is_broken, schema) = (0, 0, false, &*plan.schema);
        let mut compiler =
            Self { levels, flaws, inputs, places, read_inside, cast, nodes, knows_edges, is_broken, schema };
        compiler.outline(&plan.body, &[], None, LevelKind::Closed);
        if !compiler.is_broken {
            compiler.fill(&plan.body, 0, &[]);
        }
        compiler.flaws.truncate(MAX_FLAWS);
        (compiler, checks)
    }

    fn flaw(&mut self, node: &[u32], aspect: Aspect, fault: Fault) {
        self.flaws.push(Flaw { part: PlanPart { node: node.to_vec(), aspect }, fault });
    }

    /// Adds a block with its edges and names, and the blocks in it; its nodes are compiled later.
    fn outline(&mut self, block: &Block, path: &[u32], within: Option<(u32, u32)>, kind: LevelKind) {
        let place = u32::try_from(self.levels.len()).unwrap_or(u32::MAX);
        let closed = match within {
            Some((outer, _)) if kind != LevelKind::Closed => self.levels[outer as usize].closed,
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
            // The only node of a repeated body has the name of the loop or map.
            let is_body = |outer: &Level, at: u32| outer.names.get(&node.name) == Some(&at) && kind != LevelKind::Group;
            let only = within.filter(|_| block.nodes.len() == 1);
            let is_its_body = only.is_some_and(|(outer, at)| is_body(&self.levels[outer as usize], at));
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
                // A command that goes to the first node of a loop goes to the loop.
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
            let joined = node.after.iter().filter(|edge| edge.on != On::Failure).count();
            shape.nodes[to as usize].join = node.join;
            if let JoinPolicy::AtLeast(needed) = node.join
                && self.knows_edges
                && (needed == 0 || needed as usize > node.after.len())
            {
                let problem = format!("{needed} nodes are to finish of the {} that it comes after", node.after.len());
                self.flaw(&own, Aspect::Join, Fault::new(problem).advise("ask for 1 up to all of them"));
            }
            if node.join != JoinPolicy::All && joined == 0 && self.knows_edges {
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

    /// Compiles the nodes of a block, in the order of the cast.
    fn fill(&mut self, block: &Block, place: u32, path: &[u32]) {
        // Blocks are in the order in which they were outlined.
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
            let output = self.compile(anywhere, path, Aspect::Output, |names| template_of(output, names));
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
                let over = self.compile(before, path, Aspect::Repeat, |names| Compiled::of(over, names));
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
            .and_then(|input| self.compile(before, path, Aspect::Input, |names| template_of(input, names)));
        if let Some(channel) = &node.saves
            && let Err(error) = self.schema.reducer(channel)
        {
            self.flaw(path, Aspect::Saves, Fault::new(error.to_string()).advise(UNDECLARED));
        }
        if node.attempts == Some(0) {
            self.flaw(path, Aspect::Attempts, Fault::new("a turn is tried at least once"));
        }
        let agents = [node.work.agent(), node.compensation.as_ref()];
        for error in agents.into_iter().flatten().filter_map(|agent| AgentName::new(agent).err()) {
            self.flaw(path, Aspect::Name, Fault::new(error.to_string()));
        }
        if node.timeout.is_some_and(|timeout| timeout.is_zero()) {
            self.flaw(path, Aspect::Timeout, Fault::new("every turn takes longer than no time at all"));
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
            self.flaw(path, Aspect::Bound, Fault::new(problem));
        }
    }

    fn test(&mut self, condition: Option<&Condition>, here: Here, path: &[u32], aspect: Aspect) -> Option<Test> {
        match condition? {
            Condition::Expression(source) => {
                self.compile(here, path, aspect, |names| Compiled::of(source, names)).map(Test::Expression)
            }
            Condition::Predicate(name) => Some(Test::Predicate(Arc::clone(name), true)),
            Condition::NotPredicate(name) => Some(Test::Predicate(Arc::clone(name), false)),
        }
    }

    /// Compiles a template, and records what it reads.
    fn compile<T>(
        &mut self,
        here: Here,
        path: &[u32],
        aspect: Aspect,
        parse: impl FnOnce(&dyn Names<Var>) -> Result<T, Fault>,
    ) -> Option<T> {
        let scope = Scope { compiler: self, here, fields: RefCell::default(), inner: RefCell::default() };
        let parsed = parse(&scope);
        let Scope { fields, inner, .. } = scope;
        let (fields, inner) = (fields.into_inner(), inner.into_inner());
        self.inputs.extend(fields);
        self.read_inside.extend(inner);
        match parsed {
            Ok(compiled) => Some(compiled),
            Err(fault) => {
                self.flaw(path, aspect, fault);
                None
            }
        }
    }

    /// Reports nodes that certainly run concurrently and write their outputs to one last-value channel.
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
            // In plan order: if each node comes after the one before, no two run concurrently.
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

/// Compiles a value with templates. A value that is nested too deep is refused, because a journal could not be read back.
fn template_of(value: &Json, names: &dyn Names<Var>) -> Result<Template<Var>, Fault> {
    if value.is_too_deep() {
        return Err(Fault::new(format!("it nests deeper than {MAX_JSON_DEPTH} levels")));
    }
    Template::compile(value.value(), names)
}
