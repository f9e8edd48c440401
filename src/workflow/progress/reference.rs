//! The rule of which node may start when, against a reference model that applies the rule to every node and edge until nothing
//! changes.

use proptest::prelude::*;

use super::*;
use crate::testing::rules::play;

const NODES: usize = 8;

/// A block, and the fates of its nodes if they run.
#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    fates: Vec<Fate>,
    /// For each step, which of the open nodes is next.
    order: Vec<u8>,
    other_order: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Fate {
    /// It finishes, and takes the success edges at these positions.
    Finishes(Vec<bool>),
    /// It fails, and takes the failure edges at these positions.
    Fails(Vec<bool>),
    /// Its own condition does not hold.
    Skips,
}

fn cases() -> impl Strategy<Value = Case> {
    let on = prop_oneof![6 => Just(On::Success), 2 => Just(On::Failure), 1 => Just(On::Goto)];
    let edges = prop::collection::vec(prop::option::weighted(0.35, on), NODES * NODES);
    let joins = prop::collection::vec(0_u32..7, NODES);
    let takes = || prop::collection::vec(prop::bool::weighted(0.8), NODES);
    let fate = prop_oneof![
        6 => takes().prop_map(Fate::Finishes),
        2 => takes().prop_map(Fate::Fails),
        1 => Just(Fate::Skips),
    ];
    let fates = prop::collection::vec(fate, NODES);
    let order = || prop::collection::vec(any::<u8>(), 3 * NODES);
    // The author's order is independent of the edges.
    let names = Just((0..NODES).collect::<Vec<_>>()).prop_shuffle();
    (1..=NODES, edges, joins, fates, names, order(), order()).prop_map(
        |(nodes, edges, joins, fates, names, order, other_order)| {
            let names: Vec<usize> = names.into_iter().filter(|name| *name < nodes).collect();
            let mut shape = Shape { nodes: vec![Point::default(); nodes], edges: Vec::new() };
            for to in 0..nodes {
                for from in 0..to {
                    let Some(on) = edges[to * NODES + from] else { continue };
                    let number = shape.edges.len() as u32;
                    shape.edges.push(Line { from: names[from] as u32, to: names[to] as u32, on });
                    shape.nodes[names[from]].outs.push(number);
                    shape.nodes[names[to]].ins.push(number);
                }
                let point = &mut shape.nodes[names[to]];
                point.rank = to as u32;
                point.join = match joins[to] {
                    0 => JoinPolicy::Settled,
                    1..=2 if !point.ins.is_empty() => JoinPolicy::AtLeast(1 + joins[to] % point.ins.len() as u32),
                    _ => JoinPolicy::All,
                };
            }
            Case { shape, fates, order, other_order }
        },
    )
}

/// The state of a node in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeStatus {
    Waits,
    MayStart,
    IsAtWork,
    Finished,
    /// It will not run, or no longer runs.
    Over,
    /// Too few of its predecessors can still finish.
    IsOutOfReach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Open,
    Taken,
    Skipped,
    Lost,
}

#[derive(Clone, Debug)]
struct Model {
    nodes: Vec<NodeStatus>,
    edges: Vec<Sign>,
    has_failed: bool,
}

impl Model {
    fn new(shape: &Shape) -> Self {
        let mut model = Self {
            nodes: vec![NodeStatus::Waits; shape.nodes.len()],
            edges: vec![Sign::Open; shape.edges.len()],
            has_failed: false,
        };
        model.settle(shape);
        model
    }

    fn is_over(&self) -> bool {
        self.has_failed || self.nodes.iter().all(|node| matches!(node, NodeStatus::Finished | NodeStatus::Over))
    }

    fn start(&mut self, node: usize) {
        self.nodes[node] = NodeStatus::IsAtWork;
    }

    fn sign(&mut self, shape: &Shape, node: usize, sign: impl Fn(u32, Line) -> Sign) {
        for edge in &shape.nodes[node].outs {
            self.edges[*edge as usize] = sign(*edge, shape.edges[*edge as usize]);
        }
    }

    fn finish(&mut self, shape: &Shape, node: usize, takes: &[u32]) {
        self.nodes[node] = NodeStatus::Finished;
        self.sign(shape, node, |edge, _| if takes.contains(&edge) { Sign::Taken } else { Sign::Skipped });
        self.settle(shape);
    }

    fn skip(&mut self, shape: &Shape, node: usize) {
        self.nodes[node] = NodeStatus::Over;
        self.sign(shape, node, |_, _| Sign::Skipped);
        self.settle(shape);
    }

    fn fail(&mut self, shape: &Shape, node: usize, takes: &[u32]) {
        if takes.is_empty() {
            self.lose(shape, node);
        } else {
            self.finish(shape, node, takes);
            self.nodes[node] = NodeStatus::Over;
        }
        self.settle(shape);
    }

    /// No edge handles the failure: the successors are lost, and the block if there are none.
    fn lose(&mut self, shape: &Shape, node: usize) {
        self.nodes[node] = NodeStatus::Over;
        self.sign(shape, node, |_, line| if line.on == On::Failure { Sign::Skipped } else { Sign::Lost });
        let outs = &shape.nodes[node].outs;
        self.has_failed |= outs.iter().all(|edge| shape.edges[*edge as usize].on == On::Failure);
    }

    /// Applies the rule to every node until nothing changes.
    fn settle(&mut self, shape: &Shape) {
        loop {
            let before = (self.nodes.clone(), self.edges.clone());
            for node in 0..self.nodes.len() {
                if self.nodes[node] == NodeStatus::Waits {
                    self.ask(shape, node);
                }
                let waits = |edge: &u32| self.nodes[shape.edges[*edge as usize].to as usize] == NodeStatus::Waits;
                let outs = &shape.nodes[node].outs;
                let is_open = !matches!(self.nodes[node], NodeStatus::Finished | NodeStatus::Over);
                if is_open && !outs.is_empty() && !outs.iter().any(waits) {
                    self.nodes[node] = NodeStatus::Over;
                }
            }
            if before == (self.nodes.clone(), self.edges.clone()) {
                return;
            }
        }
    }

    fn ask(&mut self, shape: &Shape, node: usize) {
        let ins = &shape.nodes[node].ins;
        let count = |sign: Sign| ins.iter().filter(|edge| self.edges[**edge as usize] == sign).count();
        let (open, taken, lost) = (count(Sign::Open), count(Sign::Taken), count(Sign::Lost));
        let is_skipped = !ins.is_empty() && count(Sign::Skipped) == ins.len();
        match shape.nodes[node].join {
            _ if is_skipped => self.skip(shape, node),
            JoinPolicy::All if lost > 0 => self.lose(shape, node),
            JoinPolicy::All | JoinPolicy::Settled if open == 0 => self.nodes[node] = NodeStatus::MayStart,
            JoinPolicy::AtLeast(needed) if taken >= needed as usize => self.nodes[node] = NodeStatus::MayStart,
            JoinPolicy::AtLeast(needed) if taken + lost > 0 && taken + open < needed as usize => {
                self.nodes[node] = NodeStatus::IsOutOfReach;
            }
            JoinPolicy::All | JoinPolicy::Settled | JoinPolicy::AtLeast(_) => {}
        }
    }
}

/// The stage of a node as a state of the model.
fn status_of(progress: &Progress, node: usize) -> NodeStatus {
    match progress.stage(node as u32) {
        Stage::Waiting => NodeStatus::Waits,
        Stage::Ready => NodeStatus::MayStart,
        Stage::Running => NodeStatus::IsAtWork,
        Stage::Finished => NodeStatus::Finished,
        Stage::Failed | Stage::Skipped | Stage::Dropped => NodeStatus::Over,
    }
}

/// The edges that a fate takes, for success or for failure.
fn taken(shape: &Shape, node: usize, is_failure: bool, places: &[bool]) -> Vec<u32> {
    let outs = shape.nodes[node].outs.iter().zip(places);
    let fits = |edge: u32| (shape.edges[edge as usize].on == On::Failure) == is_failure;
    outs.filter(|(edge, is_taken)| **is_taken && fits(**edge)).map(|(edge, _)| *edge).collect()
}

/// Runs a block in this order, beside the model if there is one.
fn work_through(
    case: &Case,
    order: &[u8],
    mut model: Option<&mut Model>,
    seen: &mut crate::testing::rules::Seen,
) -> Result<Progress, TestCaseError> {
    let shape = &case.shape;
    let mut progress = Progress::new(shape);
    let mut acts: Vec<Act> = shape.sources().map(Act::Start).collect();
    let mut choices = order.iter().cycle();
    for _ in 0..4 * NODES {
        if progress.is_over() {
            break;
        }
        // A node out of reach fails before anything else happens.
        let out_of_reach = acts.iter().position(|act| matches!(act, Act::OutOfReach(_)));
        let node = match out_of_reach.map(|position| acts.remove(position)) {
            Some(Act::OutOfReach(node)) if progress.stage(node) != Stage::Running => continue,
            Some(Act::OutOfReach(node) | Act::Start(node) | Act::Cancel(node)) => {
                seen.insert("a join out of reach");
                node as usize
            }
            None => {
                let open = |node: &u32| matches!(progress.stage(*node), Stage::Ready | Stage::Running);
                let open: Vec<u32> = (0..shape.nodes.len() as u32).filter(open).collect();
                prop_assert!(!open.is_empty(), "it is not over, and no node is open: {:?}", progress);
                open[usize::from(*choices.next().unwrap()) % open.len()] as usize
            }
        };
        let number = node as u32;
        let mut followed = Vec::new();
        match (&case.fates[node], progress.stage(number)) {
            _ if out_of_reach.is_some() => {
                let takes = taken(shape, node, true, &[true; NODES]);
                if !takes.is_empty() {
                    seen.insert("an error edge of a join out of reach");
                }
                progress.fail(shape, number, |edge, _| takes.contains(&edge), &mut followed);
                model.as_deref_mut().iter_mut().for_each(|model| model.fail(shape, node, &takes));
            }
            (Fate::Skips, Stage::Ready) => {
                progress.skip(shape, number, &mut followed);
                model.as_deref_mut().iter_mut().for_each(|model| model.skip(shape, node));
            }
            (Fate::Finishes(_) | Fate::Fails(_), Stage::Ready) => {
                progress.start(number);
                model.as_deref_mut().iter_mut().for_each(|model| model.start(node));
            }
            (Fate::Finishes(places), _) => {
                let takes = taken(shape, node, false, places);
                progress.finish(shape, number, |edge, _| takes.contains(&edge), &mut followed);
                model.as_deref_mut().iter_mut().for_each(|model| model.finish(shape, node, &takes));
            }
            (Fate::Fails(places), _) => {
                let takes = taken(shape, node, true, places);
                if !takes.is_empty() {
                    seen.insert("an error edge");
                }
                progress.fail(shape, number, |edge, _| takes.contains(&edge), &mut followed);
                model.as_deref_mut().iter_mut().for_each(|model| model.fail(shape, node, &takes));
            }
            (Fate::Skips, _) => return Err(TestCaseError::fail("a node was started that is skipped")),
        }
        for act in &followed {
            match act {
                Act::Start(node) => prop_assert!(!matches!(progress.stage(*node), Stage::Waiting | Stage::Running)),
                Act::Cancel(node) => {
                    seen.insert("cancelled");
                    prop_assert_eq!(progress.stage(*node), Stage::Dropped);
                }
                Act::OutOfReach(_) => {}
            }
        }
        acts.extend(followed);
        let Some(model) = model.as_deref_mut() else { continue };
        prop_assert_eq!(progress.failed().is_some(), model.has_failed, "{:?}\n{:?}", progress, model);
        if model.has_failed {
            seen.insert("the block fails");
            break;
        }
        for node in 0..shape.nodes.len() {
            let is_due = acts.contains(&Act::OutOfReach(node as u32));
            let predicted = match model.nodes[node] {
                NodeStatus::IsOutOfReach if is_due => NodeStatus::IsAtWork,
                other => other,
            };
            let status = status_of(&progress, node);
            // A node out of reach fails next; until then it keeps the nodes that only lead to it.
            let is_held = acts.iter().any(|act| matches!(act, Act::OutOfReach(_)));
            if !(is_held && predicted == NodeStatus::Over) {
                prop_assert_eq!(status, predicted, "node {}: {:?}\n{:?}", node, progress, model);
            }
        }
        prop_assert_eq!(progress.is_over(), model.is_over());
    }
    prop_assert!(progress.is_over(), "it does not end: {:?}", progress);
    Ok(progress)
}

const BRANCHES: [&str; 6] = [
    "a join out of reach",
    "an error edge of a join out of reach",
    "an error edge",
    "cancelled",
    "the block fails",
    "another order has the same result",
];

#[test]
fn every_node_starts_is_skipped_or_dropped_as_the_rule_requires_and_every_block_ends() {
    play("progress", &BRANCHES, cases(), |case, seen| {
        let mut model = Model::new(&case.shape);
        let progress = work_through(&case, &case.order, Some(&mut model), seen)?;
        prop_assert_eq!(&progress, &work_through(&case, &case.order, None, seen)?, "it is not repeated");
        let is_timed = |point: &Point| matches!(point.join, JoinPolicy::AtLeast(_));
        if case.shape.nodes.iter().any(is_timed) {
            return Ok(());
        }
        // The result does not depend on the order.
        let other = work_through(&case, &case.other_order, None, seen)?;
        prop_assert_eq!(progress.failed().is_some(), other.failed().is_some());
        if !case.fates.iter().any(|fate| matches!(fate, Fate::Fails(_))) {
            seen.insert("another order has the same result");
            for node in 0..case.shape.nodes.len() as u32 {
                prop_assert_eq!(progress.stage(node), other.stage(node));
                prop_assert_eq!(progress.taken(&case.shape, node), other.taken(&case.shape, node));
            }
            prop_assert_eq!(progress.last(&case.shape), other.last(&case.shape));
        }
        Ok(())
    });
}
