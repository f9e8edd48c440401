//! What chores and tests read from source code: which file imports an item of which other file.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod imports;

#[cfg(test)]
mod links;
