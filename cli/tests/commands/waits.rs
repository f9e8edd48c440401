//! Runs that wait for a person, and what a person is shown of them: real processes, and a model on this machine.

#![cfg(unix)]

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::agents::{agent_with, python_agents, searcher};
use crate::support::model::Model;
use crate::support::{callboard, command, make_pipe, output_of, write};

fn writer() -> (TempDir, Model) {
    let model = Model::start();
    (model.folder(&searcher("writer")), model)
}

#[test]
fn the_json_of_a_run_that_waits_names_the_action() {
    let (folder, model) = writer();
    model.calls("FileSearch", json!({ "pattern": "x" }));
    let (code, out, error) = outcome(&folder, &["run", "look", "--json", "--store", "data"]);
    assert_eq!(code, Some(5), "{error}");
    let waits: Value = serde_json::from_str(&out).unwrap();
    let asked = &waits["waits_for"][0];
    assert_eq!((&asked["action"], &asked["arguments"]), (&"FileSearch".into(), &json!({ "pattern": "x" })));
    let hint = waits["to_continue"].as_str().unwrap();
    assert!(hint.starts_with(&format!("callboard run --resume {}", waits["run"].as_str().unwrap())), "{hint}");
    // A store in the folder of the tools restricts commands, which this agent has not.
    assert!(!error.contains("is in the folder of the tools"), "{error}");
}

/// Asks two questions and for two approvals at once, and waits for the answers.
const ASKS: &str = r#"
asks = [{"type": "ask", "id": n, "question": f"Question {n}?"} for n in [1, 2]]
pays = [{"type": "approve", "id": n, "action": "pay", "target": f"order {n}", "arguments": {"n": n}} for n in [3, 4]]
print("\n".join(map(json.dumps, asks + pays)), flush=True)
open("asked", "w").close()
sys.stdin.read()
"#;

/// Ends its turn half a second after the other program has asked, which is longer than a run is watched for further events. It needs a
/// named pipe `asked`, which the other program opens.
const WORKS: &str = r#"
import time
open("asked").close()
time.sleep(0.5)
end(turn)
"#;

const ASKS_LAST: &str = r#"
tell(type="ask", id=1, question="The last one?")
sys.stdin.read()
"#;

/// The exit code, standard output and standard error.
fn outcome(folder: &TempDir, arguments: &[&str]) -> (Option<i32>, String, String) {
    let printed = callboard(folder, arguments);
    (printed.code, printed.out, printed.error)
}

/// The waits in the JSON of a run: the question or the target of each.
fn waits_for(out: &str) -> Vec<String> {
    let waits: Value = serde_json::from_str(out).unwrap();
    let word = |wait: &Value| wait["question"].as_str().or(wait["target"].as_str()).unwrap().to_owned();
    let mut waits: Vec<String> = waits["waits_for"].as_array().unwrap().iter().map(word).collect();
    waits.sort();
    waits
}

#[test]
fn all_waits_of_a_run_are_printed_where_nobody_can_be_asked() {
    let folder = python_agents(&[("asks", ASKS)]);
    let all = ["Question 1?", "Question 2?", "order 3", "order 4"];
    for begin in [&["run", "x"][..], &["run", "--resume", "@last"]] {
        let (code, out, error) = outcome(&folder, &[begin, &["--no-input", "--json", "--store", "data"]].concat());
        assert_eq!((code, waits_for(&out)), (Some(5), all.map(str::to_owned).to_vec()), "{error}");
        let cards = all.map(|one| error.matches(one).count());
        assert_eq!((error.matches("nobody at a terminal").count(), cards), (1, [1; 4]), "{error}");
    }
}

#[test]
fn a_run_that_waits_for_a_person_ends_its_process_once_no_node_works() {
    let folder = python_agents(&[("asks", ASKS), ("works", WORKS), ("last", ASKS_LAST)]);
    make_pipe(folder.path().join("asked"));
    let line = ["workflow", "run", "--line", "asks | works -> last", "--agents", "agents"];
    let (code, out, error) = outcome(&folder, &[&line[..], &["--no-input", "--json", "--store", "data"]].concat());
    let all = ["Question 1?", "Question 2?", "The last one?", "order 3", "order 4"];
    assert_eq!((code, waits_for(&out)), (Some(5), all.map(str::to_owned).to_vec()), "{error}");
}

#[test]
fn a_run_that_waits_for_an_answer_is_listed_with_this_status_and_shown_with_its_question() {
    let folder = python_agents(&[("last", ASKS_LAST)]);
    let question = ["run", "x", "--no-input", "--store", "question"];
    let node =
        ["workflow", "run", "--line", "a(interrupt=\"before\")", "--agent", "a=cat", "--no-input", "--store", "node"];
    for (run, shown) in
        [(&question[..], "question   last asks: The last one?\n"), (&node, "node       a waits for a person\n")]
    {
        let store = run[run.len() - 1];
        let (code, _, error) = outcome(&folder, run);
        assert_eq!(code, Some(5), "{error}");
        let runs = |arguments: &[&str]| outcome(&folder, &[&["runs"], arguments, &["--store", store]].concat()).1;
        assert!(runs(&["list"]).contains("waits for an answer"), "{}", runs(&["list"]));
        let listed: Value = serde_json::from_str(&runs(&["list", "--state", "waits_for_answer", "--json"])).unwrap();
        assert_eq!(listed[0]["status"], "waits_for_answer", "{listed}");
        assert_eq!(runs(&["list", "--state", "open"]), "there are no such runs\n");
        let text = runs(&["show", "@last"]);
        assert!(text.contains(shown) && text.contains("waits for an answer, after "), "{text}");
    }
    let (_, out, _) = outcome(&folder, &["runs", "show", "@last", "--json", "--store", "question"]);
    let shown: Value = serde_json::from_str(&out).unwrap();
    let id = shown["waits_for"][0]["id"].as_str().unwrap();
    assert!(id.starts_with(&format!("question:{}/1.0:", shown["run"].as_str().unwrap())), "{id}");
    let asked = json!([{
        "kind": "question", "id": id, "agent": "last", "question": "The last one?", "expires_at": null, "is_expired": false
    }]);
    assert_eq!((&shown["status"], &shown["waits_for"]), (&"waits_for_answer".into(), &asked));
}

#[test]
fn a_store_in_the_folder_of_the_tools_is_reported_if_an_agent_has_a_shell() {
    let (folder, _model) = writer();
    write(&folder, "agents/writer.toml", &(agent_with("writer", &["ShellExec"]) + "ask = [\"ShellExec\"]\n"));
    for (store, is_reported) in [("data", true), ("../callboard-elsewhere", false)] {
        let (code, _, error) = outcome(&folder, &["run", "x", "--model", "fake", "--no-input", "--store", store]);
        assert_eq!(code, Some(0), "{error}");
        assert_eq!(error.contains(&format!("the store {store} is in the folder of the tools")), is_reported, "{error}");
    }
    fs::remove_dir_all(folder.path().join("../callboard-elsewhere")).unwrap();
}

#[test]
fn no_tool_sees_the_stores_of_other_projects() {
    let (folder, model) = writer();
    write(&folder, "agents/writer.toml", &agent_with("writer", &["FileSearch"]));
    let other = folder.path().join("state/callboard/other-0123456789ab/1");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("db"), "needle").unwrap();
    fs::write(folder.path().join("state/seen.txt"), "needle").unwrap();
    model.calls("FileSearch", json!({ "pattern": "needle" }));
    model.answers("done");
    let elsewhere = tempfile::tempdir().unwrap();
    for store in [&[][..], &["--store", elsewhere.path().to_str().unwrap()]] {
        let mut command = command(&folder, &["run", "look"]);
        let ended = output_of(command.args(store).env("XDG_STATE_HOME", folder.path().join("state")));
        assert_eq!(ended.code, Some(0), "{}", ended.error);
        model.request();
        let request = model.request();
        let found = request.tool_result();
        assert!(found.contains("seen.txt") && !found.contains("other-"), "{found}");
        model.calls("FileSearch", json!({ "pattern": "needle" }));
        model.answers("done");
    }
}

#[test]
fn a_run_that_continues_takes_no_options_of_a_new_run() {
    let folder = tempfile::tempdir().unwrap();
    let given = [["--to", "a"], ["--input", "1"], ["--rounds", "2"], ["--pipeline", "a,b"]];
    for [option, value] in given.into_iter().chain([["--peers", "a,b"], ["--review", "a,b,c"]]) {
        for continuation in ["--resume", "--retry"] {
            let (code, _, error) = outcome(&folder, &["run", continuation, "@last", option, value]);
            assert_eq!(code, Some(2), "{option}: {error}");
            assert!(error.contains("cannot be used with") && error.contains(continuation), "{option}: {error}");
        }
    }
}

#[test]
fn a_run_that_failed_prints_the_command_line_that_retries_it() {
    let (folder, _model) = writer();
    let run = ["run", "look", "--to", "complexity", "--model", "fake", "--store", "data"];
    let (code, _, error) = outcome(&folder, &run);
    assert_eq!(code, Some(1), "{error}");
    let again = error.lines().find_map(|line| line.strip_prefix("to retry turn 1, in a new run: callboard ")).unwrap();
    let (code, _, again) = outcome(&folder, &again.split(' ').collect::<Vec<_>>());
    assert!(again.contains("turn 1 of run "), "{again}");
    assert!(code == Some(1) && again.contains("the model's answer is not JSON"), "{code:?} {again}");
}

#[test]
fn a_run_whose_agent_is_missing_waits_for_its_file_without_its_process() {
    let (folder, model) = writer();
    let file = |name: &str| folder.path().join("agents").join(name);
    fs::write(file("other.toml"), "[agent]\nname = \"other\"\n").unwrap();
    model.calls("FileSearch", json!({ "pattern": "x" }));
    let (code, _, error) = outcome(&folder, &["run", "look", "--to", "writer", "--store", "data"]);
    assert_eq!(code, Some(5), "{error}");
    let hint = error.lines().find_map(|line| line.strip_prefix("to continue: callboard ")).unwrap();
    let again = [&hint.split(' ').collect::<Vec<_>>()[..], &["--json"]].concat();
    fs::rename(file("writer.toml"), file("writer.away")).unwrap();
    let (code, out, error) = outcome(&folder, &again);
    assert!(
        code == Some(5) && error.contains("turn 1 cannot continue: agent writer has no file in"),
        "{code:?} {error}"
    );
    assert!(out.contains("\"why\": \"agent writer is not registered"), "{out}");
    fs::rename(file("writer.away"), file("writer.toml")).unwrap();
    let (code, out, error) = outcome(&folder, &again);
    assert!(code == Some(5) && out.contains("\"approval\""), "{code:?} {out} {error}");
    assert!(!error.contains("cannot continue"), "the turn was restarted: {error}");
}

#[test]
fn resuming_a_run_does_not_create_a_store() {
    let (folder, _model) = writer();
    let (code, _, error) = outcome(&folder, &["run", "--resume", "0192", "--store", "typo"]);
    assert!(code == Some(3) && error.contains("there is no callboard store in typo"), "{error}");
    assert!(!folder.path().join("typo").exists());
}
