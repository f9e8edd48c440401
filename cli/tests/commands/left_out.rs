//! Agents that cannot be used: what needs one of them stops, and all else works.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

/// Runs `callboard ARGUMENTS` in the folder, with nobody to ask and no keys of providers.
fn callboard(folder: &TempDir, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

fn agent(name: &str) -> String {
    format!("[agent]\nname = \"{name}\"\nsystem_prompt = \"You help.\"\n[agent.capabilities]\nallowed_tools = []\n")
}

/// A folder with the agents `good` and `other`, and `bad`, whose file is wrong in two places.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    for name in ["good", "other"] {
        write(&folder, &format!("agents/{name}.toml"), &agent(name));
    }
    let bad = "[agent]\nname = \"bad\"\nsystem_promt = \"You help.\"\nmod = \"build\"\n";
    write(&folder, "agents/bad.toml", bad);
    folder
}

fn write(folder: &TempDir, name: &str, text: &str) {
    fs::write(folder.path().join(name), text).unwrap();
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
    let said = callboard(folder, &[arguments, &FAKE].concat());
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}: {}", said.error);
    for part in DIAGNOSIS {
        assert!(said.error.contains(part), "{arguments:?}: {}", said.error);
    }
}

#[test]
fn an_agent_whose_file_is_wrong_stops_only_what_needs_it() {
    let folder = folder();
    let said = callboard(&folder, &[&["run", "hi", "--to", "good"][..], &FAKE].concat());
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert!(said.out.contains("It was asked: hi"), "{}", said.out);
    assert!(said.error.contains(WARNING), "{}", said.error);
    assert!(said.error.contains("(and 1 more defect; callboard check prints all)"), "{}", said.error);
    let said = callboard(&folder, &[&["run", "hi", "--pipeline", "good,other", "--json"][..], &FAKE].concat());
    assert_eq!(said.code, Some(0), "{}", said.error);
    refused(&folder, &["run", "hi", "--to", "bad"]);
    refused(&folder, &["run", "hi", "--pipeline", "good,bad"]);
    refused(&folder, &["run", "hi", "--peers", "bad,good"]);
    refused(&folder, &["run", "hi", "--review", "good,bad,other"]);
    refused(&folder, &["workflow", "run", "--line", "good -> bad", "--agents", "agents"]);
    let said =
        callboard(&folder, &["workflow", "run", "--line", "good -> other", "--agents", "agents", "--model", "fake"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert_eq!(callboard(&folder, &["check"]).code, Some(1));
    // Which one is meant is not said by the one that is left.
    fs::remove_file(folder.path().join("agents/other.toml")).unwrap();
    let said = callboard(&folder, &[&["run", "hi"][..], &FAKE].concat());
    assert!(said.code == Some(2) && said.error.contains("name one with --to: good"), "{}", said.error);
    fs::remove_file(folder.path().join("agents/good.toml")).unwrap();
    let said = callboard(&folder, &[&["run", "hi"][..], &FAKE].concat());
    assert!(said.code == Some(2) && said.error.contains(DIAGNOSIS[3]), "{}", said.error);
}

#[test]
fn a_run_whose_agent_has_become_wrong_waits_for_its_file_to_be_corrected() {
    let folder = folder();
    write(
        &folder,
        "agents/asker.toml",
        "[agent]\nname = \"asker\"\n[agent.process]\ncommand = [\"python3\", \"ask.py\"]\n",
    );
    let program = r#"
import json, sys
say = lambda **line: print(json.dumps(line), flush=True)
sys.stdin.readline()
say(type="ready", protocol=1)
for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] == "turn":
        say(type="ask", id=1, question="who?")
"#;
    write(&folder, "ask.py", program);
    let said = callboard(&folder, &["run", "hi", "--to", "asker", "--no-input", "--store", "store", "--model", "fake"]);
    assert_eq!(said.code, Some(3), "{}", said.error);
    write(
        &folder,
        "agents/asker.toml",
        "[agent]\nname = \"asker\"\n[agent.process]\ncomand = [\"python3\", \"ask.py\"]\n",
    );
    let said = callboard(&folder, &["run", "--resume", "@last", "--no-input", "--store", "store", "--model", "fake"]);
    assert_eq!(said.code, Some(3), "{}", said.error);
    let expected = "turn 1 cannot go on: the agent asker cannot be used:\n\nagents/asker.toml:";
    assert!(said.error.contains(expected), "{}", said.error);
    assert!(said.error.contains("\n\ncorrect the file, and continue with --resume"), "{}", said.error);
}

#[test]
fn a_server_that_cannot_be_started_stops_only_the_agents_that_need_its_tools() {
    let folder = folder();
    fs::remove_file(folder.path().join("agents/bad.toml")).unwrap();
    let needs = agent("needs").replace("[]", "[\"mcp__gone__add\"]");
    write(&folder, "agents/needs.toml", &needs);
    write(&folder, "mcp.toml", "# servers\n\n[[servers]]\nname = \"gone\"\ncommand = [\"./no-such-program\"]\n");
    let why = "mcp.toml:3: the MCP server \"gone\" (./no-such-program) cannot be started: No such file or directory";
    let said = callboard(&folder, &[&["run", "hi", "--to", "good"][..], &FAKE].concat());
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert!(said.error.contains(&format!("warning: {why}")), "{}", said.error);
    assert!(said.error.contains("warning: the agent needs is left out: agents/needs.toml:5:18: "), "{}", said.error);
    let said = callboard(&folder, &[&["run", "hi", "--to", "needs"][..], &FAKE].concat());
    assert_eq!(said.code, Some(2), "{}", said.error);
    let diagnosis = said.error.split_once("error: ").unwrap().1;
    assert!(diagnosis.contains("there is no tool \"mcp__gone__add\"") && diagnosis.contains(why), "{}", said.error);
}

#[test]
fn that_there_is_no_model_is_printed_once() {
    let folder = folder();
    fs::remove_file(folder.path().join("agents/bad.toml")).unwrap();
    let said = callboard(&folder, &["run", "hi", "--to", "good"]);
    assert_eq!(said.code, Some(2), "{}", said.error);
    assert_eq!(said.error.matches("no model is chosen").count(), 1, "{}", said.error);
    assert!(
        said.error.starts_with("error: the agents good, other cannot be used: no model is chosen"),
        "{}",
        said.error
    );
    // One agent has none, and the others work.
    write(&folder, "agents/other.toml", &(agent("other") + "[agent.model]\npreferred = \"nonesuch\"\n"));
    write(&folder, "agents/good.toml", &(agent("good") + "[agent.model]\npreferred = \"fake\"\n"));
    let said = callboard(&folder, &["run", "hi", "--to", "good", "--no-input"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert!(said.error.contains("warning: the agent other is left out: agents/other.toml: "), "{}", said.error);
}

#[test]
fn a_name_that_check_accepts_can_be_named_among_others() {
    let folder = folder();
    write(&folder, "agents/comma.toml", &agent("a b,c"));
    let said = callboard(&folder, &[&["run", "hi", "--pipeline", "\"a b,c\",good", "--json"][..], &FAKE].concat());
    assert_eq!(said.code, Some(0), "{}", said.error);
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(result["metrics"]["turns"], 2, "{}", said.out);
}

#[test]
fn tables_and_results_in_a_pipe_have_no_lines_of_boxes() {
    let folder = folder();
    for (arguments, shows) in [
        (&["run", "hi", "--to", "good", "--store", "s", "--model", "fake"][..], "It was asked: hi"),
        (&["runs", "list", "--store", "s"], "submitted"),
        (&["runs", "show", "@last", "--store", "s"], "what it did"),
        (&["runs", "replay", "@last", "--store", "s"], "what happened"),
        (&["check"], "built in"),
    ] {
        let said = callboard(&folder, arguments);
        let drawn = |c: char| ('\u{2500}'..='\u{259f}').contains(&c);
        assert!(said.out.contains(shows), "{arguments:?}: {} {}", said.out, said.error);
        assert!(!said.out.contains(drawn), "{arguments:?}: {}", said.out);
    }
}

#[test]
fn what_machines_read_of_a_run_and_of_a_check_has_the_shape_that_is_documented() {
    let folder = folder();
    let said = callboard(&folder, &[&["run", "hi", "--to", "good", "--json"][..], &FAKE].concat());
    let mut result: Value = serde_json::from_str(&said.out).unwrap();
    let elapsed = result["metrics"]["elapsed_ms"].take();
    assert!(elapsed.is_u64() && result["run"].take().is_string(), "{}", said.out);
    insta::assert_snapshot!("json_run", format!("{result:#}"));
    insta::assert_snapshot!("json_check", callboard(&folder, &["check", "--json"]).out);
    let line = "good(interrupt=\"before\") -> other";
    let workflow = ["workflow", "check", "--line", line, "--json"];
    insta::assert_snapshot!("json_workflow_check", callboard(&folder, &workflow).out);
    let run = ["workflow", "run", "--line", line, "--agents", "agents", "--store", "s", "--json"];
    let said = callboard(&folder, &[&run[..], &FAKE].concat());
    let mut waits: Value = serde_json::from_str(&said.out).unwrap();
    let id = waits["run"].take().as_str().unwrap().to_owned();
    insta::assert_snapshot!("json_waits", format!("{waits:#}").replace(&id, "ID"));
}
