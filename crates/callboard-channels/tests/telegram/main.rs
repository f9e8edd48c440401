//! The channel for Telegram, against a server on this machine that speaks the Bot API.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod attacks;
mod conformance;
mod failures;
mod fake;
#[path = "../support/logs.rs"]
mod logs;
mod messages;
mod several_boards;
mod team;
