//! Tests that cannot run on a machine.

use std::io::Write as _;

/// Reports that a test cannot run on this machine, so that it does not count as passed unseen: `cargo xtask test` lists those
/// tests. On CI every test has to run.
///
/// # Panics
/// On CI.
pub(crate) fn skip(why: &str) {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    assert!(!is_set("CI") && !is_set("CALLBOARD_CI"), "it cannot run: {why}");
    let thread = std::thread::current();
    let test = std::env::var("NEXTEST_TEST_NAME").ok().or(thread.name().map(str::to_owned)).unwrap_or_default();
    let line = format!("{test}: {why}\n");
    // Not by `eprintln!`, which the runner keeps to itself where a test passes.
    let _ = write!(std::io::stderr(), "SKIPPED, nothing was tested: {line}");
    if let Some(list) = std::env::var_os("CALLBOARD_SKIPPED") {
        let list = std::fs::OpenOptions::new().create(true).append(true).open(list);
        list.unwrap().write_all(line.as_bytes()).unwrap();
    }
}
