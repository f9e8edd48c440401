//! The channel of signed webhooks, against a receiver on this machine.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod attacks;
mod conformance;
mod failures;
#[path = "../support/logs.rs"]
mod logs;
mod messages;
mod relay;
mod team;
