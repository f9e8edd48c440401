//! Consent that people have given for the whole run.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::{Action, AgentName, Decision, Envelope, Terms, Timestamp};

/// The most consents that a run remembers; the oldest is dropped for a new one.
const MAX: usize = 256;

/// Consents for the rest of a run, the newest last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::supervision::runs) struct Consents {
    given: VecDeque<Consent>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Consent {
    agent: AgentName,
    action: Action,
    by: Arc<str>,
    until: Timestamp,
}

impl Consents {
    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Stores a decision that also approves later actions, if it does.
    pub(super) fn keep(&mut self, envelope: &Envelope, decision: &Decision) {
        if let Decision { approved: true, by, terms: Terms::Run { until }, .. } = decision {
            let (agent, action) = (envelope.agent.clone(), envelope.action.clone());
            self.given.push_back(Consent { agent, action, by: Arc::clone(by), until: *until });
        }
        if self.given.len() > MAX {
            self.given.pop_front();
        }
    }

    /// The person who has approved exactly this action of the agent, if the approval still holds.
    pub(in crate::supervision::runs) fn given_by(
        &self,
        agent: &AgentName,
        action: &Action,
        now: Timestamp,
    ) -> Option<&Arc<str>> {
        let is_this = |given: &&Consent| given.until > now && given.agent == *agent && given.action == *action;
        self.given.iter().rev().find(is_this).map(|given| &given.by)
    }
}
