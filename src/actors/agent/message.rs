//! What the actor of an agent reacts to.

use ractor::RpcReplyPort;

use crate::messages::TurnId;

use super::{Description, Factory, RestartWindow};

/// A message to the actor that makes an agent's value.
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
    /// Later turns are to use what this factory makes.
    Replace(Factory, RestartWindow, Description, RpcReplyPort<Result<(), String>>),
    /// Make the value again, by hand.
    Restart(RpcReplyPort<Result<(), String>>),
}
