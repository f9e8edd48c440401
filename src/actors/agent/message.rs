//! The messages of an agent's actor.

use std::sync::Arc;

use ractor::RpcReplyPort;

use crate::messages::TurnId;

use super::Source;

/// A message to the actor that builds an agent's value.
pub(crate) enum AgentMsg {
    /// The value is unusable: a turn, or a typed request, panicked.
    Panicked {
        /// The turn; a repeated attempt of the same one counts once.
        turn: Option<TurnId>,
        /// The text of the panic.
        text: String,
    },
    /// The wait after a failed rebuild is over.
    Rebuild,
    /// Replace the source: later turns use its value.
    Replace(Arc<Source>, RpcReplyPort<Result<(), String>>),
    /// Rebuild the value on request.
    Restart(RpcReplyPort<Result<(), String>>),
}
