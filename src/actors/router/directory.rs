//! The router's directory: the announcements of agents. Pure; the router's actor adds them.

use std::collections::BTreeMap;
use std::sync::Arc;

use callboard_text::nearest;

use crate::actors::agent::Description;
use crate::messages::{AgentName, Presence, Timestamp};

/// What an agent has announced, without its name. Agents that are alike share their description.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    pub(super) description: Arc<Description>,
    /// Which life of the agent this is.
    pub(super) instance: u64,
    pub(super) is_available: bool,
    pub(super) at: Timestamp,
}

impl Announced {
    pub(super) fn presence(&self, agent: &AgentName) -> Presence {
        let Self { description, instance, is_available, at } = self;
        let Description { role, capabilities, projects } = (**description).clone();
        let agent = agent.clone();
        Presence { agent, role, capabilities, projects, instance: *instance, is_available: *is_available, at: *at }
    }
}

/// All agents that were ever announced, by name. An agent that has withdrawn stays known: its work waits for its return.
#[derive(Debug, Default)]
pub(super) struct Directory {
    agents: BTreeMap<AgentName, Announced>,
    /// Another number after each change of what agents say about themselves.
    version: u64,
}

impl Directory {
    /// Adds an announcement or withdrawal. That of an earlier start of the agent does not change the present one.
    pub(super) fn enter(&mut self, agent: &AgentName, announced: &Announced) {
        if announced.is_available {
            let before = self.agents.insert(agent.clone(), announced.clone());
            let is_same = before.is_some_and(|known| Arc::ptr_eq(&known.description, &announced.description));
            self.version += u64::from(!is_same);
        } else if let Some(known) = self.agents.get_mut(agent).filter(|known| known.instance == announced.instance) {
            known.is_available = false;
        }
    }

    /// Withdraws all agents that are present, and passes them on.
    pub(super) fn withdraw_all(&mut self, at: Timestamp, withdrawn: impl Fn(&AgentName, &Announced)) {
        for (agent, known) in self.agents.iter_mut().filter(|(_, known)| known.is_available) {
            (known.is_available, known.at) = (false, at);
            withdrawn(agent, known);
        }
    }

    /// The announcements of present agents, by name.
    pub(super) fn present(&self) -> Vec<Presence> {
        let present = self.agents.iter().filter(|(_, known)| known.is_available);
        present.map(|(agent, known)| known.presence(agent)).collect()
    }

    /// Whether the agent of this name has announced itself, and has not withdrawn.
    pub(super) fn is_present(&self, name: &str) -> bool {
        self.agents.get(name).is_some_and(|known| known.is_available)
    }

    /// The number of changes of what agents say about themselves.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// All agents that were ever announced, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&AgentName, &Announced)> {
        self.agents.iter()
    }

    /// What an agent has announced last.
    pub(super) fn announced(&self, name: &str) -> Option<&Announced> {
        self.agents.get(name)
    }

    /// The agent of this name.
    pub(super) fn named(&self, name: &str) -> Option<&AgentName> {
        self.agents.get_key_value(name).map(|(name, _)| name)
    }

    /// The agents of this role, in order.
    pub(super) fn of_role<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a AgentName> {
        self.agents
            .iter()
            .filter(move |(_, known)| known.description.role.as_deref() == Some(role))
            .map(|(name, _)| name)
    }

    /// The agents with this capability, in order.
    pub(super) fn capable_of<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = &'a AgentName> {
        let can =
            move |known: &Announced| known.description.capabilities.iter().any(|capability| **capability == *wanted);
        self.agents.iter().filter(move |(_, known)| can(known)).map(|(name, _)| name)
    }

    /// The name, role or capability that is most similar to this one.
    pub(super) fn nearest(&self, target: &str) -> Option<String> {
        let known = self.agents.iter().flat_map(|(name, known)| {
            let Description { role, capabilities, .. } = &*known.description;
            [Some(name.as_str()), role.as_deref()].into_iter().flatten().chain(capabilities.iter().map(AsRef::as_ref))
        });
        nearest(target, known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_has_withdrawn_is_known_and_not_present() {
        let agent = AgentName::new("coder").unwrap();
        let (role, capabilities) = (Some("developer".into()), vec!["rust".into()]);
        let description = Arc::new(Description { role, capabilities, projects: Vec::new() });
        let presence = |instance, is_available| Announced {
            description: Arc::clone(&description),
            instance,
            is_available,
            at: Timestamp::default(),
        };
        let announced = |instance| presence(instance, true);
        let withdrawn = |instance| presence(instance, false);
        let mut directory = Directory::default();
        let mut present_after = |presence| {
            directory.enter(&agent, &presence);
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
    #[test]
    fn a_new_description_changes_the_version_and_another_life_does_not() {
        let agent = AgentName::new("coder").unwrap();
        let description = Arc::<Description>::default();
        let mut directory = Directory::default();
        let mut version_after = |description: &Arc<Description>, is_available| {
            let description = Arc::clone(description);
            directory.enter(&agent, &Announced { description, instance: 1, is_available, at: Timestamp::default() });
            directory.version()
        };
        let first = version_after(&description, true);
        assert_ne!(first, 0);
        assert_eq!([version_after(&description, false), version_after(&description, true)], [first, first]);
        assert_ne!(version_after(&Arc::default(), true), first);
    }
}
