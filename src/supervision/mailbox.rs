//! State that outlives its actor, with the way to wake the actor for it.
//!
//! An actor that is restarted loses the messages that were sent to it. So what must not be lost lies outside of the actor,
//! behind a lock: others change it and wake the actor, and a new life of the actor looks at all of it when it begins.

use parking_lot::{Mutex, MutexGuard};
use ractor::{ActorRef, Message};

/// State `S` behind a lock, and the address of the present life of the actor, which is woken with a message `M`.
///
/// Nothing is missed if both sides keep to an order. The others change the state first, and wake the actor then. The actor
/// attaches itself first, and looks at the state then: what was changed before is found by that look, and whoever changes it
/// later finds the actor attached.
pub(crate) struct Mailbox<M, S = ()> {
    state: Mutex<S>,
    /// `None` until the actor starts for the first time; between two lives of it, the one before.
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

    /// A new life of the actor begins.
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
