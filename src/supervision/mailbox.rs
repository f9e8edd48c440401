//! State that outlives its actor, with the address that wakes the actor.
//!
//! A restarted actor loses the messages that were sent to it. State that must not be lost is therefore kept outside of the actor,
//! behind a lock: senders change it and wake the actor, and a restarted actor reads all of it when it starts.

use parking_lot::{Mutex, MutexGuard};
use ractor::{ActorRef, Message};

/// State `S` behind a lock, and the address of the running actor, which is woken with a message `M`.
///
/// No change is missed if both sides keep an order. A sender changes the state first and then wakes the actor. The actor attaches
/// itself first and then reads the state: it sees every earlier change, and a sender with a later change finds it attached.
pub(crate) struct Mailbox<M, S = ()> {
    state: Mutex<S>,
    /// `None` until the actor starts for the first time. After a crash it holds the old address until the restarted actor
    /// attaches.
    actor: Mutex<Option<ActorRef<M>>>,
}

impl<M, S: Default> Default for Mailbox<M, S> {
    fn default() -> Self {
        Self { state: Mutex::default(), actor: Mutex::default() }
    }
}

impl<M: Message, S> Mailbox<M, S> {
    /// The state. No actor is woken when it is unlocked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }

    /// Sets the address of an actor that starts or restarts.
    pub(crate) fn attach(&self, actor: ActorRef<M>) {
        *self.actor.lock() = Some(actor);
    }

    /// Sends a message to the actor. It is lost if the actor is down, or goes down before it has read it.
    pub(crate) fn wake(&self, message: M) {
        if let Some(actor) = &*self.actor.lock() {
            let _ = actor.cast(message);
        }
    }

    /// Kills the actor at a fault point.
    pub(crate) fn kill(&self) {
        if let Some(actor) = &*self.actor.lock() {
            actor.kill();
        }
    }
}
