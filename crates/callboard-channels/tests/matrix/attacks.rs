//! Events that nobody should have sent: nothing is decided, and whoever sent them is told so once.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use callboard_channels::matrix::{MatrixChannel, MatrixState};
use serde_json::{Value, json};

use crate::fake::{ANN, BOB, BOT, DATA, EVE, Failing, Message, ROOM, Served, Server};
use crate::team::{Team, config};

const ANSWER: &str = "com.aiagentchat.request.answer";

/// A reply to a message, with more in its content.
fn reply(to: &Message, text: &str, more: Value) -> Value {
    let related = json!({ "m.in_reply_to": { "event_id": to.event } });
    let mut content = json!({ "msgtype": "m.text", "body": text, "m.relates_to": related });
    content.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    content
}

#[tokio::test]
async fn who_is_not_listed_decides_nothing_and_is_told_once() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    let first = team.server.replies(EVE, &message, "approve");
    assert_eq!(team.server.told(&first).await, "You may not decide this.");
    let claims = json!({ "from_agent": "ann", "sender": ANN, "from": ANN, "user_id": ANN, "person": "ann" });
    let mut later = vec![team.server.sends(EVE, ROOM, "m.room.message", reply(&message, "approve", claims.clone()))];
    let mut content = claims;
    content.as_object_mut().unwrap().extend(
        json!({ "event_id": message.event, "nonce": message.nonce(), "decision": "approve" })
            .as_object()
            .unwrap()
            .clone(),
    );
    later.push(team.server.sends(EVE, ROOM, ANSWER, content));
    for account in ["@ann:example.com", "@Ann:example.org", "@ann:example.org:8448", "@ann\u{200b}:example.org", "ann"]
    {
        team.server.replies(account, &message, "approve");
    }
    // The account of the channel itself.
    team.server.replies(BOT, &message, "approve");
    team.server.received().await;
    assert_eq!(team.decision(&asked).await, None);
    let told = |event: &str| team.server.state.lock().told.get(event).map_or(0, Vec::len);
    assert_eq!(later.iter().map(|event| told(event)).collect::<Vec<_>>(), [0, 0]);
    team.server.answer(BOB, &message, "deny").await;
    assert_eq!(&*team.decision(&asked).await.unwrap().by, "bob");
    team.board.shutdown().await;
}

#[tokio::test]
async fn what_is_no_reply_to_the_card_or_has_other_data_changes_nothing() {
    let team = Team::start().await;
    let (_, first) = team.ask("order 1", json!({})).await;
    let (_, second) = team.ask("order 2", json!({})).await;
    let (one, two) = (team.server.open("order 1").await, team.server.open("order 2").await);
    let sends = |kind: &str, content: Value| team.server.sends(ANN, ROOM, kind, content);
    // A message without a reply, one to another event, a change of one, a reaction, a redaction, and content of a wrong shape.
    sends("m.room.message", json!({ "msgtype": "m.text", "body": "approve" }));
    sends(
        "m.room.message",
        json!({ "msgtype": "m.text", "body": "approve", "m.relates_to": { "m.in_reply_to": { "event_id": "$other" } } }),
    );
    sends(
        "m.room.message",
        json!({
            "msgtype": "m.text", "body": "approve", "m.new_content": reply(&one, "approve", json!({})),
            "m.relates_to": { "rel_type": "m.replace", "event_id": one.event, "m.in_reply_to": { "event_id": one.event } },
        }),
    );
    sends("m.reaction", json!({ "m.relates_to": { "rel_type": "m.annotation", "event_id": one.event, "key": "👍" } }));
    sends("m.room.redaction", json!({ "redacts": one.event }));
    // A part of the state of the room.
    let content = reply(&one, "approve", json!({}));
    let state = json!({ "type": "m.room.message", "state_key": "", "sender": ANN, "content": content });
    team.server.change(|served| served.add(ROOM, state));
    for content in [
        json!([]),
        json!(7),
        json!({ "m.relates_to": [] }),
        json!({ "msgtype": "m.text", "m.relates_to": { "m.in_reply_to": { "event_id": one.event } } }),
    ] {
        sends("m.room.message", content);
    }
    // The right words, with the data of the other question, or none that a program needs.
    let wrong = sends("m.room.message", reply(&one, "approve", json!({ DATA: { "nonce": two.nonce() } })));
    assert!(team.server.told(&wrong).await.starts_with("The data is not that of the message."));
    for nonce in [json!(two.nonce()), json!(""), json!(null), json!(first.id().to_string())] {
        sends(ANSWER, json!({ "event_id": one.event, "nonce": nonce, "decision": "approve" }));
    }
    let elsewhere = sends(ANSWER, json!({ "event_id": "$other", "nonce": one.nonce(), "decision": "approve" }));
    assert!(team.server.told(&elsewhere).await.starts_with("No question is asked by that message."));
    let again = sends(ANSWER, json!({ "event_id": "$".repeat(60_000), "nonce": "", "decision": "approve" }));
    // The reply in another room.
    team.server.change(|served| served.join("!other:example.org"));
    team.server.sends(ANN, "!other:example.org", "m.room.message", reply(&one, "approve", json!({})));
    team.server.received().await;
    assert_eq!((team.decision(&first).await, team.decision(&second).await), (None, None));
    assert!(!team.server.state.lock().told.contains_key(&again), "it was told before");
    // A change of a reply that has decided.
    let denies = team.server.replies(ANN, &one, "deny");
    team.server.told(&denies).await;
    sends(
        "m.room.message",
        json!({
            "msgtype": "m.text", "body": "* approve", "m.new_content": reply(&one, "approve", json!({})),
            "m.relates_to": { "rel_type": "m.replace", "event_id": denies },
        }),
    );
    sends("m.room.redaction", json!({ "redacts": denies }));
    team.server.received().await;
    assert!(!team.decision(&first).await.unwrap().approved);
    assert_eq!(team.decision(&second).await, None);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_server_that_repeats_everything_changes_nothing_and_nobody_is_told_twice() {
    let team = Team::start().await;
    let (_, first) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    let events = [team.server.replies(EVE, &message, "deny"), team.server.replies(ANN, &message, "approve")];
    for event in &events {
        team.server.told(event).await;
    }
    team.server.closed(&message).await;
    team.server.received().await;
    let sent = team.server.state.lock().calls["send"];
    team.server.change(|served| served.repeats = true);
    let before = team.server.state.lock().calls["sync"];
    team.server.found(|served| (served.calls["sync"] > before + 3).then_some(())).await;
    assert!(team.decision(&first).await.unwrap().approved);
    assert_eq!(team.server.state.lock().calls["send"], sent);
    for event in &events {
        assert_eq!(team.server.state.lock().told[event].len(), 1);
    }
    team.board.shutdown().await;
}

#[tokio::test]
async fn what_was_written_before_the_account_has_joined_decides_nothing() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    team.server.received().await;
    // It leaves, somebody replies, and it is back: one answer has all of it.
    team.server.change(|served| {
        served.joined.remove(ROOM);
        let related = json!({ "m.in_reply_to": { "event_id": message.event } });
        let content = json!({ "msgtype": "m.text", "body": "approve", "m.relates_to": related });
        served.add(ROOM, json!({ "type": "m.room.message", "sender": ANN, "content": content }));
        served.join(ROOM);
    });
    team.server.received().await;
    assert_eq!(team.decision(&asked).await, None);
    team.server.answer(ANN, &message, "deny").await;
    assert!(!team.decision(&asked).await.unwrap().approved);
    team.board.shutdown().await;
}

#[tokio::test]
async fn an_event_that_cannot_be_read_holds_up_no_other() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    team.server.sends(EVE, ROOM, "m.room.message", json!({ "msgtype": "m.text", "body": deep }));
    team.server.answer(ANN, &message, "approve").await;
    assert!(team.decision(&asked).await.unwrap().approved);
    team.board.shutdown().await;
}

#[tokio::test]
async fn other_rooms_of_the_account_hold_up_nothing() {
    let team = Team::start().await;
    team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    // An answer with it has more bytes than are read.
    team.server.change(|served| served.join("!other:example.org"));
    team.server.sends(EVE, "!other:example.org", "m.room.message", json!({ "body": "a".repeat(65 << 20) }));
    team.server.answer(ANN, &message, "approve").await;
    team.board.shutdown().await;
}

#[tokio::test]
async fn nothing_is_read_or_written_in_a_room_after_it_was_encrypted() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    team.server.encrypts(ROOM);
    let replies = [team.server.replies(ANN, &message, "approve"), team.server.replies(EVE, &message, "approve")];
    team.server.received().await;
    let later = team.server.replies(ANN, &message, "approve");
    team.server.received().await;
    assert_eq!(team.decision(&asked).await, None);
    let calls = team.server.state.lock().calls["send"];
    assert_eq!(calls, 1, "only the message that asks was sent");
    for event in replies.iter().chain([&later]) {
        assert!(!team.server.state.lock().told.contains_key(event));
    }
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_room_that_is_encrypted_while_the_server_is_not_reached_gets_no_message() {
    let team = Team::start().await;
    team.state(|state| matches!(state, MatrixState::Reached { .. })).await;
    team.server.change(|served| served.failing = Failing::OnlySends);
    team.state(|state| matches!(state, MatrixState::Unreachable { .. })).await;
    team.server.encrypts(ROOM);
    team.ask("order 1", json!({})).await;
    let before = team.server.state.lock().calls["account"];
    team.server.found(|served| (served.calls["account"] > before + 5).then_some(())).await;
    team.server.change(|served| served.failing = Failing::No);
    team.state(|state| matches!(state, MatrixState::Reached { unusable, .. } if unusable.len() == 1)).await;
    assert_eq!(team.server.state.lock().calls.get("send"), None);
    team.board.shutdown().await;
}

/// Adds a reply and this many other messages at once, so that one answer of the server has them.
fn buries(served: &mut Served, to: &Message, text: &str, others: usize) -> String {
    let event = |content: Value| json!({ "type": "m.room.message", "sender": ANN, "content": content });
    let reply = served.add(ROOM, event(reply(to, text, json!({}))));
    for _ in 0..others {
        served.add(ROOM, event(json!({ "msgtype": "m.text", "body": "approve" })));
    }
    reply
}

#[tokio::test]
async fn replies_that_the_server_leaves_out_are_read_from_the_history() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    let reply = team.server.change(|served| buries(served, &message, "approve", 250));
    assert!(team.server.told(&reply).await.starts_with("approved by ann"));
    assert!(team.decision(&asked).await.unwrap().approved);
    assert_eq!(team.server.state.lock().calls["messages"], 3);
    // Where nothing is open, nothing is looked for.
    let reply = team.server.change(|served| buries(served, &message, "approve", 250));
    team.server.received().await;
    let served = team.server.change(|served| (served.calls["messages"], served.told.contains_key(&reply)));
    assert_eq!(served, (3, false));
    team.board.shutdown().await;
}

#[tokio::test]
async fn people_are_reminded_where_replies_may_be_lost() {
    let team = Team::start().await;
    team.server.change(|served| served.hides_history = true);
    let (_, asked) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    team.server.change(|served| buries(served, &message, "approve", 50));
    assert_eq!(team.server.told(&message.event).await, "This still waits for a decision.");
    assert_eq!(team.decision(&asked).await, None);
    team.server.answer(ANN, &message, "deny").await;
    team.board.shutdown().await;
}

#[tokio::test]
async fn what_is_left_out_and_was_written_before_the_account_has_joined_decides_nothing() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    team.server.received().await;
    let later = team.server.change(|served| {
        served.joined.remove(ROOM);
        buries(served, &message, "approve", 0);
        served.join(ROOM);
        buries(served, &message, "is that not too much?", 60)
    });
    assert!(team.server.told(&later).await.starts_with("Nothing was decided."));
    assert_eq!(team.decision(&asked).await, None);
    team.board.shutdown().await;
}

#[tokio::test]
async fn replies_count_that_were_written_while_the_server_has_lost_the_place() {
    let server = Server::start();
    server.change(|served| served.join(ROOM));
    let team = Team::on(server, |config| config).await;
    let (_, first) = team.ask("order 1", json!({})).await;
    let (_, second) = team.ask("order 2", json!({})).await;
    let (one, two) = (team.server.open("order 1").await, team.server.open("order 2").await);
    let refused = team.server.replies(EVE, &one, "approve");
    team.server.told(&refused).await;
    team.server.received().await;
    let reply = team.server.change(|served| {
        served.forgets = true;
        buries(served, &one, "approve", 150)
    });
    assert!(team.server.told(&reply).await.starts_with("approved by ann"));
    let before = team.server.state.lock().calls["account"];
    team.server.found(|served| (served.calls["account"] > before + 1).then_some(())).await;
    team.server.change(|served| served.forgets = false);
    // From here on it knows a place again.
    team.server.received().await;
    team.server.answer(ANN, &two, "deny").await;
    assert!(team.decision(&first).await.unwrap().approved && !team.decision(&second).await.unwrap().approved);
    let told = |event: &str| team.server.state.lock().told[event].len();
    assert_eq!([told(&refused), told(&reply)], [1, 1]);
    team.board.shutdown().await;
}

#[tokio::test]
async fn what_is_kept_is_of_this_user_alone() {
    let team = Team::start().await;
    team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    team.server.answer(ANN, &message, "approve").await;
    let folder = team.folder.path().join("matrix");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("matrix.json"))), (0o700, 0o600));
    team.board.shutdown().await;

    let other = tempfile::tempdir().unwrap();
    drop(MatrixChannel::open(config(&team.server, other.path())).unwrap());
    let damaged = other.path().join("matrix/matrix.json");
    std::fs::write(&damaged, "{").unwrap();
    std::fs::set_permissions(&damaged, std::fs::Permissions::from_mode(0o600)).unwrap();
    let refused = MatrixChannel::open(config(&team.server, other.path())).unwrap_err().to_string();
    assert!(refused.contains("matrix.json") && refused.ends_with("open questions are sent again"), "{refused}");
}
