//! Who waits for whom, over all runs (SEMANTICS 4). An edge that would close a circle is found before it is added.

use std::collections::HashSet;
use std::fmt;

use foldhash::HashMap;

use crate::messages::{AgentName, TurnId};

/// A turn, or the single slot of an agent that does not take a second turn while one of its turns waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// A turn of an agent.
    Turn(TurnId, AgentName),
    /// A non-reentrant agent's slot.
    Slot(AgentName),
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn(turn, agent) => write!(f, "{agent} (turn {turn})"),
            Self::Slot(agent) => write!(f, "the slot of {agent}"),
        }
    }
}

/// The wait-for graph.
#[derive(Debug, Default)]
pub struct WaitGraph {
    edges: HashMap<Waiting, Vec<Waiting>>,
}

impl WaitGraph {
    /// `from` waits for `to`; saying so again changes nothing.
    pub fn add(&mut self, from: Waiting, to: Waiting) {
        let targets = self.edges.entry(from).or_default();
        if !targets.contains(&to) {
            targets.push(to);
        }
    }

    /// `from` no longer waits for `to`.
    pub fn remove(&mut self, from: &Waiting, to: &Waiting) {
        if let Some(targets) = self.edges.get_mut(from) {
            if let Some(position) = targets.iter().position(|target| target == to) {
                targets.swap_remove(position);
            }
            if targets.is_empty() {
                self.edges.remove(from);
            }
        }
    }

    /// `from` waits for nothing any more.
    pub fn forget(&mut self, from: &Waiting) {
        self.edges.remove(from);
    }

    /// Nobody whom `is_gone` names waits any more.
    pub fn forget_all(&mut self, is_gone: impl Fn(&Waiting) -> bool) {
        self.edges.retain(|from, _| !is_gone(from));
    }

    /// The waits that lead from `from` to `to`, both included, if there is such a way. An edge from `to` to `from` would
    /// close it to a circle.
    #[must_use]
    pub fn path(&self, from: &Waiting, to: &Waiting) -> Option<Vec<Waiting>> {
        let mut seen = HashSet::from([from]);
        let mut ways: Vec<Vec<&Waiting>> = vec![vec![from]];
        while let Some(way) = ways.pop() {
            let last = *way.last()?;
            if last == to {
                return Some(way.into_iter().cloned().collect());
            }
            for next in self.edges.get(last).into_iter().flatten() {
                if seen.insert(next) {
                    ways.push(way.iter().copied().chain([next]).collect());
                }
            }
        }
        None
    }

    /// How many waits there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.edges.values().map(Vec::len).sum()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
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
        /// The model closes the relation under composition, the slow way.
        #[test]
        fn a_path_exists_when_the_transitive_closure_says_so(
            edges in prop::collection::vec((0_u8..7, 0_u8..7), 0..20),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut graph = WaitGraph::default();
            let mut model = edges.clone();
            for (from, to) in &edges {
                graph.add(slot(*from), slot(*to));
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
                    prop_assert_eq!(path.first(), Some(&slot(from)));
                    prop_assert_eq!(path.last(), Some(&slot(to)));
                }
            }}
        }
    }
}
