//! Kinds of agent for [`callboard`]: those that think with a language model and use tools, and those that are other
//! programs.
//!
//! - [`Definition`] reads an agent from a file of TOML, [`LlmAgent`] runs it with a [`Model`] and [`Tools`], and
//!   [`AgentFolder`] keeps the agents of a board as the files of a folder say. [`AgentLoop`] is the loop by itself.
//! - [`tools`] has tools for files, searches, pages, commands and the shared context; each use is within what
//!   people permit.
//! - `ProcessAgent` (feature `process`) runs a program in any language, and `McpServers` (feature `mcp`) brings the tools of
//!   servers that speak the Model Context Protocol.
//! - [`Models`] are what agents think with; `GenaiModel` (feature `genai`) asks a provider, [`FakeModel`] nobody.
//!
//! ```
//! use callboard::prelude::*;
//! use callboard_agents::prelude::*;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let definition = Definition::from_toml("poet.toml", "[agent]\nname = \"poet\"\nsystem_prompt = \"Write a line.\"")?;
//! let poet = LlmAgent::new(&definition, std::sync::Arc::new(FakeModel), &Tools::new(), &[])?;
//! let board = Callboard::builder().with(poet.spec()).start().await?;
//! let run = board.submit(Task::new("A line about autumn, please.")).await?;
//! assert!(run.result().await?.output.to_string().contains("autumn"));
//! # board.shutdown().await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod briefing;
mod builtin_agents;
mod catalog;
mod compaction;
mod definition;
mod dynamic;
mod fake;
mod folder;
#[cfg(feature = "genai")]
mod genai;
mod llm;
mod looping;
#[cfg(all(unix, feature = "mcp"))]
mod mcp;
mod meta;
mod model;
mod output;
mod permission;
mod prices;
#[cfg(all(unix, feature = "process"))]
mod process;
#[cfg(not(all(unix, feature = "process")))]
#[path = "process/absent.rs"]
mod process;
mod program;
mod prompt;
mod reload;
mod roles;
#[cfg(any(feature = "genai", all(unix, feature = "process")))]
mod secret;
mod team;
mod teammate;
#[cfg(feature = "testing")]
pub mod testing;
mod tool;
pub mod tools;
#[cfg(any(feature = "genai", all(unix, feature = "mcp")))]
mod web;

pub use builtin_agents::{BuiltIn, CapabilityGap};
pub use callboard::messages::Effect;
pub use callboard_documents::{Defect, Defects};
pub use catalog::{CallPolicy, Chosen, ModelChoice, ModelEntry, Models, ModelsError, Prices};
pub use definition::{Definition, DefinitionError, DefinitionReader, DefinitionSource, ProcessSettings};
pub use fake::FakeModel;
pub use folder::{AgentFolder, CatalogFile, FileChange, FileReport, FolderError, files_of_agents};
#[cfg(feature = "genai")]
pub use genai::{GenaiModel, ProviderError, Timeouts};
pub use llm::LlmAgent;
pub use looping::{AgentLoop, CancelToken, LoopContext, LoopHandle, LoopRun, NotPending};
#[cfg(all(unix, feature = "mcp"))]
pub use mcp::{McpProblem, McpServers};
pub use meta::MetaTool;
pub use model::{Model, ModelAnswer, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream, StopReason};
pub use output::OutputSchema;
pub use permission::Tier;
#[cfg(all(unix, feature = "process"))]
pub use process::{
    ProcessAgent, ProgramSocket, can_hide_from_programs, hide_folder_from_programs, hide_from, hide_from_programs,
    is_exposed_to_programs,
};
#[cfg(all(target_os = "linux", feature = "process"))]
pub use process::{is_program_of_board, reap_orphans};
pub use prompt::Section;
pub use reload::Reload;
pub use roles::Roles;
#[cfg(any(feature = "genai", all(unix, feature = "process")))]
pub use secret::Secret;
pub use team::Team;
pub use teammate::Teammate;
pub use tool::{
    Asker, Tool, ToolError, ToolFailure, ToolOutput, ToolScope, ToolSpec, Tools, ToolsError, USUAL_OUTPUT,
    USUAL_TIMEOUT, of_spec, tool,
};

/// What most programs with such agents need, beside the prelude of `callboard`.
pub mod prelude {
    #[cfg(feature = "genai")]
    pub use crate::GenaiModel;
    #[cfg(all(unix, feature = "mcp"))]
    pub use crate::McpServers;
    #[cfg(all(unix, feature = "process"))]
    pub use crate::ProcessAgent;
    pub use crate::{
        AgentFolder, AgentLoop, BuiltIn, Definition, Effect, FakeModel, LlmAgent, Model, Models, Reload, Team, Tier,
        Tool, Tools, tool,
    };
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/tools.md")]
struct ToolGuide;

#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/agents.md")]
struct AgentGuide;

#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/together.md")]
struct TogetherGuide;

#[cfg(all(doctest, unix, feature = "mcp"))]
#[doc = include_str!("../../../docs/mcp.md")]
struct McpGuide;

#[cfg(all(doctest, feature = "genai"))]
#[doc = include_str!("../../../docs/models.md")]
struct ModelGuide;

#[cfg(all(doctest, unix, feature = "process"))]
#[doc = include_str!("../../../docs/process-agents.md")]
struct ProcessAgentGuide;
