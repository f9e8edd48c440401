//! A board on a database whose process is suspended: what other commands of its user do meanwhile, and what it prints when it continues.

use std::io::read_to_string;
use std::process::{Child, Stdio};

use callboard::messages::RunId;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::postgres::connect;
use crate::support::ended;
use crate::support::project::Project;
use crate::support::serving::Serving;

use super::database::{
    ASKS, PUBLISHES, boards, command_on, database, done, on, project, sent, serve, until, until_known,
};

/// Sends the process of a server a signal.
fn signal(serving: &Serving, signal: Signal) {
    kill_process(Pid::from_child(serving.process.as_ref().unwrap()), signal).unwrap();
}

/// The number that a statement returns for this parameter.
fn number(store: &str, statement: &str, parameter: &[u8]) -> i64 {
    let asked = async {
        let client = connect(store).await;
        client.query_one(statement, &[&parameter]).await.unwrap().get(0)
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(asked)
}

/// Waits until a letter with this is on its way, which the command sends.
fn until_written(command: &mut Child, store: &str, part: &[u8]) {
    let letters =
        "SELECT count(*) FROM callboard.entries WHERE position('mail'::bytea in key) > 0 AND position($1 in value) > 0";
    until(|| {
        let is_written = number(store, letters, part) > 0;
        assert!(
            is_written || command.try_wait().unwrap().is_none(),
            "{}",
            read_to_string(command.stderr.take().unwrap()).unwrap()
        );
        is_written.then_some(())
    });
}

/// Has the lease of the board of this name end at this time, in milliseconds of Unix time.
fn end_lease(store: &str, name: &str, at: u64) {
    let end = format!(
        "WITH ended AS (UPDATE callboard.sessions SET until = {at} WHERE name = $1 RETURNING 1) SELECT count(*) FROM ended"
    );
    assert_eq!(number(store, &end, name.as_bytes()), 1);
}

/// The bytes of the run that asks a question.
fn run_of(question: &str) -> Vec<u8> {
    let run: RunId = question.split([':', '/']).nth(1).unwrap().parse().unwrap();
    run.0.as_bytes().to_vec()
}

/// Begins a command, and does not wait for it.
fn begun(project: &Project, store: &str, arguments: &[&str]) -> Child {
    command_on(project, store, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A run of the agent that waits for a person, and the id of what it waits for.
fn waiting(project: &Project, store: &str, agent: &str) -> (String, String) {
    let run = sent(project, store, agent);
    assert_eq!(on(project, store, &["wait", &run]).code, Some(5));
    let pending = on(project, store, &["pending", &run, "--json"]);
    (run, done(&pending).json()["pending"][0]["id"].as_str().unwrap().to_owned())
}

#[test]
fn commands_do_not_wait_for_a_server_that_is_suspended_and_it_says_why_it_ends() {
    let store = database("frozen", "postgres");
    let [a, b] = ["lone", "other"].map(|agent| project(agent, "end(turn, 'done')\n"));
    for project in [&a, &b] {
        crate::support::agents::add_python_agent(&project.folder, "asker", ASKS);
        crate::support::agents::add_python_agent(&project.folder, "clerk", PUBLISHES);
    }
    done(&on(&a, &store, &["store", "migrate"]));
    let (mut first, second) = (serve(&a, &store, "a"), serve(&b, &store, "b"));
    until_known(&a, &store, "other");
    let [(clerk, approval), (asker, question)] = ["clerk", "asker"].map(|agent| waiting(&a, &store, agent));
    // It has events of the board before that is suspended.
    let early = begun(&a, &store, &["watch", &asker]);
    let (unneeded, unneeded_question) = waiting(&a, &store, "asker");
    signal(&first, Signal::STOP);
    // However long the commands take.
    end_lease(&store, "a", u64::MAX >> 8);

    // Its lease has not ended, and others are asked.
    let listed = on(&a, &store, &["agents"]);
    assert!(done(&listed).out.contains("other"), "{}", listed.out);
    let other = sent(&a, &store, "other");
    assert_eq!(done(&on(&a, &store, &["wait", &other])).out, "done\n");
    assert_eq!(done(&on(&a, &store, &["status", &clerk, "--json"])).json()["is_stale"], Value::Null);
    let inbox = on(&a, &store, &["inbox"]);
    assert!(inbox.out.contains("WORDS.md") && inbox.error.contains("the server does not answer: "), "{}", inbox.error);
    for command in [&["tree"][..], &["schedule", "list"], &["mcp"], &["serve", "--listen", "127.0.0.1:0"]] {
        let silent = on(&a, &store, command);
        assert!(silent.code == Some(6) && silent.error.contains("may be suspended"), "{command:?} {}", silent.error);
    }
    let tree = on(&a, &store, &["tree"]);
    assert!(tree.error.contains(&format!("b (http://{})", second.address())), "{}", tree.error);

    // What its runs wait for waits until another board has them, and is decided there.
    let mut decisions = [
        (begun(&a, &store, &["approve", &clerk]), approval.into_bytes()),
        (begun(&a, &store, &["answer", &asker, "this one"]), question.into_bytes()),
        (begun(&a, &store, &["cancel", &unneeded]), run_of(&unneeded_question)),
    ];
    let follower = begun(&a, &store, &["watch", &clerk]);
    decisions.iter_mut().for_each(|(command, part)| until_written(command, &store, part));
    end_lease(&store, "a", 0);
    for (decision, _) in decisions {
        done(&ended(decision));
    }
    let followed = ended(follower);
    assert!(done(&followed).out.ends_with("complete: result\n"), "{}", followed.out);
    let followed = ended(early);
    assert!(done(&followed).out.ends_with("complete: this one\n"), "{}", followed.out);
    assert_eq!(done(&on(&b, &store, &["status", &unneeded, "--json"])).json()["state"], "cancelled");

    signal(&first, Signal::CONT);
    let ended = ended(first.process.take().unwrap());
    assert_eq!(ended.code, Some(6), "{}", ended.error);
    for wanted in
        ["error: the board has ended: ", "other boards that have its agents continue its runs", "callboard serve"]
    {
        assert!(ended.error.contains(wanted), "{wanted}: {}", ended.error);
    }
    assert!(!ended.error.contains("took its supervisor along"), "{}", ended.error);
    assert!(boards(&b, &store).iter().all(|(name, _, is_gone)| name != "a" || *is_gone));
    second.stop();
}
