//! Agents whose files have defects: only commands that need one of them fail.

use std::fs;

use tempfile::TempDir;

use crate::support::agents::{add_python_agent, agent, agent_with, agents, program};
use crate::support::{callboard, write};

/// A folder with the agents `good` and `other`, and `bad`, whose file has two defects.
fn folder() -> TempDir {
    let bad = "[agent]\nname = \"bad\"\nsystem_promt = \"You help.\"\nmod = \"build\"\n";
    agents(&[("good", &agent("good")), ("other", &agent("other")), ("bad", bad)])
}

const FAKE: [&str; 3] = ["--model", "fake", "--no-input"];
const WARNING: &str = "warning: the agent bad is left out: agents/bad.toml:3:1: an agent has no key \"system_promt\"";
const DIAGNOSIS: [&str; 4] = [
    "error: the agent bad cannot be used:\n\n",
    "agents/bad.toml:3:1: an agent has no key \"system_promt\"",
    "3 | system_promt = \"You help.\"\n",
    "agents/bad.toml:4:1: an agent has no key \"mod\"",
];

fn refused(folder: &TempDir, arguments: &[&str]) {
    let printed = callboard(folder, &[arguments, &FAKE].concat());
    assert_eq!((printed.code, printed.out.as_str()), (Some(2), ""), "{arguments:?}: {}", printed.error);
    for part in DIAGNOSIS {
        assert!(printed.error.contains(part), "{arguments:?}: {}", printed.error);
    }
}

#[test]
fn an_agent_with_defects_fails_only_the_commands_that_need_it() {
    let folder = folder();
    let printed = callboard(&folder, &[&["run", "hi", "--to", "good"][..], &FAKE].concat());
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    assert!(printed.out.contains("It was asked: hi"), "{}", printed.out);
    assert!(printed.error.contains(WARNING), "{}", printed.error);
    assert!(printed.error.contains("(and 1 more defect; callboard check prints all)"), "{}", printed.error);
    let printed = callboard(&folder, &[&["run", "hi", "--pipeline", "good,other", "--json"][..], &FAKE].concat());
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    refused(&folder, &["run", "hi", "--to", "bad"]);
    refused(&folder, &["run", "hi", "--pipeline", "good,bad"]);
    refused(&folder, &["run", "hi", "--peers", "bad,good"]);
    refused(&folder, &["run", "hi", "--review", "good,bad,other"]);
    refused(&folder, &["workflow", "run", "--line", "good -> bad", "--agents", "agents"]);
    let printed =
        callboard(&folder, &["workflow", "run", "--line", "good -> other", "--agents", "agents", "--model", "fake"]);
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    assert_eq!(callboard(&folder, &["check"]).code, Some(2));
    // That one agent is left does not choose it: the invalid one may be meant.
    fs::remove_file(folder.path().join("agents/other.toml")).unwrap();
    let printed = callboard(&folder, &[&["run", "hi"][..], &FAKE].concat());
    assert!(printed.code == Some(2) && printed.error.contains("name one with --to: good"), "{}", printed.error);
    fs::remove_file(folder.path().join("agents/good.toml")).unwrap();
    let printed = callboard(&folder, &[&["run", "hi"][..], &FAKE].concat());
    assert!(printed.code == Some(2) && printed.error.contains(DIAGNOSIS[3]), "{}", printed.error);
}

#[test]
fn a_run_whose_agent_gets_defects_waits_until_its_file_is_corrected() {
    let folder = folder();
    add_python_agent(&folder, "asker", "tell(type=\"ask\", id=1, question=\"who?\")\nsys.stdin.read()\n");
    let printed =
        callboard(&folder, &["run", "hi", "--to", "asker", "--no-input", "--store", "store", "--model", "fake"]);
    assert_eq!(printed.code, Some(5), "{}", printed.error);
    write(&folder, "agents/asker.toml", &program("asker", &["python3", "asker.py"]).replace("command", "comand"));
    let printed =
        callboard(&folder, &["run", "--resume", "@last", "--no-input", "--store", "store", "--model", "fake"]);
    assert_eq!(printed.code, Some(5), "{}", printed.error);
    let expected = "turn 1 cannot continue: the agent asker cannot be used:\n\nagents/asker.toml:";
    assert!(printed.error.contains(expected), "{}", printed.error);
    assert!(printed.error.contains("\n\ncorrect the file, and continue with --resume"), "{}", printed.error);
}

#[test]
fn a_server_that_cannot_be_started_fails_only_the_agents_that_need_its_tools() {
    let folder = folder();
    fs::remove_file(folder.path().join("agents/bad.toml")).unwrap();
    let needs = agent_with("needs", &["mcp__gone__add"]);
    write(&folder, "agents/needs.toml", &needs);
    write(&folder, "mcp.toml", "# servers\n\n[[servers]]\nname = \"gone\"\ncommand = [\"./no-such-program\"]\n");
    let why = "mcp.toml:3: the MCP server \"gone\" (./no-such-program) cannot be started: No such file or directory";
    let printed = callboard(&folder, &[&["run", "hi", "--to", "good"][..], &FAKE].concat());
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    assert!(printed.error.contains(&format!("warning: {why}")), "{}", printed.error);
    assert!(
        printed.error.contains("warning: the agent needs is left out: agents/needs.toml:5:18: "),
        "{}",
        printed.error
    );
    let printed = callboard(&folder, &[&["run", "hi", "--to", "needs"][..], &FAKE].concat());
    assert_eq!(printed.code, Some(2), "{}", printed.error);
    let diagnosis = printed.error.split_once("error: ").unwrap().1;
    assert!(diagnosis.contains("there is no tool \"mcp__gone__add\"") && diagnosis.contains(why), "{}", printed.error);
}

#[test]
fn a_missing_model_is_reported_once_for_several_agents() {
    let folder = folder();
    fs::remove_file(folder.path().join("agents/bad.toml")).unwrap();
    let printed = callboard(&folder, &["run", "hi", "--to", "good"]);
    assert_eq!(printed.code, Some(2), "{}", printed.error);
    assert_eq!(printed.error.matches("no model is chosen").count(), 1, "{}", printed.error);
    assert!(
        printed.error.starts_with("error: the agents good, other cannot be used: no model is chosen"),
        "{}",
        printed.error
    );
    // One agent has no model, and the others work.
    write(&folder, "agents/other.toml", &(agent("other") + "[agent.model]\npreferred = \"nonesuch\"\n"));
    write(&folder, "agents/good.toml", &(agent("good") + "[agent.model]\npreferred = \"fake\"\n"));
    let printed = callboard(&folder, &["run", "hi", "--to", "good", "--no-input"]);
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    assert!(printed.error.contains("warning: the agent other is left out: agents/other.toml: "), "{}", printed.error);
}

#[test]
fn a_name_that_check_accepts_can_be_used_in_a_list() {
    let folder = folder();
    write(&folder, "agents/comma.toml", &agent("a b,c"));
    let printed = callboard(&folder, &[&["run", "hi", "--pipeline", "\"a b,c\",good", "--json"][..], &FAKE].concat());
    assert_eq!(printed.code, Some(0), "{}", printed.error);
    let result = printed.json();
    assert_eq!(result["metrics"]["turns"], 2, "{}", printed.out);
}

#[test]
fn tables_and_results_in_a_pipe_have_no_box_characters() {
    let folder = folder();
    for (arguments, shows) in [
        (&["run", "hi", "--to", "good", "--store", "s", "--model", "fake"][..], "It was asked: hi"),
        (&["runs", "list", "--store", "s"], "submitted"),
        (&["runs", "show", "@last", "--store", "s"], "what it did"),
        (&["runs", "replay", "@last", "--store", "s"], "what happened"),
        (&["check"], "built in"),
    ] {
        let printed = callboard(&folder, arguments);
        let drawn = |c: char| ('\u{2500}'..='\u{259f}').contains(&c);
        assert!(printed.out.contains(shows), "{arguments:?}: {} {}", printed.out, printed.error);
        assert!(!printed.out.contains(drawn), "{arguments:?}: {}", printed.out);
    }
}

#[test]
fn the_json_of_a_run_and_of_a_check_has_the_documented_shape() {
    let folder = folder();
    let printed = callboard(&folder, &[&["run", "hi", "--to", "good", "--json"][..], &FAKE].concat());
    let mut result = printed.json();
    let elapsed = result["metrics"]["elapsed_ms"].take();
    assert!(elapsed.is_u64() && result["run"].take().is_string(), "{}", printed.out);
    insta::assert_snapshot!("json_run", format!("{result:#}"));
    insta::assert_snapshot!("json_check", callboard(&folder, &["check", "--json"]).out);
    let line = "good(interrupt=\"before\") -> other";
    let workflow = ["workflow", "check", "--line", line, "--json"];
    insta::assert_snapshot!("json_workflow_check", callboard(&folder, &workflow).out);
    let run = ["workflow", "run", "--line", line, "--agents", "agents", "--store", "s", "--json"];
    let printed = callboard(&folder, &[&run[..], &FAKE].concat());
    let mut waits = printed.json();
    let id = waits["run"].take().as_str().unwrap().to_owned();
    insta::assert_snapshot!("json_waits", format!("{waits:#}").replace(&id, "ID"));
}
