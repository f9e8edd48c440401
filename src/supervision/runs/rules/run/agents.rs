//! The dynamic agents of a run: those that its agents have created for the rest of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::{AgentName, Authority, Json};

/// The dynamic agents of a run by their full names.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::supervision::runs) struct DynamicAgents {
    agents: BTreeMap<AgentName, DynamicAgent>,
}

/// An agent that another one has created.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct DynamicAgent {
    /// The name by which the run's agents call it.
    name: Arc<str>,
    draft: Json,
    /// The most authority that it has.
    authority: Authority,
}

impl DynamicAgents {
    pub(super) fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    pub(in crate::supervision::runs) fn len(&self) -> usize {
        self.agents.len()
    }

    /// The short names, in the order of the full ones.
    pub(in crate::supervision::runs) fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.values().map(|made| &*made.name)
    }

    /// Adds an agent, or replaces its definition.
    pub(super) fn insert(&mut self, agent: AgentName, name: Arc<str>, draft: Json, authority: Authority) {
        self.agents.insert(agent, DynamicAgent { name, draft, authority });
    }

    /// The agent that others of the run call by this short or full name.
    pub(in crate::supervision::runs) fn named(&self, name: &str) -> Option<&AgentName> {
        self.agents.iter().find(|(agent, made)| *made.name == *name || agent.as_str() == name).map(|(agent, _)| agent)
    }

    /// The most authority of an agent; `None` for one that no agent of this run has created.
    pub(super) fn authority_of(&self, agent: &AgentName) -> Option<Authority> {
        Some(self.agents.get(agent)?.authority)
    }

    /// The definitions of an agent and of those that created it, from the one that the host's agent created. `None` for an
    /// agent of the board.
    pub(super) fn drafts_of(&self, agent: &AgentName) -> Option<Arc<[Json]>> {
        agent.maker()?;
        let mut drafts = Vec::new();
        let mut next = self.agents.get(agent);
        let mut name = agent.as_str();
        while let (Some(made), Some(maker)) = (next, AgentName::maker_of(name)) {
            drafts.push(made.draft.clone());
            (name, next) = (maker, self.agents.get(maker));
        }
        drafts.reverse();
        Some(drafts.into())
    }

    /// Removes these, and those that they have created.
    pub(super) fn remove_all(&mut self, makers: &[AgentName]) {
        let comes_from =
            |agent: &AgentName, maker: &AgentName| agent == maker || agent.makers().any(|name| name == maker.as_str());
        self.agents.retain(|agent, _| !makers.iter().any(|maker| comes_from(agent, maker)));
    }
}
