//! What the commands of `callboard` print and do: real processes and real files.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
#[path = "../../../tests/common/browser.rs"]
#[allow(dead_code, reason = "it is used by the tests of the server too")]
mod browser;
mod config;
mod conversations;
#[cfg(unix)]
mod dashboard;
mod docs;
#[cfg(unix)]
mod email;
mod inbox;
mod invalid_agents;
mod knowledge;
mod matrix;
mod mcp;
mod packaging;
mod patterns;
mod programs;
mod protection;
mod publishing;
mod reload;
mod resume_and_retry;
mod schedules;
mod service;
mod signals;
#[path = "../../../tests/common/skipping.rs"]
mod skipping;
#[path = "../support/mod.rs"]
mod support;
mod telegram;
mod usage;
mod waits;
mod watching;
mod webhooks;
mod workflows;
