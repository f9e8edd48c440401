//! `callboard` on a pseudo-terminal.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../model/mod.rs"]
mod model;
mod people;
#[cfg(unix)]
#[path = "../../../tests/screen/mod.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod screen;
mod terminal;
