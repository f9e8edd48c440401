//! What is sent, and what the buttons do.

use callboard::actors::approvals::Card;
use callboard::messages::{Consent, Terms};
use callboard::prelude::*;
use callboard_channels::telegram::TelegramState;
use serde_json::json;

use crate::fake::{ANN, BOB};
use crate::team::Team;

#[tokio::test]
async fn everybody_is_shown_all_of_it_and_then_who_decided() {
    let team = Team::start().await;
    let (run, asked) = team.ask("order 7", json!({ "amount": "70\u{202e}", "to": "a@example.org" })).await;
    let message = team.server.open(ANN, "order 7").await;
    let whole = Card::of(&asked).whole();
    assert_eq!(message.text, format!("{}\n\nTo deny with a reason, reply to this message.", whole.trim_end()));
    assert!(message.text.contains("70\\u{202e}"), "{}", message.text);
    assert_eq!(message.body["link_preview_options"], json!({ "is_disabled": true }));
    assert_eq!(message.body.get("parse_mode"), None);
    let labels: Vec<&str> = message.buttons.iter().map(|(label, _)| &**label).collect();
    assert_eq!(labels, ["Approve", "Approve for this run", "Deny"]);
    let other = team.server.open(BOB, "order 7").await;
    let told = team.server.click(ANN, ANN, message.id, &message.button("Approve")).await;
    assert!(told.starts_with("approved by ann at "), "{told}");
    assert_eq!(run.result().await.unwrap().output, json!("paid"));
    for message in [&message, &other] {
        let closed = team.server.closed(message).await;
        assert!(
            closed.text.starts_with("approved by ann at ") && closed.text.contains(" UTC, on Telegram\n\n── approval ")
        );
        assert!(closed.text.contains(whole.trim_end()) && closed.edits == 1, "{}", closed.text);
    }
    team.board.shutdown().await;
}

#[tokio::test]
async fn long_arguments_are_cut_with_their_number_and_the_command_that_shows_them() {
    let team = Team::with(|config| config.how_to_see(|asked| format!("ask-for {}", asked.nonce))).await;
    let (_, asked) = team.ask("order 8", json!({ "text": format!("{}THE END", "漢🙈\n".repeat(4_000)) })).await;
    let message = team.server.open(ANN, "order 8").await;
    assert!(message.text.contains(&format!(" more characters; all of it: ask-for {}\n  │ …", asked.nonce)));
    assert!(message.text.contains("THE END\n  │ }\n\n"), "{}", message.text);
    let told = team.server.click(BOB, BOB, team.server.open(BOB, "order 8").await.id, &message.button("Deny")).await;
    assert!(told.starts_with("denied by bob"), "{told}");
    team.server.closed(&message).await;
    team.board.shutdown().await;
}

#[tokio::test]
async fn an_answer_to_the_message_denies_with_a_reason() {
    let team = Team::start().await;
    let (run, asked) = team.ask("order 9", json!({})).await;
    let message = team.server.open(BOB, "order 9").await;
    team.server.reply(BOB, &message, "not on a Friday");
    let closed = team.server.closed(&message).await;
    assert!(closed.text.contains("on Telegram: not on a Friday\n"), "{}", closed.text);
    let decision = team.decision(&asked).await.unwrap();
    assert_eq!((decision.approved, &*decision.by, &*decision.reason), (false, "bob", "not on a Friday"));
    let output = run.result().await.unwrap().output;
    assert!(output.as_str().unwrap().ends_with("was denied by bob: not on a Friday"), "{output}");
    team.server.reply(ANN, &team.server.said(ANN, "order 9").await, "yes");
    let told = team.server.said(ANN, "It is closed already: denied by bob").await;
    assert!(told.body["reply_parameters"]["message_id"].is_i64(), "{}", told.body);
    team.board.shutdown().await;
}

#[tokio::test]
async fn an_approval_for_the_run_covers_the_same_again_and_is_not_offered_for_a_handoff() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 10", json!({})).await;
    let message = team.server.open(ANN, "order 10").await;
    let told = team.server.click(ANN, ANN, message.id, &message.button("Approve for this run")).await;
    assert!(told.starts_with("approved for this run until "), "{told}");
    let decision = team.decision(&asked).await.unwrap();
    assert!(matches!(decision.terms, Terms::Run { .. }), "{decision:?}");
    team.board.shutdown().await;

    let server = crate::fake::Server::start();
    let folder = tempfile::tempdir().unwrap();
    let config = crate::team::config(&server, folder.path());
    let channel = callboard_channels::telegram::TelegramChannel::open(config).unwrap();
    let board = Callboard::builder()
        .agent("lead", |_: Turn| async { Ok(Command::output("plan").goto("writer")) })
        .agent("writer", |_: Turn| async { Ok(Command::output("written")) })
        .approval_policy(|question| if &*question.action.action == "handoff" { Consent::Ask } else { Consent::Auto })
        .channel(channel)
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let message = server.open(ANN, "handoff").await;
    let labels: Vec<&str> = message.buttons.iter().map(|(label, _)| &**label).collect();
    assert_eq!(labels, ["Approve", "Deny"]);
    server.click(ANN, ANN, message.id, &message.button("Approve")).await;
    assert_eq!(run.result().await.unwrap().output, json!("written"));
    board.shutdown().await;
}

#[tokio::test]
async fn the_state_names_the_bot() {
    let team = Team::start().await;
    let reached = team.state(|state| *state != TelegramState::Starting).await;
    assert_eq!(reached, TelegramState::Reached { bot: "@the_board_bot".to_owned() });
    team.board.shutdown().await;
}
