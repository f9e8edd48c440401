//! Kinds of agent: those that think with a language model and use tools, and those that are other programs.

mod briefing;
mod builtin;
mod catalog;
mod compaction;
mod definition;
mod fake;
mod folder;
#[cfg(feature = "genai")]
mod genai;
mod llm;
mod looping;
mod made;
#[cfg(all(unix, feature = "mcp"))]
mod mcp;
mod meta;
mod model;
mod output;
mod permission;
#[cfg(all(unix, feature = "process"))]
mod process;
#[cfg(not(all(unix, feature = "process")))]
#[path = "process/absent.rs"]
mod process;
mod program;
mod prompt;
#[cfg(any(feature = "genai", all(unix, feature = "process")))]
mod secret;
mod team;
mod tool;
pub mod tools;
#[cfg(any(feature = "genai", all(unix, feature = "mcp")))]
mod web;

pub use crate::messages::Effect;
pub use builtin::{BuiltIn, CapabilityGap};
pub use callboard_documents::{Defect, Defects};
pub use catalog::{CallPolicy, Chosen, ModelChoice, ModelEntry, Models, ModelsError, Prices};
pub use definition::{Definition, DefinitionReader, DefinitionSource, ProcessSettings};
pub use fake::FakeModel;
pub use folder::{AgentFolder, CatalogFile, FileChange, FileReport, FolderError};
#[cfg(feature = "genai")]
pub use genai::{GenaiModel, ProviderError, Timeouts};
pub use llm::{DefinitionError, LlmAgent, Teammate};
pub use looping::{AgentLoop, CancelToken, LoopContext, LoopHandle, LoopRun, NotPending};
#[cfg(all(unix, feature = "mcp"))]
pub use mcp::{McpProblem, McpServers};
pub use meta::MetaTool;
pub use model::{Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};
pub use output::OutputSchema;
pub use permission::Tier;
#[cfg(all(unix, feature = "process"))]
pub use process::ProcessAgent;
#[cfg(all(target_os = "linux", feature = "process"))]
pub use process::{is_program_of_board, reap_orphans};
pub use prompt::Section;
#[cfg(any(feature = "genai", all(unix, feature = "process")))]
pub use secret::Secret;
pub use team::Team;
pub use tool::{
    Tool, ToolError, ToolFailure, ToolOutput, ToolScope, ToolSpec, Tools, ToolsError, USUAL_OUTPUT, USUAL_TIMEOUT,
    of_spec, tool,
};
