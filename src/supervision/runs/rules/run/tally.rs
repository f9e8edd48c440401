//! The use of a run's limits other than tokens.

use std::collections::BTreeSet;

use crate::messages::AgentName;

/// Counts of handoffs, agents, turns and retries.
#[derive(Clone, Debug, Default)]
pub(in crate::supervision::runs) struct Tally {
    pub(super) handoffs: u32,
    /// Agents that took part, apart from `cast`.
    pub(super) agents: BTreeSet<AgentName>,
    /// Agents of the run's plan that have begun; they do not count against the limit of agents.
    pub(super) cast: BTreeSet<AgentName>,
    pub(super) turns_ended: u32,
    pub(super) retries: u32,
}

impl Tally {
    /// Handoffs and delegations that were admitted.
    pub(in crate::supervision::runs) fn handoffs(&self) -> u32 {
        self.handoffs
    }

    /// The agents that count against the limit of agents.
    pub(in crate::supervision::runs) fn agents(&self) -> &BTreeSet<AgentName> {
        &self.agents
    }

    /// How many agents took part, those of the plan included.
    pub(super) fn participants(&self) -> u32 {
        let all = self.agents.len() + self.cast.difference(&self.agents).count();
        u32::try_from(all).unwrap_or(u32::MAX)
    }
}
