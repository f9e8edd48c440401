//! The channel for Matrix, against a server on this machine that speaks as a homeserver does.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod attacks;
mod conformance;
mod failures;
mod fake;
#[path = "../support/logs.rs"]
mod logs;
mod messages;
mod rooms;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/common/skipping.rs"]
mod skipping;
#[cfg(target_os = "linux")]
mod synapse;
mod team;
