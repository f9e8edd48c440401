//! Dynamic agents that outlive their runs.

use serde::{Deserialize, Serialize};

use super::{AgentName, Authority, Json, RunId, Timestamp};

/// A dynamic agent that outlives the run that made it, because a person approved it (SEMANTICS 13).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptAgent {
    /// The agent, after its makers: `lead~helper`. Others call it by that, or by the last part alone.
    pub agent: AgentName,
    /// What each of its makers made, from the one that its host made: the last is the agent itself.
    pub drafts: Vec<Json>,
    /// What it may cause at most: what its maker might when it was kept.
    pub authority: Authority,
    /// The run in which the agent was made and people were asked to keep it.
    pub run: RunId,
    /// When it was kept, by the wall clock: after the approval, before it was stored.
    pub at: Timestamp,
}

impl KeptAgent {
    /// Returns the last part of the agent's name, without its makers: `helper` of `lead~helper`.
    #[must_use]
    pub fn name(&self) -> &str {
        let maker = self.agent.maker().map_or(0, |maker| maker.len() + 1);
        &self.agent.as_str()[maker..]
    }
}
