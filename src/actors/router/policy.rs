//! Decides whether an action needs the consent of people.

use std::sync::Arc;

use crate::actors::agent::Mode;
use crate::messages::{Action, ActionKind, AgentName, Consent};

/// Decides before anybody is asked: may this agent do this, must a person consent, or is it out of the question?
pub(crate) type ApprovalPolicy = Arc<dyn Fn(&PolicyQuestion<'_>) -> Consent + Send + Sync>;

/// An action about which an approval policy ([`Builder::approval_policy`](crate::Builder::approval_policy)) decides.
#[derive(Clone, Copy, Debug)]
pub struct PolicyQuestion<'a> {
    /// Who wants to do it. A policy is asked for an agent that others made and for each of those, and the strictest answer
    /// counts.
    pub agent: &'a AgentName,
    /// The agent's mode; for a dynamic agent, that of the agent in whose place it works ([`AgentName::host`]).
    pub mode: Mode,
    /// Whether it has tools with effects outside.
    pub has_effects: bool,
    /// Whether it is a handoff, a delegation, or an action that a turn asks consent for.
    pub kind: ActionKind,
    /// The action. Of a handoff or a delegation, the target is the other agent and the arguments are its input.
    pub action: &'a Action,
    /// Whether people are to be asked each time
    /// ([`TurnPeople::approve_each_time`](crate::actors::TurnPeople::approve_each_time)): what they have approved for
    /// the whole run does not count then.
    pub each_time: bool,
}

impl PolicyQuestion<'_> {
    /// The answer of the policy that a board has by default: handoffs and delegations go ahead, agents that only analyse are
    /// approved unless people are to be asked each time, and everything else asks.
    #[must_use]
    pub fn default_consent(&self) -> Consent {
        let only_analyses = self.mode.is_analysis_only() && !self.has_effects && !self.each_time;
        if only_analyses || allows_all_by_default(self.kind) { Consent::Auto } else { Consent::Ask }
    }
}

/// Whether the policy that a board has by default allows all actions of a kind.
pub(super) fn allows_all_by_default(kind: ActionKind) -> bool {
    match kind {
        ActionKind::Handoff | ActionKind::Delegation => true,
        ActionKind::Requested => false,
    }
}
