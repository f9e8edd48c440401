//! Receivers that fail in every way: the board and other receivers continue, what was missed is sent, and nothing shows a secret.

use std::collections::BTreeMap;
use std::time::Duration;

use callboard_channels::webhooks::{Webhook, WebhookChannel, WebhookSecret};
use serde_json::json;

use crate::logs::Logs;
use crate::relay::{Failing, Relay};
use crate::team::{OTHER, SECRET, Team, config, decision, webhook};

/// The part of secrets and addresses that nobody may see.
const CANARY: &str = "CANARY";

#[tokio::test]
async fn no_failure_shows_a_secret_and_afterwards_everything_is_sent() {
    let (logs, _guard) = Logs::start();
    let relay = Relay::start(SECRET);
    let folder = tempfile::tempdir().unwrap();
    let team = Team::with(&relay, |config| config.webhook(webhook("relay", &relay))).await;
    let mut shown = vec![format!("{:?}", team.receiver)];
    for (failing, expected) in [
        (Failing::With(500), "it answers with the status 500"),
        (Failing::With(404), "it answers with the status 404"),
        (Failing::Redirect, "it answers with the status 307"),
        (Failing::Forgetful, "it answers with the status 502"),
        (Failing::Busy, "too many messages; the next one in 1 s"),
    ] {
        team.relay.fail(failing);
        team.ask(&format!("order {failing:?}"), json!({})).await;
        let before = team.relay.taken.lock().requests.len();
        team.relay.found(|taken| (taken.requests.len() > before).then_some(())).await;
        let pinged = config(folder.path()).webhook(webhook("relay", &team.relay)).ping().await;
        assert_eq!(pinged, [("relay".to_owned(), Err(expected.to_owned()))]);
        shown.push(format!("{pinged:?}"));
    }
    team.relay.fail(Failing::No);
    for order in ["With(500)", "With(404)", "Redirect", "Forgetful", "Busy"] {
        let message = team.relay.opened(&format!("order {order}")).await;
        shown.push(team.send(&decision(&message, "ann", true)).await.unwrap().outcome);
        assert!(team.relay.closed(&format!("order {order}")).await.starts_with("approved by ann at "));
    }
    assert_eq!(team.relay.taken.lock().redirected, 0, "a redirection is not followed");
    let dead = Webhook::new("dead", "http://127.0.0.1:1/CANARY", WebhookSecret::new(SECRET).unwrap());
    shown.push(format!("{:?} {dead:?}", config(folder.path()).webhook(dead.clone()).ping().await));
    shown.push(format!("{:?}", WebhookSecret::new("whsec_CANARY")));
    for url in ["http://relay.example.org/CANARY", "CANARY://", "https://CANARY:b@example.org", "https://x/#CANARY"] {
        let refused = config(folder.path()).webhook(Webhook::new("x", url, WebhookSecret::new(SECRET).unwrap()));
        shown.push(WebhookChannel::open(refused).unwrap_err().to_string());
    }
    team.board.shutdown().await;
    let kept = std::fs::read_to_string(team.folder.path().join("webhooks/webhooks.json")).unwrap();
    for text in shown.iter().chain([&logs.text(), &kept]) {
        let text = text.replace("CANARY of the answer", "");
        assert!(!text.contains(CANARY), "{text}");
    }
    assert!(logs.text().contains("a webhook is not reached; it is tried again"), "the logs are those of the channel");
}

#[tokio::test]
async fn a_message_has_one_id_and_one_body_however_often_it_is_sent() {
    let team = Team::start().await;
    team.relay.fail(Failing::Forgetful);
    let (_, asked) = team.ask("order 1", json!({})).await;
    let sent = team.relay.found(|taken| (taken.requests.len() > 4).then(|| taken.requests.clone())).await;
    assert!(sent.iter().all(|request| *request == sent[0]), "{sent:?}");
    // It was taken, whatever the answer was: a decision counts, and its end is sent.
    let message = team.relay.opened("order 1").await;
    assert!(team.send(&decision(&message, "ann", true)).await.unwrap().is_decided);
    let closed = team.relay.closed("order 1").await;
    assert!(closed.starts_with("approved by ann"), "{closed}");
    assert!(team.decision(&asked).await.unwrap().approved);
    team.relay.fail(Failing::No);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_receiver_that_is_down_delays_no_other_and_gets_the_rest_when_it_is_back() {
    let (relay, down) = (Relay::start(SECRET), Relay::start(OTHER));
    let webhooks = [("relay", &relay), ("down", &down)];
    let team = Team::with(&relay, |config| {
        webhooks.into_iter().fold(config, |config, (name, relay)| config.webhook(webhook(name, relay)))
    })
    .await;
    down.fail(Failing::Silent);
    for number in 0..20 {
        let order = format!("order {number}");
        let (run, _) = team.ask(&order, json!({})).await;
        let message = relay.opened(&order).await;
        team.send(&decision(&message, "ann", true)).await.unwrap();
        assert_eq!(run.result().await.unwrap().output, json!("paid"));
    }
    let (_, still_open) = team.ask("order open", json!({})).await;
    relay.opened("order open").await;
    down.fail(Failing::No);
    down.opened("order open").await;
    assert!(down.closed("order 0").await.starts_with("approved by ann"), "it may have seen this one");
    assert_eq!(team.decision(&still_open).await, None);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_receiver_that_was_down_gets_the_rest_from_the_next_process() {
    let relay = Relay::start(SECRET);
    let team = Team::with(&relay, |config| config.webhook(webhook("relay", &relay))).await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    relay.opened("order 1").await;
    relay.fail(Failing::With(503));
    team.board.people().deny(asked.id(), "the auditor", "not now").await.unwrap();
    let before = relay.taken.lock().requests.len();
    relay.found(|taken| (taken.requests.len() > before + 2).then_some(())).await;
    team.board.shutdown().await;
    relay.fail(Failing::No);
    let channel = WebhookChannel::open(config(team.folder.path()).webhook(webhook("relay", &relay))).unwrap();
    let next = callboard::prelude::Callboard::builder()
        .agent("clerk", |_: callboard::prelude::Turn| async { Ok(callboard::prelude::Command::output("none")) });
    let next = next.channel(channel).start().await.unwrap();
    assert!(relay.closed("order 1").await.starts_with("denied by the auditor at "));
    next.shutdown().await;
}

#[tokio::test]
async fn an_answer_without_an_end_is_not_read_to_its_end() {
    let relay = Relay::start(SECRET);
    relay.fail(Failing::Endless);
    let pinged = config(tempfile::tempdir().unwrap().path()).webhook(webhook("relay", &relay)).ping().await;
    assert_eq!(pinged, [("relay".to_owned(), Ok(()))]);
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_given_up_in_time() {
    let relay = Relay::start(SECRET);
    relay.fail(Failing::Silent);
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path()).webhook(webhook("relay", &relay)).timeout(Duration::from_millis(50));
    let why = config.ping().await.remove(0).1.unwrap_err();
    assert!(why.contains("timed out"), "{why}");
    relay.fail(Failing::No);
}

#[tokio::test]
async fn a_message_that_is_refused_holds_up_no_other() {
    let team = Team::start().await;
    team.relay.fail(Failing::With(413));
    team.ask("order 1", json!({})).await;
    team.relay.found(|taken| (!taken.requests.is_empty()).then_some(())).await;
    team.relay.fail(Failing::No);
    team.ask("order 2", json!({})).await;
    team.relay.opened("order 2").await;
    let refused = team.relay.taken.lock().requests[0].clone();
    let again = team.relay.taken.lock().requests.iter().filter(|request| **request == refused).count();
    assert_eq!(again, 1, "it is not sent again");
    team.board.shutdown().await;
}

#[tokio::test]
async fn which_receivers_are_not_reached_is_known() {
    let relay = Relay::start(SECRET);
    let folder = tempfile::tempdir().unwrap();
    let channel = WebhookChannel::open(config(folder.path()).webhook(webhook("relay", &relay))).unwrap();
    let mut unreachable = channel.unreachable();
    relay.fail(Failing::With(500));
    let clerk = |turn: callboard::prelude::Turn| async move {
        turn.people().approve(callboard::messages::Action::new("pay", "order 1", json!({}))).await?;
        Ok(callboard::prelude::Command::output("paid"))
    };
    let board = callboard::prelude::Callboard::builder().agent("clerk", clerk).channel(channel).start().await.unwrap();
    board.submit(callboard::prelude::Task::new("pay")).await.unwrap();
    let why = "it answers with the status 500".to_owned();
    unreachable.wait_for(|now| *now == BTreeMap::from([("relay".to_owned(), why.clone())])).await.unwrap();
    relay.fail(Failing::No);
    unreachable.wait_for(BTreeMap::is_empty).await.unwrap();
    board.shutdown().await;
}
