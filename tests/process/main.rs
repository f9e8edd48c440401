//! What needs processes of its own: tests that start their own binary in another role, are killed, own a terminal, measure a process
//! or run the examples.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod alone;
#[path = "../campaigns/mod.rs"]
mod campaigns;
#[path = "../common/mod.rs"]
mod common;
mod compile_errors;
mod endless_servers;
mod examples;
mod kill;
mod killed_stores;
mod overload;
#[cfg(all(unix, feature = "mcp"))]
#[path = "../programs/mcp/peers.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod peers;
mod powercut;
mod processes;
mod reaping;
mod review;
mod sandbox;
#[path = "../screen/mod.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod screen;
mod simulated_panics;
mod terminal;
