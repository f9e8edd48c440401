//! `[matrix]`: approvals that are asked, and tasks that agents get, in a room, with a homeserver on this machine.

#![cfg(unix)]

use std::fs;
use std::net::TcpListener;

use serde_json::json;

use crate::support::agents::searcher;
use crate::support::homeserver::{Homeserver, ROOM, TOKEN};
use crate::support::project::Project;
use crate::support::serving::{Serving, sent};
use crate::support::{output_of, write};

/// The part of the token that nobody may see.
const CANARY: &str = "CANARY";

/// A project whose homeserver is at this address, with the token in a file beside the state of the project.
fn project(address: &str) -> Project {
    let project = Project::new();
    let token = project.state.path().join("matrix.token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    write(&project.folder, "callboard.toml", &settings(&format!("token_file = {token:?}"), address));
    project
}

fn settings(token: &str, address: &str) -> String {
    format!(
        "[matrix]\n{token}\nhomeserver = {address:?}\nrooms = [{ROOM:?}]\n[people]\nann = {{ matrix = [\"@ann:example.org\"] }}\n"
    )
}

/// An address at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn a_person_decides_in_a_room_what_an_agent_of_a_server_asks() {
    let homeserver = Homeserver::start();
    let project = project(&homeserver.address);
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    let mut serving = Serving::start(&project);
    serving.until("approvals are asked by @board:example.org on Matrix\n");
    let id = sent(&project, "look");
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    let message = homeserver.sent();
    let text = message["body"].as_str().unwrap();
    assert!(text.contains("agent     writer\naction    FileSearch\n") && text.contains("\"pattern\": \"x\""), "{text}");
    homeserver.reply(&message, "@ann:example.org", "approve");
    let closed = [homeserver.sent(), homeserver.sent()].map(|content| content["body"].as_str().unwrap().to_owned());
    assert!(closed.iter().all(|text| text.contains("approved by ann at ")), "{closed:?}");
    project.model.answers("found");
    let waited = project.callboard(&["wait", &id]);
    assert_eq!((waited.code, &*waited.out), (Some(0), "found\n"), "{}", waited.error);
    assert!(!serving.stop().error.contains(CANARY));
}

#[test]
fn a_server_starts_without_matrix_and_says_so_and_doctor_reports_it() {
    let project = project(&nobody());
    let mut serving = Serving::start(&project);
    serving.until("Matrix is not reached, and is tried again: ");
    let error = serving.stop().error;
    assert!(!error.contains(CANARY) && !error.contains("Matrix"), "once: {error}");
    let looked_at = project.callboard(&["doctor"]).out;
    let offline = "ok       matrix   the account has a token; --online asks whether the homeserver answers\n";
    assert!(looked_at.contains(offline), "{looked_at}");
    // What `--online` asks the model.
    project.model.answers("yes");
    let looked_at = project.callboard(&["doctor", "--online"]).out;
    assert!(
        looked_at.contains("failed   matrix   the homeserver is not reached: ") && !looked_at.contains(CANARY),
        "{looked_at}"
    );
    let homeserver = Homeserver::start();
    let project = self::project(&homeserver.address);
    project.model.answers("yes");
    let reached = project.callboard(&["doctor", "--online"]).out;
    assert!(reached.contains("ok       matrix   @board:example.org is signed in\n"), "{reached}");
}

#[test]
fn a_token_that_is_missing_malformed_or_within_reach_of_agents_is_refused() {
    let project = project("http://127.0.0.1:1");
    let refused = |token: &str, variable: Option<&str>| {
        write(&project.folder, "callboard.toml", &settings(token, "http://127.0.0.1:1"));
        let mut serve = project.command(&["serve", "--listen", "127.0.0.1:0"]);
        let printed = output_of(serve.envs(variable.map(|value| ("BOT", value))));
        assert!(!printed.error.contains(CANARY), "{}", printed.error);
        (printed.code, printed.error)
    };
    write(&project.folder, "matrix.token", TOKEN);
    let (code, error) = refused("token_file = \"matrix.token\"", None);
    assert!(code == Some(4) && error.contains("is in the folder that tools of agents work in"), "{error}");
    let (code, error) = refused("token_file = \"none.token\"", None);
    assert!(code != Some(0) && error.contains("none.token"), "{error}");
    let (code, error) = refused("token_env = \"BOT\"", None);
    assert!(code == Some(2) && error.contains("the variable BOT of callboard.toml is not set"), "{error}");
    let (code, error) = refused("token_env = \"BOT\"", Some("CANARY two"));
    assert!(code == Some(2) && error.contains("the variable BOT: the access token of the account is none"), "{error}");
}

/// A project whose agent gets tasks in the room, and what `[matrix.agents]` has.
fn project_with_room(address: &str, agents: &str) -> Project {
    let project = Project::new();
    let token = project.state.path().join("matrix.token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let people = "[people]\nann = { tokens = [\"laptop\"], matrix = [\"@ann:example.org\"] }\n";
    let text =
        format!("[matrix]\ntoken_file = {token:?}\nhomeserver = {address:?}\n[matrix.agents]\n{agents}\n{people}");
    write(&project.folder, "callboard.toml", &text);
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    project
}

#[test]
fn a_person_gives_an_agent_a_task_in_its_room_in_the_name_of_a_token() {
    let homeserver = Homeserver::start();
    let project = project_with_room(&homeserver.address, &format!("writer = {ROOM:?}"));
    assert_eq!(project.callboard(&["tokens", "add", "laptop", "--scope", "delegate"]).code, Some(0));
    let mut serving = Serving::start(&project);
    serving.until("tasks are taken by @board:example.org on Matrix\n");
    project.model.answers("found");
    homeserver.writes("$one", "@ann:example.org", "look");
    let [ack, complete] = [homeserver.sent(), homeserver.sent()];
    let status = |content: &serde_json::Value| content["com.aiagentchat.status"].clone();
    assert_eq!((&status(&ack)["status"], &status(&ack)["to_agent"]), (&json!("ack"), &json!("ann")));
    assert_eq!((&status(&complete)["status"], &complete["body"]), (&json!("complete"), &json!("found")));
    let inbox = project.callboard(&["read", "writer"]).out;
    assert!(inbox.contains("laptop") && inbox.contains("look"), "{inbox}");

    assert_eq!(project.callboard(&["tokens", "revoke", "laptop"]).code, Some(0));
    homeserver.writes("$two", "@ann:example.org", "look");
    let fail = homeserver.sent();
    assert_eq!(fail["body"], "failed: ann has no token with the scope delegate");
    assert!(!serving.stop().error.contains(CANARY));
}

#[test]
fn check_reports_agents_that_are_not_there_and_that_nobody_may_give_tasks() {
    let project = project_with_room("http://127.0.0.1:1", "writre = \"!writer:example.org\"");
    let checked = project.callboard(&["check"]);
    let expected = "there is no agent \"writre\"; did you mean \"writer\"?";
    assert!(checked.code != Some(0) && checked.error.contains(expected), "{}", checked.error);
    let project = project_with_room("http://127.0.0.1:1", "writer = \"!writer:example.org\"");
    let warning = "warning: nobody with an account on Matrix has a token with the scope delegate";
    let checked = project.callboard(&["check"]);
    assert!(checked.code == Some(0) && checked.error.contains(warning), "{}", checked.error);
    for (scope, is_warned) in [("read", true), ("delegate", false)] {
        let name = format!("laptop-{scope}");
        let added = project.callboard(&["tokens", "add", &name, "--scope", scope, "--owner", "ann"]);
        assert_eq!(added.code, Some(0), "{}", added.error);
        let checked = project.callboard(&["check"]);
        assert_eq!((checked.code, checked.error.contains(warning)), (Some(0), is_warned), "{}", checked.error);
    }
}

#[test]
fn doctor_looks_at_the_rooms_of_agents() {
    let homeserver = Homeserver::start();
    let project = project_with_room(&homeserver.address, &format!("writer = {ROOM:?}"));
    project.model.answers("yes");
    let looked_at = project.callboard(&["doctor", "--online"]).out;
    assert!(looked_at.contains("ok       matrix   @board:example.org is signed in\n"), "{looked_at}");
    let project = project_with_room(&nobody(), &format!("writer = {ROOM:?}"));
    project.model.answers("yes");
    let looked_at = project.callboard(&["doctor", "--online"]).out;
    assert!(looked_at.contains("failed   matrix   the homeserver is not reached: "), "{looked_at}");
}
