//! A `callboard` that runs beside a test.

use std::borrow::BorrowMut;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Printed, ended};

/// A process whose output is in pipes.
pub(crate) struct Running {
    pub(crate) process: Child,
    pub(crate) errors: BufReader<ChildStderr>,
}

impl Running {
    pub(crate) fn start(mut command: impl BorrowMut<Command>) -> Self {
        let command: &mut Command = command.borrow_mut();
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(process.stderr.take().unwrap());
        Self { process, errors }
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits until the process handles a signal.
    pub(crate) fn until_handled(&self, signal: Signal) {
        let status = format!("/proc/{}/status", self.process.id());
        let handles = |status: String| {
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            caught
                .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
                .is_some_and(|set| set >> (signal.as_raw() - 1) & 1 == 1)
        };
        while !std::fs::read_to_string(&status).is_ok_and(handles) {
            std::thread::yield_now();
        }
    }

    /// Reads lines of standard error until they have this text, and returns them.
    pub(crate) fn until(&mut self, expected: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(expected) {
            assert!(self.errors.read_line(&mut seen).unwrap() > 0, "{expected:?} is not printed: {seen}");
        }
        seen
    }

    /// Waits for its end. Of standard error there is what was not read yet.
    pub(crate) fn ended(mut self) -> Printed {
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).unwrap();
        Printed { error: rest, ..ended(self.process) }
    }
}
