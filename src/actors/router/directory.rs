//! The router's directory: the announcements of agents. Pure; the router's actor adds them.

use std::collections::BTreeMap;

use callboard_text::nearest;

use crate::messages::{AgentName, Presence};

/// All agents that were ever announced, by name. An agent that has withdrawn stays known: its work waits for its return.
#[derive(Debug, Default)]
pub(super) struct Directory {
    agents: BTreeMap<AgentName, Presence>,
}

impl Directory {
    /// Adds an announcement or withdrawal. That of an earlier start of the agent does not change the present one.
    pub(super) fn enter(&mut self, presence: &Presence) {
        let Presence { agent, instance, is_available, .. } = presence;
        if *is_available {
            self.agents.insert(agent.clone(), presence.clone());
        } else if let Some(known) = self.agents.get_mut(agent).filter(|known| known.instance == *instance) {
            known.is_available = false;
        }
    }

    /// The announcements of present agents, by name.
    pub(super) fn present(&self) -> Vec<Presence> {
        self.agents.values().filter(|known| known.is_available).cloned().collect()
    }

    /// Whether the agent of this name has announced itself, and has not withdrawn.
    pub(super) fn is_present(&self, name: &str) -> bool {
        self.agents.get(name).is_some_and(|known| known.is_available)
    }

    /// What an agent has announced last.
    pub(super) fn announced(&self, name: &AgentName) -> Option<&Presence> {
        self.agents.get(name)
    }

    /// The agent of this name.
    pub(super) fn named(&self, name: &str) -> Option<&AgentName> {
        self.agents.get_key_value(name).map(|(name, _)| name)
    }

    /// The agents of this role, in order.
    pub(super) fn of_role<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a AgentName> {
        self.agents.iter().filter(move |(_, known)| known.role.as_deref() == Some(role)).map(|(name, _)| name)
    }

    /// The agents with this capability, in order.
    pub(super) fn capable_of<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = &'a AgentName> {
        let can = move |known: &Presence| known.capabilities.iter().any(|capability| **capability == *wanted);
        self.agents.iter().filter(move |(_, known)| can(known)).map(|(name, _)| name)
    }

    /// The name, role or capability that is most similar to this one.
    pub(super) fn nearest(&self, target: &str) -> Option<String> {
        let known = self.agents.iter().flat_map(|(name, known)| {
            let Presence { role, capabilities, .. } = known;
            [Some(name.as_str()), role.as_deref()].into_iter().flatten().chain(capabilities.iter().map(AsRef::as_ref))
        });
        nearest(target, known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Timestamp;

    #[test]
    fn an_agent_that_has_withdrawn_is_known_and_not_present() {
        let agent = AgentName::new("coder").unwrap();
        let presence = |instance, is_available| Presence {
            agent: agent.clone(),
            role: Some("developer".into()),
            capabilities: vec!["rust".into()],
            projects: Vec::new(),
            instance,
            is_available,
            at: Timestamp::default(),
        };
        let announced = |instance| presence(instance, true);
        let withdrawn = |instance| presence(instance, false);
        let mut directory = Directory::default();
        let mut present_after = |presence| {
            directory.enter(&presence);
            directory.present().len()
        };
        assert_eq!(present_after(announced(1)), 1);
        assert_eq!(present_after(withdrawn(1)), 0);
        assert_eq!(present_after(announced(2)), 1);
        assert_eq!(present_after(withdrawn(1)), 1, "the end of an earlier life comes late");
        assert_eq!(present_after(withdrawn(2)), 0);
        assert_eq!(directory.named("coder"), Some(&agent));
        assert_eq!(directory.of_role("developer").chain(directory.capable_of("rust")).count(), 2);
        assert_eq!(directory.nearest("developr").as_deref(), Some("developer"));
    }
}
