//! Kinds of agent: those that think with a language model and use tools.

mod catalog;
mod definition;
mod fake;
#[cfg(feature = "genai")]
mod genai;
mod llm;
mod looping;
mod meta;
mod model;
mod permission;
mod prompt;
mod tool;
pub mod tools;

pub use crate::documents::{Defect, Defects};
pub use definition::{Definition, DefinitionReader, DefinitionSource};
pub use fake::FakeModel;
pub use llm::{DefinitionError, LlmAgent, Teammate};
pub use looping::{AgentLoop, LoopContext, LoopHandle, LoopRun};
pub use meta::MetaTool;
pub use catalog::{CallPolicy, Chosen, ModelChoice, ModelEntry, Models, ModelsError, Prices};
#[cfg(feature = "genai")]
pub use genai::{GenaiModel, ProviderError, Secret, Timeouts};
pub use model::{Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};
pub use permission::Tier;
pub use prompt::Section;
pub use tool::{
    Effect, Tool, ToolError, ToolOutput, ToolScope, ToolSpec, Tools, ToolsError, USUAL_OUTPUT, USUAL_TIMEOUT, of_spec,
    tool,
};
