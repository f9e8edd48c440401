//! Runs whose agents are on no board that lives: what commands say about them, and how soon. Real processes on a real server, as in
//! `database`.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::database::{ASKS, PUBLISHES, command_on, database, done, on, project, sent, serve, until};
use crate::support::agents::add_python_agent;
use crate::support::project::Project;
use crate::support::running::Running;
use crate::support::serving::Serving;

/// What is printed about a run of this agent.
fn waits_for(agent: &str) -> String {
    format!("waits for a board that has `{agent}`")
}

const TO_START: &str = "in the project that declares it: callboard serve\n";

/// A run of this agent that waits for a person.
fn waiting(project: &Project, store: &str, agent: &str) -> String {
    let run = sent(project, store, agent);
    assert_eq!(on(project, store, &["wait", &run]).code, Some(5));
    run
}

#[test]
fn a_run_whose_agent_is_on_no_board_is_shown_and_refused_with_its_name_and_what_to_start() {
    let store = database("missing", "postgres");
    let a = project("asker", ASKS);
    add_python_agent(&a.folder, "clerk", PUBLISHES);
    let (b, c) = (project("other", "end(turn, 'done')\n"), Project::new());
    done(&on(&a, &store, &["store", "migrate"]));
    let (first, second) = (serve(&a, &store, "a"), serve(&b, &store, "b"));
    let [asker, clerk] = ["asker", "clerk"].map(|agent| waiting(&a, &store, agent));
    first.stop();
    for (run, agent) in [(&asker, "asker"), (&clerk, "clerk")] {
        let status = done(&on(&c, &store, &["status", run])).out.clone();
        assert!(status.contains(&waits_for(agent)) && status.ends_with(TO_START), "{status}");
        let shown = done(&on(&c, &store, &["status", run, "--json"])).json();
        assert_eq!((&shown["waits_for_agents"], &shown["is_worked_on"]), (&json!([agent]), &json!(false)));
        let inbox = on(&c, &store, &["inbox"]).out;
        assert!(inbox.contains(&format!("{}; to start one, and decide then, {TO_START}", waits_for(agent))), "{inbox}");
    }
    let refused = |command: &[&str], agent: &str| {
        let refused = on(&c, &store, command);
        let (run, waits) = (command[1], waits_for(agent));
        let meant = format!("error: run {run} {waits}\n    to start one, and decide then, {TO_START}");
        assert_eq!((refused.code, refused.error), (Some(6), meant));
    };
    refused(&["answer", &asker, "this one"], "asker");
    refused(&["approve", &clerk], "clerk");
    refused(&["deny", &clerk], "clerk");
    second.stop();
    // No board is there at all.
    refused(&["approve", &clerk], "clerk");
    let again = serve(&a, &store, "a");
    done(&on(&c, &store, &["approve", &clerk]));
    done(&on(&c, &store, &["answer", &asker, "this one"]));
    assert_eq!(done(&on(&c, &store, &["wait", &asker])).out, "this one\n");
    assert_eq!(done(&on(&c, &store, &["status", &asker, "--json"])).json()["waits_for_agents"], Value::Null);
    again.stop();
}

#[test]
fn a_decision_about_a_run_of_a_suspended_board_is_refused_where_no_other_has_its_agent() {
    let store = database("missing_frozen", "postgres");
    let a = project("clerk", PUBLISHES);
    let (b, c) = (project("other", "end(turn, 'done')\n"), Project::new());
    done(&on(&a, &store, &["store", "migrate"]));
    let (first, second) = (serve(&a, &store, "a"), serve(&b, &store, "b"));
    let run = waiting(&a, &store, "clerk");
    kill_process(Pid::from_child(first.process.as_ref().unwrap()), Signal::STOP).unwrap();
    for from in [&a, &c] {
        let refused = on(from, &store, &["approve", &run]);
        let (error, code) = (&refused.error, refused.code);
        // Its lease may end meanwhile.
        let is_named = error.contains("board a, which works on run") && error.contains("no other board has `clerk`");
        assert!(code == Some(6) && (is_named || error.contains(&waits_for("clerk"))), "{error}");
        assert!(error.ends_with(TO_START), "{error}");
    }
    second.stop();
    drop(first);
}

#[test]
fn a_run_that_is_resumed_where_its_agent_is_not_says_at_once_what_it_waits_for() {
    let store = database("missing_here", "postgres");
    // Its turn lasts until its board is gone.
    let a = project("coder", "open('begun', 'w')\nhear()\n");
    let c = Project::new();
    done(&on(&a, &store, &["store", "migrate"]));
    let mut first = serve(&a, &store, "a");
    let run = sent(&a, &store, "coder");
    until(|| a.folder.path().join("begun").exists().then_some(()));
    first.process.as_mut().unwrap().kill().unwrap();
    until(|| {
        let status = on(&c, &store, &["status", &run, "--json"]);
        (done(&status).json()["is_worked_on"] == json!(false)).then_some(())
    });
    let status = on(&c, &store, &["status", &run]);
    let line = format!("    {}; to start one, {TO_START}", waits_for("coder"));
    assert!(done(&status).out.ends_with(&line), "{}", status.out);
    let waited = on(&c, &store, &["wait", &run]);
    let begins = format!("error: run {run} {}\n    to start one, {TO_START}", waits_for("coder"));
    assert!(waited.code == Some(6) && waited.error.starts_with(&begins), "{}", waited.error);
    let mut resumed = Running::start(command_on(&c, &store, &["run", "--resume", &run, "--no-input"]));
    let line = format!("run {run} {}, which is not here; to start one, {TO_START}", waits_for("coder"));
    resumed.until(&line);
    let heirs = project("coder", "end(turn, 'done at the heir')\n");
    let heir = serve(&heirs, &store, "heir");
    let resumed = resumed.ended();
    assert!(resumed.code == Some(0) && resumed.out == "done at the heir\n", "{} {}", resumed.out, resumed.error);
    heir.stop();
    drop(first);
}

#[test]
fn commands_leave_no_board_behind_and_no_warnings_in_the_log_of_others() {
    let store = database("passing", "postgres");
    let (a, c) = (project("asker", ASKS), Project::new());
    done(&on(&a, &store, &["store", "migrate"]));
    let mut command = command_on(&a, &store, &["serve", "--listen", "127.0.0.1:0", "--name", "a"]);
    let first = Serving::of(command.env("CALLBOARD_LOG", "warn"));
    let boards = || {
        let rows: Vec<Value> = done(&on(&c, &store, &["boards", "--json"])).parsed();
        rows.iter().map(|row| row["board"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let run = sent(&c, &store, "asker");
    assert_eq!(boards(), ["a"]);
    assert_eq!(on(&c, &store, &["wait", &run]).code, Some(5));
    done(&on(&c, &store, &["answer", &run, "this one"]));
    assert_eq!(boards(), ["a"]);
    done(&on(&c, &store, &["agents"]));
    assert_eq!(boards(), ["a"]);
    let left = waiting(&c, &store, "asker");
    let printed = first.stop();
    assert!(!printed.error.contains("WARN"), "{}", printed.error);
    // Where no board works on it, a command ends it.
    done(&on(&c, &store, &["cancel", &left]));
    let cancelled = done(&on(&c, &store, &["status", &left, "--json"])).json();
    assert_eq!(cancelled["result"]["outcome"]["reason"], "cancelled by ann");
    assert!(!boards().iter().any(|board| board != "a"), "{:?}", boards());
}
