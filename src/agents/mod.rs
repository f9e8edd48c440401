//! Kinds of agent: those that think with a language model and use tools, and those that are other programs.

mod catalog;
mod definition;
mod fake;
#[cfg(feature = "genai")]
mod genai;
mod llm;
mod looping;
#[cfg(all(unix, feature = "mcp"))]
mod mcp;
mod meta;
mod model;
mod permission;
#[cfg(all(unix, feature = "process"))]
mod process;
mod prompt;
#[cfg(any(feature = "genai", all(unix, feature = "mcp")))]
mod secret;
mod tool;
pub mod tools;
#[cfg(any(feature = "genai", all(unix, feature = "mcp")))]
mod web;

pub use crate::documents::{Defect, Defects};
pub use catalog::{CallPolicy, Chosen, ModelChoice, ModelEntry, Models, ModelsError, Prices};
pub use definition::{Definition, DefinitionReader, DefinitionSource};
pub use fake::FakeModel;
#[cfg(feature = "genai")]
pub use genai::{GenaiModel, ProviderError, Timeouts};
pub use llm::{DefinitionError, LlmAgent, Teammate};
pub use looping::{AgentLoop, LoopContext, LoopHandle, LoopRun, NotPending};
#[cfg(all(unix, feature = "mcp"))]
pub use mcp::{McpProblem, McpServers};
pub use meta::MetaTool;
pub use model::{Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};
pub use permission::Tier;
#[cfg(all(unix, feature = "process"))]
pub use process::ProcessAgent;
pub use prompt::Section;
#[cfg(any(feature = "genai", all(unix, feature = "mcp")))]
pub use secret::Secret;
pub use tool::{
    Effect, Tool, ToolError, ToolOutput, ToolScope, ToolSpec, Tools, ToolsError, USUAL_OUTPUT, USUAL_TIMEOUT, of_spec,
    tool,
};
