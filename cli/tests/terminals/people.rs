//! The person at the terminal who is asked by `callboard run`: on a pseudo-terminal, with a model on this machine.

#![cfg(unix)]

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use callboard::prelude::{Callboard, Sled, Turn, TurnError};
use callboard::workflow::Workflow;

use crate::model::Model;
use crate::screen::{Screen, code_on};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

const WRITER: &str = r#"
[agent]
name = "writer"
mode = "build"

[agent.capabilities]
allowed_tools = ["FileWrite", "AskUser"]
"#;

/// What ends each card.
const WAYS: &str = "(n)o, and why; (l)eave it waiting? ";

/// A folder with an agent that writes, and the model that it asks.
fn writer() -> (TempDir, Model) {
    let model = Model::start();
    (model.folder(WRITER), model)
}

/// `callboard ARGUMENTS` in the folder, on a terminal.
fn screen(folder: &TempDir, arguments: &[&str]) -> Screen {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(arguments).current_dir(folder).env("USER", "ann").env("NO_COLOR", "1");
    Screen::of(command)
}

fn file(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content })
}

/// What the file has; `None` if there is none.
fn content(folder: &TempDir, path: &str) -> Option<String> {
    fs::read_to_string(folder.path().join(path)).ok()
}

const RUN: [&str; 2] = ["run", "write"];

#[test]
fn yes_is_said_once() {
    let (folder, model) = writer();
    for _ in 0..2 {
        model.calls("FileWrite", file("a.txt", "one"));
    }
    model.says("written");
    let mut screen = screen(&folder, &RUN);
    let card = screen.until(WAYS);
    assert!(card.contains("action    FileWrite\n") && card.contains("target    a.txt\n"), "{card}");
    assert_eq!(content(&folder, "a.txt"), None, "nobody has said yes");
    screen.types("y\n");
    screen.until(WAYS);
    assert_eq!(content(&folder, "a.txt"), None, "a yes takes the code of its card");
    screen.consents(&card);
    screen.until(WAYS);
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"));
    fs::remove_file(folder.path().join("a.txt")).unwrap();
    screen.types("n no\n");
    screen.until("written\n");
    screen.ended();
    assert_eq!(content(&folder, "a.txt"), None, "it is asked about again");
}

#[test]
fn yes_for_the_run_holds_for_exactly_the_same() {
    let (folder, model) = writer();
    for path in ["a.txt", "b.txt", "a.txt"] {
        model.calls("FileWrite", file(path, "one"));
    }
    model.says("written");
    let mut screen = screen(&folder, &RUN);
    let card = screen.until(WAYS);
    screen.types(format!("r {}\n", code_on(&card)));
    let card = screen.until(WAYS);
    assert!(card.contains("target    b.txt\n"), "{card}");
    fs::remove_file(folder.path().join("a.txt")).unwrap();
    screen.types("n no\n");
    screen.until("written\n");
    screen.ended();
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"), "nobody was asked again");
}

#[test]
fn what_a_person_edits_is_what_is_done() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    model.says("written");
    let mut screen = screen(&folder, &RUN);
    let card = screen.until(WAYS);
    screen.types(format!("e {}\n", file("b.txt", "two")));
    let shown = screen.until("(b)ack? ");
    assert!(shown.contains("target    b.txt\n"), "{shown}");
    // The code of the card before is that of something else.
    screen.consents(&card);
    screen.until("(b)ack? ");
    screen.consents(&shown);
    screen.until("written\n");
    screen.ended();
    assert_eq!([content(&folder, "a.txt"), content(&folder, "b.txt")], [None, Some("two".to_owned())]);
}

#[test]
fn no_reaches_the_model_with_its_reason() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    model.says("as you like");
    let mut screen = screen(&folder, &RUN);
    screen.until(WAYS);
    screen.types("n not this file\n");
    screen.until("as you like\n");
    screen.ended();
    assert_eq!(content(&folder, "a.txt"), None);
    model.asked();
    assert_eq!(model.asked().answer(), "a person did not allow this: not this file");
}

#[test]
fn what_is_left_is_asked_again_when_the_run_goes_on() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    let mut left = screen(&folder, &["run", "write", "--store", "data"]);
    left.until(WAYS);
    left.types("l\n");
    let (code, told) = left.exited();
    assert_eq!((code, content(&folder, "a.txt")), (Some(3), None), "{told}");
    let resumption = told.lines().find_map(|line| line.strip_prefix("to go on: callboard ")).unwrap();
    let mut again = screen(&folder, &resumption.split(' ').collect::<Vec<_>>());
    let card = again.until(WAYS);
    assert!(card.contains("target    a.txt\n"), "{card}");
    model.says("written");
    again.consents(&card);
    again.until("written\n");
    again.ended();
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"));
}

#[test]
fn a_question_is_answered_at_the_terminal() {
    let (folder, model) = writer();
    model.calls("AskUser", json!({ "question": "Which colour?", "choices": ["red", "blue"] }));
    model.says("painted");
    let mut screen = screen(&folder, &RUN);
    screen.until("writer asks: Which colour?\n  1. red\n  2. blue\n> ");
    screen.types("2\n");
    screen.until("painted\n");
    screen.ended();
    model.asked();
    assert_eq!(model.asked().answer(), "blue");
}

#[test]
fn a_question_that_has_expired_is_not_asked_again_when_its_run_is_resumed_and_the_result_is_printed() {
    let painter =
        "[agent]\nname = \"painter\"\n[agent.capabilities]\nallowed_tools = [\"AskUser\"]\nquestion_ttl = \"1s\"\n";
    let asks = || {
        let model = Model::start();
        let folder = model.folder(painter);
        model.calls("AskUser", json!({ "question": "Which colour?" }));
        (folder, model)
    };
    let (folder, model) = asks();
    let (code, told) = screen(&folder, &["run", "paint", "--store", "data", "--no-input"]).exited();
    assert_eq!(code, Some(3), "{told}");
    // Another question, asked later for as long: once it has expired, so has the first one.
    let (other, slow) = asks();
    slow.says("late");
    screen(&other, &["run", "paint", "--ephemeral"]).until("the question is no longer open");
    model.says("white, then");
    let told = screen(&folder, &["run", "--resume", "@last", "--store", "data", "--no-input"]).ended();
    assert!(told.contains("white, then\n") && !told.contains("nobody at a terminal"), "{told}");
}

#[test]
fn a_run_is_left_at_the_terminal_once_all_that_is_left_of_it_needs_attention() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    let program = r#"
import json, sys
say = lambda **line: print(json.dumps(line), flush=True)
sys.stdin.readline()
say(type="ready", protocol=1)
turn = json.loads(sys.stdin.readline())
say(type="ask", id=1, question="Which colour?")
sys.stdin.readline()
say(type="command", turn=turn["id"], output={"message": "red", "done": True})
sys.stdin.read()
"#;
    fs::write(folder.path().join("ask.py"), program).unwrap();
    let file = |name: &str| folder.path().join(format!("agents/{name}.toml"));
    for name in ["one", "other"] {
        let agent = format!("[agent]\nname = \"{name}\"\n[agent.process]\ncommand = [\"python3\", \"ask.py\"]\n");
        fs::write(file(name), agent).unwrap();
    }
    let run = ["run", "paint", "--peers", "one,other", "--store", "data", "--no-input"];
    let (code, told) = screen(&folder, &run).exited();
    assert_eq!((code, told.matches("Which colour?").count()), (Some(3), 2), "{told}");
    fs::remove_file(file("other")).unwrap();
    let mut screen = screen(&folder, &["run", "--resume", "@last", "--store", "data"]);
    screen.until("asks: Which colour?\n> ");
    screen.types("red\n");
    screen.until("asks: Which colour?\n> ");
    screen.types("blue\n");
    let (code, told) = screen.exited();
    assert!(code == Some(3) && told.contains("to go on: callboard run --resume "), "{code:?} {told}");
}

/// A folder with the store of a run that its process has left, whose node `b` waits for a person after `a`.
fn left(deadline: Duration) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sled = Arc::new(Sled::open(folder.path().join("data")).unwrap());
        let begun = Arc::new(Notify::new());
        let notify = Arc::clone(&begun);
        let board = Callboard::builder()
            .storage(Arc::clone(&sled))
            .shutdown_grace(Duration::ZERO)
            .agent("a", move |_: Turn| {
                let begun = Arc::clone(&notify);
                async move {
                    begun.notify_one();
                    std::future::pending::<Result<callboard::prelude::Command, TurnError>>().await
                }
            })
            .agent("b", |_: Turn| async { Ok(callboard::prelude::Command::new()) })
            .start()
            .await
            .unwrap();
        let workflow = Workflow::from_line("publish", "a -> b(interrupt=\"before\")").unwrap();
        board.submit(workflow.task("a text").deadline(deadline)).await.unwrap();
        begun.notified().await;
        board.shutdown().await;
        sled.close().await;
    });
    folder
}

#[test]
fn a_node_that_waits_is_withdrawn_from_the_terminal_when_the_deadline_of_its_run_ends() {
    let folder = left(Duration::from_secs(10));
    let resume = ["workflow", "resume", "@last", "--store", "data", "--agent", "*=cat"];
    let mut screen = screen(&folder, &resume);
    screen.until("(l)eave it waiting? ");
    screen.types("g");
    let (code, told) = screen.exited();
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("b no longer waits for a person\n"), "{told}");
    assert!(told.contains("error: ") && told.contains("the deadline has passed"), "{told}");
}

#[test]
fn without_input_nobody_at_a_terminal_is_asked_and_what_would_be_is_told() {
    let asked = [
        ("FileWrite", file("a.txt", "one"), "target    a.txt\n"),
        ("AskUser", json!({ "question": "Which colour?", "choices": ["red"] }), "asks: Which colour?\n  1. red\n"),
    ];
    for (tool, arguments, shown) in asked {
        let (folder, model) = writer();
        model.calls(tool, arguments);
        let mut screen = screen(&folder, &["run", "write", "--no-input"]);
        screen.until("there is nobody at a terminal to ask:\n");
        let (code, told) = screen.exited();
        assert_eq!(code, Some(3), "{told}");
        assert!(told.contains(shown) && !told.contains("(y)es") && !told.contains("\n> "), "{told}");
        assert_eq!(content(&folder, "a.txt"), None);
    }
}
