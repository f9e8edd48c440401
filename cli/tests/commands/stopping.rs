//! How `callboard run` ends before its time, and what it says when nobody reads: real processes, real signals, and a model on this
//! machine.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::model::Model;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than any program takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

const WRITER: &str =
    "[agent]\nname = \"writer\"\n[agent.capabilities]\nallowed_tools = [\"FileSearch\"]\nask = [\"FileSearch\"]\n";

fn writer() -> (TempDir, Model) {
    let model = Model::start();
    (model.folder(WRITER), model)
}

fn command(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn sends(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Reads until a line has this.
fn until(told: &mut BufReader<ChildStderr>, expected: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(expected) {
        assert!(told.read_line(&mut seen).unwrap() > 0, "{expected:?} is not told: {seen}");
    }
    seen
}

/// Its code, what it printed, and what else it told.
fn ended(child: Child, mut told: BufReader<ChildStderr>) -> (Option<i32>, String, String) {
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), rest)
}

#[test]
fn a_turn_that_ends_in_the_time_that_is_left_to_it_is_the_end_of_its_run() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (folder, model) = writer();
        let data = tempfile::tempdir().unwrap();
        let store = data.path().to_str().unwrap();
        let mut child = command(&folder, &["run", "write", "--store", store]).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        model.asked();
        sends(&child, signal);
        until(&mut told, "stopping: turns that run have 10 s to end");
        model.says("late, and whole");
        let (code, out, rest) = ended(child, told);
        assert_eq!((code, out.as_str()), (Some(0), "late, and whole\n"), "{signal:?} {rest}");
        assert!(!rest.contains("to go on") && !rest.contains("nothing of it is kept"), "{rest}");
    }
}

#[test]
fn a_second_signal_stops_at_once_what_the_first_lets_end() {
    let (folder, model) = writer();
    let mut child = command(&folder, &["run", "write", "--ephemeral"]).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    model.asked();
    sends(&child, Signal::INT);
    until(&mut told, "Ctrl-C again stops them at once");
    sends(&child, Signal::INT);
    // Whoever still waits for the turn would see it end well.
    for _ in 0..5 {
        model.calls("NoSuchTool", json!({}));
    }
    model.says("done");
    let (code, out, rest) = ended(child, told);
    assert_eq!((code, out.as_str()), (Some(130), ""), "{rest}");
    assert!(rest.contains("nothing of it is kept"), "{rest}");
}

#[test]
fn a_hangup_that_is_to_be_ignored_is() {
    let (folder, model) = writer();
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_callboard")).args(["run", "write", "--quiet", "--ephemeral"]).current_dir(&folder);
    let child = nohup.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    model.asked();
    sends(&child, Signal::HUP);
    model.says("still here");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"still here\n"[..]));
}

#[test]
fn a_reader_of_what_is_told_who_goes_away_does_not_cost_the_answer() {
    let (folder, model) = writer();
    let mut child = command(&folder, &["run", "write"]).spawn().unwrap();
    drop(child.stderr.take());
    model.asked();
    model.says("the answer");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"the answer\n"[..]));
}

#[test]
fn nobody_who_does_not_read_keeps_it_from_being_stopped() {
    let (folder, model) = writer();
    let mut child = command(&folder, &["run", "write"]).spawn().unwrap();
    let (_unread, _printed) = (child.stderr.take(), child.stdout.take());
    model.asked();
    model.says(&"many words\n".repeat(100_000));
    let pid = Pid::from_child(&child);
    let (tell, status) = mpsc::channel::<ExitStatus>();
    let waiting = std::thread::spawn(move || tell.send(child.wait().unwrap()));
    let (mut tries, pause) = (0, Duration::from_millis(100));
    let status = loop {
        match status.recv_timeout(pause) {
            Ok(status) => break status,
            Err(_) if pause * tries < DEADLINE => {
                let _ = kill_process(pid, Signal::TERM);
                tries += 1;
            }
            Err(why) => {
                let _ = kill_process(pid, Signal::KILL);
                panic!("it hears nothing: {why}");
            }
        }
    };
    waiting.join().unwrap().unwrap();
    assert_eq!(status.code(), Some(130));
}

fn told(folder: &TempDir, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(folder, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_a_run_waits_for_is_told_to_machines_too() {
    let (folder, model) = writer();
    model.calls("FileSearch", json!({ "pattern": "x" }));
    let (code, out, error) = told(&folder, &["run", "look", "--json", "--store", "data"]);
    assert_eq!(code, Some(3), "{error}");
    let waits: Value = serde_json::from_str(&out).unwrap();
    let asked = &waits["waits_for"][0];
    assert_eq!((&asked["action"], &asked["arguments"]), (&"FileSearch".into(), &json!({ "pattern": "x" })));
    let hint = waits["to_go_on"].as_str().unwrap();
    assert!(hint.starts_with(&format!("callboard run --resume {}", waits["run"].as_str().unwrap())), "{hint}");
    // A store in the folder of the tools is in the way of commands, and this agent has none.
    assert!(!error.contains("lies in the folder of the tools"), "{error}");
}

/// A program that asks two questions and for two consents at once, and waits for the answers.
const ASKS: &str = r#"
import json, sys
sys.stdin.readline()
print(json.dumps({"type": "ready", "protocol": 1}), flush=True)
sys.stdin.readline()
asks = [{"type": "ask", "id": n, "question": f"Question {n}?"} for n in [1, 2]]
pays = [{"type": "approve", "id": n, "action": "pay", "target": f"order {n}", "arguments": {"n": n}} for n in [3, 4]]
print("\n".join(map(json.dumps, asks + pays)), flush=True)
open("asked", "w").close()
sys.stdin.read()
"#;

/// A program that works on while the other one waits.
const WORKS: &str = r#"
import json, os, sys, time
sys.stdin.readline()
print(json.dumps({"type": "ready", "protocol": 1}), flush=True)
turn = json.loads(sys.stdin.readline())
while not os.path.exists("asked"):
    time.sleep(0.01)
time.sleep(1)
print(json.dumps({"type": "command", "turn": turn["id"]}), flush=True)
"#;

const ASKS_LAST: &str = r#"
import json, sys
sys.stdin.readline()
print(json.dumps({"type": "ready", "protocol": 1}), flush=True)
sys.stdin.readline()
print(json.dumps({"type": "ask", "id": 1, "question": "The last one?"}), flush=True)
sys.stdin.read()
"#;

/// A folder with these programs as agents.
fn programs(programs: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    for (name, script) in programs {
        fs::write(folder.path().join(format!("{name}.py")), script).unwrap();
        let agent = format!("[agent]\nname = \"{name}\"\n[agent.process]\ncommand = [\"python3\", \"{name}.py\"]\n");
        fs::write(folder.path().join(format!("agents/{name}.toml")), agent).unwrap();
    }
    folder
}

/// What a run waits for that has ended with this JSON, in a word each.
fn waits_for(out: &str) -> Vec<String> {
    let waits: Value = serde_json::from_str(out).unwrap();
    let word = |wait: &Value| wait["question"].as_str().or(wait["target"].as_str()).unwrap().to_owned();
    let mut waits: Vec<String> = waits["waits_for"].as_array().unwrap().iter().map(word).collect();
    waits.sort();
    waits
}

#[test]
fn all_that_a_run_waits_for_is_named_when_nobody_is_there_to_be_asked() {
    let folder = programs(&[("asks", ASKS)]);
    let all = ["Question 1?", "Question 2?", "order 3", "order 4"];
    for begin in [&["run", "x"][..], &["run", "--resume", "@last"]] {
        let (code, out, error) = told(&folder, &[begin, &["--no-input", "--json", "--store", "data"]].concat());
        assert_eq!((code, waits_for(&out)), (Some(3), all.map(str::to_owned).to_vec()), "{error}");
        let cards = all.map(|one| error.matches(one).count());
        assert_eq!((error.matches("nobody at a terminal").count(), cards), (1, [1; 4]), "{error}");
    }
}

#[test]
fn a_run_that_waits_for_a_person_is_left_once_none_of_its_nodes_works() {
    let folder = programs(&[("asks", ASKS), ("works", WORKS), ("last", ASKS_LAST)]);
    let line = ["workflow", "run", "--line", "asks | works -> last", "--agents", "agents"];
    let (code, out, error) = told(&folder, &[&line[..], &["--no-input", "--json", "--store", "data"]].concat());
    let all = ["Question 1?", "Question 2?", "The last one?", "order 3", "order 4"];
    assert_eq!((code, waits_for(&out)), (Some(3), all.map(str::to_owned).to_vec()), "{error}");
}

#[test]
fn a_run_that_waits_for_an_answer_is_listed_as_such_and_shown_with_its_question() {
    let folder = programs(&[("last", ASKS_LAST)]);
    let question = ["run", "x", "--no-input", "--store", "question"];
    let node =
        ["workflow", "run", "--line", "a(interrupt=\"before\")", "--agent", "a=cat", "--no-input", "--store", "node"];
    for (run, shown) in
        [(&question[..], "question   last asks: The last one?\n"), (&node, "node       a waits for a person\n")]
    {
        let store = run[run.len() - 1];
        let (code, _, error) = told(&folder, run);
        assert_eq!(code, Some(3), "{error}");
        let runs = |arguments: &[&str]| told(&folder, &[&["runs"], arguments, &["--store", store]].concat()).1;
        assert!(runs(&["list"]).contains("waits for an answer"), "{}", runs(&["list"]));
        let listed: Value = serde_json::from_str(&runs(&["list", "--state", "waits_for_answer", "--json"])).unwrap();
        assert_eq!(listed[0]["status"], "waits_for_answer", "{listed}");
        assert_eq!(runs(&["list", "--state", "open"]), "there are no such runs\n");
        let text = runs(&["show", "@last"]);
        assert!(text.contains(shown) && text.contains("waits for an answer, after "), "{text}");
    }
    let (_, out, _) = told(&folder, &["runs", "show", "@last", "--json", "--store", "question"]);
    let shown: Value = serde_json::from_str(&out).unwrap();
    let asked = json!([{ "agent": "last", "question": "The last one?", "expires_at": null, "is_expired": false }]);
    assert_eq!((&shown["status"], &shown["waits_for"]), (&"waits_for_answer".into(), &asked));
}

#[test]
fn a_run_that_a_signal_has_stopped_is_told_to_machines_with_the_way_to_continue_it() {
    let stopped = |mut command: Command, signal, begun: &dyn Fn()| {
        let mut child = command.spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        until(&mut told, "run 0");
        begun();
        sends(&child, signal);
        until(&mut told, "Ctrl-C again stops them at once");
        sends(&child, signal);
        let (code, out, rest) = ended(child, told);
        assert_eq!(code, Some(130), "{rest}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let is_continued = |stopped: &Value, command: &str| {
        let (run, to_go_on) = (stopped["run"].as_str().unwrap(), stopped["to_go_on"].as_str().unwrap());
        assert!(to_go_on.starts_with(&format!("callboard {command} {run} --store data")), "{to_go_on}");
        assert_eq!((&stopped["error"], &stopped["code"]), (&"a signal came before the run ended".into(), &130.into()));
    };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (folder, model) = writer();
        let run = command(&folder, &["run", "write", "--json", "--store", "data"]);
        is_continued(&stopped(run, signal, &|| drop(model.asked())), "run --resume");
    }
    let folder = tempfile::tempdir().unwrap();
    let run = ["workflow", "run", "--line", "a", "--agent", "a=sleep 600", "--json", "--store", "data"];
    is_continued(&stopped(command(&folder, &run), Signal::INT, &|| {}), "workflow resume");
}

#[test]
fn a_store_in_the_folder_of_the_tools_is_told_of_to_whoever_has_a_shell() {
    let (folder, _model) = writer();
    fs::write(folder.path().join("agents/writer.toml"), WRITER.replace("FileSearch", "ShellExec")).unwrap();
    for (store, is_told) in [("data", true), ("../callboard-elsewhere", false)] {
        let (code, _, error) = told(&folder, &["run", "x", "--model", "fake", "--no-input", "--store", store]);
        assert!(matches!(code, Some(0 | 3)), "{error}");
        assert_eq!(error.contains(&format!("the store {store} lies in the folder of the tools")), is_told, "{error}");
    }
    fs::remove_dir_all(folder.path().join("../callboard-elsewhere")).unwrap();
}

#[test]
fn no_tool_sees_the_stores_of_other_projects() {
    let (folder, model) = writer();
    let free = WRITER.replace("ask = [\"FileSearch\"]\n", "");
    fs::write(folder.path().join("agents/writer.toml"), free).unwrap();
    let other = folder.path().join("state/callboard/other-0123456789ab/1");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("db"), "needle").unwrap();
    fs::write(folder.path().join("state/seen.txt"), "needle").unwrap();
    model.calls("FileSearch", json!({ "pattern": "needle" }));
    model.says("done");
    let elsewhere = tempfile::tempdir().unwrap();
    for store in [&[][..], &["--store", elsewhere.path().to_str().unwrap()]] {
        let mut command = command(&folder, &["run", "look"]);
        let output = command.args(store).env("XDG_STATE_HOME", folder.path().join("state")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        model.asked();
        let told = model.asked();
        assert!(told.answer().contains("seen.txt") && !told.answer().contains("other-"), "{}", told.answer());
        model.calls("FileSearch", json!({ "pattern": "needle" }));
        model.says("done");
    }
}

#[test]
fn a_run_that_goes_on_takes_nothing_that_it_was_given_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let given = [["--to", "a"], ["--input", "1"], ["--rounds", "2"], ["--pipeline", "a,b"]];
    for [option, value] in given.into_iter().chain([["--peers", "a,b"], ["--review", "a,b,c"]]) {
        for way in ["--resume", "--retry"] {
            let (code, _, error) = told(&folder, &["run", way, "@last", option, value]);
            assert_eq!(code, Some(2), "{option}: {error}");
            assert!(error.contains("cannot be used with") && error.contains(way), "{option}: {error}");
        }
    }
}

#[test]
fn a_run_that_failed_names_the_way_to_try_again() {
    let (folder, _model) = writer();
    let run = ["run", "look", "--to", "complexity", "--model", "fake", "--store", "data"];
    let (code, _, error) = told(&folder, &run);
    assert_eq!(code, Some(1), "{error}");
    let again =
        error.lines().find_map(|line| line.strip_prefix("to do turn 1 again, in a new run: callboard ")).unwrap();
    let (code, _, again) = told(&folder, &again.split(' ').collect::<Vec<_>>());
    assert!(again.contains("turn 1 of run "), "{again}");
    assert!(code == Some(1) && again.contains("the model's answer is not JSON"), "{code:?} {again}");
}

#[test]
fn a_run_whose_agent_is_gone_waits_for_its_file_and_not_for_ever() {
    let (folder, model) = writer();
    let file = |name: &str| folder.path().join("agents").join(name);
    fs::write(file("other.toml"), "[agent]\nname = \"other\"\n").unwrap();
    model.calls("FileSearch", json!({ "pattern": "x" }));
    let (code, _, error) = told(&folder, &["run", "look", "--to", "writer", "--store", "data"]);
    assert_eq!(code, Some(3), "{error}");
    let hint = error.lines().find_map(|line| line.strip_prefix("to go on: callboard ")).unwrap();
    let again = [&hint.split(' ').collect::<Vec<_>>()[..], &["--json"]].concat();
    fs::rename(file("writer.toml"), file("writer.away")).unwrap();
    let (code, out, error) = told(&folder, &again);
    assert!(code == Some(3) && error.contains("turn 1 cannot go on: agent writer has no file in"), "{code:?} {error}");
    assert!(out.contains("\"needs_attention\": \"agent writer is not registered"), "{out}");
    fs::rename(file("writer.away"), file("writer.toml")).unwrap();
    let (code, out, error) = told(&folder, &again);
    assert!(code == Some(3) && out.contains("\"approval\""), "{code:?} {out} {error}");
    assert!(!error.contains("cannot go on"), "it has been dealt with: {error}");
}

#[test]
fn a_run_to_go_on_with_is_looked_for_in_a_store_that_is_there() {
    let (folder, _model) = writer();
    let (code, _, error) = told(&folder, &["run", "--resume", "0192", "--store", "typo"]);
    assert!(code == Some(2) && error.contains("there is no callboard store in typo"), "{error}");
    assert!(!folder.path().join("typo").exists());
}
