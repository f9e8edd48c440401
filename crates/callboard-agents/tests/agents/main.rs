//! Kinds of agents: those that use a model, their files, their conversations, the models of providers, and what hostile texts try
//! on them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agent_loop;
mod builtin_agents;
#[path = "../../../../tests/common/mod.rs"]
mod common;
mod conversations;
mod definitions;
mod hostile;
mod made_agents;
mod memory;
#[cfg(feature = "genai")]
mod models;
mod reloading;
mod roles;
mod thinking;
