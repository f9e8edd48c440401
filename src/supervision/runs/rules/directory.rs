//! The interface through which the rules look up agents and their authority.

use crate::messages::{Action, ActionKind, AgentName, Authority, Consent, Json, KeptAgent, Refusal};

/// The agents of a board. The router implements it.
pub(crate) trait AgentDirectory: Send + Sync + 'static {
    /// The agent that has a name, role or capability.
    ///
    /// # Errors
    /// No agent has it, or the agent takes no work.
    fn resolve(&self, target: &str) -> Result<AgentName, Refusal>;

    /// Whether the board has an agent, which may be stopped.
    fn hosts(&self, agent: &AgentName) -> bool;

    /// Whether turns of an agent can be taken from here: the board has it, or has agents of its own and another board has it.
    fn reaches(&self, agent: &AgentName) -> bool {
        self.hosts(agent)
    }

    /// The same at this moment: the other board lives.
    fn reaches_now(&self, agent: &AgentName) -> bool {
        self.hosts(agent)
    }

    /// Another agent whose name looks like this one.
    fn look_alike(&self, name: &str) -> Option<AgentName>;

    /// Checks that the agent can take more work. Committed work is always accepted.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`].
    fn check_room(&self, agent: &AgentName) -> Result<(), Refusal>;

    /// The approval policy's answer for an agent's action.
    fn consent(&self, agent: &AgentName, kind: ActionKind, action: &Action, each_time: bool) -> Consent;

    /// Whether the approval policy allows all actions of a kind, so that it need not be asked about each.
    fn allows_all(&self, _: ActionKind) -> bool {
        false
    }

    /// Whether the agent's mode is one in which it only analyses.
    fn only_analyses(&self, _: &AgentName) -> bool {
        false
    }

    /// Whether an agent acts outside only through its run, so that its turns may begin ahead of the commit that starts them.
    fn acts_through_steps(&self, _: &AgentName) -> bool {
        false
    }

    /// The authority of an agent that the board has, not one that an agent created.
    fn authority(&self, agent: &str) -> Authority;

    /// Checks that the last of these drafts can be created: the host creates the first, which creates the second, and so on.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn check_made(&self, host: &str, drafts: &[Json]) -> Result<(), String>;

    /// The definition of an agent that outlives the run that created it.
    fn kept(&self, _: &AgentName) -> Option<KeptAgent> {
        None
    }
}
