//! The topological order of the nodes of a block, and their dominators. Pure.

use std::cmp::Reverse;

use super::Shape;

impl Shape {
    /// Gives each node its rank and its dominator.
    ///
    /// # Errors
    /// Nodes that lead to each other in a circle.
    pub(super) fn put_in_order(&mut self) -> Result<(), Vec<u32>> {
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

    /// The nearest common dominator of these nodes, which may be one of them. They have been put in order.
    pub(super) fn meeting_point(&self, nodes: impl Iterator<Item = u32>) -> Option<u32> {
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

    /// Nodes that form a cycle, with the first one repeated at the end.
    fn circle(&self, left: &[usize]) -> Vec<u32> {
        let Some(start) = left.iter().position(|left| *left > 0) else { return Vec::new() };
        let mut path = vec![u32::try_from(start).unwrap_or_default()];
        let mut is_on_path = vec![false; self.nodes.len()];
        loop {
            let here = *path.last().unwrap_or(&0);
            if std::mem::replace(&mut is_on_path[here as usize], true) {
                let first = path.iter().position(|node| *node == here).unwrap_or_default();
                let mut circle = path.split_off(first);
                // The walk followed edges backwards.
                circle.reverse();
                return circle;
            }
            let before = self.nodes[here as usize].ins.iter().map(|edge| self.edges[*edge as usize].from);
            let Some(next) = before.into_iter().find(|node| left[*node as usize] > 0) else { return path };
            path.push(next);
        }
    }

    /// Whether `later` comes after `earlier` by edges.
    pub(super) fn leads_to(&self, earlier: u32, later: u32) -> bool {
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
