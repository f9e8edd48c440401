//! All agents of the scheduler, by index. An agent keeps its index for good.
//!
//! A dormant agent that sleeps has a small entry. It gets a queue of its own when something happens to it, and loses it when it
//! sleeps again.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::actors::agent::{AgentConfig, Source};

use super::agent_queue::AgentQueue;
use super::rest::{Asleep, Rest};

#[derive(Default)]
pub(super) struct Entries {
    list: Vec<Entry>,
    /// Agents that sleep and have a queue all the same, because a worker asked for one late.
    strays: Vec<usize>,
}

enum Entry {
    InUse(Box<AgentQueue>),
    Asleep(Asleep),
}

impl Entries {
    /// Adds an agent; returns its index.
    pub(super) fn push(&mut self, agent: AgentQueue) -> usize {
        self.list.push(Entry::InUse(Box::new(agent)));
        self.list.len() - 1
    }

    /// Adds an agent that sleeps; returns its index.
    pub(super) fn push_asleep(&mut self, agent: Asleep) -> usize {
        self.list.push(Entry::Asleep(agent));
        self.list.len() - 1
    }

    pub(super) fn reserve(&mut self, more: usize) {
        self.list.reserve(more);
    }

    /// The queue of an agent; `None` while it sleeps.
    pub(super) fn in_use(&self, index: usize) -> Option<&AgentQueue> {
        match self.list.get(index)? {
            Entry::InUse(agent) => Some(agent),
            Entry::Asleep(_) => None,
        }
    }

    /// As [`Entries::in_use`].
    pub(super) fn in_use_mut(&mut self, index: usize) -> Option<&mut AgentQueue> {
        match self.list.get_mut(index)? {
            Entry::InUse(agent) => Some(agent),
            Entry::Asleep(_) => None,
        }
    }

    /// The queues of all agents that do not sleep.
    pub(super) fn iter(&self) -> impl Iterator<Item = &AgentQueue> {
        self.list.iter().filter_map(|entry| match entry {
            Entry::InUse(agent) => Some(&**agent),
            Entry::Asleep(_) => None,
        })
    }

    /// As [`Entries::iter`].
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut AgentQueue> {
        self.list.iter_mut().filter_map(|entry| match entry {
            Entry::InUse(agent) => Some(&mut **agent),
            Entry::Asleep(_) => None,
        })
    }

    /// The agents that sleep.
    pub(super) fn asleep(&self) -> impl Iterator<Item = &Asleep> {
        self.list.iter().filter_map(|entry| match entry {
            Entry::InUse(_) => None,
            Entry::Asleep(agent) => Some(agent),
        })
    }

    /// The agents with work, in order.
    pub(super) fn with_work(&self) -> Vec<usize> {
        let has_work = |index: &usize| self.in_use(*index).is_some_and(AgentQueue::has_work);
        (0..self.list.len()).filter(has_work).collect()
    }

    pub(super) fn config(&self, index: usize) -> Option<&AgentConfig> {
        Some(match self.list.get(index)? {
            Entry::InUse(agent) => &agent.config,
            Entry::Asleep(agent) => &agent.source.config,
        })
    }

    /// Gives an agent that sleeps another source; `false` if it does not sleep.
    pub(super) fn replace_asleep(&mut self, index: usize, source: &Arc<Source>) -> bool {
        match self.list.get_mut(index) {
            Some(Entry::Asleep(agent)) => agent.source = Arc::clone(source),
            Some(Entry::InUse(_)) | None => return false,
        }
        true
    }

    /// Takes the queue of a dormant agent that sleeps, unless something of it is under way.
    pub(super) fn put_away(&mut self, index: usize) {
        if let Some(entry) = self.list.get_mut(index)
            && let Entry::InUse(agent) = entry
            && let Some(asleep) = agent.asleep()
        {
            *entry = Entry::Asleep(asleep);
        }
    }

    /// Takes the queues of agents that had none and were asked for one.
    pub(super) fn put_strays_away(&mut self) {
        for index in std::mem::take(&mut self.strays) {
            self.put_away(index);
        }
    }
}

impl Index<usize> for Entries {
    type Output = AgentQueue;

    /// Panics if the agent sleeps: one with something under way does not.
    fn index(&self, index: usize) -> &AgentQueue {
        self.in_use(index).expect("an agent that sleeps has nothing under way")
    }
}

impl IndexMut<usize> for Entries {
    /// An agent that sleeps gets its queue.
    fn index_mut(&mut self, index: usize) -> &mut AgentQueue {
        let Self { list, strays } = self;
        let entry = &mut list[index];
        if let Entry::Asleep(asleep) = entry {
            strays.push(index);
            let Asleep { name, source, generation, history } = asleep;
            let mut agent = AgentQueue::new(name.clone(), Arc::clone(&source.config));
            (agent.generation, agent.history) =
                (*generation, history.take().map(|history| *history).unwrap_or_default());
            agent.lie_down(Rest::new(Arc::clone(source)));
            *entry = Entry::InUse(Box::new(agent));
        }
        match entry {
            Entry::InUse(agent) => agent,
            Entry::Asleep(_) => unreachable!("it has got its queue"),
        }
    }
}
