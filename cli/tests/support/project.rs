//! A project with a model and a state folder of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::model::Model;
use super::{Printed, command, output_of};

/// A project with an agent, its model, and a state folder.
pub(crate) struct Project {
    pub(crate) folder: TempDir,
    pub(crate) state: TempDir,
    pub(crate) model: Model,
}

impl Project {
    pub(crate) fn new() -> Self {
        let model = Model::start();
        let folder = model.folder("[agent]\nname = \"writer\"\n");
        Self { folder, state: tempfile::tempdir().unwrap(), model }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.folder, arguments);
        command.env("XDG_STATE_HOME", self.state.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn callboard(&self, arguments: &[&str]) -> Printed {
        output_of(self.command(arguments))
    }

    /// Runs a task that the model answers with the same text, and returns the run's id as it was printed.
    pub(crate) fn run(&self, text: &str) -> String {
        self.run_with(text, &[])
    }

    /// As [`Project::run`], with more arguments.
    pub(crate) fn run_with(&self, text: &str, arguments: &[&str]) -> String {
        self.model.answers(text);
        let printed = self.callboard(&[&["run", text], arguments].concat());
        self.model.request();
        assert_eq!((printed.code, &*printed.out), (Some(0), &*format!("{text}\n")), "{}", printed.error);
        printed.line("run ").to_owned()
    }

    /// Starts a run, and kills its process once the model has received a request.
    pub(crate) fn run_killed(&self, arguments: &[&str]) {
        let mut process = self.command(arguments).spawn().unwrap();
        self.model.request();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// The folder with the stores of the project.
    pub(crate) fn stores(&self) -> PathBuf {
        let mut projects = fs::read_dir(self.state.path().join("callboard")).unwrap();
        let only = projects.next().unwrap().unwrap().path();
        assert!(projects.next().is_none());
        only
    }
}

/// The tasks of the runs in the output of `runs list --json`.
pub(crate) fn tasks(listed: &Printed) -> Vec<String> {
    let rows = listed.parsed::<Vec<serde_json::Value>>();
    rows.iter().filter_map(|row| row["task"].as_str().map(str::to_owned)).collect()
}
