//! The supervision tree, and runs: their rules against a model, and what becomes of them when parts of the system fail.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod board_children;
#[path = "../campaigns/mod.rs"]
mod campaigns;
#[path = "../common/mod.rs"]
mod common;
mod crashes;
mod dead_letters;
mod engine;
mod faults;
mod recovery;
mod replay;
mod resuming;
mod tree;
