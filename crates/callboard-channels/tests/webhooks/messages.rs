//! What is sent.

use callboard::actors::approvals::Card;
use callboard::messages::PendingId;
use callboard::prelude::*;
use serde_json::{Value, json};

use crate::relay::Relay;
use crate::team::{OTHER, SECRET, Team, decision, webhook};

#[tokio::test]
async fn each_webhook_gets_the_whole_card_and_then_who_decided() {
    let (relay, other) = (Relay::start(SECRET), Relay::start(OTHER));
    let team =
        Team::with(&relay, |config| config.webhook(webhook("relay", &relay)).webhook(webhook("other", &other))).await;
    let (run, asked) = team.ask("order 7\u{202e}", json!({ "amount": "70\u{202e}", "to": "a@example.org" })).await;
    let message = relay.opened("order 7\\u{202e}").await;
    let theirs = other.opened("order 7\\u{202e}").await;
    let data = &message.body["data"];
    assert_eq!(data["approval"], json!(PendingId::Approval(asked.id()).to_string()));
    assert_eq!(data["card"], json!(Card::of(&asked).whole().trim_end()));
    assert_eq!((&data["agent"], &data["action"], &data["is_cut"]), (&json!("clerk"), &json!("pay"), &json!(false)));
    assert_eq!((&data["run"], &data["expires_at"]), (&json!(run.id()), &json!(asked.expires_at.to_string())));
    assert_eq!(message.body["timestamp"], data["asked_at"]);
    assert!(data["nonce"].as_str().unwrap().len() == 32 && data["nonce"] != theirs.body["data"]["nonce"]);
    assert!(message.id != theirs.id && !message.body.to_string().contains('\u{202e}'));
    let mut body = decision(&message, "ann", false);
    body["reason"] = "not on a Friday\u{202e}".into();
    assert!(team.send(&body).await.unwrap().is_decided);
    for relay in [&relay, &other] {
        let closed = relay.message("approval.closed", "order 7\\u{202e}").await.body;
        let outcome = &closed["data"]["outcome"];
        assert_eq!((&outcome["state"], &outcome["person"]), (&json!("denied"), &json!("ann")));
        assert_eq!(outcome["reason"], json!("not on a Friday\\u{202e}"));
        assert_eq!((&closed["timestamp"], &closed["data"]["nonce"]), (&outcome["at"], &Value::Null));
        assert!(outcome["text"].as_str().unwrap().contains(", on webhooks: not on a Friday"), "{outcome}");
    }
    let output = run.result().await.unwrap().output;
    assert!(output.as_str().unwrap().contains("was denied by ann: not on a Friday"), "{output}");
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_long_card_is_cut_with_its_number_and_the_command_that_shows_it() {
    let relay = Relay::start(SECRET);
    let team = Team::with(&relay, |config| {
        config.webhook(webhook("relay", &relay)).how_to_see(|asked| format!("ask-for {}", asked.nonce))
    })
    .await;
    let (_, asked) = team.ask("order 8", json!({ "text": format!("{}THE END", "漢🙈\n".repeat(10_000)) })).await;
    let message = relay.opened("order 8").await;
    let (data, card) = (&message.body["data"], message.body["data"]["card"].as_str().unwrap());
    assert_eq!(data["is_cut"], json!(true));
    assert!(card.contains(&format!(" more characters; all of it: ask-for {}\n  │ …", asked.nonce)), "{card}");
    assert!(card.ends_with("THE END\n  │ }") && card.encode_utf16().count() < 12_600, "{}", card.len());
    team.board.shutdown().await;
}

#[tokio::test]
async fn several_people_decide_through_one_webhook() {
    use callboard::messages::{Consent, Deciders, Groups};

    let relay = Relay::start(SECRET);
    let folder = tempfile::tempdir().unwrap();
    let channel = callboard_channels::webhooks::WebhookChannel::open(
        crate::team::config(folder.path()).webhook(webhook("relay", &relay)),
    )
    .unwrap();
    let receiver = channel.receiver();
    let clerk = |turn: Turn| async move {
        turn.people().approve(Action::new("pay", "order 9", json!({}))).await?;
        Ok(Command::output("paid"))
    };
    let deciders = std::sync::Arc::new(Deciders { at_least: 2, ..Deciders::default() });
    let board = Callboard::builder().agent("clerk", clerk).channel(channel).groups(Groups::default());
    let board = board
        .approval_policy(move |_| Consent::AskOf { deciders: std::sync::Arc::clone(&deciders), within: None })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("pay")).await.unwrap();
    let message = relay.opened("order 9").await;
    let send = async |person: &str| {
        let body = decision(&message, person, true);
        crate::team::send_as(&receiver, ("relay", SECRET), &crate::team::new_id(), &body).await
    };
    let first = send("ann").await.unwrap();
    assert!(!first.is_decided && first.outcome == "noted; others have to approve as well", "{first:?}");
    let again = send("ann").await;
    assert!(matches!(again, Err(callboard_channels::webhooks::Refused::Answer(_))), "{again:?}");
    assert!(send("bob").await.unwrap().is_decided);
    assert_eq!(run.result().await.unwrap().output, json!("paid"));
    board.shutdown().await;
}
