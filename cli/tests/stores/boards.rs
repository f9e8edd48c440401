//! What commands see and do about runs that wait through another board, and about runs whose boards are gone: real processes on a real
//! server, as in `database`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::database::{ASKS, PUBLISHES, command_on, database, done, on, project, sent, serve, until, until_known};
use crate::postgres::connect;
use crate::support::Printed;
use crate::support::agents::add_python_agent;
use crate::support::project::Project;

/// An agent that returns the answer of another one.
fn asks_for(agent: &str) -> String {
    format!("answer = ask(type='delegate', to='{agent}', body='do it')\nend(turn, answer.get('value', answer))\n")
}

fn watching(project: &Project, store: &str) -> std::process::Child {
    command_on(project, store, &["watch"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_run_that_waits_in_its_turn_at_another_board_is_seen_and_decided_by_its_own_id() {
    let store = database("waits_elsewhere", "postgres");
    let a = project("lead", &asks_for("asker"));
    add_python_agent(&a.folder, "chief", &asks_for("clerk"));
    let b = project("asker", ASKS);
    add_python_agent(&b.folder, "clerk", PUBLISHES);
    // No server runs there.
    let c = Project::new();
    done(&on(&a, &store, &["store", "migrate"]));
    let (first, second) = (serve(&a, &store, "a"), serve(&b, &store, "b"));
    until_known(&a, &store, "asker");
    until_known(&b, &store, "lead");
    let watch = watching(&c, &store);
    for from in [&a, &b, &c] {
        let run = sent(from, &store, "lead");
        let waited = on(from, &store, &["wait", &run]);
        assert!(
            waited.code == Some(5) && waited.error.starts_with(&format!("{run} waits for a person:\n")),
            "{}",
            waited.error
        );
        let status = on(from, &store, &["status", &run]);
        let begins = format!("{run}  lead: waits for an answer\n    in a turn at another board, which is req-");
        assert!(done(&status).out.starts_with(&begins) && status.out.contains("Which?"), "{}", status.out);
        let shown = done(&on(from, &store, &["status", &run, "--json"])).json();
        assert_eq!((&shown["state"], &shown["pending"][0]["agent"]), (&json!("waits_for_answer"), &json!("asker")));
        assert_ne!(shown["pending"][0]["request_id"], shown["request_id"]);
        let pending = on(from, &store, &["pending", &run]);
        let begins = format!("{run}  in a turn at another board, which is req-");
        assert!(done(&pending).out.starts_with(&begins) && pending.out.contains("Which?"), "{}", pending.out);
        assert_eq!(done(&on(from, &store, &["pending"])).out, pending.out, "it is listed once");
        let answered = on(from, &store, &["answer", &run, "this one"]);
        assert!(done(&answered).out.starts_with("answered: "), "{}", answered.out);
        assert_eq!(done(&on(from, &store, &["wait", &run])).out, "this one\n");
        let late = on(from, &store, &["answer", &run, "that one"]);
        assert!(late.error.contains(&format!("run {run} waits for nobody: already answered by ")), "{}", late.error);
        for (decision, output) in [("approve", "result"), ("deny", "failed")] {
            let run = sent(from, &store, "chief");
            assert_eq!(on(from, &store, &["wait", &run]).code, Some(5));
            let status = done(&on(from, &store, &["status", &run, "--json"])).json();
            assert_eq!(status["state"], "waits_for_consent");
            let decided = on(from, &store, &[decision, &run]);
            assert!(done(&decided).out.contains("WORDS.md"), "{}", decided.out);
            assert_eq!(done(&on(from, &store, &["wait", &run])).out, format!("{output}\n"));
        }
    }
    kill_process(Pid::from_child(&watch), Signal::INT).unwrap();
    let watched: Printed = watch.wait_with_output().unwrap().into();
    let lines_of = |agent: &str| -> Vec<&str> {
        watched.out.lines().filter(|line| line.contains(&format!(" {agent} "))).collect()
    };
    let asker = lines_of("asker").join("\n");
    assert!(asker.contains("began turn 2 of req-") && asker.contains(": this one"), "{}", watched.out);
    assert!(!watched.out.contains("goto"), "{}", watched.out);
    first.stop();
    second.stop();
}

#[test]
fn runs_of_a_board_that_was_killed_are_decided_by_who_waits_for_its_heir_or_cancelled() {
    let store = database("left_runs", "postgres");
    let a = project("clerk", PUBLISHES);
    add_python_agent(&a.folder, "asker", ASKS);
    // One that no other board has.
    add_python_agent(&a.folder, "lone", ASKS);
    let (b, c) = (project("other", "end(turn, 'done')\n"), Project::new());
    done(&on(&a, &store, &["store", "migrate"]));
    let (mut first, second) = (serve(&a, &store, "a"), serve(&b, &store, "b"));
    let [approved, answered, lone] = ["clerk", "asker", "lone"].map(|agent| {
        let run = sent(&a, &store, agent);
        assert_eq!(on(&c, &store, &["wait", &run]).code, Some(5));
        run
    });
    first.process.as_mut().unwrap().kill().unwrap();
    let board = || {
        let rows: Vec<Value> = on(&c, &store, &["boards", "--json"]).parsed();
        rows.into_iter().find(|row| row["board"] == "a")
    };
    let heirs = project("clerk", PUBLISHES);
    add_python_agent(&heirs.folder, "asker", ASKS);
    let heir = serve(&heirs, &store, "heir");
    // While its lease lasts.
    let [answering, approving] = [&["answer", &answered, "this one"][..], &["approve", &approved]].map(|arguments| {
        command_on(&c, &store, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    until(|| board().filter(|row| row["is_gone"] == true && row["runs"] == 1));
    let cancelled = on(&c, &store, &["cancel", &lone, "--reason", "not needed"]);
    assert!(done(&cancelled).out.contains("is cancelled"), "{}", cancelled.out);
    let status = done(&on(&c, &store, &["status", &lone, "--json"])).json();
    assert_eq!((&status["state"], &status["result"]["outcome"]["reason"]), (&json!("cancelled"), &json!("not needed")));
    for (child, begins) in [(answering, "answered: "), (approving, "approved: ")] {
        let printed: Printed = child.wait_with_output().unwrap().into();
        assert!(done(&printed).out.starts_with(begins), "{} {}", printed.out, printed.error);
    }
    assert_eq!(done(&on(&c, &store, &["wait", &answered])).out, "this one\n");
    assert_eq!(done(&on(&c, &store, &["wait", &approved])).out, "result\n");
    until(|| board().is_none().then_some(()));
    heir.stop();
    second.stop();
    drop(first);
}

#[test]
fn who_decides_too_late_reads_by_whom_it_was_decided_and_a_part_of_an_id_is_no_run() {
    let store = database("too_late", "postgres");
    let (a, b) = (project("clerk", PUBLISHES), project("other", "end(turn, 'done')\n"));
    done(&on(&a, &store, &["store", "migrate"]));
    let (first, second) = (serve(&a, &store, "a"), serve(&b, &store, "b"));
    let run = sent(&a, &store, "clerk");
    assert_eq!(on(&b, &store, &["wait", &run]).code, Some(5));
    let pending = done(&on(&b, &store, &["pending", "--json"])).json();
    let approval = pending["pending"][0]["id"].as_str().unwrap();
    let part = &approval[.."approval:".len() + 6];
    for command in [&["approve", part][..], &["deny", part], &["pending", part]] {
        let refused = on(&b, &store, command);
        let meant = format!("error: {part} is no whole id of an approval; write\n    {approval}\n");
        assert_eq!((refused.code, &refused.error), (Some(2), &meant));
    }
    let unknown = on(&b, &store, &["approve", "approval:zz"]);
    assert!(unknown.code == Some(2) && unknown.error.contains("callboard pending lists them"), "{}", unknown.error);
    // Each at another board; one of them is first.
    let deciding = [(&a, "approve"), (&b, "deny"), (&b, "approve")].map(|(from, decision)| {
        let mut command = command_on(from, &store, &[decision, approval]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let decided: Vec<Printed> = deciding.into_iter().map(|child| child.wait_with_output().unwrap().into()).collect();
    let (won, mut lost): (Vec<_>, Vec<_>) = decided.into_iter().partition(|printed| printed.code == Some(0));
    assert_eq!(won.len(), 1);
    on(&b, &store, &["wait", &run]);
    lost.push(on(&a, &store, &["approve", approval]));
    lost.push(on(&b, &store, &["deny", approval]));
    lost.push(on(&b, &store, &["approve", &run]));
    let word = won[0].out.split(':').next().unwrap();
    let how: Vec<&str> =
        lost.iter().map(|printed| printed.error.split_once("already ").map_or("", |(_, how)| how)).collect();
    assert!(how[0].starts_with(&format!("{word} by ")), "{how:?}");
    assert!(how.iter().all(|other| *other == how[0]), "{how:?}");
    first.stop();
    second.stop();
}

#[test]
fn a_run_that_cannot_be_read_is_named_with_what_to_do() {
    let store = database("unread", "postgres");
    let a = project("asker", ASKS);
    done(&on(&a, &store, &["store", "migrate"]));
    let first = serve(&a, &store, "a");
    let [damaged, good] = ["asker", "asker"].map(|agent| sent(&a, &store, agent));
    for run in [&damaged, &good] {
        assert_eq!(on(&a, &store, &["wait", run]).code, Some(5));
    }
    let shown = done(&on(&a, &store, &["status", &damaged, "--json"])).json();
    let digits = shown["request_id"].as_str().unwrap().replace('-', "");
    let damage = async {
        let client = connect(&store).await;
        let statement =
            format!("UPDATE callboard.journal SET body = 'x' WHERE position('{digits}'::bytea IN stream) > 0");
        assert!(client.execute(&statement, &[]).await.unwrap() > 0);
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(damage);
    let begins = format!("run {damaged} cannot be read: ");
    let status = on(&a, &store, &["status", &damaged]);
    assert!(
        status.error.starts_with(&format!("error: {begins}")) && !status.error.contains("run/"),
        "{}",
        status.error
    );
    assert!(status.error.contains(&format!("`callboard runs delete {damaged} --store ")), "{}", status.error);
    let pending = on(&a, &store, &["pending"]);
    assert!(
        done(&pending).error.contains(&format!("not read: {begins}")) && pending.out.contains(&good),
        "{}",
        pending.error
    );
    let mut watch = watching(&a, &store);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The other runs are shown after it.
    assert!(lines.any(|line| line.starts_with(&begins)));
    assert!(lines.any(|line| line.contains(&good)));
    watch.kill().unwrap();
    watch.wait().unwrap();
    first.stop();
}
