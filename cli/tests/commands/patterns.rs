//! Patterns of several agents from files, and agents from files in workflows: real processes.

use serde_json::json;
use tempfile::TempDir;

use crate::support::agents::{agent_with_prompt, agents, searcher};
use crate::support::{callboard, write};

/// A folder with these agents, which have no tools.
fn folder(names: &[&str]) -> TempDir {
    let folder = agents(&[]);
    names.iter().for_each(|name| write(&folder, &format!("agents/{name}.toml"), &agent_with_prompt(name, "You work.")));
    folder
}

const FAKE: [&str; 3] = ["--model", "fake", "--no-input"];

#[test]
fn agents_of_a_folder_work_by_each_pattern() {
    let folder = folder(&["ann", "bob", "eve"]);
    let run = |arguments: &[&str]| {
        let printed =
            callboard(&folder, &[&["run", "count the boats"], arguments, &FAKE, &["--json", "--quiet"]].concat());
        assert_eq!(printed.code, Some(0), "{}", printed.error);
        printed.json()["output"].clone()
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
            let printed = run("again", to);
            assert_eq!((printed.code, printed.error.ends_with(&refused)), (Some(2), true), "{to:?}: {}", printed.error);
        }
        assert_ne!(run("again", &[option, names]).code, Some(2), "{option}");
        assert_eq!(callboard(&folder, &["conversations", "delete", "x:y", "--store", "data"]).code, Some(0));
    }
    let workflow = ["workflow", "run", "--line", "workflow daily: a", "--agent", "a=cat"];
    assert_eq!(callboard(&folder, &[&workflow[..], &data].concat()).code, Some(0));
    let printed = callboard(&folder, &[&["run", "again"], &data[..], &FAKE].concat());
    let line = "belongs to the workflow daily: continue it with the option that began it, such as --pipeline AGENT,…, or with \
                callboard workflow run FILE --conversation x:y --store data\n";
    assert!(printed.code == Some(2) && printed.error.ends_with(line), "{}", printed.error);
}

#[test]
fn errors_in_a_pattern_are_reported_before_the_run_begins() {
    let folder = folder(&["ann", "bob"]);
    let refused = |code: i32, arguments: &[&str], why: &str| {
        let printed = callboard(&folder, &[&["run", "x"], arguments, &FAKE].concat());
        assert!(
            printed.code == Some(code) && printed.error.contains(why),
            "{arguments:?}: {:?} {}",
            printed.code,
            printed.error
        );
    };
    refused(2, &["--review", "ann,bob"], "--review takes three agents, as in planner,coder,reviewer; here are 2");
    refused(2, &["--peers", "ann"], "--peers takes two agents or more, as in ann,bob; here is 1");
    refused(3, &["--pipeline", "ann,bbo"], "no agent has the name, role or capability \"bbo\"");
    refused(2, &["--pipeline", "ann", "--peers", "ann,bob"], "cannot be used with");
    refused(2, &["--pipeline", "ann", "--to", "bob"], "cannot be used with");
    refused(2, &["--peers", "ann,bob", "--rounds", "0"], "--rounds");
    refused(2, &["--pipeline", "ann", "--rounds", "2"], "--rounds is for --peers and --review");
}

#[test]
fn nodes_of_a_workflow_are_agents_of_a_folder_unless_a_program_has_their_name() {
    let folder = folder(&["writer", "shout"]);
    let run = ["workflow", "run", "--line", "writer -> shout", "--input-json", "\"a boat\"", "--agents", "agents"];
    let printed = callboard(&folder, &[&run[..], &FAKE, &["--agent", "shout=tr a-z A-Z"]].concat());
    assert!(
        printed.code == Some(0) && printed.out.contains("IT WAS ASKED: A BOAT"),
        "{} {}",
        printed.out,
        printed.error
    );
    let printed = callboard(&folder, &[&run[..], &FAKE].concat());
    assert!(
        printed.code == Some(0) && printed.out.matches("It was asked").count() == 2,
        "{} {}",
        printed.out,
        printed.error
    );
    let printed =
        callboard(&folder, &["workflow", "run", "--line", "writer -> print", "--agents", "agents", "--model", "fake"]);
    assert!(printed.code == Some(2) && printed.error.contains("--agent print='COMMAND'"), "{}", printed.error);
    let printed = callboard(&folder, &["workflow", "run", "--line", "writer", "--model", "fake"]);
    assert!(printed.code == Some(2) && printed.error.contains("--agents"), "{}", printed.error);
}

#[test]
fn an_approval_of_an_agent_in_a_workflow_ends_the_process_and_the_printed_command_line_continues_the_run() {
    let folder = agents(&[("writer", &searcher("writer"))]);
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
    let printed = callboard(&folder, &run);
    assert_eq!((printed.code, printed.out.as_str()), (Some(5), ""), "{}", printed.error);
    assert!(
        printed.error.contains("there is nobody at a terminal to ask") && printed.error.contains("FileSearch"),
        "{}",
        printed.error
    );
    let continuation = printed.continuation();
    assert!(continuation.ends_with(&["--store", "data", "--agents", "agents", "--model", "fake"]), "{continuation:?}");
    let printed = callboard(&folder, &continuation);
    assert!(printed.code == Some(5) && printed.error.contains("FileSearch"), "{:?} {}", printed.code, printed.error);
}
