//! `callboard runs fork`: the program that has the agents continues what the command line has begun.

use std::path::Path;
use std::time::Duration;

use callboard::messages::{RunId, RunResult};
use callboard::prelude::{Callboard, Outcome, Sled};
use serde_json::json;

use crate::support::runs::{HOSTILE, make_store, press, released, runs, runs_command};
use crate::support::{output_of, short};

/// Starts the program with the agents on the store, and returns the result of the run.
#[tokio::main(flavor = "current_thread")]
async fn continued(folder: &Path, run: RunId) -> RunResult {
    let builder = Callboard::builder().storage(Sled::open(folder).unwrap());
    let board = press(builder, Duration::ZERO).start().await.unwrap();
    let result = board.run(run).result().await.unwrap();
    board.shutdown().await;
    released(folder);
    result
}

#[test]
fn a_fork_continues_at_the_next_start_of_the_program_with_the_agents() {
    let folder = tempfile::tempdir().unwrap();
    let ids = make_store(folder.path());
    let before = ids.too_short.to_string();
    let arguments = ["fork", &before, "--turn", "3", "--input", "\"a long draft\"", "--set", "messages=[\"forked\"]"];
    let printed = runs(folder.path(), &arguments);
    assert_eq!((printed.code, printed.error.as_str()), (Some(0), ""));
    let fork: RunId = printed.out.lines().next().unwrap().parse().unwrap();
    insta::assert_snapshot!(
        "fork",
        printed
            .out
            .replace(&fork.to_string(), "FORK")
            .replace(&short(&fork.to_string()), "SHORT")
            .replace(folder.path().to_str().unwrap(), "FOLDER")
    );
    let list = runs(folder.path(), &["list"]).out;
    assert!(list.contains(" fork: a short one") && list.matches("fork:").count() == 1, "{list}");
    let list = runs(folder.path(), &["list", "--json"]).json();
    assert_eq!(list[4]["forked_from"], json!({ "run": before, "turn": 3 }));
    let again = runs(folder.path(), &["fork", &fork.to_string(), "--turn", "3"]);
    assert_eq!(again.code, Some(0), "{}", again.error);
    let list = runs(folder.path(), &["list", "--json"]).json();
    assert_eq!(list[5]["forked_from"], json!({ "run": fork, "turn": 3 }));
    let shown = runs(folder.path(), &["show", &fork.to_string()]).out;
    assert!(shown.contains("open (1 turn)") && shown.contains(&format!("turn 3 of {}", short(&before))), "{shown}");

    let result = continued(folder.path(), fork);
    assert_eq!((result.outcome, result.output), (Outcome::Finished, "printed: a long draft, polished".into()));
    assert_eq!(result.state["messages"], json!(["forked", HOSTILE, "printed"]));
    assert_eq!(result.metrics.tokens_spent, 0, "the scout is not asked again, and the budget is new");
    let diff = runs(folder.path(), &["diff", &before, &fork.to_string()]);
    assert_eq!(diff.code, Some(1));
    assert!(diff.out.contains("turn 3 (writer): other input"), "{}", diff.out);
}

#[test]
fn a_long_input_is_read_from_a_file_and_a_fork_is_named_also_if_the_output_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let ids = make_store(folder.path());
    let (run, file) = (ids.printed.to_string(), folder.path().join("input.json"));
    std::fs::write(&file, format!("{:?}", "x".repeat(1 << 20))).unwrap();
    let input = format!("@{}", file.display());
    let mut full = runs_command(folder.path(), &["fork", &run, "--turn", "3", "--input", &input]);
    full.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let printed = output_of(&mut full);
    assert_eq!(printed.code, Some(1));
    let fork = printed.error.split("the fork ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(runs(folder.path(), &["replay", &fork, "--turn", "3", "--json"]).out.len() > 1 << 20);
    let missing = runs(folder.path(), &["fork", &run, "--turn", "3", "--input", "@missing"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.error.contains("missing: there is no such file"), "{}", missing.error);
}

#[test]
fn an_impossible_fork_is_refused_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ids = make_store(folder.path());
    let run = ids.printed.to_string();
    let refused = |arguments: &[&str], code: i32, why: &str| {
        let printed = runs(folder.path(), &[&["fork", &run], arguments].concat());
        assert_eq!((printed.code, printed.out.as_str()), (Some(code), ""), "{arguments:?}: {}", printed.error);
        assert!(printed.error.contains(why), "{arguments:?}: {}", printed.error);
    };
    refused(&["--turn", "9"], 3, "the run has no turn 9; its last is 4");
    refused(&["--turn", "0"], 3, "the run has no turn 0");
    refused(&["--turn", "-1"], 2, "invalid value '-1'");
    refused(&["--turn", "9", "--input", "-1"], 3, "no turn 9");
    refused(&["--turn", "3", "--input", "text"], 2, "text goes in quotes");
    refused(&["--turn", "3", "--input", &"[".repeat(200)], 2, "recursion limit exceeded");
    refused(&["--turn", "3", "--input", &["[".repeat(125), "]".repeat(125)].concat()], 2, "nested deeper than");
    refused(&["--turn", "3", "--set", "messages"], 2, "write CHANNEL=JSON");
    refused(&["--turn", "3", "--set", "messages=1", "--set", "messages=2"], 2, "--set is given twice for \"messages\"");
    refused(&["--turn", "3", "--set", "metrics=1"], 2, "written by the runtime only");
    let list = runs(folder.path(), &["list", "--json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 4);
}
