//! Every example runs offline, without arguments, in seconds, ends by itself, and shows what it promises.

use std::fs;

use crate::processes::{Ended, example, output};

async fn run(name: &str, arguments: &[&str], input: &str) -> Ended {
    let mut command = example(name);
    command.args(arguments);
    let ended = output(command, input).await;
    assert_eq!(ended.code(), Some(0), "{name}: {}", ended.reported());
    ended
}

fn assert_reports(ended: &Ended, in_order: &[&str]) {
    let reported = ended.stdout();
    let mut rest = reported.as_str();
    for expected in in_order {
        let Some(at) = rest.find(expected) else {
            panic!("{expected:?} is missing or out of order in {}", ended.reported())
        };
        rest = &rest[at + expected.len()..];
    }
}

#[tokio::test]
async fn hello_supervision_answers_after_a_crash() {
    let ended = run("hello_supervision", &[], "").await;
    let before = ["Everything runs:", "callboard (one_for_one)  running", "oracle  running  gen 1"];
    let after = [
        "Attempt 1 failed (crash: I did not expect a question)",
        "The answer: 42 is the answer",
        "oracle  running  gen 2  restarts 1",
    ];
    assert_reports(&ended, &before);
    assert_reports(&ended, &after);
    assert_reports(&ended, &["Try next:", "cargo run ", "cargo run "]);
}

#[tokio::test]
async fn approval_does_what_was_decided() {
    // Who answers yes or no is at a terminal: tests/terminal.rs.
    assert_reports(&run("approval", &[], "y\n").await, &["The run ended: denied: ", "nobody is there to answer"]);
    assert_reports(&run("approval", &["--yes"], "").await, &["Decided: approved by policy", "Dear Ada,"]);
}

#[tokio::test]
async fn resume_after_kill_does_no_finished_step_again() {
    let ended = run("resume_after_kill", &[], "").await;
    let story = [
        "step 1: book the train",
        "step 2",
        "step 3",
        "killed",
        "The second process",
        "unfinished",
        "step 3",
        "booked: ",
    ];
    assert_reports(&ended, &story);
    let times = |step: &str| ended.stdout().matches(step).count();
    assert_eq!(["step 1", "step 2", "step 3"].map(times), [1, 1, 2], "{}", ended.reported());
}

#[tokio::test]
async fn custom_storage_counts_what_a_board_asks() {
    let ended = run("custom_storage", &[], "").await;
    assert_reports(&ended, &["A text about tides.", "  append", "  get", "  put_if_revision", "cargo test --example"]);
}

#[tokio::test]
async fn own_actors_are_supervised() {
    let ended = run("own_actors_supervised", &[], "").await;
    assert_reports(&ended, &["All run:", "restarted", "What is left:", "The tree was "]);
}

#[tokio::test]
async fn together_shows_all_four_ways() {
    let ended = run("together", &[], "").await;
    let pipeline = ["round 1: ", "round 2: ", "has 16 characters", "  printed: "];
    assert_reports(&ended, &pipeline);
    assert_reports(&ended, &["round 1: low writes 10.0", "round 2: middle writes 30.0", "agreed: true after 3 rounds"]);
    assert_reports(&ended, &["Under a coordinator:", "- Task answered: ", "\"done\":true"]);
}

/// A folder with files in it.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[tokio::test]
async fn workflow_review_follows_up_only_what_it_finds() {
    let found = folder(&[
        ("a.rs", "fn a() {}\n// TODO: all of it\n"),
        ("deep/b.rs", "fn b() {\n    let longest = 1; // \u{1b}[31m FIXME\n}"),
        ("notes.txt", "unsafe"),
    ]);
    let root = found.path().to_str().unwrap();
    let ended = run("workflow_review", &[root], "").await;
    let report = [
        ": 2 files, 5 lines\n",
        "The longest line has 35 characters: deep/b.rs:2\n",
        "Lines with TODO or FIXME: 2\n  a.rs:2: // TODO: all of it\n",
        "  deep/b.rs:2: let longest = 1; // \\u{1b}[31m FIXME\n",
    ];
    assert_reports(&ended, &report);
    for skipped in ["unsafe", "Nothing was put off"] {
        assert!(!ended.stdout().contains(skipped), "{}", ended.reported());
    }
    fs::write(found.path().join("a.rs"), "unsafe fn a() {}").unwrap();
    fs::write(found.path().join("deep/b.rs"), "").unwrap();
    assert_reports(&run("workflow_review", &[root], "").await, &[": 2 files, 1 lines", "Lines with unsafe: 1\n"]);
    fs::write(found.path().join("a.rs"), "").unwrap();
    assert_reports(&run("workflow_review", &[root], "").await, &[": 2 files, 0 lines", "Nothing was put off"]);
    let empty = folder(&[]);
    assert_reports(&run("workflow_review", &[empty.path().to_str().unwrap()], "").await, &[": 0 files, 0 lines"]);
    assert_reports(&run("workflow_review", &[], "").await, &["/examples: ", "Lines with TODO or FIXME: "]);
}

#[tokio::test]
async fn workflow_retry_goes_back_until_the_check_passes_or_the_bound_is_reached() {
    let story = [
        "The check passes. 7 edits:",
        "monday.md: Tabs",
        "tuesday.md: Tabs",
        "monday.md: LongLines",
        "tuesday.md: LongLines",
        "monday.md: TrailingSpaces",
        "tuesday.md: TrailingSpaces",
        "tuesday.md: LastLine",
        "monday.md:\n# Monday\n\n    Tabs stand here, and there    was one there; the line is\nlong enough\n",
    ];
    assert_reports(&run("workflow_retry", &[], "").await, &story);
    let refused = run("workflow_retry", &["--hopeless"], "").await;
    assert_reports(&refused, &["refused (LoopLimit): the loop \"implement\" has begun 6 times and is not done"]);
}

#[tokio::test]
async fn workflow_words_adds_up_what_was_counted_side_by_side() {
    let texts = folder(&[
        ("a.txt", "Tides rise, tides fall; the sea is calm."),
        ("deep/b.txt", "The tides of the calm SEAS"),
        ("c.md", "tides tides tides"),
    ]);
    let ended = run("workflow_words", &[texts.path().to_str().unwrap(), "txt"], "").await;
    let top = ["2 files, 8 words. The most frequent ones:", "      3  tides\n      2  calm\n      1  fall\n"];
    assert_reports(&ended, &top);
    assert_reports(&run("workflow_words", &[], "").await, &[" files, ", "  agent\n"]);
}

#[tokio::test]
async fn workflow_approval_publishes_what_was_agreed_to_and_nothing_else() {
    let waits = ["`publish` waits. It would write ", "# Pages\n", "- [Testing your agents](testing.md)\n"];
    let no = run("workflow_approval", &["--no"], "").await;
    assert_reports(&no, &waits);
    assert_reports(&no, &["cancelled: a person refused it", "There is no file."]);
    assert_reports(
        &run("workflow_approval", &["--yes"], "").await,
        &["Published, ", "\n# Pages\n", "There is a file."],
    );
    assert_reports(&run("workflow_approval", &[], "y\n").await, &["Publish it?", "Published, ", "There is a file."]);
    assert_reports(
        &run("workflow_approval", &[], "n\n").await,
        &["cancelled: a person refused it", "There is no file."],
    );
    let changed = run("workflow_approval", &[], "All pages\n").await;
    assert_reports(&changed, &["Published, ", "# All pages\n", "- [Testing your agents]", "There is a file."]);
    assert_reports(&run("workflow_approval", &[], "").await, &["nobody is there to answer", "There is no file."]);
}

#[tokio::test]
async fn workflow_race_cancels_the_searches_that_did_not_win() {
    let mut files: Vec<(String, &str)> = (0..40).map(|number| (format!("f{number:02}.rs"), "")).collect();
    files[5].1 = "pub struct EarlyOne;";
    files[35].1 = "fn late_one() {}";
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let tree = folder(&files);
    let root = tree.path().to_str().unwrap();
    for (name, winner, losers, place) in [
        ("EarlyOne", "forwards", ["by_name", "backwards"], "f05.rs:1"),
        ("late_one", "backwards", ["by_name", "forwards"], "f35.rs:1"),
    ] {
        let ended = run("workflow_race", &[name, root], "").await;
        assert_reports(&ended, &[&format!("{winner} has found it: {place}\n"), &format!("end: {winner}, report\n")]);
        for loser in losers {
            assert_reports(&ended, &[&format!("{loser} was cancelled at file ")]);
        }
    }
    let nothing = run("workflow_race", &["Nothing", root], "").await;
    assert_reports(&nothing, &["failed: node report: too few of the nodes before it can finish", "end: \n"]);
    assert!(!nothing.stdout().contains("cancelled"), "{}", nothing.reported());
    assert_reports(&run("workflow_race", &[], "").await, &[" has found it: ", "Turns that came to their end: "]);
}
