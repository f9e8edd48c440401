//! Kinds of agent: those that think with a language model and use tools.

mod catalog;
#[cfg(feature = "genai")]
mod genai;
mod model;
mod tool;

pub use crate::documents::{Defect, Defects};
pub use catalog::{CallPolicy, Chosen, ModelChoice, ModelEntry, Models, ModelsError, Prices};
#[cfg(feature = "genai")]
pub use genai::{GenaiModel, ProviderError, Secret, Timeouts};
pub use model::{Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};
pub use tool::{
    Effect, Tool, ToolError, ToolOutput, ToolScope, ToolSpec, Tools, ToolsError, USUAL_OUTPUT, USUAL_TIMEOUT, of_spec,
    tool,
};
