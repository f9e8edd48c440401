use parking_lot::Mutex;
use ractor::{ActorRef, Message};

/// The way to the present life of an actor whose work waits outside it. The actor attaches itself before it looks at what
/// waits: what is told before that finds nobody, and is found by that look.
pub(crate) struct Mailbox<M>(Mutex<Option<ActorRef<M>>>);

impl<M> Default for Mailbox<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Message> Mailbox<M> {
    /// Where the actor is from now on.
    pub(crate) fn attach(&self, actor: ActorRef<M>) {
        *self.0.lock() = Some(actor);
    }

    /// Kills the actor at a fault point.
    pub(crate) fn kill(&self) {
        if let Some(actor) = &*self.0.lock() {
            actor.kill();
        }
    }

    /// Tells the actor, or nobody while it is down.
    pub(crate) fn tell(&self, message: M) {
        if let Some(actor) = &*self.0.lock() {
            let _ = actor.cast(message);
        }
    }
}
