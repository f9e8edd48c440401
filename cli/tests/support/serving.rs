//! A `callboard serve` that runs beside a test.

use std::borrow::BorrowMut;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

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
        Self::of(project.command(&[&["serve"], listen, options].concat()))
    }

    /// As [`Serving::start`], with so many descriptors at most.
    pub(crate) fn start_with_descriptors(project: &Project, most: u32) -> Self {
        let serve = project.command(&["serve", "--listen", "127.0.0.1:0"]);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\"")])
            .arg(serve.get_program())
            .args(serve.get_args());
        for (name, value) in serve.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.current_dir(serve.get_current_dir().unwrap());
        Self::of(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// The server that this command starts.
    pub(crate) fn of(mut command: impl BorrowMut<Command>) -> Self {
        let mut process = command.borrow_mut().spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            panic!("it does not serve: {}", ended(process).error);
        }
        Self { process: Some(process), line }
    }

    /// Reads standard error until it has this text.
    pub(crate) fn until(&mut self, expected: &str) {
        let errors = self.process.as_mut().unwrap().stderr.as_mut().unwrap();
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&seen).contains(expected) {
            assert!(
                errors.read(&mut byte).unwrap() > 0,
                "{expected:?} is not printed: {}",
                String::from_utf8_lossy(&seen)
            );
            seen.extend(byte);
        }
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
