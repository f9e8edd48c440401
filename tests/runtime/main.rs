//! A board as a whole: who may call it, how it starts and stops, and what people see of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod callers;
#[path = "../common/mod.rs"]
mod common;
mod completing;
mod seeing;
mod shared_conversations;
mod shutdown;
