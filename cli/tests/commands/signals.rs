//! Signals and readers that do not read: real processes, and a model on this machine.

#![cfg(unix)]

use std::fs;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::agents::searcher;
use crate::support::model::Model;
use crate::support::running::Running;
use crate::support::{CALLBOARD, Printed, command, folder_with, make_pipe};

/// Longer than any program takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn writer() -> (TempDir, Model) {
    let model = Model::start();
    (model.folder(&searcher("writer")), model)
}

#[test]
fn a_turn_that_ends_within_the_grace_period_finishes_its_run() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (folder, model) = writer();
        let data = tempfile::tempdir().unwrap();
        let store = data.path().to_str().unwrap();
        let mut run = Running::start(command(&folder, &["run", "write", "--store", store]));
        model.request();
        run.send(signal);
        run.until("stopping: turns that run have 10 s to end");
        model.answers("late, and whole");
        let Printed { code, out, error: rest } = run.ended();
        assert_eq!((code, out.as_str()), (Some(0), "late, and whole\n"), "{signal:?} {rest}");
        assert!(!rest.contains("continue"), "{rest}");
    }
}

#[test]
fn a_program_that_ends_within_the_grace_period_finishes_the_run_of_its_workflow() {
    let program = "a=echo > begun; read word < go; tr a-z A-Z";
    let begin = ["workflow", "run", "--line", "a", "--input-json", "\"late\"", "--agent", program];
    for (signal, flags) in [
        (Signal::INT, &["--ephemeral"][..]),
        (Signal::TERM, &["--store", "data"]),
        (Signal::HUP, &["--ephemeral", "--json"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for pipe in ["begun", "go"] {
            make_pipe(folder.path().join(pipe));
        }
        let mut run = Running::start(command(&folder, &[&begin[..], flags].concat()));
        // Ends once the program has begun.
        fs::read(folder.path().join("begun")).unwrap();
        run.send(signal);
        run.until("stopping: programs that run have 10 s to end");
        fs::write(folder.path().join("go"), "go\n").unwrap();
        let Printed { code, out, error: rest } = run.ended();
        assert!(code == Some(0) && out.contains("LATE"), "{signal:?} {code:?} {out} {rest}");
        assert!(!rest.contains("continue"), "{rest}");
    }
}

#[test]
fn a_signal_before_a_run_or_a_check_began_is_reported_and_ends_with_130() {
    let servers = "[[servers]]\nname = \"slow\"\ncommand = [\"sh\", \"-c\", \"echo > begun; exec sleep 600\"]\n";
    let agent = searcher("writer");
    for (arguments, reported) in [
        (&["run", "write", "--ephemeral", "--model", "fake"][..], "stopped before the run began\n"),
        (&["check"], "error: a signal came before the check ended\n"),
    ] {
        let folder = folder_with(&[("agents/writer.toml", &*agent), ("mcp.toml", servers)]);
        make_pipe(folder.path().join("begun"));
        let run = Running::start(command(&folder, arguments));
        // Ends once the server has been started.
        fs::read(folder.path().join("begun")).unwrap();
        run.send(Signal::INT);
        let Printed { code, out, error } = run.ended();
        assert_eq!((code, &*out, &*error), (Some(130), "", reported), "{arguments:?}");
    }
}

#[test]
fn a_second_signal_stops_turns_that_the_first_one_lets_end() {
    let (folder, model) = writer();
    let mut run = Running::start(command(&folder, &["run", "write", "--ephemeral"]));
    model.request();
    run.send(Signal::INT);
    run.until("Ctrl-C again stops them at once");
    run.send(Signal::INT);
    // A process that still waited for the turn would see it finish.
    for _ in 0..5 {
        model.calls("NoSuchTool", json!({}));
    }
    model.answers("done");
    let Printed { code, out, error: rest } = run.ended();
    assert_eq!((code, out.as_str()), (Some(130), ""), "{rest}");
    assert!(rest.contains("--ephemeral stores nothing of it"), "{rest}");
}

#[test]
fn a_hangup_that_is_ignored_at_the_start_stays_ignored() {
    let (folder, model) = writer();
    let mut nohup = Command::new("nohup");
    nohup.arg(CALLBOARD).args(["run", "write", "--quiet", "--ephemeral"]).current_dir(&folder).stdin(Stdio::null());
    let run = Running::start(nohup);
    model.request();
    run.send(Signal::HUP);
    model.answers("still here");
    let Printed { code, out, error: rest } = run.ended();
    assert_eq!((code, out.as_str()), (Some(0), "still here\n"), "{rest}");
}

#[test]
fn a_closed_standard_error_does_not_lose_the_answer() {
    let (folder, model) = writer();
    let Running { process, errors } = Running::start(command(&folder, &["run", "write"]));
    drop(errors);
    model.request();
    model.answers("the answer");
    let output = process.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"the answer\n"[..]));
}

#[test]
fn a_process_whose_output_is_not_read_receives_signals() {
    let (folder, model) = writer();
    let Running { mut process, errors } = Running::start(command(&folder, &["run", "write"]));
    let (_unread, _printed) = (errors, process.stdout.take());
    model.request();
    model.answers(&"many words\n".repeat(100_000));
    let pid = Pid::from_child(&process);
    let (sender, status) = mpsc::channel::<ExitStatus>();
    let waiting = std::thread::spawn(move || sender.send(process.wait().unwrap()));
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
                panic!("it receives no signal: {why}");
            }
        }
    };
    waiting.join().unwrap().unwrap();
    assert_eq!(status.code(), Some(130));
}

#[test]
fn the_json_of_a_run_that_a_signal_has_stopped_has_the_command_line_that_continues_it() {
    let stopped = |command: Command, signal, begun: &dyn Fn()| {
        let mut run = Running::start(command);
        run.until("run req-");
        begun();
        run.send(signal);
        run.until("Ctrl-C again stops them at once");
        run.send(signal);
        let Printed { code, out, error: rest } = run.ended();
        assert_eq!(code, Some(130), "{rest}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let is_continued = |stopped: &Value, command: &str| {
        let (run, to_continue) = (stopped["run"].as_str().unwrap(), stopped["to_continue"].as_str().unwrap());
        assert!(to_continue.starts_with(&format!("callboard {command} {run} --store data")), "{to_continue}");
        assert_eq!((&stopped["error"], &stopped["code"]), (&"a signal came before the run ended".into(), &130.into()));
    };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (folder, model) = writer();
        let run = command(&folder, &["run", "write", "--json", "--store", "data"]);
        is_continued(&stopped(run, signal, &|| drop(model.request())), "run --resume");
    }
    let folder = tempfile::tempdir().unwrap();
    let run = ["workflow", "run", "--line", "a", "--agent", "a=sleep 600", "--json", "--store", "data"];
    is_continued(&stopped(command(&folder, &run), Signal::INT, &|| {}), "workflow resume");
}
