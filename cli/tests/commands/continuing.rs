//! Runs that have ended and are continued or looked at: real processes, with a model on this machine or with programs.

#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::model::Model;
use serde_json::Value;
use tempfile::TempDir;

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
    }
}

impl Said {
    /// The command line after these words on standard error.
    fn line(&self, before: &str) -> &str {
        let line = self.error.lines().find_map(|line| line.strip_prefix(before));
        line.unwrap_or_else(|| panic!("{before:?} is not printed: {}", self.error))
    }
}

fn said(folder: &Path, mut command: Command) -> Said {
    command.current_dir(folder).stdin(Stdio::null()).env("USER", "ann");
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.output().unwrap().into()
}

fn callboard(folder: &TempDir, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.args(arguments);
    said(folder.path(), command)
}

/// Runs a line as a person does who has copied it.
fn typed(folder: &TempDir, line: &str) -> Said {
    let mut shell = Command::new("sh");
    let callboard = Path::new(env!("CARGO_BIN_EXE_callboard"));
    let path = format!("{}:{}", callboard.parent().unwrap().display(), std::env::var("PATH").unwrap());
    shell.args(["-c", line]).env("PATH", path);
    said(folder.path(), shell)
}

/// A folder with an agent, and the model that it asks.
fn writer() -> (TempDir, Model) {
    let model = Model::start();
    (model.folder("[agent]\nname = \"writer\"\n[agent.capabilities]\nallowed_tools = []\n"), model)
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {} {}", said.out, said.error))
}

const HIGHER: &str = "to do turn 1 again with a higher limit, in a new run: ";

#[test]
fn a_run_that_failed_by_a_limit_prints_the_line_that_continues_it_with_a_higher_one() {
    let (folder, model) = writer();
    let limits = r#"{"tokens": 10, "handoffs": 7}"#;
    let failed = callboard(&folder, &["run", "write", "--limits", limits, "--store", "data"]);
    assert_eq!((failed.code, &*failed.out), (Some(1), ""), "{}", failed.error);
    let line = failed.line(HIGHER);
    assert!(line.contains(" --limits '{\"tokens\":"), "{line}");
    model.says("written");
    let again = typed(&folder, line);
    assert_eq!((again.code, &*again.out), (Some(0), "written\n"), "{}", again.error);
    let shown = json(&callboard(&folder, &["runs", "show", "@last", "--store", "data", "--json"]));
    let limits = &shown["submission"]["task"]["limits"];
    assert_eq!(limits["handoffs"], 7, "what is not named stays: {limits}");
    assert!(line.contains(&format!("{{\"tokens\":{}}}", limits["tokens"])), "{line}: {limits}");
}

#[test]
fn a_workflow_that_failed_by_a_limit_prints_the_line_that_continues_it_with_a_higher_one() {
    let (folder, model) = writer();
    fs::write(folder.path().join("limits.json"), "{\"tokens\": 10}\n").unwrap();
    let run =
        ["workflow", "run", "--line", "first -> writer", "--agents", "agents", "--agent", "first=echo first >> log"];
    let failed = callboard(&folder, &[&run[..], &["--limits", "@limits.json", "--store", "data"]].concat());
    assert_eq!((failed.code, &*failed.out), (Some(1), ""), "{}", failed.error);
    let line = failed.line("to do turn 2 again with a higher limit, in a new run: ");
    model.says("written");
    let again = typed(&folder, line);
    assert_eq!((again.code, &*again.out), (Some(0), "written\n"), "{}", again.error);
    assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap(), "first\n", "what had ended does not run again");
}

#[test]
fn a_workflow_that_failed_prints_the_line_that_does_the_failed_node_again() {
    let folder = tempfile::tempdir().unwrap();
    let limits = r#"{"attempts": 1}"#;
    let agent = "a=cat there";
    let run = ["workflow", "run", "--line", "a", "--agent", agent, "--limits", limits, "--store", "data"];
    let failed = callboard(&folder, &run);
    assert_eq!(failed.code, Some(1), "{}", failed.error);
    let line = failed.line("to do turn 1 again, in a new run: ").to_owned();
    fs::write(folder.path().join("there"), "well").unwrap();
    let again = typed(&folder, &line);
    assert_eq!((again.code, &*again.out), (Some(0), "well\n"), "{line}: {}", again.error);
    let ended = callboard(&folder, &["workflow", "retry", "@last", "--store", "data", "--agent", agent]);
    let line = "no turn of it has failed; `callboard workflow resume ";
    assert!(ended.code == Some(2) && ended.error.contains(line), "{}", ended.error);
}

#[test]
fn limits_below_what_was_used_and_limits_of_a_run_that_is_resumed_are_refused_with_what_works() {
    let (folder, _model) = writer();
    let run = ["run", "look", "--to", "complexity", "--model", "fake", "--store", "data"];
    assert_eq!(callboard(&folder, &run).code, Some(1));
    let told = |arguments: &[&str], says: &str| {
        let said = callboard(&folder, &[arguments, &["@last", "--store", "data"]].concat());
        assert!(said.code == Some(2) && said.error.contains(says), "{arguments:?}: {:?} {}", said.code, said.error);
    };
    let low = r#"{"tokens": 1}"#;
    told(&["run", "--model", "fake", "--limits", low, "--retry"], " tokens, and --limits allows 1: give it ");
    told(
        &["workflow", "retry", "--agents", "agents", "--model", "fake", "--limits", low],
        "and --limits allows 1: give it ",
    );
    told(&["run", "--limits", "auto", "--retry"], "with --retry name simple, medium or complex, or figures");
    told(&["run", "--limits", "simple", "--resume"], "callboard run --retry @last --limits … continues it");
    told(&["workflow", "resume", "--limits", "simple"], "callboard workflow retry @last --limits … continues it");
}

#[test]
fn the_result_of_a_run_that_has_ended_is_printed_without_its_agents_and_without_a_model() {
    let (folder, model) = writer();
    model.says("written");
    let ended = callboard(&folder, &["run", "write", "--store", "data"]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    let failed = callboard(&folder, &["run", "x", "--to", "complexity", "--model", "fake", "--store", "failed"]);
    let why = failed.error.lines().find(|line| line.starts_with("error: ")).unwrap();
    fs::remove_dir_all(folder.path().join("agents")).unwrap();
    fs::remove_file(folder.path().join("models.toml")).unwrap();

    let again = callboard(&folder, &["run", "--resume", "@last", "--store", "data"]);
    assert_eq!((again.code, &*again.out), (Some(0), "written\n"), "{}", again.error);
    assert!(again.error.contains(" has ended already"), "{}", again.error);
    let again = callboard(&folder, &["run", "--resume", "@last", "--store", "data", "--json", "--quiet"]);
    assert_eq!((json(&again)["output"].as_str(), &*again.error), (Some("written"), ""));
    let again = callboard(&folder, &["run", "--resume", "@last", "--store", "failed"]);
    assert!(again.code == Some(1) && again.error.contains(why), "{why}: {}", again.error);
    again.line("to do turn 1 again, in a new run: callboard run --retry ");
}
