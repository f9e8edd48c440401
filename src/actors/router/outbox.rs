//! What waits to be entered in the router's ledger and directory. It lies outside the router's actor, so a restart loses
//! none of it.

use std::sync::Arc;

use ractor::ActorRef;

use crate::actors::agent::Description;
use crate::env::Env;
use crate::messages::{AgentName, Presence};
use crate::supervision::Mailbox;

use super::ledger::Placed;

/// Something for the router to enter.
#[derive(Debug)]
pub(super) enum Entry {
    /// Into an inbox, and the statuses with it.
    Message(Placed),
    /// Into the directory.
    Presence(Presence),
}

/// Has the router's actor drain the outbox.
#[derive(Debug)]
pub(crate) struct Drain;

#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mailbox<Drain, Vec<Entry>>,
}

impl Outbox {
    /// A new life of the actor begins. It drains the outbox after this.
    pub(super) fn attach(&self, actor: ActorRef<Drain>) {
        self.waiting.attach(actor);
    }

    /// Those who watch who comes and goes are to be notified at once, so for that the actor is woken. Messages are entered
    /// by the next reader of an inbox, so for them the actor is woken only when many have come together.
    pub(super) fn add(&self, entry: Entry) {
        const MANY: usize = 64;
        let is_presence = matches!(entry, Entry::Presence(_));
        let is_due = {
            let mut waiting = self.waiting.lock();
            waiting.push(entry);
            is_presence || waiting.len().is_multiple_of(MANY)
        };
        if is_due {
            self.waiting.wake(Drain);
        }
    }

    pub(super) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

/// Announces and withdraws one agent.
#[derive(Clone)]
pub(crate) struct PresenceHandle {
    pub(super) agent: AgentName,
    pub(in crate::actors) description: Description,
    pub(super) outbox: Arc<Outbox>,
    pub(super) env: Env,
}

impl PresenceHandle {
    /// The agent has started. `instance` is the generation of its value.
    pub(in crate::actors) fn announce(&self, instance: u64) {
        self.add(instance, true);
    }

    /// The agent has stopped, or failed too often.
    pub(in crate::actors) fn withdraw(&self, instance: u64) {
        self.add(instance, false);
    }

    fn add(&self, instance: u64, is_available: bool) {
        let Description { role, capabilities, projects } = self.description.clone();
        let (agent, at) = (self.agent.clone(), self.env.now().wall);
        let presence = Presence { agent, role, capabilities, projects, instance, is_available, at };
        self.outbox.add(Entry::Presence(presence));
    }
}
