//! Workflows: their check, their order, what their nodes see, and their pictures.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod compared;
mod defects;
mod drawing;
mod patterns;
mod runs;
mod teams;
mod traps;
mod workflows;
