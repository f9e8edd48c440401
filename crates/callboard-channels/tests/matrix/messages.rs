//! What is sent, and what replies do.

use callboard::actors::approvals::Card;
use callboard::messages::{Consent, Terms};
use callboard::prelude::*;
use callboard_channels::matrix::{MatrixChannel, MatrixState};
use serde_json::json;

use crate::fake::{ANN, BOB, BOT, DATA, Failing, ROOM, Server};
use crate::team::{Team, config};

#[tokio::test]
async fn everybody_is_shown_all_of_it_and_then_who_decided() {
    let team = Team::start().await;
    let (run, asked) = team.ask("order 7", json!({ "amount": "70\u{202e}", "to": "@room" })).await;
    let message = team.server.open("order 7").await;
    let whole = Card::of(&asked).whole();
    let how = "To decide, reply to this message: \"approve\", \"approve for this run\", or \"deny\" and a reason.";
    assert_eq!(message.text, format!("{}\n\n{how}", whole.trim_end()));
    assert!(message.text.contains("70\\u{202e}"), "{}", message.text);
    assert_eq!((&message.content["msgtype"], &message.content["m.mentions"]), (&json!("m.text"), &json!({})));
    assert_eq!(message.content.get("formatted_body"), None);
    let data = &message.content[DATA];
    assert_eq!((&data["approval"], &data["status"]), (&json!(asked.id().to_string()), &json!("open")));
    assert_eq!(data["decisions"], json!(["approve", "approve_for_run", "deny"]));
    assert!(message.nonce().len() == 32 && !message.text.contains(&message.nonce()), "{data}");
    let told = team.server.answer(ANN, &message, "approve").await;
    assert!(told.starts_with("approved by ann at "), "{told}");
    assert_eq!(run.result().await.unwrap().output, json!("paid"));
    let closed = team.server.closed(&message).await;
    assert!(closed.text.starts_with("approved by ann at ") && closed.text.contains(" UTC, on Matrix\n\n── approval "));
    assert!(closed.text.contains(whole.trim_end()) && closed.edits.len() == 1, "{}", closed.text);
    let related = &closed.edits[0]["m.relates_to"];
    assert_eq!(related, &json!({ "rel_type": "m.replace", "event_id": message.event }));
    assert_eq!(closed.edits[0]["m.new_content"][DATA]["status"], "closed");
    assert_eq!(&*team.decision(&asked).await.unwrap().via, "matrix");
    team.board.shutdown().await;
}

#[tokio::test]
async fn long_arguments_are_cut_with_their_number_and_the_command_that_shows_them() {
    let team = Team::on(Server::start(), |config| config.how_to_see(|asked| format!("ask-for {}", asked.nonce))).await;
    let (_, asked) = team.ask("order 8", json!({ "text": format!("{}THE END", "漢🙈\n".repeat(20_000)) })).await;
    let message = team.server.open("order 8").await;
    assert!(message.text.contains(&format!(" more characters; all of it: ask-for {}\n  │ …", asked.nonce)));
    assert!(message.text.contains("THE END\n  │ }\n\n"), "{}", message.text);
    let told = team.server.answer(BOB, &message, "deny").await;
    assert!(told.starts_with("denied by bob"), "{told}");
    team.server.closed(&message).await;
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_denial_has_a_reason_and_later_replies_are_told_of_it() {
    let team = Team::start().await;
    let (run, asked) = team.ask("order 9", json!({})).await;
    let message = team.server.open("order 9").await;
    let unclear = team.server.answer(BOB, &message, "is that not too much?").await;
    assert!(
        unclear.starts_with("Nothing was decided. To decide, reply to the message that asks: \"approve\""),
        "{unclear}"
    );
    let quoting = "> <@board:example.org> ── approval\n> approve\n\ndeny not on a Friday";
    team.server.replies(BOB, &message, quoting);
    let closed = team.server.closed(&message).await;
    assert!(closed.text.contains("on Matrix: not on a Friday\n"), "{}", closed.text);
    let decision = team.decision(&asked).await.unwrap();
    assert_eq!((decision.approved, &*decision.by, &*decision.reason), (false, "bob", "not on a Friday"));
    let output = run.result().await.unwrap().output;
    assert!(output.as_str().unwrap().ends_with("was denied by bob: not on a Friday"), "{output}");
    let told = team.server.answer(ANN, &message, "approve").await;
    assert!(told.starts_with("It is closed already: denied by bob"), "{told}");
    team.board.shutdown().await;
}

#[tokio::test]
async fn an_approval_for_the_run_is_not_offered_for_a_handoff() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 10", json!({})).await;
    let message = team.server.open("order 10").await;
    let told = team.server.answer(ANN, &message, "Approve for this run").await;
    assert!(told.starts_with("approved for this run until "), "{told}");
    let decision = team.decision(&asked).await.unwrap();
    assert!(matches!(decision.terms, Terms::Run { .. }), "{decision:?}");
    team.board.shutdown().await;

    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let board = Callboard::builder()
        .agent("lead", |_: Turn| async { Ok(Command::output("plan").goto("writer")) })
        .agent("writer", |_: Turn| async { Ok(Command::output("written")) })
        .approval_policy(|question| if &*question.action.action == "handoff" { Consent::Ask } else { Consent::Auto })
        .channel(MatrixChannel::open(config(&server, folder.path())).unwrap())
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let message = server.open("handoff").await;
    assert!(!message.text.contains("for this run"), "{}", message.text);
    let told = server.answer(ANN, &message, "approve for this run").await;
    assert_eq!(told, "It cannot be approved for the whole run. Nothing was decided.");
    server.answer(ANN, &message, "approve").await;
    assert_eq!(run.result().await.unwrap().output, json!("written"));
    board.shutdown().await;
}

#[tokio::test]
async fn a_program_decides_by_the_event_of_the_guide() {
    let guide = include_str!("../../../../docs/matrix.md");
    let example = guide.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let mut content: serde_json::Value = serde_json::from_str(example).unwrap();
    let team = Team::on(Server::start(), |config| config.event_type("org.example.ask")).await;
    let (_, asked) = team.ask("order 11", json!({})).await;
    let message = team.server.open("order 11").await;
    let nonce = message.content["org.example.ask"]["nonce"].as_str().unwrap();
    (content["event_id"], content["nonce"]) = (json!(message.event), json!(nonce));
    let event = team.server.sends(BOB, ROOM, "org.example.ask.answer", content);
    assert!(team.server.told(&event).await.starts_with("denied by bob at "));
    assert_eq!(&*team.decision(&asked).await.unwrap().reason, "not on a Friday");
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_message_whose_answer_is_lost_is_there_once_and_replies_to_it_count() {
    let team = Team::start().await;
    team.state(|state| matches!(state, MatrixState::Reached { .. })).await;
    team.server.change(|served| served.failing = Failing::LosesAnswers);
    let (_, asked) = team.ask("order 12", json!({})).await;
    let message = team.server.open("order 12").await;
    let approves = team.server.replies(ANN, &message, "approve");
    team.server.told(&approves).await;
    assert!(team.decision(&asked).await.unwrap().approved);
    // What closes it is sent again and again.
    team.server.found(|served| (served.calls["send"] > 8).then_some(())).await;
    team.server.change(|served| served.failing = Failing::No);
    let closed = team.server.closed(&message).await;
    assert!(closed.text.starts_with("approved by ann"), "{}", closed.text);
    let (messages, told) = team.server.change(|served| (served.messages.len(), served.told[&approves].len()));
    assert_eq!((messages, closed.edits.len(), told), (1, 1, 1));
    team.board.shutdown().await;
}

#[tokio::test]
async fn the_state_names_the_account() {
    let team = Team::start().await;
    let reached = team.state(|state| *state != MatrixState::Starting).await;
    assert_eq!(reached, MatrixState::Reached { account: BOT.to_owned(), unusable: Vec::new() });
    team.board.shutdown().await;
}
