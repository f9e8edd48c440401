//! Kinds of agent: those that think with a language model and use tools.

mod model;
mod tool;
pub mod tools;

pub use model::{Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};
pub use tool::{
    Effect, Tool, ToolError, ToolOutput, ToolScope, ToolSpec, Tools, ToolsError, USUAL_OUTPUT, USUAL_TIMEOUT, of_spec,
    tool,
};
