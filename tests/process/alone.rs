//! Tests that need a process to themselves, also where tests of one binary share one.

use std::env;
use std::process::{Command, Stdio};

/// Names the one test that a process was started for.
const ALONE: &str = "CALLBOARD_TEST_ALONE";

/// Whether nothing else runs in this process. If something may, the test of this name is run in a process of its own first, and
/// the caller has nothing left to do.
///
/// # Panics
/// If it fails there.
pub(crate) fn is_alone(test: &str) -> bool {
    let is_set_to = |name: &str, value: &str| env::var_os(name).is_some_and(|found| found == value);
    if is_set_to(ALONE, test) || is_set_to("NEXTEST_EXECUTION_MODE", "process-per-test") {
        return true;
    }
    let mut process = Command::new(env::current_exe().unwrap());
    process.args([test, "--exact", "--nocapture"]).env(ALONE, test).stdin(Stdio::null());
    let output = process.output().unwrap();
    let printed = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat();
    println!("{printed}");
    assert!(output.status.success() && printed.contains("1 passed"), "{test} failed in a process of its own");
    false
}
