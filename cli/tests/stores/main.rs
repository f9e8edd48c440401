//! Where runs are kept and what the commands make of it: real processes on stores that these tests write and read as well.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod disks;
mod forking;
mod looking;
#[path = "../model/mod.rs"]
mod model;
#[path = "../place/mod.rs"]
mod place;
mod stores;
