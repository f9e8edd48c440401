//! The agents that a board knows by name: those that it hosts, and those of other boards that stand for these here. Pure.
//! What is asked when an agent is added costs the same, however many there are.

use std::collections::{BTreeMap, BTreeSet};

use callboard_text::looks;

use super::HostedAgent;
use crate::actors::agent::{AgentMsg, Source};
use crate::messages::AgentName;
use crate::supervision::tree::ChildRef;

#[derive(Default)]
pub(super) struct Hosted {
    agents: BTreeMap<AgentName, HostedAgent>,
    /// How many of them this board hosts.
    here: usize,
    /// Another number after each change, but for those of actors.
    version: u64,
    looks: Looks,
}

impl Hosted {
    pub(super) fn insert(&mut self, name: AgentName, agent: HostedAgent) {
        self.here += usize::from(!agent.is_elsewhere);
        self.version += 1;
        match self.agents.insert(name.clone(), agent) {
            Some(before) => self.here -= usize::from(!before.is_elsewhere),
            None => self.looks.add(&name, &self.agents),
        }
    }

    /// Adds a dormant agent of this board, without an actor; one that is there keeps its actor.
    pub(super) fn insert_dormant(&mut self, name: &AgentName, source: &Source) {
        let Source { mode, has_effects, .. } = *source;
        let authority = source.config.authority;
        match self.agents.get_mut(name.as_str()).filter(|agent| !agent.is_elsewhere) {
            Some(agent) => {
                (agent.mode, agent.has_effects, agent.authority) = (mode, has_effects, authority);
                self.version += 1;
            }
            None => {
                let agent = HostedAgent { mode, has_effects, authority, actor: None, is_elsewhere: false };
                self.insert(name.clone(), agent);
            }
        }
    }

    pub(super) fn remove(&mut self, name: &AgentName) {
        if let Some(agent) = self.agents.remove(name) {
            self.here -= usize::from(!agent.is_elsewhere);
            self.version += 1;
            self.looks.remove(name);
        }
    }

    /// Sets the actor of an agent that is known.
    pub(super) fn set_actor(&mut self, name: &AgentName, actor: Option<ChildRef<AgentMsg>>) {
        if let Some(agent) = self.agents.get_mut(name) {
            agent.actor = actor;
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&HostedAgent> {
        self.agents.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&AgentName, &HostedAgent)> {
        self.agents.iter()
    }

    /// The number of changes, but for those of actors.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The number of agents that this board hosts.
    pub(super) fn here(&self) -> usize {
        self.here
    }

    /// An agent with another name that people cannot tell from this one.
    pub(super) fn look_alike(&mut self, name: &str) -> Option<AgentName> {
        self.looks.like(name, &self.agents)
    }
}

/// The agents by what their names look like. Plain names, of ASCII alone, are not compared with each other, so nothing is noted while
/// all of them are plain.
#[derive(Default)]
struct Looks(Option<BTreeMap<String, BTreeSet<AgentName>>>);

impl Looks {
    fn add(&mut self, name: &AgentName, all: &BTreeMap<AgentName, HostedAgent>) {
        if let Some(noted) = self.noted(name.as_str(), all) {
            noted.entry(looks(name.as_str())).or_default().insert(name.clone());
        }
    }

    fn remove(&mut self, name: &AgentName) {
        let Some(noted) = &mut self.0 else { return };
        let look = looks(name.as_str());
        if let Some(alike) = noted.get_mut(&look) {
            alike.remove(name);
            if alike.is_empty() {
                noted.remove(&look);
            }
        }
    }

    fn like(&mut self, name: &str, all: &BTreeMap<AgentName, HostedAgent>) -> Option<AgentName> {
        let alike = self.noted(name, all)?.get(&looks(name))?;
        alike.iter().find(|other| other.as_str() != name && !(name.is_ascii() && other.as_str().is_ascii())).cloned()
    }

    /// What is noted, once one name is not plain: this one, or one before it.
    fn noted(
        &mut self,
        name: &str,
        all: &BTreeMap<AgentName, HostedAgent>,
    ) -> Option<&mut BTreeMap<String, BTreeSet<AgentName>>> {
        if self.0.is_none() && !name.is_ascii() {
            let mut noted: BTreeMap<String, BTreeSet<AgentName>> = BTreeMap::new();
            for other in all.keys() {
                noted.entry(looks(other.as_str())).or_default().insert(other.clone());
            }
            self.0 = Some(noted);
        }
        self.0.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use callboard_text::look_alike;
    use proptest::prelude::{prop_assert, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::{Just, Strategy};

    use super::*;
    use crate::actors::agent::Mode;
    use crate::messages::Authority;

    fn agent(is_elsewhere: bool) -> HostedAgent {
        let (mode, authority) = (Mode::default(), Authority::ALL);
        HostedAgent { has_effects: false, mode, authority, actor: None, is_elsewhere }
    }

    /// Names of which several look alike: the last two are of Cyrillic letters.
    fn names() -> impl Strategy<Value = &'static str> {
        prop_oneof![
            Just("copy"),
            Just("Copy"),
            Just("ace"),
            Just("\u{441}\u{43e}\u{440}\u{443}"),
            Just("\u{430}\u{441}\u{435}")
        ]
    }

    proptest! {
        #[test]
        fn what_is_noted_finds_what_a_walk_over_all_agents_finds(
            changes in proptest::collection::vec((names(), proptest::bool::ANY, proptest::bool::ANY), 1..30),
            asked in names(),
        ) {
            let mut hosted = Hosted::default();
            for (name, is_added, is_elsewhere) in changes {
                let name = AgentName::new(name).unwrap();
                let known = |hosted: &Hosted| hosted.get(name.as_str()).map(|agent| agent.is_elsewhere);
                let (before, version) = (known(&hosted), hosted.version());
                if is_added { hosted.insert(name.clone(), agent(is_elsewhere)) } else { hosted.remove(&name) }
                prop_assert!(known(&hosted) == before || hosted.version() > version);
                let here = hosted.iter().filter(|(_, agent)| !agent.is_elsewhere).count();
                prop_assert_eq!(hosted.here(), here);
            }
            let names: Vec<AgentName> = hosted.iter().map(|(name, _)| name.clone()).collect();
            let walked = look_alike(asked, names.iter().map(AgentName::as_str));
            prop_assert_eq!(hosted.look_alike(asked).is_some(), walked.is_some());
        }
    }

    #[test]
    fn nothing_is_noted_of_plain_names() {
        let mut hosted = Hosted::default();
        hosted.insert(AgentName::new("copy").unwrap(), agent(false));
        assert_eq!(hosted.look_alike("ace"), None);
        assert!(hosted.looks.0.is_none());
    }
}
