//! Entries that wait for the router's ledger and directory. They are kept outside the router's actor, so a restart loses none.

use std::sync::Arc;

use ractor::ActorRef;

use crate::actors::agent::Description;
use crate::env::Env;
use crate::messages::{AgentName, RunId};
use crate::supervision::Mailbox;

use super::directory::Announced;
use super::ledger::Placed;

/// An entry for the router.
#[derive(Debug)]
pub(super) enum Entry {
    /// A message for an inbox and the ledger.
    Message(Placed),
    /// An announcement or withdrawal for the directory.
    Presence(AgentName, Announced),
    /// A run that had ended continues: as a delegation, it has no terminal status any more.
    Continued(RunId),
}

/// Message to the router's actor: drain the outbox.
#[derive(Debug)]
pub(crate) struct Drain;

#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mailbox<Drain, Vec<Entry>>,
}

impl Outbox {
    /// Sets the address of an actor that starts. It drains the outbox after this.
    pub(super) fn attach(&self, actor: ActorRef<Drain>) {
        self.waiting.attach(actor);
    }

    /// Adds an entry. Watchers of announcements are notified at once, so for an announcement the actor is woken. Messages are
    /// applied by the next reader of an inbox, so for them the actor is woken only when many are waiting.
    pub(super) fn add(&self, entry: Entry) {
        const MANY: usize = 64;
        let is_presence = matches!(entry, Entry::Presence(..));
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
    pub(in crate::actors) description: Arc<Description>,
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
        let (description, at) = (Arc::clone(&self.description), self.env.now().wall);
        let announced = Announced { description, instance, is_available, at };
        self.outbox.add(Entry::Presence(self.agent.clone(), announced));
    }
}
