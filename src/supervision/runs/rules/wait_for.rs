//! The wait-for graph over all runs (SEMANTICS 4). An edge that would close a cycle is found before it is added.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use foldhash::HashMap;

use crate::messages::{AgentName, RequestId, TurnId, Wait};

/// A turn, or the single slot of an agent that does not take a second turn while one of its turns waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A turn of an agent.
    Turn(TurnId, AgentName),
    /// A non-reentrant agent's slot.
    Slot(AgentName),
}

/// A turn has one agent, so its id is enough.
impl Hash for Waiting {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Turn(turn, _) => turn.hash(state),
            Self::Slot(agent) => agent.hash(state),
        }
    }
}

impl Waiting {
    /// The node as a part of a cycle's description, with the delegation whose answer it waits for.
    #[must_use]
    pub(crate) fn by(&self, request: Option<RequestId>) -> Wait {
        match self {
            Self::Turn(turn, agent) => Wait::Turn { turn: *turn, agent: agent.clone(), request },
            Self::Slot(agent) => Wait::Slot(agent.clone()),
        }
    }
}

/// An edge to another node.
#[derive(Debug)]
struct Edge {
    to: Waiting,
    /// The delegation, if it waits for an answer.
    request: Option<RequestId>,
}

/// The wait-for graph.
#[derive(Debug, Default)]
pub(crate) struct WaitGraph {
    edges: HashMap<Waiting, Vec<Edge>>,
}

impl WaitGraph {
    /// `from` waits for `to`, by a delegation if it is an answer; adding it again changes nothing.
    pub(crate) fn add(&mut self, from: Waiting, to: Waiting, request: Option<RequestId>) {
        let edges = self.edges.entry(from).or_default();
        if edges.iter().all(|edge| edge.to != to) {
            // Most wait for one.
            if edges.is_empty() {
                edges.reserve_exact(1);
            }
            edges.push(Edge { to, request });
        }
    }

    /// `from` no longer waits for `to`.
    pub(crate) fn remove(&mut self, from: &Waiting, to: &Waiting) {
        if let Some(targets) = self.edges.get_mut(from) {
            if let Some(position) = targets.iter().position(|edge| edge.to == *to) {
                targets.swap_remove(position);
            }
            if targets.is_empty() {
                self.edges.remove(from);
            }
        }
    }

    /// `from` no longer waits for the answer to a delegation.
    pub(crate) fn remove_request(&mut self, from: &Waiting, request: RequestId) {
        if let Some(targets) = self.edges.get_mut(from) {
            targets.retain(|edge| edge.request != Some(request));
            if targets.is_empty() {
                self.edges.remove(from);
            }
        }
    }

    /// Removes all waits of `from`.
    pub(crate) fn forget(&mut self, from: &Waiting) {
        self.edges.remove(from);
    }

    /// Removes the waits of those for which `is_gone` is true.
    pub(crate) fn forget_all(&mut self, is_gone: impl Fn(&Waiting) -> bool) {
        self.edges.retain(|from, _| !is_gone(from));
    }

    /// The waits that lead from `from` to `to`, both included, each with the request by which it waits for the next, if there
    /// is such a path. An edge from `to` to `from` would close it to a cycle.
    #[must_use]
    pub(crate) fn path(&self, from: &Waiting, to: &Waiting) -> Option<Vec<Wait>> {
        let mut seen = HashSet::from([from]);
        let mut paths: Vec<Vec<(&Waiting, Option<RequestId>)>> = vec![vec![(from, None)]];
        while let Some(path) = paths.pop() {
            let (last, _) = *path.last()?;
            if last == to {
                return Some(path.into_iter().map(|(waiting, request)| waiting.by(request)).collect());
            }
            for edge in self.edges.get(last).into_iter().flatten() {
                if seen.insert(&edge.to) {
                    let mut longer = path.clone();
                    longer.pop();
                    longer.extend([(last, edge.request), (&edge.to, None)]);
                    paths.push(longer);
                }
            }
        }
        None
    }

    /// How many waits there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.edges.values().map(Vec::len).sum()
    }

    /// Whether there are no waits.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(number: u8) -> Waiting {
        Waiting::Slot(AgentName::new(&format!("agent-{number}")).unwrap())
    }

    proptest! {
        /// The model computes the transitive closure by repeated composition.
        #[test]
        fn a_path_exists_when_the_transitive_closure_reports_it(
            edges in prop::collection::vec((0_u8..7, 0_u8..7), 0..20),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut graph = WaitGraph::default();
            let mut model = edges.clone();
            for (from, to) in &edges {
                graph.add(slot(*from), slot(*to), None);
            }
            for index in removed {
                if model.is_empty() { break }
                let (from, to) = model.remove(index.index(model.len()));
                model.retain(|edge| *edge != (from, to));
                graph.remove(&slot(from), &slot(to));
            }
            let mut reaches = [[false; 7]; 7];
            for (node, row) in reaches.iter_mut().enumerate() { row[node] = true }
            for (from, to) in model { reaches[from as usize][to as usize] = true }
            for via in 0..7 { for from in 0..7 { for to in 0..7 {
                reaches[from][to] |= reaches[from][via] && reaches[via][to];
            }}}
            for from in 0..7_u8 { for to in 0..7_u8 {
                let path = graph.path(&slot(from), &slot(to));
                prop_assert_eq!(path.is_some(), reaches[from as usize][to as usize]);
                if let Some(path) = path {
                    prop_assert_eq!(path.first(), Some(&slot(from).by(None)));
                    prop_assert_eq!(path.last(), Some(&slot(to).by(None)));
                }
            }}
        }
    }
}
