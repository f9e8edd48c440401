//! Processes that a campaign starts and kills: this test binary again, which runs one test in a role.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

const ROLE: &str = "CALLBOARD_CHILD_ROLE";
const FOLDER: &str = "CALLBOARD_CHILD_FOLDER";

/// Starts the test `name`, which is none, in a role.
pub(crate) fn spawn(name: &str, role: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--quiet"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The role and the folder of this process, if a campaign has started it.
pub(crate) fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(FOLDER).map(PathBuf::from)?))
}

/// A runtime for the work of a child.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Kills the child once it has printed so many lines that count. The pipe keeps what it wrote before.
pub(crate) fn kill_after(mut child: Child, lines: usize, mut counts: impl FnMut(&str) -> bool) -> ExitStatus {
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        if counts(&line.unwrap()) {
            seen += 1;
            if seen == lines {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap()
}

/// Writes the lines to the child, and returns what it prints until it ends.
pub(crate) fn answers(mut child: Child, lines: Vec<String>) -> Vec<String> {
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || lines.iter().for_each(|line| writeln!(stdin, "{line}").unwrap()));
    let answers = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    feeder.join().unwrap();
    child.wait().unwrap();
    answers
}
