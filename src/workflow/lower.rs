//! A draft becomes a plan: names become positions, repeated agents become bodies of their own, and commands that go back become
//! loops. Positions are kept, so that flaws of the plan are reported at their source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use callboard_documents::template::Fault;
use callboard_documents::{Defect, Found, Place, Placed};
use callboard_text::{did_you_mean, nearest, quoted};

use crate::messages::{Block, Edge, Json, On, PlanNode, Until, Work};

use super::draft::{Draft, EdgeDraft, GotoDraft, Node, RepeatDraft, WorkDraft};
use super::graph::{Aspect, Flaw, MAP_BOUND, MAX_DEPTH, MAX_NODES, PlanPart, too_many_nodes};
use super::written::Workflow;

/// The most defects for which a similar name is suggested.
const MAX_HINTS: usize = 20;

/// The most nodes of a block to which commands go back.
const MAX_BACK: usize = 256;

/// A plan's body, and the positions of its parts in the text.
pub(super) struct Lowered {
    pub(super) body: Block,
    pub(super) places: Places,
    pub(super) defects: Vec<Defect>,
    /// The workflows that it names, and the positions of the names.
    pub(super) named: Vec<(Place, Workflow)>,
    /// There are too many nodes, which is one of the defects, and the body is incomplete.
    pub(super) is_too_large: bool,
}

/// The positions of the parts of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    name: Place,
    edges: Vec<(Place, Place)>,
    join: Place,
    when: Place,
    input: Place,
    repeat: Place,
    bound: Place,
    saves: Place,
    attempts: Place,
    timeout: Place,
    output: Place,
    /// The schemas of the channels.
    channels: BTreeMap<String, Place>,
    inner: Vec<Places>,
}

impl Places {
    /// Records the position of a channel's schema.
    pub(super) fn note_channel(&mut self, channel: &str, place: Place) {
        self.channels.insert(channel.to_owned(), place);
    }

    /// A flaw of the plan as a defect with its position.
    pub(super) fn defect(&self, flaw: &Flaw) -> Defect {
        Defect { problem: flaw.fault.problem.clone(), advice: flaw.fault.advice.clone(), place: self.place(&flaw.part) }
    }

    fn place(&self, part: &PlanPart) -> Place {
        let mut places = self;
        for position in &part.node {
            let Some(inner) = places.inner.get(*position as usize) else { break };
            places = inner;
        }
        let edge = |position: usize| places.edges.get(position).cloned().unwrap_or_default();
        let place = match &part.aspect {
            Aspect::Channel(channel) => places.channels.get(&**channel).cloned().flatten(),
            Aspect::Whole | Aspect::Name => None,
            Aspect::Edge(position) => edge(*position).0,
            Aspect::EdgeCondition(position) => edge(*position).1,
            Aspect::Join => places.join.clone(),
            Aspect::When => places.when.clone(),
            Aspect::Input => places.input.clone(),
            Aspect::Repeat => places.repeat.clone(),
            Aspect::Bound => places.bound.clone().or_else(|| places.repeat.clone()),
            Aspect::Saves => places.saves.clone(),
            Aspect::Attempts => places.attempts.clone(),
            Aspect::Timeout => places.timeout.clone(),
            Aspect::Output => places.output.clone(),
        };
        place.or_else(|| places.name.clone())
    }
}

/// Lowers a draft to a plan's body. `library` has the workflows that it may name.
pub(super) fn lower(draft: Draft, library: &BTreeMap<String, Workflow>) -> Lowered {
    let mut lowering =
        Lowering { library, nodes: 0, is_too_large: false, defects: Found::default(), named: Vec::new() };
    let (body, mut places) = lowering.block(draft.nodes, draft.output, 0);
    places.name = draft.name.place;
    let Lowering { defects, named, is_too_large, .. } = lowering;
    Lowered { body, places, defects: defects.into_defects(), named, is_too_large }
}

struct Lowering<'a> {
    library: &'a BTreeMap<String, Workflow>,
    /// The number of nodes so far.
    nodes: usize,
    /// The number is above the limit, which is one of the defects.
    is_too_large: bool,
    defects: Found,
    named: Vec<(Place, Workflow)>,
}

impl Lowering<'_> {
    fn defect(&mut self, place: &Place, problem: impl Into<String>, advice: impl Into<String>) {
        // Loops are searched repeatedly.
        self.defects.add_once(Defect::new(place, problem).advise(advice));
    }

    /// Whether there is room for so many more nodes. A text that repeatedly names large workflows is refused before the memory
    /// for them is allocated.
    fn has_room(&mut self, nodes: usize, place: &Place) -> bool {
        self.nodes = self.nodes.saturating_add(nodes);
        let is_large = self.nodes > MAX_NODES;
        if is_large && !std::mem::replace(&mut self.is_too_large, true) {
            let Fault { problem, advice } = too_many_nodes();
            self.defects.add(Defect { problem, advice, place: place.clone() });
        }
        !is_large
    }

    fn block(&mut self, nodes: Vec<Node>, output: Option<Placed<serde_json::Value>>, depth: usize) -> (Block, Places) {
        let mut places =
            Places { output: output.as_ref().and_then(|output| output.place.clone()), ..Places::default() };
        let output = output.map(|output| Json::from(output.value));
        if depth > MAX_DEPTH {
            let place = nodes.first().map(|node| node.name.place.clone()).unwrap_or_default();
            let problem = format!("nodes lie more than {MAX_DEPTH} levels deep within nodes");
            self.defects.add(Defect::new(&place, problem));
            take_apart(nodes);
            return (Block::default(), places);
        }
        let first = nodes.first().and_then(|node| node.name.place.clone());
        if !self.has_room(nodes.len(), &first) {
            return (Block::default(), places);
        }
        let nodes = self.with_loops(nodes);
        let positions: BTreeMap<String, u32> =
            (0..).zip(&nodes).map(|(position, node)| (node.name.value.clone(), position)).collect();
        let mut block = Block { nodes: Vec::with_capacity(nodes.len()), output };
        let mut targets: Vec<(u32, GotoDraft)> = Vec::new();
        for (position, node) in (0..).zip(nodes) {
            let forward = node.goto.iter().filter(|goto| goto.max.is_none());
            targets.extend(forward.map(|goto| (position, goto.clone())));
            let (node, node_places) = self.node(node, &positions, depth);
            block.nodes.push(node);
            places.inner.push(node_places);
        }
        for (from, goto) in targets {
            match positions.get(&goto.to.value) {
                Some(to) => {
                    block.nodes[*to as usize].after.push(Edge { from, on: On::Goto, when: None });
                    places.inner[*to as usize].edges.push((goto.to.place, None));
                }
                None => self.unknown(&goto.to, positions.keys()),
            }
        }
        (block, places)
    }

    /// The most similar name; none after many defects, since all names are compared for each.
    fn nearest<'a>(&self, name: &str, names: impl Iterator<Item = &'a String>) -> Option<String> {
        if self.defects.len() > MAX_HINTS { None } else { nearest(name, names.map(String::as_str)) }
    }

    fn unknown<'a>(&mut self, name: &Placed<String>, names: impl Iterator<Item = &'a String>) {
        let hint = did_you_mean(self.nearest(&name.value, names).as_deref());
        let problem = format!("no node is named {}{hint}", quoted(&name.value));
        self.defect(&name.place, problem, "name a node of the same block");
    }

    fn node(&mut self, node: Node, positions: &BTreeMap<String, u32>, depth: usize) -> (PlanNode, Places) {
        let mut places = Places {
            name: node.name.place.clone(),
            join: node.join.place.clone(),
            when: node.when.as_ref().and_then(|when| when.place.clone()),
            input: node.input.as_ref().and_then(|input| input.place.clone()),
            saves: node.saves.as_ref().and_then(|saves| saves.place.clone()),
            attempts: node.attempts.as_ref().and_then(|attempts| attempts.place.clone()),
            timeout: node.timeout.as_ref().and_then(|timeout| timeout.place.clone()),
            repeat: node.repeat.as_ref().and_then(RepeatDraft::place),
            bound: node.repeat.as_ref().and_then(RepeatDraft::bound_place),
            ..Places::default()
        };
        let mut after = Vec::new();
        for EdgeDraft { from, on, when } in node.after {
            match positions.get(&from.value) {
                Some(position) => {
                    let (condition, place) = when.map_or((None, None), |when| (Some(when.value), when.place));
                    after.push(Edge { from: *position, on, when: condition });
                    places.edges.push((from.place, place));
                }
                None => self.unknown(&from, positions.keys()),
            }
        }
        let own_name = node.name.clone();
        let may_repeat = !node.repeats.is_empty();
        let input = node.input.map(|input| Json::from(input.value));
        let mut compensation = node.compensation.map(|agent| Arc::from(agent.value));
        let mut is_interrupted = node.is_interrupted;
        let (attempts, timeout) = (node.attempts.map(|placed| placed.value), node.timeout.map(|placed| placed.value));
        let mut inner = match node.work {
            WorkDraft::Agent(agent) => PlanNode::new(&own_name.value, Work::Agent(agent.value.into())),
            WorkDraft::Join => PlanNode::new(&own_name.value, Work::Join),
            WorkDraft::Nodes { nodes, output } => {
                let (body, body_places) = self.block(nodes, output, depth + 1);
                (places.inner, places.output) = (body_places.inner, body_places.output);
                PlanNode::new(&own_name.value, Work::Block { body, is_closed: false })
            }
            WorkDraft::Workflow(workflow) => match self.library.get(&workflow.value) {
                Some(found) if !self.is_too_large && self.has_room(found.plan().body.count(), &workflow.place) => {
                    self.named.push((workflow.place, found.clone()));
                    let body = found.plan().body.clone();
                    PlanNode::new(&own_name.value, Work::Block { body, is_closed: true })
                }
                Some(_) => PlanNode::new(&own_name.value, Work::Join),
                None => {
                    let hint = self.nearest(&workflow.value, self.library.keys());
                    let problem =
                        format!("no workflow is named {}{}", quoted(&workflow.value), did_you_mean(hint.as_deref()));
                    self.defect(&workflow.place, problem, "add it with `with`, or to the folder of the workflows");
                    PlanNode::new(&own_name.value, Work::Join)
                }
            },
        };
        inner.input = input;
        (inner.attempts, inner.timeout) = (attempts, timeout);
        let mut lowered = match node.repeat {
            None => inner,
            Some(repeat) => {
                // A group is the body itself; any other work becomes the only node of a body.
                let body = match inner.work {
                    Work::Block { body, is_closed: false } if inner.input.is_none() => body,
                    work => {
                        places.inner = vec![Places { repeat: None, bound: None, edges: Vec::new(), ..places.clone() }];
                        // Each turn is compensated separately, also those of a loop or a map that fails halfway.
                        let (compensation, is_interrupted) = (compensation.take(), std::mem::take(&mut is_interrupted));
                        Block { nodes: vec![PlanNode { work, compensation, is_interrupted, ..inner }], output: None }
                    }
                };
                let work = match repeat {
                    RepeatDraft::Loop { until, max, ends_at_max } => {
                        let until = until.map_or(Until::Bound, |until| Until::Holds(until.value));
                        Work::Loop { body, until, max: max.value, ends_at_max }
                    }
                    RepeatDraft::Back { max } => {
                        Work::Loop { body, until: Until::NotRepeated, max: max.value, ends_at_max: false }
                    }
                    RepeatDraft::Map { over, max } => {
                        let max = max.map_or(MAP_BOUND, |max| max.value);
                        Work::Map { body, over: over.value.into(), max }
                    }
                };
                PlanNode::new(&own_name.value, work)
            }
        };
        lowered.after = after;
        lowered.join = node.join.value;
        lowered.when = node.when.map(|when| when.value);
        lowered.saves = node.saves.map(|saves| saves.value.into());
        lowered.compensation = compensation;
        lowered.is_interrupted = is_interrupted;
        lowered.may_repeat |= may_repeat;
        lowered.exits = node.exits.into_iter().map(|exit| exit.to.value.into()).collect();
        (lowered, places)
    }

    /// Puts the nodes that a command can repeat by going back into loops.
    fn with_loops(&mut self, mut nodes: Vec<Node>) -> Vec<Node> {
        loop {
            let Some(loops) = self.loops(&nodes) else { return without_back(nodes) };
            // The largest first; inner loops are found when its body is lowered.
            let Some(back) = loops.iter().max_by_key(|back| back.body.len()) else { return nodes };
            let crosses = |other: &&Back| !other.body.is_subset(&back.body) && !other.body.is_disjoint(&back.body);
            if let Some(other) = loops.iter().find(crosses) {
                let names = (&nodes[back.head].name, &nodes[other.head].name);
                let problem =
                    format!("the loops back to {} and to {} overlap", quoted(&names.0.value), quoted(&names.1.value));
                let place = names.1.place.clone();
                self.defect(&place, problem, "let one lie within the other");
                return without_back(nodes);
            }
            let (head, body, max) = (back.head, back.body.clone(), back.max.clone());
            match self.put_into_loop(nodes, head, &body, max) {
                Ok(with_loop) => nodes = with_loop,
                Err(nodes) => return without_back(nodes),
            }
        }
    }

    /// The loops that commands make by going back, if they have a bound; `None` if there are too many.
    fn loops(&mut self, nodes: &[Node]) -> Option<Vec<Back>> {
        let graph = DraftGraph::of(nodes);
        let mut heads: Vec<usize> = Vec::new();
        let mut gotos: BTreeMap<usize, Vec<(usize, &GotoDraft)>> = BTreeMap::new();
        for (from, node) in nodes.iter().enumerate() {
            for goto in &node.goto {
                let Some(head) = graph.positions.get(goto.to.value.as_str()).copied() else { continue };
                let to_head = gotos.entry(head).or_default();
                if to_head.is_empty() {
                    heads.push(head);
                }
                to_head.push((from, goto));
            }
        }
        let mut loops: Vec<Back> = Vec::new();
        for head in heads {
            let gotos = gotos.remove(&head).unwrap_or_default();
            let may_be_back = gotos.iter().any(|(from, _)| graph.ranks[head] <= graph.ranks[*from]);
            let after = may_be_back.then(|| reach(&[head], &graph.next));
            let is_back = |from: usize| after.as_ref().is_some_and(|after| after[from]);
            let mut bound: Option<Placed<u32>> = None;
            let mut lasts = Vec::new();
            for (from, goto) in gotos {
                match (&goto.max, is_back(from)) {
                    (Some(max), true) => {
                        lasts.push(from);
                        let bound = bound.get_or_insert_with(|| max.clone());
                        bound.value = bound.value.max(max.value);
                    }
                    (None, false) => {}
                    (None, true) => {
                        let problem = format!("going back to {} has no bound", quoted(&goto.to.value));
                        let advice = "set how often it may begin in all: `{ to = \"…\", max = 3 }`, or `back(\"…\", 3)` in a line";
                        self.defect(&goto.to.place, problem, advice);
                    }
                    (Some(max), false) => {
                        let problem = format!("{} does not come before this node", quoted(&goto.to.value));
                        let place = max.place.clone().or(goto.to.place.clone());
                        self.defect(&place, problem, "leave out `max`; in a line, write its name without `back`");
                    }
                }
            }
            let (Some(max), Some(after)) = (bound, after) else { continue };
            if loops.len() == MAX_BACK {
                let problem = format!("commands go back to more than {MAX_BACK} nodes of one block");
                self.defect(&nodes[head].name.place, problem, "put parts of it into nodes of their own");
                return None;
            }
            let before = reach(&lasts, &graph.before);
            let body = (0..nodes.len()).filter(|node| after[*node] && before[*node]).collect();
            loops.push(Back { head, body, max });
        }
        Some(loops)
    }

    /// The nodes, with these replaced by one loop that begins at `head`.
    fn put_into_loop(
        &mut self,
        nodes: Vec<Node>,
        head: usize,
        body: &BTreeSet<usize>,
        max: Placed<u32>,
    ) -> Result<Vec<Node>, Vec<Node>> {
        let names: BTreeSet<String> = body.iter().map(|node| nodes[*node].name.value.clone()).collect();
        for node in body.iter().filter(|node| **node != head) {
            let outside = nodes[*node].after.iter().find(|edge| !names.contains(&edge.from.value));
            if let Some(edge) = outside {
                let problem = format!(
                    "{} enters the loop back to {} in its middle",
                    quoted(&nodes[*node].name.value),
                    quoted(&nodes[head].name.value)
                );
                let place = edge.from.place.clone();
                self.defect(&place, problem, "let the first node of the loop come after it");
                return Err(nodes);
            }
        }
        let taken: BTreeSet<&str> = nodes.iter().map(|node| &*node.name.value).collect();
        let mut name = format!("{}_loop", nodes[head].name.value);
        while taken.contains(&*name) {
            name.push('_');
        }
        let head_name = nodes[head].name.value.clone();
        let placed_name = Placed { value: name.clone(), place: nodes[head].name.place.clone() };
        let (mut inner, mut outer) = (Vec::new(), Vec::new());
        let mut repeated = Node::new(placed_name, WorkDraft::Join);
        let first = body.first().copied().unwrap_or(head);
        for (position, mut node) in nodes.into_iter().enumerate() {
            if position == first {
                outer.push(repeated.clone());
            }
            if body.contains(&position) {
                if position == head {
                    repeated.after = std::mem::take(&mut node.after);
                    repeated.join = std::mem::take(&mut node.join);
                    repeated.when = node.when.take();
                }
                let is_back = |goto: &GotoDraft| goto.max.is_some() && goto.to.value == head_name;
                let (back, ahead): (Vec<_>, Vec<_>) = std::mem::take(&mut node.goto).into_iter().partition(is_back);
                let (within, out): (Vec<_>, Vec<_>) =
                    ahead.into_iter().partition(|goto| names.contains(&goto.to.value));
                // Edges that leave the loop, and those that repeat or leave an enclosing one, belong to this node.
                repeated.exits.extend(node.exits.iter().cloned());
                let outer = std::mem::replace(&mut node.repeats, back);
                node.exits.extend(outer.iter().chain(&out).cloned());
                repeated.repeats.extend(outer);
                repeated.goto.extend(out);
                node.goto = within;
                inner.push(node);
            } else {
                for edge in node.after.iter_mut().filter(|edge| names.contains(&edge.from.value)) {
                    edge.from.value.clone_from(&name);
                }
                let mut seen = BTreeSet::new();
                node.after.retain(|edge| {
                    edge.from.value != name || edge.when.is_some() || seen.insert(format!("{:?}", edge.on))
                });
                for goto in node.goto.iter_mut().filter(|goto| goto.to.value == head_name) {
                    goto.to.value.clone_from(&name);
                }
                outer.push(node);
            }
        }
        repeated.work = WorkDraft::Nodes { nodes: inner, output: None };
        repeated.repeat = Some(RepeatDraft::Back { max });
        if let Some(place) = outer.iter_mut().find(|node| node.name.value == name) {
            *place = repeated;
        }
        Ok(outer)
    }
}

/// A loop that a command makes by going back.
struct Back {
    head: usize,
    body: BTreeSet<usize>,
    max: Placed<u32>,
}

fn without_back(mut nodes: Vec<Node>) -> Vec<Node> {
    for node in &mut nodes {
        node.goto.retain(|goto| goto.max.is_none());
    }
    nodes
}

/// The edges of a draft in both directions.
struct DraftGraph<'a> {
    positions: BTreeMap<&'a str, usize>,
    next: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    /// A node comes after none of a higher rank; those of a cycle, and their successors, share the last rank.
    ranks: Vec<usize>,
}

impl<'a> DraftGraph<'a> {
    fn of(nodes: &'a [Node]) -> Self {
        let positions: BTreeMap<&str, usize> =
            nodes.iter().enumerate().map(|(position, node)| (node.name.value.as_str(), position)).collect();
        let (mut next, mut before) = (vec![Vec::new(); nodes.len()], vec![Vec::new(); nodes.len()]);
        for (to, node) in nodes.iter().enumerate() {
            for from in node.after.iter().filter_map(|edge| positions.get(edge.from.value.as_str())) {
                next[*from].push(to);
                before[to].push(*from);
            }
        }
        let mut left: Vec<usize> = before.iter().map(Vec::len).collect();
        let mut free: Vec<usize> = (0..nodes.len()).filter(|node| left[*node] == 0).collect();
        let (mut ranks, mut rank) = (vec![usize::MAX; nodes.len()], 0);
        while let Some(node) = free.pop() {
            ranks[node] = rank;
            rank += 1;
            for to in &next[node] {
                left[*to] -= 1;
                if left[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        Self { positions, next, before, ranks }
    }
}

/// For each node, whether it can be reached from `starts` or is one of them.
fn reach(starts: &[usize], edges: &[Vec<usize>]) -> Vec<bool> {
    let mut is_seen = vec![false; edges.len()];
    let mut next = starts.to_vec();
    while let Some(node) = next.pop() {
        if !std::mem::replace(&mut is_seen[node], true) {
            next.extend(&edges[node]);
        }
    }
    is_seen
}

/// Drops nodes iteratively: dropping deeply nested nodes recursively would overflow the stack.
fn take_apart(mut nodes: Vec<Node>) {
    while let Some(node) = nodes.pop() {
        if let WorkDraft::Nodes { nodes: inner, .. } = node.work {
            nodes.extend(inner);
        }
    }
}

impl RepeatDraft {
    fn place(&self) -> Place {
        match self {
            Self::Loop { until, max, .. } => {
                until.as_ref().and_then(|until| until.place.clone()).or_else(|| max.place.clone())
            }
            Self::Back { max } => max.place.clone(),
            Self::Map { over, .. } => over.place.clone(),
        }
    }

    fn bound_place(&self) -> Place {
        match self {
            Self::Loop { max, .. } | Self::Back { max } => max.place.clone(),
            Self::Map { max, .. } => max.as_ref().and_then(|max| max.place.clone()),
        }
    }
}
