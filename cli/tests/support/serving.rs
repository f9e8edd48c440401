//! A `callboard serve` that runs beside a test.

use std::io::{BufRead as _, BufReader};
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use super::project::Project;
use super::{Killed, Printed, ended};

/// A server that runs beside a test, and is killed if the test fails.
pub(crate) struct Serving {
    pub(crate) process: Option<Child>,
    /// The first line that it printed.
    pub(crate) line: String,
}

impl Serving {
    pub(crate) fn start(project: &Project) -> Self {
        Self::start_with(project, &[])
    }

    pub(crate) fn start_with(project: &Project, options: &[&str]) -> Self {
        let listen: &[&str] = if options.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let command = [&["serve"], listen, options].concat();
        let mut process = project.command(&command).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            panic!("it does not serve: {}", ended(process).error);
        }
        Self { process: Some(process), line }
    }

    pub(crate) fn stop(mut self) -> Printed {
        let process = self.process.take().unwrap();
        kill_process(Pid::from_child(&process), Signal::INT).unwrap();
        ended(process)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            drop(Killed(process));
        }
    }
}

/// Sends a task to the writer, and returns the run's short id.
pub(crate) fn sent(project: &Project, task: &str) -> String {
    let printed = project.callboard(&["send", "writer", task]);
    assert_eq!((printed.code, &*printed.error), (Some(0), "acknowledged by writer\n"), "{}", printed.out);
    let id = printed.out.trim_end();
    assert_eq!((id.len(), &id[..4]), (16, "req-"), "{id}");
    id.to_owned()
}

impl Serving {
    /// The address that it listens on, without `http://`.
    pub(crate) fn address(&self) -> &str {
        self.line.trim_end().rsplit_once("http://").unwrap().1
    }
}
