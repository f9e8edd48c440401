//! What needs processes of its own: tests that start their own binary in another role, are killed, own a terminal, measure a process
//! or run the examples.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod alone;
#[path = "../campaigns/mod.rs"]
mod campaigns;
#[cfg(feature = "sled")]
#[path = "../charges/mod.rs"]
mod charges;
#[path = "../common/mod.rs"]
mod common;
mod compile_errors;
mod examples;
mod kill;
mod killed_stores;
mod overload;
mod powercut;
mod processes;
#[path = "../screen/mod.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod screen;
mod simulated_panics;
mod terminal;
mod terminal_rules;
