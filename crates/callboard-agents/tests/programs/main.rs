//! Other programs: as agents, as servers of tools, and what tools may do to the files and the processes of this machine.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../../tests/common/mod.rs"]
mod common;
mod declared_programs;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(unix)]
mod outside;
mod process_agents;
mod tool_confinement;
mod turn_socket;
