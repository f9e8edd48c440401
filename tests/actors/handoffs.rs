//! Handoffs: control passes through commands, and the rules of SEMANTICS 1, 2, 4 and 5 hold.

use callboard::messages::{FailureKind, Refusal, RunResult, SendTo};
use callboard::prelude::*;
use callboard::supervision::runs::BreakerState;
use serde_json::json;

async fn run(board: &Callboard, task: Task) -> RunResult {
    board.submit(task).await.unwrap().result().await.unwrap()
}

fn pass(to: &'static str) -> impl Fn(Turn) -> std::future::Ready<Result<Command, TurnError>> + Clone {
    move |turn: Turn| {
        std::future::ready(Ok(Command::output(format!("{} by {}", turn.task().body, turn.agent())).goto(to)))
    }
}

#[tokio::test(start_paused = true)]
async fn control_passes_from_agent_to_agent_and_state_goes_along() {
    let board = Callboard::builder()
        .agent("researcher", |turn: Turn| async move {
            let topic: String = turn.input()?;
            Ok(Command::update("artifacts", json!({ "notes": format!("notes on {topic}") })).goto("writer"))
        })
        .agent("writer", |turn: Turn| async move {
            assert_eq!(turn.previous_agent().map(|agent| agent.as_str()), Some("researcher"));
            let notes = turn.state().get("artifacts").unwrap()["notes"].as_str().unwrap().to_owned();
            Ok(Command::output(format!("a text from {notes}")))
        })
        .start()
        .await
        .unwrap();
    let result = run(&board, Task::new("the design").to("researcher")).await;
    assert_eq!(result.outcome, Outcome::Finished);
    assert_eq!(result.output, json!("a text from notes on the design"));
    assert_eq!((result.metrics.turns, result.metrics.handoffs, result.metrics.agents), (2, 1, 2));
    assert_eq!(result.to_string(), "a text from notes on the design");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_past_its_handoffs_ends_refused_and_keeps_what_was_done() {
    let board = Callboard::builder().agent("a", pass("b")).agent("b", pass("a")).start().await.unwrap();
    let result = run(&board, Task::new("x").to("a").limits(Complexity::Medium)).await;
    assert_eq!(result.outcome, Outcome::Refused(Refusal::HandoffLimit { max: 2, asked: 1 }));
    assert_eq!(result.output, json!("x by a"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_joins_in_the_order_of_the_sends() {
    let board = Callboard::builder()
        .agent(
            "lead",
            |_: Turn| async move { Ok(Command::new().goto_many((0..4_u64).map(|n| SendTo::new("worker", n)))) },
        )
        .agent("worker", |turn: Turn| async move {
            let n: u64 = turn.input()?;
            tokio::time::sleep(std::time::Duration::from_secs(10 - n)).await;
            Ok(Command::output(n * n).with("messages", n).with("artifacts", json!({ (n.to_string()): n })))
        })
        .start()
        .await
        .unwrap();
    let result = run(&board, Task::new("squares").to("lead")).await;
    assert_eq!(result.outcome, Outcome::Finished);
    assert_eq!(result.output, json!([0, 1, 4, 9]));
    assert_eq!(result.state["messages"], json!([0, 1, 2, 3]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_target_is_an_error_with_the_nearest_name() {
    let board = Callboard::builder().agent("reviewer", pass("reviwer")).start().await.unwrap();
    let result = run(&board, Task::new("x").to("reviewer")).await;
    let Outcome::Refused(refusal) = &result.outcome else { panic!("{result:?}") };
    assert!(refusal.to_string().contains(r#"did you mean "reviewer"?"#), "{refusal}");
    let refused = board.submit(Task::new("x").to("reviewr")).await.unwrap_err();
    assert!(refused.to_string().contains(r#"did you mean "reviewer"?"#), "{refused}");
    board.shutdown().await;
}

/// A name that nobody has fails the turn, not the attempt: what the turn costs is not spent again on the same typo.
#[tokio::test(start_paused = true)]
async fn an_unknown_target_ends_the_turn_at_once_whichever_door_it_was_given_to() {
    let by_command = |turn: Turn| async move { Ok(Command::output(turn.attempt()).goto("writter")) };
    let by_sends = |_: Turn| async { Ok(Command::default().goto_many([SendTo::new("writter", 1)])) };
    let by_delegation = |turn: Turn| async move { Ok(Command::output(turn.delegate("writter", "this").await?)) };
    for door in ["command", "sends", "delegation"] {
        let board = Callboard::builder()
            .agent("command", by_command)
            .agent("sends", by_sends)
            .agent("delegation", by_delegation)
            .agent("writer", |_: Turn| async { Ok(Command::output("done")) })
            .start()
            .await
            .unwrap();
        let handle = board.submit(Task::new("x").to(door)).await.unwrap();
        let result = handle.result().await.unwrap();
        let unknown = Refusal::UnknownAgent { target: "writter".into(), nearest: Some("writer".into()) };
        assert_eq!((result.outcome, result.metrics.retries), (Outcome::Refused(unknown), 0), "{door}");
        let letters = handle.dead_letters().await.unwrap();
        assert_eq!(
            (letters.len(), letters[0].attempts, letters[0].failure.kind),
            (1, 1, FailureKind::Refused),
            "{door}"
        );
        assert_eq!(board.agents().breaker(door).state, BreakerState::Closed, "{door}");
        board
            .agents()
            .spawn(AgentSpec::new("writter", |_: Turn| async { Ok(Command::output("done late")) }))
            .await
            .unwrap();
        let fork = board.dead_letters().retry(letters[0].turn).await.unwrap();
        assert!(fork.result().await.unwrap().outcome.is_finished(), "{door}: somebody has the name now");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_without_agents_reports_it() {
    let board = Callboard::builder().start().await.unwrap();
    let refused = board.submit(Task::new("x")).await.unwrap_err();
    assert!(refused.to_string().contains("no agent is registered"), "{refused}");
    board.shutdown().await;
}
