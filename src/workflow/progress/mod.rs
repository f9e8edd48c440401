//! Which nodes of a block may start, and which are no longer needed (SEMANTICS 7). Pure: takes the end of a node, and returns the
//! consequences.
//!
//! Every edge is marked once: taken, skipped, or lost (the node that it comes from has failed and no edge handles the failure). A
//! node starts, is skipped, or fails by the marks of its edges, so every join resolves. A node whose edges all lead to nodes that
//! no longer wait is no longer needed: it is dropped.

use serde::{Deserialize, Serialize};

use crate::messages::{JoinPolicy, On};

/// The nodes of a block and the edges between them, without cycles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) nodes: Vec<Point>,
    pub(crate) edges: Vec<Line>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Point {
    /// The indices of its incoming edges.
    pub(crate) ins: Vec<u32>,
    pub(crate) outs: Vec<u32>,
    pub(crate) join: JoinPolicy,
    /// Its position in plan order: after its predecessors, and otherwise in the author's order.
    pub(crate) rank: u32,
    /// Its immediate dominator: the nearest node that every path to it passes, if there is one.
    pub(crate) dominator: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) on: On,
}

/// The progress of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    nodes: Vec<NodeProgress>,
    /// The number of nodes that wait, may start, or run.
    open: u32,
    /// The node whose failure no edge handles.
    failed: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeProgress {
    stage: Stage,
    /// The number of unmarked edges to it.
    left: u32,
    /// The nodes whose edges to it are marked lost, unless its join does not need them.
    lost: Vec<u32>,
    /// The nodes whose edges to it are marked taken, in the order in which they ended.
    taken: Vec<u32>,
}

/// The stage of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    Waiting,
    Ready,
    Running,
    Finished,
    /// It has failed, or could not start after a failure.
    Failed,
    Skipped,
    /// It is no longer needed.
    Dropped,
}

/// An action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The node may start.
    Start(u32),
    /// Cancel the work of the node.
    Cancel(u32),
    /// So few of the nodes before it can finish that it can never start: it has failed.
    OutOfReach(u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Taken,
    Skipped,
    /// Lost because of the failure of this node.
    Lost(u32),
}

impl Shape {
    /// The nodes without incoming edges.
    pub(crate) fn sources(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.nodes).filter(|(_, node)| node.ins.is_empty()).map(|(position, _)| position)
    }

    fn node(&self, node: u32) -> &Point {
        &self.nodes[node as usize]
    }

    fn lines(&self, positions: &[u32]) -> impl Iterator<Item = (u32, Line)> {
        positions.iter().map(|edge| (*edge, self.edges[*edge as usize]))
    }
}

impl Progress {
    /// The progress of a block that begins: nodes without incoming edges may start.
    pub(crate) fn new(shape: &Shape) -> Self {
        let waiting = |point: &Point| {
            let left = u32::try_from(point.ins.len()).unwrap_or(u32::MAX);
            let stage = if left == 0 { Stage::Ready } else { Stage::Waiting };
            NodeProgress { stage, left, lost: Vec::new(), taken: Vec::new() }
        };
        let nodes: Vec<NodeProgress> = shape.nodes.iter().map(waiting).collect();
        Self { open: u32::try_from(nodes.len()).unwrap_or(u32::MAX), nodes, failed: None }
    }

    /// The stage of a node.
    pub(crate) fn stage(&self, node: u32) -> Stage {
        self.nodes[node as usize].stage
    }

    /// The nodes whose edges to it were taken, in plan order.
    pub(crate) fn taken(&self, shape: &Shape, node: u32) -> Vec<u32> {
        let mut taken = self.nodes[node as usize].taken.clone();
        taken.sort_unstable_by_key(|node| shape.node(*node).rank);
        taken
    }

    fn has_taken(&self, node: u32, from: u32) -> bool {
        self.nodes[node as usize].taken.contains(&from)
    }

    /// The nodes that it came after, including failed ones if it had to wait for them.
    pub(crate) fn before(&self, node: u32) -> impl Iterator<Item = u32> {
        let node = &self.nodes[node as usize];
        node.taken.iter().chain(&node.lost).copied()
    }

    /// Whether no node waits or runs any more.
    pub(crate) fn is_over(&self) -> bool {
        self.open == 0 || self.failed.is_some()
    }

    /// The node whose failure ends the block.
    pub(crate) fn failed(&self) -> Option<u32> {
        self.failed
    }

    /// The nodes that have finished, in plan order.
    pub(crate) fn finished(&self, shape: &Shape) -> Vec<u32> {
        let nodes = 0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let mut finished: Vec<u32> = nodes.filter(|node| self.stage(*node) == Stage::Finished).collect();
        finished.sort_unstable_by_key(|node| shape.node(*node).rank);
        finished
    }

    /// The finished nodes without a successor, in plan order: the block's result is theirs. One that led to nodes that were
    /// dropped is not among them, nor one that led to a failure unless the nodes that handle it were skipped.
    pub(crate) fn last(&self, shape: &Shape) -> Vec<u32> {
        let continues = |node: u32, line: Line| match self.stage(line.to) {
            Stage::Dropped => true,
            Stage::Failed => self.before(line.to).any(|before| before == node) && !self.is_passed_over(shape, line.to),
            Stage::Finished => self.has_taken(line.to, node),
            Stage::Waiting | Stage::Ready | Stage::Running | Stage::Skipped => false,
        };
        let is_last = |node: u32| !shape.lines(&shape.node(node).outs).any(|(_, line)| continues(node, line));
        let mut last = self.finished(shape);
        last.retain(|node| is_last(*node));
        last
    }

    /// Whether a failure was handled, and only by nodes that were skipped.
    fn is_passed_over(&self, shape: &Shape, failed: u32) -> bool {
        let (mut is_skipped, mut next) = (false, vec![failed]);
        while let Some(node) = next.pop() {
            for (_, line) in shape.lines(&shape.node(node).outs).filter(|(_, line)| line.on == On::Failure) {
                match self.stage(line.to) {
                    Stage::Skipped => is_skipped |= self.has_taken(line.to, node),
                    Stage::Failed => next.push(line.to),
                    Stage::Finished if self.has_taken(line.to, node) => return false,
                    Stage::Finished | Stage::Dropped | Stage::Waiting | Stage::Ready | Stage::Running => {}
                }
            }
        }
        is_skipped
    }

    /// Starts the work of a node that may start.
    pub(crate) fn start(&mut self, node: u32) {
        self.nodes[node as usize].stage = Stage::Running;
    }

    /// Finishes a node; `takes` decides for each of its edges whether it is taken.
    pub(crate) fn finish(&mut self, shape: &Shape, node: u32, takes: impl Fn(u32, Line) -> bool, acts: &mut Vec<Act>) {
        if self.close(node, Stage::Finished) {
            let marks = shape
                .lines(&shape.node(node).outs)
                .map(|(edge, line)| (line, if takes(edge, line) { Mark::Taken } else { Mark::Skipped }));
            self.mark_all(shape, marks.collect(), acts);
        }
    }

    /// Skips a node.
    pub(crate) fn skip(&mut self, shape: &Shape, node: u32, acts: &mut Vec<Act>) {
        if self.close(node, Stage::Skipped) {
            let outs = shape.lines(&shape.node(node).outs);
            self.mark_all(shape, outs.map(|(_, line)| (line, Mark::Skipped)).collect(), acts);
        }
    }

    /// Fails a node; `takes` decides for each of its failure edges whether it is taken. If none is, the failure passes on to the
    /// successors, and ends the block unless a join does not need the node.
    pub(crate) fn fail(&mut self, shape: &Shape, node: u32, takes: impl Fn(u32, Line) -> bool, acts: &mut Vec<Act>) {
        if !self.close(node, Stage::Failed) {
            return;
        }
        let outs = &shape.node(node).outs;
        let is_taken = |edge: u32, line: Line| line.on == On::Failure && takes(edge, line);
        if shape.lines(outs).any(|(edge, line)| is_taken(edge, line)) {
            let marks = shape
                .lines(outs)
                .map(|(edge, line)| (line, if is_taken(edge, line) { Mark::Taken } else { Mark::Skipped }));
            self.mark_all(shape, marks.collect(), acts);
            self.drop_before(shape, vec![node], acts);
        } else {
            let mut marks = Vec::new();
            self.lose(shape, node, node, &mut marks);
            self.mark_all(shape, marks, acts);
            self.drop_before(shape, vec![node], acts);
        }
    }

    /// Marks the edges to the successors of a node that has failed, or could not start because of `cause`, as lost.
    fn lose(&mut self, shape: &Shape, node: u32, cause: u32, marks: &mut Vec<(Line, Mark)>) {
        let mut is_passed_on = false;
        for (_, line) in shape.lines(&shape.node(node).outs) {
            match line.on {
                On::Success | On::Goto => {
                    is_passed_on = true;
                    marks.push((line, Mark::Lost(cause)));
                }
                On::Failure => marks.push((line, Mark::Skipped)),
            }
        }
        if !is_passed_on {
            self.failed.get_or_insert(cause);
        }
    }

    /// Marks edges, and applies the consequences.
    fn mark_all(&mut self, shape: &Shape, mut marks: Vec<(Line, Mark)>, acts: &mut Vec<Act>) {
        // Popped from the end, so that edges are marked in their order.
        marks.reverse();
        while let Some((line, mark)) = marks.pop() {
            let to = line.to;
            let node = &mut self.nodes[to as usize];
            if node.stage != Stage::Waiting {
                continue;
            }
            node.left -= 1;
            match mark {
                Mark::Taken => node.taken.push(line.from),
                Mark::Skipped => {}
                Mark::Lost(_) => node.lost.push(line.from),
            }
            let count = |nodes: &[u32]| u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            let (left, lost, taken) = (node.left, count(&node.lost), count(&node.taken));
            match shape.node(to).join {
                JoinPolicy::All => match mark {
                    Mark::Lost(cause) => {
                        self.close(to, Stage::Failed);
                        self.lose(shape, to, cause, &mut marks);
                        self.drop_before(shape, vec![to], acts);
                    }
                    Mark::Taken | Mark::Skipped if left > 0 => {}
                    Mark::Taken | Mark::Skipped if taken > 0 => self.ready(to, acts),
                    Mark::Taken | Mark::Skipped => self.skip_into(shape, to, &mut marks),
                },
                JoinPolicy::Settled if left > 0 => {}
                JoinPolicy::Settled if taken + lost > 0 => self.ready(to, acts),
                JoinPolicy::AtLeast(needed) if taken >= needed => {
                    self.nodes[to as usize].lost.clear();
                    self.ready(to, acts);
                    self.drop_before(shape, vec![to], acts);
                }
                // All its predecessors may still be skipped, and then it is skipped too.
                JoinPolicy::AtLeast(_) if taken + lost == 0 && left > 0 => {}
                JoinPolicy::AtLeast(needed) if taken + left < needed && taken + lost > 0 => {
                    // As if the node itself fails: its failure edges count.
                    self.nodes[to as usize].stage = Stage::Running;
                    acts.push(Act::OutOfReach(to));
                }
                JoinPolicy::AtLeast(_) if left > 0 => {}
                JoinPolicy::Settled | JoinPolicy::AtLeast(_) => self.skip_into(shape, to, &mut marks),
            }
        }
    }

    fn ready(&mut self, node: u32, acts: &mut Vec<Act>) {
        self.nodes[node as usize].stage = Stage::Ready;
        acts.push(Act::Start(node));
    }

    fn skip_into(&mut self, shape: &Shape, node: u32, marks: &mut Vec<(Line, Mark)>) {
        self.close(node, Stage::Skipped);
        marks.extend(shape.lines(&shape.node(node).outs).map(|(_, line)| (line, Mark::Skipped)));
    }

    /// Drops nodes that only lead to nodes that no longer wait.
    fn drop_before(&mut self, shape: &Shape, mut settled: Vec<u32>, acts: &mut Vec<Act>) {
        while let Some(node) = settled.pop() {
            for (_, line) in shape.lines(&shape.node(node).ins) {
                let before = line.from;
                let is_needed =
                    shape.lines(&shape.node(before).outs).any(|(_, line)| self.stage(line.to) == Stage::Waiting);
                let stage = self.stage(before);
                if !is_needed && self.close(before, Stage::Dropped) {
                    if matches!(stage, Stage::Running | Stage::Ready) {
                        acts.push(Act::Cancel(before));
                    }
                    settled.push(before);
                }
            }
        }
    }

    /// Ends a node, if it has not ended.
    fn close(&mut self, node: u32, stage: Stage) -> bool {
        let node = &mut self.nodes[node as usize];
        let is_open = matches!(node.stage, Stage::Waiting | Stage::Ready | Stage::Running);
        if is_open {
            node.stage = stage;
            self.open -= 1;
        }
        is_open
    }

    /// The nodes between `base` (or the block's beginning) and these, including these, that they came after; in plan order.
    pub(crate) fn region(&self, shape: &Shape, of: &[u32], base: Option<u32>) -> Vec<u32> {
        if let ([_], [_] | []) = (self.nodes.as_slice(), of) {
            return if base.is_none() { of.to_vec() } else { Vec::new() };
        }
        let mut is_seen = vec![false; self.nodes.len()];
        let mut region = Vec::new();
        let mut next = of.to_vec();
        while let Some(node) = next.pop() {
            if Some(node) != base && !std::mem::replace(&mut is_seen[node as usize], true) {
                region.push(node);
                next.extend(self.before(node));
            }
        }
        region.sort_unstable_by_key(|node| shape.node(*node).rank);
        region
    }

    /// Whether each of these came after first nodes of the block only through `base`.
    pub(crate) fn all_came_after(&self, shape: &Shape, base: u32, of: &[u32]) -> bool {
        self.region(shape, of, Some(base)).iter().all(|node| !shape.node(*node).ins.is_empty())
    }

    /// Whether `later` came after `earlier`, directly or through others.
    pub(crate) fn came_before(&self, shape: &Shape, earlier: u32, later: u32) -> bool {
        let rank = shape.node(earlier).rank;
        let mut seen = std::collections::BTreeSet::new();
        let mut next = vec![later];
        while let Some(node) = next.pop() {
            for before in self.before(node) {
                if before == earlier {
                    return true;
                }
                if shape.node(before).rank > rank && seen.insert(before) {
                    next.push(before);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod reference;
