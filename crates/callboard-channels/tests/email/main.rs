//! The channel of mail, against a server on this machine that speaks SMTP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod attacks;
mod conformance;
mod failures;
mod fake;
#[path = "../support/logs.rs"]
mod logs;
mod messages;
mod mime;
mod team;
