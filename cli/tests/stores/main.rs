//! Stores of runs, and the commands that read and write them: real processes on stores that these tests read and write too.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod disks;
mod fork;
mod inspect;
mod project;
#[path = "../support/mod.rs"]
mod support;
