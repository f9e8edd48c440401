//! A message that an actor sends to itself for later.

use std::time::Duration;

use ractor::{ActorRef, Message};
use tokio::task::AbortHandle;

/// A message that will be sent, unless this is dropped before.
pub(super) struct DelayedMessage(AbortHandle);

impl DelayedMessage {
    /// Sends a message to the actor after this time, unless the actor is down by then.
    pub(super) fn send<M: Message>(
        actor: &ActorRef<M>,
        after: Duration,
        message: impl FnOnce() -> M + Send + 'static,
    ) -> Self {
        Self(actor.send_after(after, message).abort_handle())
    }
}

impl Drop for DelayedMessage {
    fn drop(&mut self) {
        self.0.abort();
    }
}
