//! A project with a model, a state folder of its own, and the program in it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part of it; a test may panic")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::model::Model;

/// A project with a model, and a state folder.
pub(crate) struct Place {
    pub(crate) project: TempDir,
    pub(crate) state: TempDir,
    pub(crate) model: Model,
}

/// What the program printed, with its exit code; none if a signal has ended it.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let model = Model::start();
        let project = model.folder("[agent]\nname = \"writer\"\n");
        Self { project, state: tempfile::tempdir().unwrap(), model }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
        command.args(arguments).current_dir(&self.project).env("XDG_STATE_HOME", self.state.path());
        command.env_remove("CALLBOARD_STORE").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn said(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments))
    }

    /// Runs a task that the model answers with the same words, and returns the run's id as it was printed.
    pub(crate) fn run(&self, words: &str) -> String {
        self.run_with(words, &[])
    }

    /// As [`Place::run`], with more arguments.
    pub(crate) fn run_with(&self, words: &str, arguments: &[&str]) -> String {
        self.model.says(words);
        let said = self.said(&[&["run", words], arguments].concat());
        self.model.asked();
        assert_eq!((said.code, said.out), (Some(0), format!("{words}\n")), "{}", said.error);
        said.error.lines().find_map(|line| line.strip_prefix("run ")).unwrap().to_owned()
    }

    /// The project's folder in the state folder.
    pub(crate) fn stores(&self) -> PathBuf {
        let mut projects = fs::read_dir(self.state.path().join("callboard")).unwrap();
        let only = projects.next().unwrap().unwrap().path();
        assert!(projects.next().is_none());
        only
    }
}

pub(crate) fn said(mut command: Command) -> Said {
    printed(command.output().unwrap())
}

pub(crate) fn ended(child: Child) -> Said {
    printed(child.wait_with_output().unwrap())
}

fn printed(output: Output) -> Said {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

/// What the runs of a list in JSON are about.
pub(crate) fn tasks(listed: &Said) -> Vec<String> {
    let rows: Vec<Value> = serde_json::from_str(&listed.out).unwrap();
    rows.iter().filter_map(|row| row["task"].as_str().map(str::to_owned)).collect()
}
