//! Runs that are resumed or retried: real processes, with a model on this machine or with programs.

#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::agents::agent;
use crate::support::model::Model;
use crate::support::{CALLBOARD, Printed, callboard, output_of, short};

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
    assert_eq!(failed.error.matches("--limits").count(), 1, "it is printed once: {}", failed.error);
    let ephemeral = callboard(&folder, &["run", "write", "--limits", limits, "--ephemeral"]);
    let raised = line.split(" --limits ").nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(ephemeral.line("to run it with a higher limit: --limits "), raised);
    assert_eq!(ephemeral.error.matches("--limits").count(), 1, "{}", ephemeral.error);
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
    let line = "no turn of it has failed; to continue it, or to print its result: callboard workflow resume ";
    let options = " --store data --agent 'a=cat there'\n";
    assert!(ended.code == Some(2) && ended.error.contains(line) && ended.error.ends_with(options), "{}", ended.error);
}

#[test]
fn limits_below_the_used_tokens_and_limits_of_a_resumed_run_are_refused_with_a_remedy() {
    let (folder, _model) = writer();
    let run = ["run", "look", "--to", "complexity", "--model", "fake", "--store", "data"];
    assert_eq!(callboard(&folder, &run).code, Some(1));
    let workflow = ["workflow", "run", "--line", "complexity", "--input-json", "\"x\"", "--agents", "agents"];
    let run = [&workflow[..], &["--model", "fake", "--store", "flow"]].concat();
    assert_eq!(callboard(&folder, &run).code, Some(1));
    let refused = |arguments: &[&str], why: &str| {
        let store = if arguments[0] == "workflow" { "flow" } else { "data" };
        let printed = callboard(&folder, &[arguments, &["@last", "--store", store]].concat());
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
    let line = "continues it in a new run: callboard run --retry @last --limits … --store data --model fake\n";
    refused(&["run", "--model", "fake", "--limits", "simple", "--resume"], line);
    let line = "continues it in a new run: callboard workflow retry @last --limits … --store flow\n";
    refused(&["workflow", "resume", "--limits", "simple"], line);
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

/// The runs in the store `data`.
fn runs(folder: &TempDir) -> String {
    callboard(folder, &["runs", "list", "--json", "--store", "data"]).out
}

/// Starts a workflow of a program and of the folder's agent with the fake model.
fn workflow(folder: &TempDir, line: &str, arguments: &[&str]) -> Printed {
    let run =
        ["workflow", "run", "--line", line, "--agents", "agents", "--model", "fake", "--store", "data", "--no-input"];
    callboard(folder, &[&run, arguments].concat())
}

/// The short id of the last run.
fn last(folder: &TempDir) -> String {
    let listed = callboard(folder, &["runs", "list", "--json", "--store", "data"]).json();
    short(listed.as_array().unwrap().last().unwrap()["run"].as_str().unwrap())
}

const WAITS: &str = "first -> writer(interrupt=\"before\")";

#[test]
fn run_does_not_resume_a_run_of_a_workflow_and_prints_the_command_line_that_does() {
    let (folder, _model) = writer();
    let waits = workflow(&folder, WAITS, &["--agent", "first=echo one", "--conversation", "c"]);
    assert_eq!(waits.code, Some(5), "{}", waits.error);
    let (before, id) = (runs(&folder), last(&folder));
    let refused = callboard(&folder, &["run", "--resume", "@last", "--model", "fake", "--store", "data"]);
    assert_eq!((refused.code, &*refused.out), (Some(2), ""), "{}", refused.error);
    let lead =
        format!("error: run {id} is a run of the workflow workflow, which callboard run cannot resume; to resume it: ");
    let line = refused.line(&lead).to_owned();
    let flags = "--store data --agent first='COMMAND' --agents agents --model fake";
    assert_eq!(line, format!("callboard workflow resume {id} {flags}"));
    assert!(
        refused.error.ends_with("\nin place of COMMAND comes the program that is this agent\n"),
        "{}",
        refused.error
    );

    let conversing = callboard(&folder, &["run", "x", "--conversation", "c", "--model", "fake", "--store", "data"]);
    let has_line =
        conversing.error.contains(&format!("to continue it: callboard workflow resume {id} {flags}; to remove it"));
    assert!(conversing.code == Some(2) && has_line, "{}", conversing.error);
    assert_eq!(runs(&folder), before);

    let resumed = typed(&folder, &line.replace("COMMAND", "cat"));
    assert_eq!((resumed.code, resumed.out.contains("one")), (Some(0), true), "{} {}", resumed.out, resumed.error);
    let again = callboard(&folder, &["run", "--resume", "@last", "--store", "data"]);
    assert_eq!((again.code, again.out), (Some(0), resumed.out), "its result: {}", again.error);
}

#[test]
fn run_does_not_retry_a_run_of_a_workflow_and_prints_the_command_line_that_does() {
    let (folder, _model) = writer();
    let failed = workflow(&folder, "first -> writer", &["--agent", "first=cat there", "--limits", "{\"attempts\": 1}"]);
    assert_eq!(failed.code, Some(1), "{}", failed.error);
    let (before, id) = (runs(&folder), last(&folder));
    let retry = ["run", "--retry", "@last", "--model", "fake", "--store", "data"];
    let refused = callboard(&folder, &retry);
    let lead =
        format!("error: run {id} is a run of the workflow workflow, which callboard run cannot retry; to retry it: ");
    let flags = "--store data --agent first='COMMAND' --agents agents --model fake";
    assert_eq!((refused.code, refused.line(&lead)), (Some(2), &*format!("callboard workflow retry {id} {flags}")));
    let limited = callboard(&folder, &[&retry[..], &["--limits", "{\"attempts\": 2}"]].concat());
    let line = limited.line(&lead).to_owned();
    assert_eq!(line, format!("callboard workflow retry {id} --limits '{{\"attempts\":2}}' {flags}"));
    assert_eq!(runs(&folder), before, "no run was begun");

    let ended = callboard(&folder, &["run", "--resume", "@last", "--model", "fake", "--store", "data"]);
    assert_eq!(ended.line("to retry turn 1, in a new run: "), format!("callboard workflow retry {id} {flags}"));
    fs::write(folder.path().join("there"), "one").unwrap();
    let retried = typed(&folder, &line.replace("COMMAND", "cat there"));
    assert_eq!((retried.code, retried.out.contains("one")), (Some(0), true), "{} {}", retried.out, retried.error);
}

#[test]
fn workflow_refuses_a_run_without_one_and_prints_the_command_line_that_continues_it() {
    let (folder, _model) = writer();
    let failed = callboard(&folder, &["run", "look", "--to", "complexity", "--model", "fake", "--store", "data"]);
    assert_eq!(failed.code, Some(1), "{}", failed.error);
    let (before, id) = (runs(&folder), last(&folder));
    let given = ["--store", "data", "--agents", "agents", "--model", "fake"];
    let refused = callboard(&folder, &[&["workflow", "retry", "@last"], &given[..]].concat());
    let flags = given.join(" ");
    let line = format!("or, if its agent is in a file: callboard run --retry {id} {flags}\n");
    assert!(refused.code == Some(2) && refused.error.ends_with(&line), "{}", refused.error);
    let forked = callboard(&folder, &[&["workflow", "fork", "@last", "--turn", "1"], &given[..]].concat());
    let line = format!("or, if its agent is in a file: callboard runs fork {id} --turn N --store data\n");
    assert!(forked.code == Some(2) && forked.error.ends_with(&line), "{}", forked.error);
    let ended = callboard(&folder, &[&["workflow", "resume", "@last"], &given[..]].concat());
    assert_eq!(ended.line("to retry turn 1, in a new run: "), format!("callboard run --retry {id} {flags}"));
    assert_eq!(runs(&folder), before);
}

#[test]
fn a_change_for_a_run_that_has_ended_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = ["workflow", "run", "--line", "a", "--agent", "a=echo well", "--store", "data"];
    assert_eq!(callboard(&folder, &run).out, "well\n");
    for (change, options) in [
        (&["--set", "a=1"][..], "--set"),
        (&["--input", "1"], "--input"),
        (&["--node", "a", "--input", "1"], "--node and --input"),
    ] {
        let resume = ["workflow", "resume", "@last", "--agent", "a=echo well", "--store", "data"];
        let refused = callboard(&folder, &[&resume[..], change].concat());
        assert_eq!((refused.code, &*refused.out), (Some(2), ""), "{change:?}");
        let why = format!(
            " has ended, so {options} would change nothing: leave that out to print its result; to run it again from a node, with \
             changes: callboard workflow fork "
        );
        let options = " --node NODE --store data --agent 'a=echo well'\n";
        assert!(refused.error.contains(&why) && refused.error.ends_with(options), "{}", refused.error);
    }
}
