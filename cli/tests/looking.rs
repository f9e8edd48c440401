//! `callboard runs list|show|replay`: what people see, and what machines read.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{callboard, make_store};

#[test]
fn look() {
    let folder = tempfile::tempdir().unwrap();
    let runs = make_store(folder.path());
    for arguments in [
        vec!["list"],
        vec!["show", &runs.printed.to_string()],
        vec!["show", &runs.too_short.to_string()],
        vec!["show", &runs.waiting.to_string()],
        vec!["show", &runs.judged.to_string()],
        vec!["replay", &runs.printed.to_string()],
        vec!["replay", &runs.judged.to_string()],
        vec!["replay", &runs.printed.to_string(), "--turn", "3"],
        vec!["replay", &runs.waiting.to_string(), "--step"],
        vec!["show", "77"],
        vec!["show", "0"],
    ] {
        let said = callboard(folder.path(), &arguments);
        println!("$ {arguments:?} -> {}\n{}{}", said.code, said.out, said.error);
    }
}
