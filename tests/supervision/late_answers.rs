//! Delegations that turns at other boards give away: their answers come to the asking agent there, before the run that waits continues.

use callboard::messages::{LateAnswer, Outcome, RunResult};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use serde_json::json;

use crate::common::{World, comes_true, people};

/// Agents that ask `lead` and end with what it answers, and one to which it hands control on.
fn with_askers(board: Builder) -> Builder {
    board
        .agent("boss", |turn: Turn| async move {
            let answer = turn.delegate("lead", "check").await?;
            Ok(Command::output(answer).with("messages", "done"))
        })
        .agent("chief", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone()).goto("lead")) })
        .agent("closer", |turn: Turn| async move {
            let late: LateAnswer = turn.input()?;
            Ok(Command::output(json!([late.to, late.answer.output, late.original_input])).with("messages", "closed"))
        })
}

/// `lead`, which gives work away to `coder`; as its input says, it hands control on too early, or with the late answer.
fn with_lead(board: Builder) -> Builder {
    board
        .agent("lead", |turn: Turn| async move {
            let Ok(late) = turn.input::<LateAnswer>() else {
                turn.delegate("coder", "which version runs?").detach().await?;
                let asked = Command::output("asked").with("messages", "asked");
                return Ok(if turn.input_json() == "early" { asked.goto("closer") } else { asked });
            };
            // What `coder` has written comes with the command of this turn.
            assert_eq!(turn.channel::<Vec<String>>("messages")?.unwrap(), ["asked"]);
            let told = Command::new().with("messages", "told");
            Ok(if late.original_input == "hand on" {
                told.goto("closer")
            } else {
                told.with_output(late.answer.output)
            })
        })
        .agent("coder", |turn: Turn| async move {
            let version = turn.people().ask("version?").await?;
            Ok(Command::output(version).with("messages", "looked it up"))
        })
}

async fn submit(board: &Callboard, to: &str, input: &str) -> RunHandle {
    board.submit(Task::new("x").to(to).input(input)).await.unwrap()
}

/// Answers the question of `coder`, on whichever board it waits.
async fn answer(board: &Callboard) {
    let question = board.people().next_where(|open| matches!(open, Pending::Question(_))).await.unwrap();
    board.people().answer(&question, "2.3.1", "tester").await.unwrap();
}

/// The result of such a run on one board, and that on two.
async fn on_one_and_on_two(to: &str, input: &str, asks: bool) -> [RunResult; 2] {
    let (one, two) = (World::new(), World::new());
    let all = with_lead(with_askers(one.board())).start().await.unwrap();
    let back = with_lead(two.board()).name("back").start().await.unwrap();
    let front = with_askers(two.board()).name("front").start().await.unwrap();
    let mut results = Vec::new();
    for board in [&all, &front] {
        let run = submit(board, to, input).await;
        if asks {
            answer(board).await;
        }
        results.push(run.result().await.unwrap());
    }
    comes_true(async || back.load().runs == 0).await;
    for board in [all, front, back] {
        board.shutdown().await;
    }
    results.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_at_another_board_gives_away_is_answered_there_before_its_run_continues() {
    let results = on_one_and_on_two("boss", "check all", true).await;
    for result in results {
        assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("2.3.1").into()));
        assert_eq!(result.state, json!({ "messages": ["asked", "looked it up", "told", "done"] }));
    }
}

#[tokio::test(start_paused = true)]
async fn the_turn_with_the_late_answer_hands_control_on_in_the_run_that_waits() {
    let results = on_one_and_on_two("chief", "hand on", true).await;
    for result in results {
        assert_eq!((result.outcome, result.output), (Outcome::Finished, json!(["coder", "2.3.1", "hand on"]).into()));
        assert_eq!(result.state, json!({ "messages": ["asked", "looked it up", "told", "closed"] }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_at_another_board_that_hands_control_on_before_the_late_answer_fails_as_here() {
    for result in on_one_and_on_two("chief", "early", false).await {
        let Outcome::Failed { error } = result.outcome else { panic!("{:?}", result.outcome) };
        assert!(error.contains("answers to detached delegations are to come"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_finds_the_heirs_of_both_boards() {
    let world = World::new();
    let back = with_lead(world.board()).name("back").start().await.unwrap();
    let front = with_askers(world.board()).name("front").start().await.unwrap();
    let run = submit(&front, "boss", "check all").await.id();
    comes_true(async || !back.people().pending().await.is_empty()).await;
    let heir_of_back = with_lead(world.board()).name("heir of back").start().await.unwrap();
    back.shutdown().await;
    comes_true(async || heir_of_back.load().runs == 1).await;
    let heir = with_askers(world.board()).name("heir").start().await.unwrap();
    front.shutdown().await;
    comes_true(async || heir.load().runs == 1).await;
    assert_ne!(
        people::questions(&heir.run(run)).await[0].id.request.turn.run,
        run,
        "the question is that of the turn elsewhere"
    );
    answer(&heir).await;
    let result = heir.run(run).result().await.unwrap();
    assert_eq!(result.output, json!("2.3.1"));
    assert_eq!(result.state, json!({ "messages": ["asked", "looked it up", "told", "done"] }));
    assert_eq!(heir.runs().await.unwrap().len(), 2, "the turn has one run elsewhere");
    for board in [heir, heir_of_back] {
        board.shutdown().await;
    }
}
