//! Runs the examples as processes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Longer than any example takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// An example, built from what is there now. It is killed if the test lets go of it.
pub(crate) fn example(name: &str) -> Command {
    static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    built(&BUILT.get_or_init(build)[name])
}

/// A program that is built already. It is killed if the test lets go of it.
pub(crate) fn built(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Builds all examples and finds out where they are. `cargo test` builds those only that have no tests of their own, and
/// `cargo test --test …` builds none.
fn build() -> BTreeMap<String, PathBuf> {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    // With the features of the whole workspace, as the tests were built: nothing is built twice.
    cargo.args(["build", "--workspace", "--examples", "--message-format=json-render-diagnostics"]);
    cargo.args((!cfg!(debug_assertions)).then_some("--release"));
    // The variables by which cargo describes the package of this test: build scripts of dependencies read variables of these names, so cargo would
    // build those again, and with them most of the workspace.
    let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_package)) {
        cargo.env_remove(name);
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success(), "the examples cannot be built");
    let messages =
        built.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let executable = |message: Value| {
        let path = PathBuf::from(message["executable"].as_str()?);
        Some((message["target"]["name"].as_str()?.to_owned(), path))
    };
    messages.filter_map(executable).collect()
}

/// Runs to the end, with this input.
pub(crate) async fn output(mut command: Command, input: &str) -> Ended {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A process that has ended already reads nothing.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let ended = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
    Ended(ended.expect("the process does not end").unwrap())
}

/// A process that has ended.
pub(crate) struct Ended(Output);

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Everything that it printed, for messages of failing tests.
    pub(crate) fn reported(&self) -> String {
        format!("exit {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code(), self.stdout(), self.stderr())
    }
}
