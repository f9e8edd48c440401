//! Agents and models whose files change during a run: real processes, and a model on this machine.

use std::fs;
use std::io::{BufRead as _, BufReader};

use serde_json::json;
use tempfile::TempDir;

use crate::support::agents::{agent_with, agent_with_prompt, agents};
use crate::support::model::Model;
use crate::support::project::Project;
use crate::support::running::Running;
use crate::support::serving::Serving;
use crate::support::{command, make_pipe, write};

/// A folder with this agent, and a model.
fn folder(name: &str, prompt: &str) -> (TempDir, Model) {
    let (folder, model) = (agents(&[(name, &agent_with_prompt(name, prompt))]), Model::start());
    write(&folder, "models.toml", &model.catalog());
    (folder, model)
}

fn start(folder: &TempDir, arguments: &[&str]) -> Running {
    Running::start(command(folder, arguments))
}

fn assert_answers(run: Running, answer: &str) {
    let printed = run.ended();
    assert_eq!((printed.code, &*printed.out), (Some(0), answer), "{}", printed.error);
}

#[test]
fn agents_whose_files_change_during_a_run_change_from_the_next_turn_on_unless_the_files_have_defects() {
    let (folder, model) = folder("writer", "You write poems.");
    let mut run = start(&folder, &["run", "a boat", "--pipeline", "writer,writer,writer", "--no-input"]);
    let request = || model.request().body.to_string();
    assert!(request().contains("You write poems."));
    write(&folder, "agents/writer.toml", &agent_with_prompt("writer", "You write prose."));
    run.until("writer.toml: changed: later turns of writer use it");
    model.answers("one");
    assert!(request().contains("You write prose."));
    write(&folder, "agents/writer.toml", &agent_with_prompt("writer", "You write {{ nothing }}."));
    run.until("writer.toml: refused, and writer keeps its earlier definition:");
    model.answers("two");
    assert!(request().contains("You write prose."));
    model.answers("three");
    assert_answers(run, "three\n");
}

#[test]
#[cfg(unix)]
fn entries_that_are_not_files_and_appear_during_a_run_are_reported_once_and_left_out() {
    let (folder, model) = folder("writer", "You write poems.");
    let mut run = start(&folder, &["run", "a boat", "--pipeline", "writer,writer", "--no-input"]);
    model.request();
    let at = |name: &str| folder.path().join("agents").join(name);
    make_pipe(at("pipe.toml"));
    let mut lines = run.until("pipe.toml: it is no regular file");
    std::os::unix::fs::symlink("nothing", at("link.toml")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("socket.toml")).unwrap());
    lines += &run.until("link.toml: it is a link to nothing");
    lines += &run.until("socket.toml: it is no regular file");
    // An entry that disappears does not repeat the reports of the others.
    fs::remove_file(at("link.toml")).unwrap();
    write(&folder, "agents/writer.toml", &agent_with_prompt("writer", "You write prose."));
    lines += &run.until("writer.toml: changed: later turns of writer use it");
    for name in ["pipe.toml", "link.toml", "socket.toml"] {
        assert_eq!(lines.matches(&format!("{name}: refused")).count(), 1, "{name}: {lines}");
    }
    model.answers("one");
    model.request();
    model.answers("two");
    assert_answers(run, "two\n");
}

#[test]
#[cfg(unix)]
fn a_server_marks_built_in_agents_and_names_files_that_are_not_used_until_they_are_right() {
    let project = Project::new();
    let mut serving = Serving::start(&project);
    let agents = || project.callboard(&["agents"]);
    let listed = agents();
    let row = |name: &str| listed.out.lines().find(|row| row.trim().starts_with(name)).unwrap().to_owned();
    assert!(row("summarizer").contains("  built in  ") && row("writer").trim() == "writer", "{}", listed.out);
    assert_eq!(listed.error, "");
    let mut log = BufReader::new(serving.process.as_mut().unwrap().stderr.take().unwrap()).lines();
    let mut until = |text: &str| assert!(log.any(|line| line.unwrap().contains(text)), "{text}");
    write(&project.folder, "agents/critic.toml", "[agent]\nname = \"critic\"\nmod = \"plan\"\n");
    until("critic.toml: refused");
    let refused = agents();
    let begin = "critic.toml is not used as it is now:\n    critic.toml:3:1: an agent has no key \"mod\"";
    assert!(refused.error.starts_with(begin) && !refused.out.contains("critic"), "{}", refused.error);
    write(&project.folder, "agents/critic.toml", "[agent]\nname = \"critic\"\ndescription = \"Finds faults.\"\n");
    until("critic.toml: added: critic takes tasks");
    let right = agents();
    assert!(right.out.contains("critic") && right.error.is_empty(), "{} {}", right.out, right.error);
    assert!(right.out.contains("Finds faults."), "{}", right.out);
    let namespaces = project.callboard(&["context", "list"]);
    let named = "error: name a namespace: memory:critic, memory:writer; run:ID of a run, with its whole id; or one of `namespaces` in the \
                 files of agents\n";
    assert_eq!((namespaces.code, &*namespaces.error), (Some(2), named));
    serving.stop();
}

/// The catalog of another model at the same address.
fn other(model: &Model) -> String {
    model.catalog() + "model = \"other\"\n"
}

#[test]
fn models_whose_catalog_changes_during_a_run_change_from_the_next_turn_on_unless_it_has_defects() {
    let ((folder, old), new) = (folder("writer", "You work."), Model::start());
    let mut run = start(&folder, &["run", "a boat", "--pipeline", "writer,writer,writer", "--no-input"]);
    old.request();
    write(&folder, "models.toml", "[[models]]\nname = \"m\"\nprovider = \"opnai\"\n");
    run.until("models.toml: refused, and the models stay as they were:");
    run.until("models.toml:3:12: there is no provider \"opnai\"; did you mean \"openai\"?");
    old.answers("one");
    old.request();
    write(&folder, "models.toml", &new.catalog());
    run.until("models.toml: another `provider`, `url` or `key_variable` than at the start: \"m\"");
    write(&folder, "models.toml", &other(&old));
    run.until("models.toml: changed: later turns use it");
    old.answers("two");
    assert_eq!(old.request().body["model"], "other");
    old.answers("three");
    assert_answers(run, "three\n");
}

#[test]
fn built_in_agents_use_the_models_of_a_changed_catalog() {
    let (folder, model) = folder("lead", "");
    let lead = agent_with("lead", &["Task"]) + "[agent.delegation]\nbuilt_in = [\"enricher\"]\n";
    write(&folder, "agents/lead.toml", &lead);
    let mut run = start(&folder, &["run", "a boat", "--no-input"]);
    model.request();
    write(&folder, "models.toml", &other(&model));
    run.until("models.toml: changed: later turns use it");
    model.calls("Task", json!({ "agent": "enricher", "task": "a boat" }));
    assert_eq!(model.request().body["model"], "other");
    model.answers("how long is it?");
    assert_eq!(model.request().body["model"], "m");
    model.answers("done");
    assert_answers(run, "done\n");
}

#[test]
fn agents_of_a_workflow_whose_files_change_change_from_the_next_turn_on_and_programs_stay() {
    let (folder, model) = folder("writer", "You work.");
    for name in ["shout", "editor"] {
        write(&folder, &format!("agents/{name}.toml"), &agent_with_prompt(name, "You work."));
    }
    let line = ["workflow", "run", "--line", "writer -> shout -> summarizer -> editor", "--input-json", "\"a boat\""];
    let agents = ["--agents", "agents", "--agent", "shout=tr a-z A-Z", "--agent", "summarizer=cat", "--no-input"];
    let mut run = start(&folder, &[&line[..], &agents].concat());
    assert!(model.request().body.to_string().contains("You work."));
    write(&folder, "agents/shout.toml", &agent_with_prompt("shout", "You shout."));
    write(&folder, "agents/editor.toml", &agent_with_prompt("editor", "You edit."));
    run.until("editor.toml: changed: later turns of editor use it");
    write(&folder, "agents/editor.toml", &agent_with_prompt("editor", "You {{ nothing }}."));
    fs::remove_file(folder.path().join("agents/shout.toml")).unwrap();
    run.until("editor.toml: refused, and editor keeps its earlier definition:");
    write(&folder, "models.toml", &other(&model));
    run.until("models.toml: changed: later turns use it");
    model.answers("one");
    let request = model.request().body.to_string();
    assert!(request.contains("You edit.") && request.contains("ONE"), "{request}");
    assert!(request.contains("\"other\""), "{request}");
    model.answers("two");
    assert_answers(run, "two\n");
}
