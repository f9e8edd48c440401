//! What chores and tests share: which file imports an item of which other file, and the corpus with which searches are measured.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod commands;
pub mod corpus;
pub mod imports;

#[cfg(test)]
mod links;
