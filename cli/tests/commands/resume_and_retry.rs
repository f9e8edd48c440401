//! Runs that are resumed or retried: real processes, with a model on this machine or with programs.

#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::agents::agent;
use crate::support::model::Model;
use crate::support::{CALLBOARD, Printed, callboard, output_of};

/// Runs a line as a person does who has copied it.
fn typed(folder: &TempDir, line: &str) -> Printed {
    let mut shell = Command::new("sh");
    let path = format!("{}:{}", Path::new(CALLBOARD).parent().unwrap().display(), std::env::var("PATH").unwrap());
    shell.args(["-c", line]).env("PATH", path).env("USER", "ann").current_dir(folder);
    output_of(shell.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR")))
}

/// A folder with an agent, and its model.
fn writer() -> (TempDir, Model) {
    let model = Model::start();
    (model.folder(&agent("writer")), model)
}

const HIGHER: &str = "to retry turn 1 with a higher limit, in a new run: ";

#[test]
fn a_run_that_failed_by_a_limit_prints_the_command_line_that_retries_it_with_a_higher_one() {
    let (folder, model) = writer();
    let limits = r#"{"tokens": 10, "handoffs": 7}"#;
    let failed = callboard(&folder, &["run", "write", "--limits", limits, "--store", "data"]);
    assert_eq!((failed.code, &*failed.out), (Some(1), ""), "{}", failed.error);
    let line = failed.line(HIGHER);
    assert!(line.contains(" --limits '{\"tokens\":"), "{line}");
    model.answers("written");
    let again = typed(&folder, line);
    assert_eq!((again.code, &*again.out), (Some(0), "written\n"), "{}", again.error);
    let shown = callboard(&folder, &["runs", "show", "@last", "--store", "data", "--json"]).json();
    let limits = &shown["submission"]["task"]["limits"];
    assert_eq!(limits["handoffs"], 7, "limits that are not named stay the same: {limits}");
    assert!(line.contains(&format!("{{\"tokens\":{}}}", limits["tokens"])), "{line}: {limits}");
}

#[test]
fn a_workflow_that_failed_by_a_limit_prints_the_command_line_that_retries_it_with_a_higher_one() {
    let (folder, model) = writer();
    fs::write(folder.path().join("limits.json"), "{\"tokens\": 10}\n").unwrap();
    let run =
        ["workflow", "run", "--line", "first -> writer", "--agents", "agents", "--agent", "first=echo first >> log"];
    let failed = callboard(&folder, &[&run[..], &["--limits", "@limits.json", "--store", "data"]].concat());
    assert_eq!((failed.code, &*failed.out), (Some(1), ""), "{}", failed.error);
    let line = failed.line("to retry turn 2 with a higher limit, in a new run: ");
    model.answers("written");
    let again = typed(&folder, line);
    assert_eq!((again.code, &*again.out), (Some(0), "written\n"), "{}", again.error);
    assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap(), "first\n", "finished nodes do not run again");
}

#[test]
fn a_workflow_that_failed_prints_the_command_line_that_retries_the_failed_node() {
    let folder = tempfile::tempdir().unwrap();
    let limits = r#"{"attempts": 1}"#;
    let agent = "a=cat there";
    let run = ["workflow", "run", "--line", "a", "--agent", agent, "--limits", limits, "--store", "data"];
    let failed = callboard(&folder, &run);
    assert_eq!(failed.code, Some(1), "{}", failed.error);
    let line = failed.line("to retry turn 1, in a new run: ").to_owned();
    fs::write(folder.path().join("there"), "well").unwrap();
    let again = typed(&folder, &line);
    assert_eq!((again.code, &*again.out), (Some(0), "well\n"), "{line}: {}", again.error);
    let ended = callboard(&folder, &["workflow", "retry", "@last", "--store", "data", "--agent", agent]);
    let line = "no turn of it has failed; `callboard workflow resume ";
    assert!(ended.code == Some(2) && ended.error.contains(line), "{}", ended.error);
}

#[test]
fn limits_below_the_used_tokens_and_limits_of_a_resumed_run_are_refused_with_a_remedy() {
    let (folder, _model) = writer();
    let run = ["run", "look", "--to", "complexity", "--model", "fake", "--store", "data"];
    assert_eq!(callboard(&folder, &run).code, Some(1));
    let refused = |arguments: &[&str], why: &str| {
        let printed = callboard(&folder, &[arguments, &["@last", "--store", "data"]].concat());
        assert!(
            printed.code == Some(2) && printed.error.contains(why),
            "{arguments:?}: {:?} {}",
            printed.code,
            printed.error
        );
    };
    let low = r#"{"tokens": 1}"#;
    refused(&["run", "--model", "fake", "--limits", low, "--retry"], " tokens, and --limits allows 1: give it ");
    refused(
        &["workflow", "retry", "--agents", "agents", "--model", "fake", "--limits", low],
        "and --limits allows 1: give it ",
    );
    refused(&["run", "--limits", "auto", "--retry"], "with --retry name simple, medium or complex, or single limits");
    refused(&["run", "--limits", "simple", "--resume"], "callboard run --retry @last --limits … continues it");
    refused(&["workflow", "resume", "--limits", "simple"], "callboard workflow retry @last --limits … continues it");
}

#[test]
fn the_result_of_a_run_that_has_ended_is_printed_without_its_agents_and_without_a_model() {
    let (folder, model) = writer();
    model.answers("written");
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
    assert_eq!((again.json()["output"].as_str(), &*again.error), (Some("written"), ""));
    let again = callboard(&folder, &["run", "--resume", "@last", "--store", "failed"]);
    assert!(again.code == Some(1) && again.error.contains(why), "{why}: {}", again.error);
    again.line("to retry turn 1, in a new run: callboard run --retry ");
}
