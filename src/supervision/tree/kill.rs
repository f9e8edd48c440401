//! Kills actors inside a tree, for tests: code outside has no reference to them.

use std::sync::Arc;

use ractor::ActorRef;
use tokio::sync::oneshot;

use super::errors::ControlError;
use super::handle::SupervisorRef;
use super::message::Msg;
use super::state::SupervisorState;

impl SupervisorRef {
    /// Kills the actor at this path below the supervisor, as ractor does; `false` if no actor is there now.
    ///
    /// # Errors
    /// When the supervisor is down.
    pub(crate) async fn kill(&self, path: &[&str]) -> Result<bool, ControlError> {
        let path = path.iter().map(|id| Arc::from(*id)).collect();
        let (reply, answer) = oneshot::channel();
        self.send(Msg::Kill { path, reply })?;
        Ok(answer.await.unwrap_or(false))
    }
}

impl SupervisorState {
    /// The supervisor above the actor that is killed replies to the caller; a reply that is dropped means that there is no
    /// such actor.
    pub(super) fn kill(&self, path: &[Arc<str>], reply: oneshot::Sender<bool>) {
        let Some((id, below)) = path.split_first() else { return };
        let child = self.children.named(id).map(|position| &self.children[position]);
        let Some((child, cell)) = child.and_then(|child| Some((child, child.actor()?))) else { return };
        if below.is_empty() {
            cell.kill();
            // The caller may have stopped waiting.
            let _ = reply.send(true);
        } else if child.spec.is_supervisor() {
            // A supervisor that has just ended drops the reply.
            let _ = ActorRef::from(cell.clone()).cast(Msg::Kill { path: below.to_vec(), reply });
        }
    }
}
