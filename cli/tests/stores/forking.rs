//! `callboard runs fork`: the program that has the agents continues what the command line has begun.

use std::path::Path;

use crate::common::{callboard, make_store, press};
use callboard::messages::{RunId, RunResult};
use callboard::prelude::*;
use serde_json::{Value, json};

/// The program starts on the store, and the run comes to its end.
#[tokio::main(flavor = "current_thread")]
async fn go_on(folder: &Path, run: RunId) -> RunResult {
    let board = press(Callboard::builder().storage(Sled::open(folder).unwrap())).start().await.unwrap();
    let result = board.run(run).result().await.unwrap();
    board.shutdown().await;
    result
}

#[test]
fn a_fork_goes_on_at_the_next_start_of_the_program_that_has_the_agents() {
    let folder = tempfile::tempdir().unwrap();
    let runs = make_store(folder.path());
    let short = runs.too_short.to_string();
    let arguments = ["fork", &short, "--turn", "3", "--input", "\"a long draft\"", "--set", "messages=[\"forked\"]"];
    let said = callboard(folder.path(), &arguments);
    assert_eq!((said.code, said.error.as_str()), (0, ""));
    let fork: RunId = said.out.lines().next().unwrap().parse().unwrap();
    insta::assert_snapshot!(
        "fork",
        said.out.replace(&fork.to_string(), "FORK").replace(folder.path().to_str().unwrap(), "FOLDER")
    );
    let list = callboard(folder.path(), &["list"]).out;
    assert!(list.contains(" fork: a short one") && list.matches("fork:").count() == 1, "{list}");
    let list: Value = serde_json::from_str(&callboard(folder.path(), &["list", "--json"]).out).unwrap();
    assert_eq!(list[4]["forked_from"], json!({ "run": short, "turn": 3 }));
    let again = callboard(folder.path(), &["fork", &fork.to_string(), "--turn", "3"]);
    assert_eq!(again.code, 0, "{}", again.error);
    let list: Value = serde_json::from_str(&callboard(folder.path(), &["list", "--json"]).out).unwrap();
    assert_eq!(list[5]["forked_from"], json!({ "run": fork, "turn": 3 }));
    let shown = callboard(folder.path(), &["show", &fork.to_string()]).out;
    assert!(shown.contains("open (1 turn)") && shown.contains(&format!("turn 3 of {short}")), "{shown}");

    let result = go_on(folder.path(), fork);
    assert_eq!((result.outcome, result.output), (Outcome::Finished, "printed: a long draft, polished".into()));
    assert_eq!(result.state["messages"], json!(["forked", crate::common::HOSTILE, "printed"]));
    assert_eq!(result.metrics.tokens_spent, 0, "the scout is not asked again, and the budget is new");
    let diff = callboard(folder.path(), &["diff", &short, &fork.to_string()]);
    assert_eq!(diff.code, 1);
    assert!(diff.out.contains("turn 3 (writer): other input"), "{}", diff.out);
}

#[test]
fn a_long_input_comes_from_a_file_and_a_fork_whose_answer_cannot_be_written_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let runs = make_store(folder.path());
    let (run, file) = (runs.printed.to_string(), folder.path().join("input.json"));
    std::fs::write(&file, format!("{:?}", "x".repeat(1 << 20))).unwrap();
    let input = format!("@{}", file.display());
    let mut full = crate::common::command(folder.path(), &["fork", &run, "--turn", "3", "--input", &input]);
    full.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let said = crate::common::said(full.output().unwrap());
    assert_eq!(said.code, 2);
    let fork = said.error.split("the fork ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(callboard(folder.path(), &["replay", &fork, "--turn", "3", "--json"]).out.len() > 1 << 20);
    let missing = callboard(folder.path(), &["fork", &run, "--turn", "3", "--input", "@missing"]);
    assert_eq!(missing.code, 2);
    assert!(missing.error.contains("missing: No such file"), "{}", missing.error);
}

#[test]
fn a_fork_that_cannot_be_is_refused_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = make_store(folder.path());
    let run = runs.printed.to_string();
    let refused = |arguments: &[&str], code: i32, why: &str| {
        let said = callboard(folder.path(), &[&["fork", &run], arguments].concat());
        assert_eq!((said.code, said.out.as_str()), (code, ""), "{arguments:?}: {}", said.error);
        assert!(said.error.contains(why), "{arguments:?}: {}", said.error);
    };
    refused(&["--turn", "9"], 1, "the run has no turn 9; its last is 4");
    refused(&["--turn", "0"], 1, "the run has no turn 0");
    refused(&["--turn", "-1"], 2, "invalid value '-1'");
    refused(&["--turn", "9", "--input", "-1"], 1, "no turn 9");
    refused(&["--turn", "3", "--input", "text"], 2, "text goes in quotes");
    refused(&["--turn", "3", "--input", &"[".repeat(200)], 2, "recursion limit exceeded");
    refused(&["--turn", "3", "--input", &["[".repeat(125), "]".repeat(125)].concat()], 2, "nested deeper than");
    refused(&["--turn", "3", "--set", "messages"], 2, "write CHANNEL=JSON");
    refused(&["--turn", "3", "--set", "messages=1", "--set", "messages=2"], 2, "--set is given twice for \"messages\"");
    refused(&["--turn", "3", "--set", "metrics=1"], 2, "written by the runtime only");
    let list: Value = serde_json::from_str(&callboard(folder.path(), &["list", "--json"]).out).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 4);
}
