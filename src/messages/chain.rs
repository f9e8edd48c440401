//! The delegations that led to a turn (SEMANTICS 1).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::AgentName;

/// The immutable list of delegation steps that led to a turn (SEMANTICS 1). Chains share their tails, so adding a step
/// costs the same at any depth and a clone is a pointer.
///
/// ```
/// use callboard::messages::{AgentName, Chain};
/// let [lead, coder, reviewer] = ["lead", "coder", "reviewer"].map(|name| AgentName::new(name).unwrap());
/// let first = Chain::default().add_step(&lead, &coder, "fix the bug");
/// let second = first.add_step(&coder, &reviewer, "review the fix");
/// assert_eq!(first.len(), 1);
/// assert!(second.would_loop(&lead, &reviewer));
/// assert!(!second.is_max_depth(3));
/// ```
#[derive(Clone, Default)]
pub struct Chain(Option<Arc<Link>>);

struct Link {
    step: ChainStep,
    length: usize,
    rest: Chain,
}

/// One link of a [`Chain`]: a delegation, by whom and to whom, with its task.
///
/// It is no step of a turn: that is work whose result is journaled ([`Turn::step`](crate::Turn::step)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStep {
    /// The agent that gives the task.
    pub from: AgentName,
    /// The agent that the task is given to.
    pub to: AgentName,
    /// The body of the task, without its input.
    pub task: Arc<str>,
}

impl Chain {
    /// The default depth of a chain: three steps, four agents.
    pub const DEFAULT_MAX_DEPTH: usize = 3;

    /// A new chain with one more step; this one stays as it is.
    #[must_use]
    pub fn add_step(&self, from: &AgentName, to: &AgentName, task: &str) -> Self {
        let step = ChainStep { from: from.clone(), to: to.clone(), task: task.into() };
        Self(Some(Arc::new(Link { step, length: self.len() + 1, rest: self.clone() })))
    }

    /// Whether delegating from `delegating` to `target` would lead back to a participant of the chain.
    #[must_use]
    pub fn would_loop(&self, target: &AgentName, delegating: &AgentName) -> bool {
        target == delegating || self.involves(target)
    }

    /// Whether the agent is the source or the target of any step.
    #[must_use]
    pub fn involves(&self, agent: &AgentName) -> bool {
        self.newest_first().any(|step| step.from == *agent || step.to == *agent)
    }

    /// Whether the agent gave a step of this chain away, and so waits in it.
    #[must_use]
    pub fn is_waiting(&self, agent: &AgentName) -> bool {
        self.newest_first().any(|step| step.from == *agent)
    }

    /// Whether the chain is at its greatest depth.
    #[must_use]
    pub fn is_max_depth(&self, max: usize) -> bool {
        self.len() >= max
    }

    /// Returns the number of steps, which [`Chain::is_max_depth`] compares; zero if nothing was delegated.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |link| link.length)
    }

    /// Returns whether there are no steps: no delegation led to the turn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the steps from the newest to the oldest, without a copy.
    pub fn newest_first(&self) -> impl Iterator<Item = &ChainStep> {
        let mut next = self.0.as_deref();
        std::iter::from_fn(move || {
            let link = next?;
            next = link.rest.0.as_deref();
            Some(&link.step)
        })
    }

    /// Returns a copy of the steps from the oldest to the newest.
    #[must_use]
    pub fn steps(&self) -> Vec<ChainStep> {
        let mut steps: Vec<ChainStep> = self.newest_first().cloned().collect();
        steps.reverse();
        steps
    }
}

/// Drops a long chain iteratively, not recursively.
impl Drop for Link {
    fn drop(&mut self) {
        let mut rest = self.rest.0.take();
        while let Some(mut link) = rest.and_then(Arc::into_inner) {
            rest = link.rest.0.take();
        }
    }
}

impl FromIterator<ChainStep> for Chain {
    fn from_iter<I: IntoIterator<Item = ChainStep>>(steps: I) -> Self {
        steps.into_iter().fold(Self::default(), |rest, step| {
            let length = rest.len() + 1;
            Self(Some(Arc::new(Link { step, length, rest })))
        })
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.newest_first().eq(other.newest_first())
    }
}

impl Eq for Chain {}

/// Writes the agents in the order of the steps, such as `lead → coder → reviewer`; nothing for an empty chain.
impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.steps().iter().enumerate() {
            if position == 0 {
                write!(f, "{}", step.from)?;
            }
            write!(f, " → {}", step.to)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.steps()).finish()
    }
}

impl Serialize for Chain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.steps().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Chain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<ChainStep>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agent(number: usize) -> AgentName {
        AgentName::new(&format!("agent-{number}")).unwrap()
    }

    proptest! {
        #[test]
        fn a_chain_is_its_list_of_steps(steps in prop::collection::vec((0_usize..6, 0_usize..6), 0..8), target in 0_usize..6) {
            let mut chain = Chain::default();
            for (length, (from, to)) in steps.iter().enumerate() {
                let longer = chain.add_step(&agent(*from), &agent(*to), "task");
                prop_assert_eq!(chain.len(), length);
                chain = longer;
            }
            let involved = steps.iter().any(|(from, to)| *from == target || *to == target);
            prop_assert_eq!(chain.would_loop(&agent(target), &agent(7)), involved);
            prop_assert!(chain.would_loop(&agent(7), &agent(7)));
            prop_assert_eq!(chain.is_waiting(&agent(target)), steps.iter().any(|(from, _)| *from == target));
            prop_assert_eq!(chain.is_max_depth(3), steps.len() >= 3);
            let read: Chain = serde_json::from_str(&serde_json::to_string(&chain).unwrap()).unwrap();
            prop_assert_eq!(read, chain);
        }
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_steps_can_be_dropped() {
        let chain = (0..100_000).fold(Chain::default(), |chain, _| chain.add_step(&agent(0), &agent(1), ""));
        assert_eq!(chain.len(), 100_000);
    }
}
