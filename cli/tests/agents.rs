//! `callboard init|check|run`: real processes, real files, a real disk, and a model that does not think.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

/// Runs `callboard ARGUMENTS` in the folder, with nobody to ask.
fn callboard(folder: &Path, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).env("USER", "ann");
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

fn begun() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let said = callboard(folder.path(), &["init"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    folder
}

fn write(folder: &TempDir, name: &str, text: &str) {
    fs::write(folder.path().join(name), text).unwrap();
}

const WRITER: &str = r#"
[agent]
name = "writer"
mode = "build"

[agent.capabilities]
allowed_tools = ["FileSearch"]
ask = ["FileSearch"]
"#;

#[test]
fn a_beginner_comes_to_a_review_without_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let said = callboard(folder.path(), &["init"]);
    insta::assert_snapshot!("init", said.out);
    write(&folder, "main.rs", "fn main() { todo() } // TODO: write it\n");
    let said = callboard(folder.path(), &["check"]);
    assert_eq!((said.code, said.error.as_str()), (Some(0), ""));
    insta::assert_snapshot!("check", said.out);
    let run = ["run", "review this repository", "--to", "coordinator", "--model", "fake", "--no-input"];
    let said = callboard(folder.path(), &run);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert!(said.out.contains("review this repository") && said.out.contains("Task answered"), "{}", said.out);
    assert!(
        said.error.contains("coordinator · Task") && said.error.contains("researcher · FileSearch"),
        "{}",
        said.error
    );
    let quiet = callboard(folder.path(), &[&run[..], &["--quiet", "--json"]].concat());
    let result: Value = serde_json::from_str(&quiet.out).unwrap();
    assert_eq!((quiet.error.as_str(), &result["outcome"]), ("", &Value::from("Finished")));
}

#[test]
fn what_is_there_already_stays_as_it_is() {
    let folder = begun();
    write(&folder, "agents/coder.toml", "mine");
    let said = callboard(folder.path(), &["init"]);
    assert_eq!(said.code, Some(0));
    assert!(said.out.contains("agents/coder.toml is there already"), "{}", said.out);
    assert_eq!(fs::read_to_string(folder.path().join("agents/coder.toml")).unwrap(), "mine");
}

#[test]
fn defects_are_told_by_check_and_before_a_run() {
    let folder = begun();
    write(&folder, "agents/coder.toml", "[agent]\nname = \"coder\"\nmod = \"build\"\nsystem_prompt = \"{{ taks }}\"\n");
    let said = callboard(folder.path(), &["check"]);
    assert_eq!(said.code, Some(1));
    insta::assert_snapshot!("defects", said.error);
    let run = callboard(folder.path(), &["run", "x", "--model", "fake"]);
    assert!(run.code == Some(2) && run.error.contains("2 defects") && run.out.is_empty(), "{}", run.error);
    let json: Value = serde_json::from_str(&callboard(folder.path(), &["check", "--json"]).out).unwrap();
    assert_eq!((&json[0]["defects"][0]["line"], &json[1]["agent"]), (&3.into(), &"coordinator".into()));
}

#[test]
fn every_model_that_is_not_there_is_told_with_its_place_also_to_machines() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    let model = "[[models]]\nname = \"big\"\nprovider = \"openai-compatible\"\nurl = \"http://127.0.0.1:1/v1\"\ntags = [\"quick\"]\n";
    write(&folder, "models.toml", model);
    let agent = "[agent]\nname = \"x\"\ndescription = \"bigg\"\n\n[agent.model]\npreferred = \"bigg\"\nfallback = [\"big\", 'zz']\nprovider_tags = [\"quik\", \"quick\"]\n";
    write(&folder, "agents/x.toml", agent);
    let said = callboard(folder.path(), &["check"]);
    assert_eq!(said.code, Some(1), "{}", said.error);
    for told in [
        "x.toml:6:13: there is no model \"bigg\"",
        "x.toml:7:20: there is no model \"zz\"",
        "x.toml:8:18: no model has the tag \"quik\"",
        "3 defects in 1 of 1 file",
    ] {
        assert!(said.error.contains(told), "{told}: {}", said.error);
    }
    let said = callboard(folder.path(), &["check", "--json"]);
    let json: Value = serde_json::from_str(&said.out).unwrap();
    let places: Vec<_> = json[0]["defects"].as_array().unwrap().iter().map(|defect| defect["line"].as_u64()).collect();
    assert_eq!((said.code, places), (Some(1), vec![Some(6), Some(7), Some(8)]));
}

#[test]
fn what_nobody_is_there_to_answer_ends_the_process_and_waits_in_the_store() {
    let folder = begun();
    write(&folder, "agents/writer.toml", WRITER);
    let run = ["run", "look", "--to", "writer", "--model", "fake", "--no-input", "--store", "data"];
    let said = callboard(folder.path(), &run);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{}", said.error);
    assert!(
        said.error.contains("nobody is here to be asked") && said.error.contains("action    FileSearch"),
        "{}",
        said.error
    );
    let resumption = said.error.lines().find_map(|line| line.strip_prefix("to go on: callboard ")).unwrap();
    let said = callboard(folder.path(), &resumption.split(' ').collect::<Vec<_>>());
    assert_eq!(said.code, Some(3), "{}", said.error);
    assert!(said.error.contains("action    FileSearch"), "{}", said.error);
}

#[test]
fn the_fake_model_needs_no_catalog_and_what_is_kept_nowhere_is_said_to_be() {
    let folder = begun();
    write(&folder, "agents/writer.toml", WRITER);
    write(&folder, "models.toml", "[[models");
    let said = callboard(folder.path(), &["run", "look", "--to", "writer", "--model", "fake", "--no-input"]);
    assert!(said.code == Some(3) && said.error.contains("no --store was given"), "{}", said.error);
    let said = callboard(folder.path(), &["run", "look", "--to", "writer", "--no-input"]);
    assert!(said.code == Some(2) && said.error.contains("models.toml:1:"), "{}", said.error);
}

#[test]
fn editors_get_a_schema() {
    let folder = tempfile::tempdir().unwrap();
    let said = callboard(folder.path(), &["check", "--schema"]);
    let schema: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &schema["required"][0]), (Some(0), &"agent".into()));
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let told = |arguments: &[&str], says: &str| {
        let said = callboard(folder.path(), arguments);
        assert!(said.code == Some(2) && said.error.contains(says), "{arguments:?}: {:?} {}", said.code, said.error);
    };
    told(&["check"], "there is no folder agents; `callboard init` writes one");
    told(&["run", "x"], "there is no folder agents");
    told(&["run"], "required");
    fs::create_dir(folder.path().join("agents")).unwrap();
    told(&["check"], "agents has no agents");
    callboard(folder.path(), &["init"]);
    told(&["run", "x", "--model", "fake"], "name one with --to: coder, coordinator, researcher, reviewer");
    told(&["run", "x", "--model", "fake", "--to", "codr"], "coder");
    told(&["run", "x", "--to", "coder"], "agent coder: ");
}

#[test]
fn built_in_agents_are_on_the_board_and_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    let text = "[agent]\nname = \"only\"\n[agent.capabilities]\nallowed_tools = [\"Task\"]\n";
    write(&folder, "agents/only.toml", text);
    let run = |arguments: &[&str]| {
        callboard(folder.path(), &[&["run", "look", "--model", "fake", "--no-input"], arguments].concat())
    };
    // The one agent of the folder need not be named, and gives its tasks to nobody that it was not told of.
    let said = run(&[]);
    assert!(said.code == Some(0) && !said.error.contains("only · Task"), "{}", said.error);
    let said = run(&["--to", "summarizer"]);
    assert!(said.code == Some(0) && said.out.contains("look"), "{}", said.error);
    // What does not think gives no answer that is a value.
    let said = run(&["--to", "complexity"]);
    assert!(said.code == Some(1) && said.error.contains("the model's answer is not JSON"), "{}", said.error);
    // A task that nobody can judge is complex.
    let said = run(&["--limits", "auto"]);
    assert!(said.code == Some(0) && said.error.contains("the run may use 5 handoffs, 150000 tokens"), "{}", said.error);
    let said = run(&["--limits", "huge"]);
    assert!(said.code == Some(2) && said.error.contains("use simple, medium or complex, or auto"), "{}", said.error);
    write(&folder, "agents/summarizer.toml", "[agent]\nname = \"summarizer\"\ndescription = \"Mine.\"\n");
    let said = callboard(folder.path(), &["check"]);
    assert!(said.out.contains("agents/summarizer.toml: summarizer: Mine."), "{}", said.out);
    assert!(said.out.contains("built in, and replaced by a file: summarizer"), "{}", said.out);
    assert!(!said.out.contains("built in: summarizer"), "{}", said.out);
}
