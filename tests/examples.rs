//! Every example runs offline, without arguments, in seconds, ends by itself, and shows what it promises.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod processes;

use processes::{Ended, example, output};

async fn run(name: &str, arguments: &[&str], input: &str) -> Ended {
    let mut command = example(name);
    command.args(arguments);
    let ended = output(command, input).await;
    assert_eq!(ended.code(), Some(0), "{name}: {}", ended.told());
    ended
}

fn assert_tells(ended: &Ended, in_order: &[&str]) {
    let told = ended.stdout();
    let mut rest = told.as_str();
    for expected in in_order {
        let Some(at) = rest.find(expected) else {
            panic!("{expected:?} is missing or out of order in {}", ended.told())
        };
        rest = &rest[at + expected.len()..];
    }
}

#[tokio::test]
async fn hello_supervision_answers_after_a_crash() {
    let ended = run("hello_supervision", &[], "").await;
    let before = ["Everything runs:", "callboard (one_for_one)  running", "oracle  running  gen 1"];
    let after = [
        "Attempt 1 failed (panic: I did not expect a question)",
        "The answer: 42 is the answer",
        "oracle  running  gen 2  restarts 1",
    ];
    assert_tells(&ended, &before);
    assert_tells(&ended, &after);
    assert_tells(&ended, &["Try next:", "cargo run ", "cargo run "]);
}

#[tokio::test]
async fn approval_does_what_was_decided() {
    let yes = ["Decided: approved by terminal", "The run ended: finished.", "Dear Ada,"];
    assert_tells(&run("approval", &[], "y\n").await, &yes);
    let no = [
        "Decided: denied by terminal",
        "The run ended: denied: write_file ",
        "by terminal: wrong address",
        "There is no letter.",
    ];
    assert_tells(&run("approval", &[], "n wrong address\n").await, &no);
    assert_tells(&run("approval", &[], "").await, &["The run ended: denied: ", "nobody is there to answer"]);
    assert_tells(&run("approval", &["--yes"], "").await, &["Decided: approved by policy", "Dear Ada,"]);
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
    assert_tells(&ended, &story);
    let times = |step: &str| ended.stdout().matches(step).count();
    assert_eq!(["step 1", "step 2", "step 3"].map(times), [1, 1, 2], "{}", ended.told());
}

#[tokio::test]
async fn custom_storage_counts_what_a_board_asks() {
    let ended = run("custom_storage", &[], "").await;
    assert_tells(&ended, &["A text about tides.", "  append", "  get", "  put_if_revision", "cargo test --example"]);
}

#[tokio::test]
async fn own_actors_are_supervised() {
    let ended = run("own_actors_supervised", &[], "").await;
    assert_tells(&ended, &["All run:", "restarted", "What is left:", "The tree was "]);
}
