//! Untrusted input, as names and as texts, deceives nobody who reads it and controls no terminal.

use std::fmt::Display;

use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{Decision, Envelope};
use callboard::prelude::*;
use serde_json::json;

use crate::common::{builder, finish};

/// Clears a screen, sets a title, reverses the reading direction and hides a letter; the line feed is wanted in texts.
const ORDERS: &str = "\u{1b}[2J\u{9b}31m\u{1b}]0;title\u{7}\r\u{202e}gnp.\u{200b}\nnext";

fn assert_fit(shown: impl Display) {
    let shown = shown.to_string();
    let is_fit = |c: char| (!c.is_control() || c == '\n') && !['\u{202e}', '\u{200b}'].contains(&c);
    assert!(shown.chars().all(is_fit), "{shown:?}");
    assert!(shown.contains("\\u{1b}") || shown.contains("\\u001b"), "{shown:?}");
}

#[tokio::test(start_paused = true)]
async fn no_text_of_an_agent_reaches_a_terminal_as_it_is() {
    let board = builder()
        .agent("tells", |_: Turn| async { Ok(Command::output(ORDERS)) })
        .agent("lists", |_: Turn| async { Ok(Command::output(json!({ ORDERS: [ORDERS] }))) })
        .agent("fails", |_: Turn| async { Err(TurnError::terminal(ORDERS)) })
        .agent("panics", |_: Turn| async { std::panic::resume_unwind(Box::new(ORDERS)) })
        .agent("strays", |_: Turn| async { Ok(Command::default().goto(ORDERS)) })
        .agent("explains", |_: Turn| async { Ok(Command::update("reason", ORDERS).goto("tells")) })
        .start()
        .await
        .unwrap();
    for agent in ["tells", "lists", "fails", "panics", "strays", "explains"] {
        let run = board.submit(Task::new("speak").to(agent)).await.unwrap();
        let result = run.result().await.unwrap();
        assert_fit(&result);
        if !result.outcome.is_finished() {
            assert_fit(&result.outcome);
        }
        let flow = run.flow().await.unwrap();
        if ["fails", "panics", "explains"].contains(&agent) {
            assert_fit(&flow);
        }
        if agent == "explains" {
            assert_fit(flow.to_mermaid());
        }
        for letter in run.dead_letters().await.unwrap() {
            assert_fit(letter.failure);
        }
    }
    assert_fit(board.tree().await.unwrap());
    assert_fit(board.submit(Task::new("x").to(ORDERS)).await.unwrap_err());
    assert_fit(board.agents().stop(ORDERS).await.unwrap_err());
    assert_fit(board.ask::<(), ()>(ORDERS, ()).await.unwrap_err());
    assert_eq!(finish(&board, Task::new("speak").to("tells")).await.output, json!(ORDERS), "the value stays as it is");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn errors_cut_what_was_asked_for_and_say_how_long_it_was() {
    let board = builder().agent("one", |_: Turn| async { Ok(Command::default()) }).start().await.unwrap();
    let long = "ä".repeat(100_000);
    let errors = [
        board.submit(Task::new("x").to(&long)).await.unwrap_err().to_string(),
        board.agents().stop(&long).await.unwrap_err().to_string(),
        board.ask::<(), ()>(&long, ()).await.unwrap_err().to_string(),
        board
            .agents()
            .spawn(AgentSpec::new(&long, |_: Turn| async { Ok(Command::default()) }))
            .await
            .unwrap_err()
            .to_string(),
    ];
    for error in errors {
        assert!(error.len() < 300 && error.contains("ä…\" (100000 characters)"), "{error}");
    }
    board.shutdown().await;
}

struct Named(&'static str);

impl Channel for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn ask(&self, _: &Envelope, _: &Decider) {}

    fn settled(&self, _: &Envelope, _: Option<&Decision>) {}
}

#[tokio::test(start_paused = true)]
async fn names_that_could_deceive_are_refused_at_every_door() {
    async fn idle(_: Turn) -> Result<Command, TurnError> {
        Ok(Command::default())
    }
    const NAME: &str = "revi\u{200b}ewer";
    let refused = |kind: &str| format!("{kind} name \"revi\\u{{200b}}ewer\" has `\\u{{200b}}` as character 5");
    let spec = || AgentSpec::new("fine", idle);
    let doors = [
        ("agent", AgentSpec::new(NAME, idle)),
        ("role", spec().role(NAME)),
        ("capability", spec().capability(NAME)),
        ("project", spec().project(NAME)),
        ("namespace", spec().namespaces([NAME])),
    ];
    let board = builder().with(spec()).start().await.unwrap();
    for (kind, spec) in doors {
        let errors = [
            builder().with(spec.clone()).start().await.unwrap_err().to_string(),
            board.agents().replace(spec.clone()).await.unwrap_err().to_string(),
            board.agents().spawn(spec).await.unwrap_err().to_string(),
        ];
        for error in errors {
            assert!(error.starts_with(&refused(kind)), "{error}");
        }
    }
    let error = builder().channel(Named(NAME)).start().await.unwrap_err().to_string();
    assert!(error.starts_with(&refused("channel")), "{error}");
    let error = board.context().get(NAME, "key").await.unwrap_err().to_string();
    assert!(error.starts_with(&refused("namespace")), "{error}");
    board.shutdown().await;
}
