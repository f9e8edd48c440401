//! Agents from files that work together, also in workflows, and whose files change meanwhile: real processes, and a model on this
//! machine that says what the test has it say.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::model::Model;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).env("USER", "ann");
    command
}

/// Runs `callboard ARGUMENTS` in the folder, with nobody to ask.
fn callboard(folder: &TempDir, arguments: &[&str]) -> Said {
    let output = command(folder.path(), arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
}

fn json_of(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{} {}", said.out, said.error))
}

fn agent(name: &str, prompt: &str) -> String {
    format!("[agent]\nname = \"{name}\"\nsystem_prompt = \"{prompt}\"\n[agent.capabilities]\nallowed_tools = []\n")
}

/// A folder with these agents, who use no tools.
fn folder(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    for name in names {
        write(&folder, &format!("agents/{name}.toml"), &agent(name, "You work."));
    }
    folder
}

fn write(folder: &TempDir, name: &str, text: &str) {
    fs::write(folder.path().join(name), text).unwrap();
}

const FAKE: [&str; 3] = ["--model", "fake", "--no-input"];

#[test]
fn agents_of_a_folder_work_together_in_ready_made_ways() {
    let folder = folder(&["ann", "bob", "eve"]);
    let run = |arguments: &[&str]| {
        let said =
            callboard(&folder, &[&["run", "count the boats"], arguments, &FAKE, &["--json", "--quiet"]].concat());
        assert_eq!(said.code, Some(0), "{}", said.error);
        json_of(&said)["output"].clone()
    };
    let pipeline = run(&["--pipeline", "ann,bob"]);
    let pipeline = pipeline.as_str().unwrap();
    assert!(pipeline.matches("It was asked").count() == 2 && pipeline.contains("count the boats"), "{pipeline}");
    let peers = run(&["--peers", "ann,bob,eve", "--rounds", "2"]);
    assert_eq!((&peers["done"], &peers["rounds"], &peers["said"][5]["by"]), (&json!(false), &json!(2), &json!("eve")));
    let review = run(&["--review", "ann,bob,eve", "--rounds", "1"]);
    assert_eq!((&review["accepted"], &review["rounds"]), (&json!(false), &json!(1)));
    assert!(review["work"].as_str().unwrap().contains("\"task\":\"count the boats\""), "{review}");
}

#[test]
fn a_conversation_of_several_agents_names_the_option_that_continues_it() {
    let folder = folder(&["ann", "bob", "eve"]);
    let data = ["--store", "data", "--conversation", "x:y"];
    for (option, names, of) in
        [("--pipeline", "bob,ann", "pipeline"), ("--peers", "ann,bob", "peers"), ("--review", "ann,bob,eve", "review")]
    {
        let run = |words: &str, more: &[&str]| callboard(&folder, &[&["run", words], &data[..], more, &FAKE].concat());
        assert_ne!(run("count", &[option, names]).code, Some(2), "{option}");
        let refused = format!(
            "error: conversation x:y belongs to the {of} of several agents: give {option} {names} again to continue it\n"
        );
        for to in [&[][..], &["--to", "eve"]] {
            let said = run("again", to);
            assert_eq!((said.code, said.error.ends_with(&refused)), (Some(2), true), "{to:?}: {}", said.error);
        }
        assert_ne!(run("again", &[option, names]).code, Some(2), "{option}");
        assert_eq!(callboard(&folder, &["conversations", "delete", "x:y", "--store", "data"]).code, Some(0));
    }
    let workflow = ["workflow", "run", "--line", "workflow daily: a", "--agent", "a=cat"];
    assert_eq!(callboard(&folder, &[&workflow[..], &data].concat()).code, Some(0));
    let said = callboard(&folder, &[&["run", "again"], &data[..], &FAKE].concat());
    let line = "belongs to the workflow daily: continue it with the option that began it, such as --pipeline AGENT,…, or with \
                callboard workflow run FILE --conversation x:y\n";
    assert!(said.code == Some(2) && said.error.ends_with(line), "{}", said.error);
}

#[test]
fn what_is_wrong_with_a_way_is_told_before_anybody_works() {
    let folder = folder(&["ann", "bob"]);
    let told = |arguments: &[&str], says: &str| {
        let said = callboard(&folder, &[&["run", "x"], arguments, &FAKE].concat());
        assert!(said.code == Some(2) && said.error.contains(says), "{arguments:?}: {:?} {}", said.code, said.error);
    };
    told(&["--review", "ann,bob"], "--review takes three agents, as in planner,coder,reviewer; here are 2");
    told(&["--peers", "ann"], "peers are at least two");
    told(&["--pipeline", "ann,bbo"], "no agent has the name, role or capability \"bbo\"");
    told(&["--pipeline", "ann", "--peers", "ann,bob"], "cannot be used with");
    told(&["--pipeline", "ann", "--to", "bob"], "cannot be used with");
    told(&["--peers", "ann,bob", "--rounds", "0"], "--rounds");
    told(&["--pipeline", "ann", "--rounds", "2"], "--rounds is for --peers and --review");
}

#[test]
fn nodes_of_a_workflow_are_agents_of_a_folder_and_programs_of_their_names_go_first() {
    let folder = folder(&["writer", "shout"]);
    let run = ["workflow", "run", "--line", "writer -> shout", "--input-json", "\"a boat\"", "--agents", "agents"];
    let said = callboard(&folder, &[&run[..], &FAKE, &["--agent", "shout=tr a-z A-Z"]].concat());
    assert!(said.code == Some(0) && said.out.contains("IT WAS ASKED: A BOAT"), "{} {}", said.out, said.error);
    let said = callboard(&folder, &[&run[..], &FAKE].concat());
    assert!(said.code == Some(0) && said.out.matches("It was asked").count() == 2, "{} {}", said.out, said.error);
    let said =
        callboard(&folder, &["workflow", "run", "--line", "writer -> print", "--agents", "agents", "--model", "fake"]);
    assert!(said.code == Some(2) && said.error.contains("--agent print='COMMAND'"), "{}", said.error);
    let said = callboard(&folder, &["workflow", "run", "--line", "writer", "--model", "fake"]);
    assert!(said.code == Some(2) && said.error.contains("--agents"), "{}", said.error);
}

#[test]
fn what_an_agent_in_a_workflow_asks_ends_the_process_and_the_run_goes_on_as_it_is_told() {
    let folder = folder(&[]);
    let asking =
        "[agent]\nname = \"writer\"\n[agent.capabilities]\nallowed_tools = [\"FileSearch\"]\nask = [\"FileSearch\"]\n";
    write(&folder, "agents/writer.toml", asking);
    let run = [
        "workflow",
        "run",
        "--line",
        "writer",
        "--agents",
        "agents",
        "--store",
        "data",
        "--model",
        "fake",
        "--no-input",
    ];
    let said = callboard(&folder, &run);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{}", said.error);
    assert!(
        said.error.contains("there is nobody at a terminal to ask") && said.error.contains("FileSearch"),
        "{}",
        said.error
    );
    let resumption = said.error.lines().find_map(|line| line.strip_prefix("to go on: callboard ")).unwrap();
    assert!(resumption.ends_with("--store data --agents agents --model fake"), "{resumption}");
    let said = callboard(&folder, &resumption.split(' ').collect::<Vec<_>>());
    assert!(said.code == Some(3) && said.error.contains("FileSearch"), "{:?} {}", said.code, said.error);
}

/// A process that works.
struct Running {
    process: Child,
    told: Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn start(folder: &TempDir, arguments: &[&str]) -> Self {
        let mut process = command(folder.path(), arguments);
        let mut process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let told = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, told }
    }

    /// Waits for a line that has this in it, and returns all lines until then.
    fn tells(&mut self, what: &str) -> String {
        let mut seen = Vec::new();
        for line in self.told.by_ref() {
            seen.push(line.unwrap());
            if seen.last().is_some_and(|line| line.contains(what)) {
                return seen.join("\n") + "\n";
            }
        }
        panic!("{what:?} was not told: {seen:#?}");
    }

    fn ends_with(self, out: &str) {
        let ended = self.process.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), String::from_utf8(ended.stdout).unwrap().as_str()), (Some(0), out));
    }
}

#[test]
fn files_that_change_during_a_run_count_from_the_next_turn_on_unless_they_are_wrong() {
    let folder = folder(&[]);
    let model = Model::start();
    write(&folder, "models.toml", &model.catalog());
    write(&folder, "agents/writer.toml", &agent("writer", "You write poems."));
    let mut run = Running::start(&folder, &["run", "a boat", "--pipeline", "writer,writer,writer", "--no-input"]);
    let asked = || model.asked().body.to_string();
    assert!(asked().contains("You write poems."));
    write(&folder, "agents/writer.toml", &agent("writer", "You write prose."));
    run.tells("writer.toml: changed: later turns of writer use it");
    model.says("one");
    assert!(asked().contains("You write prose."));
    write(&folder, "agents/writer.toml", &agent("writer", "You write {{ nothing }}."));
    run.tells("writer.toml: refused, and writer keeps its earlier definition:");
    model.says("two");
    assert!(asked().contains("You write prose."));
    model.says("three");
    run.ends_with("three\n");
}

#[test]
#[cfg(unix)]
fn what_is_no_file_and_comes_into_the_folder_of_agents_during_a_run_is_reported_once_and_left_out() {
    let folder = folder(&[]);
    let model = Model::start();
    write(&folder, "models.toml", &model.catalog());
    write(&folder, "agents/writer.toml", &agent("writer", "You write poems."));
    let mut run = Running::start(&folder, &["run", "a boat", "--pipeline", "writer,writer", "--no-input"]);
    model.asked();
    let at = |name: &str| folder.path().join("agents").join(name);
    assert!(Command::new("mkfifo").arg(at("pipe.toml")).status().unwrap().success());
    let mut told = run.tells("pipe.toml: it is no regular file");
    std::os::unix::fs::symlink("nothing", at("link.toml")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("socket.toml")).unwrap());
    told += &run.tells("link.toml: it is a link to nothing");
    told += &run.tells("socket.toml: it is no regular file");
    // One that goes is no news of those that stay.
    fs::remove_file(at("link.toml")).unwrap();
    write(&folder, "agents/writer.toml", &agent("writer", "You write prose."));
    told += &run.tells("writer.toml: changed: later turns of writer use it");
    for name in ["pipe.toml", "link.toml", "socket.toml"] {
        assert_eq!(told.matches(&format!("{name}: refused")).count(), 1, "{name}: {told}");
    }
    model.says("one");
    model.asked();
    model.says("two");
    run.ends_with("two\n");
}

/// The catalog of another model at the same address.
fn other(model: &Model) -> String {
    model.catalog() + "model = \"other\"\n"
}

#[test]
fn a_catalog_that_changes_during_a_run_counts_from_the_next_turn_on_unless_it_is_wrong() {
    let folder = folder(&["writer"]);
    let (old, new) = (Model::start(), Model::start());
    write(&folder, "models.toml", &old.catalog());
    let mut run = Running::start(&folder, &["run", "a boat", "--pipeline", "writer,writer,writer", "--no-input"]);
    old.asked();
    write(&folder, "models.toml", "[[models]]\nname = \"m\"\nprovider = \"opnai\"\n");
    run.tells("models.toml: refused, and the models stay as they were:");
    run.tells("models.toml:3:12: there is no provider \"opnai\"; did you mean \"openai\"?");
    old.says("one");
    old.asked();
    write(&folder, "models.toml", &new.catalog());
    run.tells("models.toml: another `provider`, `url` or `key_variable` than at the start: \"m\"");
    write(&folder, "models.toml", &other(&old));
    run.tells("models.toml: changed: later turns use it");
    old.says("two");
    assert_eq!(old.asked().body["model"], "other");
    old.says("three");
    run.ends_with("three\n");
}

#[test]
fn built_in_agents_have_the_models_of_a_catalog_that_has_changed() {
    let folder = folder(&[]);
    let lead = "[agent]\nname = \"lead\"\n[agent.capabilities]\nallowed_tools = [\"Task\"]\n[agent.delegation]\nbuilt_in = [\"enricher\"]\n";
    write(&folder, "agents/lead.toml", lead);
    let model = Model::start();
    write(&folder, "models.toml", &model.catalog());
    let mut run = Running::start(&folder, &["run", "a boat", "--no-input"]);
    model.asked();
    write(&folder, "models.toml", &other(&model));
    run.tells("models.toml: changed: later turns use it");
    model.calls("Task", json!({ "agent": "enricher", "task": "a boat" }));
    assert_eq!(model.asked().body["model"], "other");
    model.says("how long is it?");
    assert_eq!(model.asked().body["model"], "m");
    model.says("done");
    run.ends_with("done\n");
}

#[test]
fn files_that_change_while_a_workflow_runs_count_from_the_next_turn_on_and_leave_programs_alone() {
    let folder = folder(&["writer", "shout", "editor"]);
    let model = Model::start();
    write(&folder, "models.toml", &model.catalog());
    let line = ["workflow", "run", "--line", "writer -> shout -> summarizer -> editor", "--input-json", "\"a boat\""];
    let agents = ["--agents", "agents", "--agent", "shout=tr a-z A-Z", "--agent", "summarizer=cat", "--no-input"];
    let mut run = Running::start(&folder, &[&line[..], &agents].concat());
    assert!(model.asked().body.to_string().contains("You work."));
    write(&folder, "agents/shout.toml", &agent("shout", "You shout."));
    write(&folder, "agents/editor.toml", &agent("editor", "You edit."));
    run.tells("editor.toml: changed: later turns of editor use it");
    write(&folder, "agents/editor.toml", &agent("editor", "You {{ nothing }}."));
    fs::remove_file(folder.path().join("agents/shout.toml")).unwrap();
    run.tells("editor.toml: refused, and editor keeps its earlier definition:");
    write(&folder, "models.toml", &other(&model));
    run.tells("models.toml: changed: later turns use it");
    model.says("one");
    let asked = model.asked().body.to_string();
    assert!(asked.contains("You edit.") && asked.contains("ONE") && asked.contains("\"other\""), "{asked}");
    model.says("two");
    run.ends_with("two\n");
}
