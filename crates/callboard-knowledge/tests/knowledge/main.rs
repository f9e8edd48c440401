//! A base of facts, from outside.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod facts;
mod intents;
mod policy;
mod search;
mod support;
mod tools;
mod upkeep;
