//! What needs processes of its own: tests that start their own binary in another role, measure a process or adopt what others
//! leave.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../../tests/process/alone.rs"]
mod alone;
#[path = "../../../../tests/common/mod.rs"]
mod common;
mod endless_servers;
mod hiding;
#[cfg(target_os = "linux")]
mod ordinary_user;
#[cfg(all(unix, feature = "mcp"))]
#[path = "../programs/outside.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod outside;
#[cfg(all(unix, feature = "mcp"))]
#[path = "../programs/mcp/peers.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod peers;
mod reaping;
mod sandbox;
