//! Agents, and their descriptions for a board.

// - `spec`: the description of an agent, and the same without a name for a board. `config`: its parts. `mode`: what an agent may do by itself.
// - `into_agent`: what can be an agent. `dynamic`: values of agents that others create. `message`: the messages of its actor.
mod config;
mod dynamic;
mod into_agent;
mod message;
mod mode;
mod spec;

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::messages::{Command, Json};

use super::turn::{Turn, TurnError};

pub(crate) use config::{AgentConfig, Description, RestartWindow};
pub(super) use dynamic::{DynamicValue, dynamic_value, value_for};
pub use into_agent::IntoAgent;
pub(crate) use message::AgentMsg;
pub use mode::Mode;
pub use spec::AgentSpec;
pub(crate) use spec::Source;

/// Something with a name that takes a turn and returns a [`Command`]. Up to (5) turns of one agent run at once, so the
/// value is shared; it is rebuilt by its factory after a panic, and what it held is gone then.
///
/// ```
/// use callboard::prelude::*;
///
/// struct Writer { drafts: std::sync::atomic::AtomicU32 }
///
/// impl Agent for Writer {
///     async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
///         let draft = self.drafts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         Ok(Command::output(format!("draft {draft} of {}", turn.task().body)))
///     }
/// }
/// ```
pub trait Agent: Send + Sync + 'static {
    /// Takes one turn. It is cancelled by dropping the future, at an await.
    fn turn(&self, turn: Turn) -> impl Future<Output = Result<Command, TurnError>> + Send;

    /// Builds a dynamic agent that a turn of this one has described ([`TurnAgents::make`](crate::actors::TurnAgents::make)). It is rebuilt for each of its turns,
    /// and built once before by the supervisor of the run, to see whether it can be: so this must not block, nor wait for
    /// anything. It is built with what this agent has, so it can be given no more.
    ///
    /// # Errors
    /// Why it cannot be made; by default an agent makes no others.
    fn make(&self, draft: &Json) -> Result<AgentSpec, String> {
        let _ = draft;
        Err("this agent makes no others".to_owned())
    }
}

/// The runtime's interface to an agent's value.
pub(crate) trait AgentValue: Send + Sync {
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>>;

    /// Answers a typed request outside any run; gives the request back if it is of another type.
    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer;

    /// The types of a typed agent.
    fn types(&self) -> Option<(&'static str, &'static str)>;

    /// As [`Agent::make`].
    fn make(&self, _: &Json) -> Result<AgentSpec, String> {
        Err("this agent makes no others".to_owned())
    }
}

/// The answer to a typed request, or the request if it is of another type.
pub(crate) type TypedAnswer = Result<BoxFuture<'static, Result<Box<dyn Any + Send>, TurnError>>, Box<dyn Any + Send>>;

/// Builds the agent's value; called at each start.
pub(crate) type Factory = Arc<dyn Fn() -> Result<Arc<dyn AgentValue>, String> + Send + Sync>;
