//! The dialog of `callboard run` with the person at the terminal, with a model on this machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use callboard::prelude::{Callboard, Sled, Turn, TurnError};
use callboard::workflow::Workflow;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::screen::{Screen, code_on};
use crate::support::agents::{agent_with, python_agents};
use crate::support::model::Model;
use crate::support::runs::released;
use crate::support::{Killed, content, output_of};
use crate::{CHOICES, command, file, screen};

/// A folder with an agent that writes files and asks questions, and its model.
fn writer() -> (TempDir, Model) {
    let model = Model::start();
    (model.folder(&agent_with("writer", &["FileWrite", "AskUser"])), model)
}

const RUN: [&str; 2] = ["run", "write"];

#[test]
fn a_yes_approves_one_action_once() {
    let (folder, model) = writer();
    for _ in 0..2 {
        model.calls("FileWrite", file("a.txt", "one"));
    }
    model.answers("written");
    let mut screen = screen(&folder, &RUN);
    let card = screen.until(CHOICES);
    assert!(card.contains("action    FileWrite\n") && card.contains("target    a.txt\n"), "{card}");
    assert_eq!(content(&folder, "a.txt"), None, "nobody has approved it");
    screen.types("y\n");
    screen.until(CHOICES);
    assert_eq!(content(&folder, "a.txt"), None, "a yes takes the code of its card");
    screen.consents(&card);
    screen.until(CHOICES);
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"));
    fs::remove_file(folder.path().join("a.txt")).unwrap();
    screen.types("n no\n");
    screen.until("written\n");
    screen.ended();
    assert_eq!(content(&folder, "a.txt"), None, "it is asked about again");
}

#[test]
fn an_inbox_at_a_terminal_decides_what_another_process_waits_for() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    model.answers("written");
    let mut run = screen(&folder, &RUN);
    let card = run.until(CHOICES);
    let mut inbox = screen(&folder, &["inbox"]);
    let shown = inbox.until("skip, quit: ");
    assert!(shown.contains("1 approval\n"), "{shown}");
    assert!(shown.contains("approval         writer wants to FileWrite a.txt\n"), "{shown}");
    assert!(shown.contains("action    FileWrite\n") && shown.contains("target    a.txt\n"), "{shown}");
    inbox.types("approve\n");
    assert!(inbox.until("skip, quit: ").contains("type the code, which is of this card alone"));
    inbox.types(format!("{}\n", code_on(&card)));
    let (code, shown) = inbox.exited();
    assert!(code == Some(0) && shown.contains("approved\n"), "{shown}");
    run.until("written\n");
    run.ended();
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"));
}

/// The fields of the objects in lines until one has this kind.
fn kinds_until(lines: &mut impl BufRead, last: &str) -> Vec<String> {
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != last) {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "{last} is not printed: {kinds:?}");
        let object: Value = serde_json::from_str(&line).unwrap();
        kinds.push(object["kind"].as_str().unwrap().to_owned());
    }
    kinds
}

#[test]
fn a_run_at_a_terminal_is_watched_and_approved_by_other_processes() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    model.answers("written");
    let mut screen = screen(&folder, &RUN);
    screen.until(CHOICES);
    let mut watching = command(&folder, &["watch", "@last", "--json"]);
    let mut watching = Killed(watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watching.0.stdout.take().unwrap());
    kinds_until(&mut lines, "waits");
    let approved = output_of(command(&folder, &["approve", "@last"]));
    assert_eq!(approved.code, Some(0), "{}", approved.error);
    screen.until("written\n");
    screen.ended();
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"));
    assert!(kinds_until(&mut lines, "ended").contains(&"continues".to_owned()));
    assert_eq!(watching.0.wait().unwrap().code(), Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn where_nothing_can_be_hidden_from_programs_a_server_takes_decisions_at_its_own_terminal_from_its_start_on() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    model.answers("written");
    let served = command(&folder, &["serve", "--listen", "127.0.0.1:0"]);
    // A user namespace in which no further ones can be made.
    let line = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let mut apart = Command::new("unshare");
    apart.args(["--user", "--map-root-user", "sh", "-c", line]).arg(served.get_program()).args(served.get_args());
    apart.current_dir(&folder).env_clear().envs(served.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut screen = Screen::of(apart);
    // The warning and the address are written to two streams, in either order.
    if !screen.until("takes decisions only at its own terminal").contains("http://127.0.0.1:") {
        screen.until("http://127.0.0.1:");
    }
    assert_eq!(output_of(command(&folder, &["send", "writer", "write"])).code, Some(0));
    let card = screen.until(CHOICES);
    // No program was started yet.
    let refused = output_of(command(&folder, &["approve", "@last"]));
    let why = "decide at the terminal of the process that works on the run";
    assert!(refused.code == Some(4) && refused.error.contains(why), "{:?} {}", refused.code, refused.error);
    assert_eq!(content(&folder, "a.txt"), None);
    screen.consents(&card);
    // The second one follows the decision.
    model.request();
    model.request();
    let waited = output_of(command(&folder, &["wait", "@last"]));
    assert_eq!((waited.code, &*waited.out), (Some(0), "written\n"), "{}", waited.error);
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"));
    screen.sends(Signal::INT);
    screen.ended();
}

#[test]
fn an_approval_for_the_run_covers_only_equal_actions() {
    let (folder, model) = writer();
    for path in ["a.txt", "b.txt", "a.txt"] {
        model.calls("FileWrite", file(path, "one"));
    }
    model.answers("written");
    let mut screen = screen(&folder, &RUN);
    let card = screen.until(CHOICES);
    screen.types(format!("r {}\n", code_on(&card)));
    let card = screen.until(CHOICES);
    assert!(card.contains("target    b.txt\n"), "{card}");
    fs::remove_file(folder.path().join("a.txt")).unwrap();
    screen.types("n no\n");
    screen.until("written\n");
    screen.ended();
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"), "nobody was asked again");
}

#[test]
fn an_edited_action_is_done_in_place_of_the_original() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    model.answers("written");
    let mut screen = screen(&folder, &RUN);
    let card = screen.until(CHOICES);
    screen.types(format!("e {}\n", file("b.txt", "two")));
    let shown = screen.until("(b)ack? ");
    assert!(shown.contains("target    b.txt\n"), "{shown}");
    // The code of the first card is that of another action.
    screen.consents(&card);
    screen.until("(b)ack? ");
    screen.consents(&shown);
    screen.until("written\n");
    screen.ended();
    assert_eq!([content(&folder, "a.txt"), content(&folder, "b.txt")], [None, Some("two".to_owned())]);
}

#[test]
fn a_refusal_reaches_the_model_with_its_reason() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    model.answers("as you like");
    let mut screen = screen(&folder, &RUN);
    screen.until(CHOICES);
    screen.types("n not this file\n");
    screen.until("as you like\n");
    screen.ended();
    assert_eq!(content(&folder, "a.txt"), None);
    model.request();
    assert_eq!(model.request().tool_result(), "a person did not allow this: not this file");
}

#[test]
fn an_approval_that_is_left_open_is_asked_again_when_the_run_is_resumed() {
    let (folder, model) = writer();
    model.calls("FileWrite", file("a.txt", "one"));
    let mut left = screen(&folder, &["run", "write", "--store", "data"]);
    left.until(CHOICES);
    left.types("l\n");
    let (code, shown) = left.exited();
    assert_eq!((code, content(&folder, "a.txt")), (Some(5), None), "{shown}");
    let resumption = shown.lines().find_map(|line| line.strip_prefix("to continue: callboard ")).unwrap();
    let mut again = screen(&folder, &resumption.split(' ').collect::<Vec<_>>());
    let card = again.until(CHOICES);
    assert!(card.contains("target    a.txt\n"), "{card}");
    model.answers("written");
    again.consents(&card);
    again.until("written\n");
    again.ended();
    assert_eq!(content(&folder, "a.txt").as_deref(), Some("one"));
}

#[test]
fn a_question_is_answered_at_the_terminal() {
    let (folder, model) = writer();
    model.calls("AskUser", json!({ "question": "Which colour?", "choices": ["red", "blue"] }));
    model.answers("painted");
    let mut screen = screen(&folder, &RUN);
    screen.until("writer asks: Which colour?\n  1. red\n  2. blue\n> ");
    screen.types("2\n");
    screen.until("painted\n");
    screen.ended();
    model.request();
    assert_eq!(model.request().tool_result(), "blue");
}

#[test]
fn an_expired_question_is_not_asked_again_when_its_run_is_resumed() {
    let painter = agent_with("painter", &["AskUser"]) + "question_ttl = \"1s\"\n";
    let asks = || {
        let model = Model::start();
        let folder = model.folder(&painter);
        model.calls("AskUser", json!({ "question": "Which colour?" }));
        (folder, model)
    };
    let (folder, model) = asks();
    let (code, shown) = screen(&folder, &["run", "paint", "--store", "data", "--no-input"]).exited();
    assert_eq!(code, Some(5), "{shown}");
    // Another question, asked later for as long: once it has expired, so has the first one.
    let (other, slow) = asks();
    slow.answers("late");
    screen(&other, &["run", "paint", "--ephemeral"]).until("the question is no longer open");
    model.answers("white, then");
    let shown = screen(&folder, &["run", "--resume", "@last", "--store", "data", "--no-input"]).ended();
    assert!(shown.contains("white, then\n") && !shown.contains("nobody at a terminal"), "{shown}");
}

#[test]
fn a_run_whose_open_turns_all_need_attention_ends_the_process_at_a_terminal() {
    let program = r#"
tell(type="ask", id=1, question="Which colour?")
sys.stdin.readline()
end(turn, {"message": "red", "done": True})
sys.stdin.read()
"#;
    let folder = python_agents(&[("one", program), ("other", program)]);
    let run = ["run", "paint", "--peers", "one,other", "--store", "data", "--no-input"];
    let (code, shown) = screen(&folder, &run).exited();
    assert_eq!((code, shown.matches("Which colour?").count()), (Some(5), 2), "{shown}");
    fs::remove_file(folder.path().join("agents/other.toml")).unwrap();
    let mut screen = screen(&folder, &["run", "--resume", "@last", "--store", "data"]);
    screen.until("asks: Which colour?\n> ");
    screen.types("red\n");
    screen.until("asks: Which colour?\n> ");
    screen.types("blue\n");
    let (code, shown) = screen.exited();
    assert!(code == Some(5) && shown.contains("to continue: callboard run --resume "), "{code:?} {shown}");
}

/// A folder with the store of a run that its process has left. Its node `b` will wait for a person after `a`.
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
        sled.close().await.unwrap();
    });
    released(&folder.path().join("data"));
    folder
}

#[test]
fn the_prompt_of_an_interrupted_node_is_withdrawn_at_the_deadline_of_its_run() {
    let folder = left(Duration::from_secs(10));
    let resume = ["workflow", "resume", "@last", "--store", "data", "--agent", "*=cat"];
    let mut screen = screen(&folder, &resume);
    screen.until("(l)eave it waiting? ");
    screen.types("g");
    let (code, shown) = screen.exited();
    assert_eq!(code, Some(124), "{shown}");
    assert!(shown.contains("b no longer waits for a person\n"), "{shown}");
    assert!(shown.contains("error: ") && shown.contains("the deadline has passed"), "{shown}");
}

#[test]
fn run_refuses_a_waiting_run_of_a_workflow_at_a_terminal_too() {
    let (folder, _model) = writer();
    let run = ["workflow", "run", "--line", "writer(interrupt=\"before\")", "--agents", "agents", "--model", "fake"];
    let waits = output_of(command(&folder, &[&run[..], &["--store", "data", "--no-input"]].concat()));
    assert_eq!(waits.code, Some(5), "{}", waits.error);
    let (code, shown) = screen(&folder, &["run", "--resume", "@last", "--store", "data"]).exited();
    assert!(code == Some(2) && shown.contains("to resume it: callboard workflow resume "), "{code:?} {shown}");
}

#[test]
fn with_no_input_nobody_is_asked_and_the_waits_are_printed() {
    let asked = [
        ("FileWrite", file("a.txt", "one"), "target    a.txt\n"),
        ("AskUser", json!({ "question": "Which colour?", "choices": ["red"] }), "asks: Which colour?\n  1. red\n"),
    ];
    for (tool, arguments, expected) in asked {
        let (folder, model) = writer();
        model.calls(tool, arguments);
        let mut screen = screen(&folder, &["run", "write", "--no-input"]);
        screen.until("there is nobody at a terminal to ask:\n");
        let (code, shown) = screen.exited();
        assert_eq!(code, Some(5), "{shown}");
        assert!(shown.contains(expected) && !shown.contains("(y)es") && !shown.contains("\n> "), "{shown}");
        assert_eq!(content(&folder, "a.txt"), None);
    }
}
