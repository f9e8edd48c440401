//! What the rules ask about agents, and about what they may do.

use crate::messages::{Action, ActionKind, AgentName, Authority, Consent, Json, KeptAgent, Refusal};

/// Knows the agents of a board. The agents' side implements it.
pub(crate) trait AgentDirectory: Send + Sync + 'static {
    /// The agent that a name, role or capability stands for.
    ///
    /// # Errors
    /// No agent has it, or the agent takes no work.
    fn resolve(&self, target: &str) -> Result<AgentName, Refusal>;

    /// An agent whose name looks like this one.
    fn look_alike(&self, name: &str) -> Option<AgentName>;

    /// Whether the agent has room for work that is not there yet; committed work always has.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`].
    fn check_room(&self, agent: &AgentName) -> Result<(), Refusal>;

    /// The approval policy's answer for an agent's action.
    fn consent(&self, agent: &AgentName, kind: ActionKind, action: &Action, each_time: bool) -> Consent;

    /// What an agent may cause that was not made by others.
    fn authority(&self, agent: &str) -> Authority;

    /// Whether an agent can make the last of these: it makes the first, which makes the second.
    ///
    /// # Errors
    /// Why not.
    fn check_made(&self, host: &str, drafts: &[Json]) -> Result<(), String>;

    /// What an agent is that outlives the run that made it.
    fn kept(&self, _: &AgentName) -> Option<KeptAgent> {
        None
    }
}
