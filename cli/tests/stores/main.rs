//! Stores of runs, and the commands that read and write them: real processes on stores that these tests read and write too.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod boards;
#[path = "../../../tests/campaigns/mod.rs"]
mod campaigns;
mod database;
mod disks;
mod facts;
mod fork;
mod frozen;
#[cfg(target_os = "linux")]
mod holders;
mod inspect;
mod missing;
#[path = "../../../crates/callboard-postgres/tests/support/mod.rs"]
mod postgres;
mod project;
mod rows;
#[path = "../support/mod.rs"]
mod support;
