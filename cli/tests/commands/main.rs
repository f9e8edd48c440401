//! What people and programs are shown by the commands of `callboard`: real processes and real files.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod continuing;
mod conversations;
mod left_out;
mod mcp;
#[path = "../model/mod.rs"]
mod model;
#[path = "../place/mod.rs"]
mod place;
mod programs;
mod stopping;
mod together;
mod usage;
mod workflows;
