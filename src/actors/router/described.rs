//! What the other boards on the store are to know of the agents that this one hosts.

use std::sync::Arc;

use crate::actors::agent::Description;
use crate::messages::{BoardAgent, BoardInfo, write_agents};

use super::directory::Directory;
use super::hosted::Hosted;
use super::written::Written;
use super::{HostedAgent, Router};

impl Router {
    /// The agents that this board hosts, for the others.
    pub(crate) fn described(&self) -> Vec<BoardAgent> {
        // The directory is locked first, as by lookups.
        let directory = self.directory.read();
        describe(&directory, &self.hosted.read())
    }

    /// What the board says about itself, with its agents, as bytes.
    pub(crate) fn written(&self, info: &BoardInfo) -> Arc<[u8]> {
        // There may be very many agents, most of which take less.
        const AGENT: usize = 64;
        let mut last = self.written.lock();
        let (versions, changed) = {
            let directory = self.directory.read();
            let hosted = self.hosted.read();
            let versions = (directory.version(), hosted.version());
            let is_same = last.as_ref().is_some_and(|last| last.versions == versions);
            (versions, (!is_same).then(|| describe(&directory, &hosted)))
        };
        let (bytes, agents) = match (&*last, changed) {
            (Some(Written { bytes, agents, .. }), None) => {
                info.to_bytes_with(agents.len(), |text| text.extend_from_slice(&bytes[agents.clone()]))
            }
            (_, changed) => {
                let agents = changed.unwrap_or_default();
                info.to_bytes_with(agents.len() * AGENT, |text| write_agents(&agents, text))
            }
        };
        *last = Some(Written { versions, bytes: Arc::clone(&bytes), agents });
        bytes
    }
}

/// Both are in the order of names, so each is walked once, and nothing is looked up.
fn describe(directory: &Directory, hosted: &Hosted) -> Vec<BoardAgent> {
    let mut announced = directory.iter().peekable();
    let mut last_mode = None;
    let mut described = Vec::with_capacity(hosted.here());
    for (name, agent) in hosted.iter().filter(|(_, agent)| !agent.is_elsewhere) {
        while announced.next_if(|(other, _)| *other < name).is_some() {}
        let known = announced.next_if(|(other, _)| *other == name).map(|(_, known)| (*known.description).clone());
        let Description { role, capabilities, projects } = known.unwrap_or_default();
        let HostedAgent { has_effects, mode, authority, .. } = *agent;
        let mode = match &last_mode {
            Some((last, text)) if *last == mode => Arc::clone(text),
            _ => Arc::clone(&last_mode.insert((mode, mode.name().into())).1),
        };
        described.push(BoardAgent { name: name.clone(), role, capabilities, projects, authority, mode, has_effects });
    }
    described
}
