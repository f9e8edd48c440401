//! Kinds of agent: those that think with a language model and use tools.

mod looping;
mod meta;
mod model;
mod permission;
mod tool;

pub use looping::{AgentLoop, LoopContext, LoopHandle, LoopRun};
pub use meta::MetaTool;
pub use model::{Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};
pub use permission::Tier;
pub use tool::{
    Effect, Tool, ToolError, ToolOutput, ToolScope, ToolSpec, Tools, ToolsError, USUAL_OUTPUT, USUAL_TIMEOUT, of_spec,
    tool,
};
