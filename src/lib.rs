//! A supervised actor runtime for systems of agents.

pub mod actors;
pub mod env;
mod error;
pub mod messages;
pub mod runtime;
pub mod storage;
pub mod supervision;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use actors::{Agent, AgentSpec, Terminal, Turn, TurnError};
pub use error::Error;
pub use runtime::Callboard;

/// What a first program needs.
pub mod prelude {
    pub use crate::actors::{Agent, AgentSpec, Terminal, Turn, TurnError};
    pub use crate::messages::{Command, Complexity, Json, Limits, Outcome, Send, Task};
    pub use crate::runtime::Callboard;
}
