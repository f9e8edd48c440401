//! `callboard` on a pseudo-terminal.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod dialog;
mod knowledge;
mod newcomer;
#[path = "../../../tests/screen/mod.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod screen;
#[path = "../support/mod.rs"]
mod support;
mod terminal;

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use screen::Screen;

/// The last choices of each card.
const CHOICES: &str = "(n)o, and why; (l)eave it waiting? ";

/// `callboard ARGUMENTS` in the folder, on a terminal.
fn screen(folder: &TempDir, arguments: &[&str]) -> Screen {
    Screen::of(command(folder, arguments))
}

/// `callboard ARGUMENTS` in the folder, without colours.
fn command(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = support::command(folder, arguments);
    command.env("NO_COLOR", "1");
    command
}

/// The arguments of a call of FileWrite.
fn file(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content })
}
