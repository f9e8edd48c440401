//! The use of a run's limits other than tokens, and of tools.

use std::sync::Arc;

use crate::messages::AgentName;
use crate::messages::state::ToolUses;
use crate::supervision::runs::rules::rare::{Parts, Rare};
use crate::supervision::runs::rules::small_map::SmallSet;

/// Counts of handoffs, agents, turns, retries and uses of tools.
#[derive(Clone, Debug, Default)]
pub(in crate::supervision::runs) struct Tally {
    pub(super) handoffs: u32,
    /// Agents that took part, apart from `cast`.
    pub(super) agents: SmallSet<AgentName>,
    /// Agents of the run's plan that have begun; they do not count against the limit of agents.
    pub(super) cast: Rare<SmallSet<AgentName>>,
    pub(super) turns_ended: u32,
    pub(super) retries: u32,
    /// The uses of tools, shared with the turns that see them; `None` without any. Stored beside the run in its snapshots.
    pub(super) tools: Option<Arc<ToolUses>>,
}

impl Parts for SmallSet<AgentName> {
    fn empty() -> &'static Self {
        static EMPTY: SmallSet<AgentName> = SmallSet::new();
        &EMPTY
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Tally {
    /// Handoffs and delegations that were admitted.
    pub(in crate::supervision::runs) fn handoffs(&self) -> u32 {
        self.handoffs
    }

    /// The agents that count against the limit of agents.
    pub(in crate::supervision::runs) fn agents(&self) -> &SmallSet<AgentName> {
        &self.agents
    }

    /// Counts the use of a tool.
    pub(super) fn count_tool(&mut self, name: &Arc<str>) {
        Arc::make_mut(self.tools.get_or_insert_default()).count(name);
    }

    /// How many agents took part, those of the plan included.
    pub(super) fn participants(&self) -> u32 {
        let all = self.agents.len() + self.cast.iter().filter(|agent| !self.agents.contains(agent)).count();
        u32::try_from(all).unwrap_or(u32::MAX)
    }
}
