//! Which rooms the channel asks in.

use std::time::Duration;

use callboard_channels::matrix::{MatrixChannel, MatrixState};
use serde_json::json;

use crate::fake::{ANN, BOT, ROOM, Server};
use crate::team::{Team, config};

/// The text about a room that is not used.
fn unusable(state: &MatrixState) -> Option<&str> {
    match state {
        MatrixState::Reached { unusable, .. } => unusable.first().map(|text| &**text),
        _ => None,
    }
}

#[tokio::test]
async fn an_encrypted_room_is_refused_also_one_that_is_encrypted_later() {
    let server = Server::start();
    server.encrypts(ROOM);
    let team = Team::on(server, |config| config).await;
    team.ask("order 1", json!({})).await;
    let state = team.state(|state| unusable(state).is_some()).await;
    let expected = format!(
        "the room {ROOM} is encrypted, and callboard neither reads nor writes encrypted messages: make a room without \
         encryption, and name it in its place"
    );
    assert_eq!(unusable(&state), Some(&*expected));
    let looked = config(&team.server, team.folder.path()).look().await.unwrap();
    assert_eq!(looked, (BOT.to_owned(), vec![expected]));
    team.server.received().await;
    assert_eq!(team.server.state.lock().calls.get("send"), None);
    team.board.shutdown().await;

    let team = Team::start().await;
    team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    team.server.encrypts(ROOM);
    team.state(|state| unusable(state).is_some_and(|text| text.contains("is encrypted"))).await;
    let (_, asked) = team.ask("order 2", json!({})).await;
    team.server.received().await;
    team.board.people().deny(asked.id(), "carl", "").await.unwrap();
    team.server.received().await;
    let events = team.server.change(|served| served.messages.iter().map(|sent| sent.event.clone()).collect::<Vec<_>>());
    assert_eq!(events, [message.event]);
    team.board.shutdown().await;
}

#[tokio::test]
async fn only_rooms_of_the_settings_are_joined_as_soon_as_somebody_invites() {
    let server = Server::start();
    server.change(|served| served.invited.clear());
    let team = Team::on(server, |config| config).await;
    team.ask("order 1", json!({})).await;
    let state = team.state(|state| unusable(state).is_some()).await;
    let why = "the account @board:example.org is not in the room !approvals:example.org (M_FORBIDDEN: you are not invited): invite it there";
    assert_eq!(unusable(&state), Some(why));
    team.server.change(|served| served.invited.insert("!other:example.org".to_owned()));
    team.server.change(|served| served.invited.insert(ROOM.to_owned()));
    let message = team.server.open("order 1").await;
    team.state(|state| matches!(state, MatrixState::Reached { .. }) && unusable(state).is_none()).await;
    let joined = team.server.state.lock().joined.clone();
    assert_eq!(joined.into_iter().collect::<Vec<_>>(), [ROOM]);
    team.server.change(|served| served.invited.clear());
    team.server.answer(ANN, &message, "approve").await;
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_room_that_was_replaced_is_reported_and_not_used() {
    let team = Team::start().await;
    let (_, first) = team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    team.server.replaces(ROOM, "!next:example.org");
    let state = team.state(|state| unusable(state).is_some()).await;
    let expected = "the room !approvals:example.org was replaced by !next:example.org: invite the account @board:example.org \
                    there, and name that one in its place";
    assert_eq!(unusable(&state), Some(expected));
    let looked = config(&team.server, team.folder.path()).look().await.unwrap();
    assert_eq!(looked, (BOT.to_owned(), vec![expected.to_owned()]));
    team.ask("order 2", json!({})).await;
    team.server.answer(ANN, &message, "approve").await;
    assert!(team.decision(&first).await.unwrap().approved);
    assert_eq!(team.server.state.lock().messages.len(), 1);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_room_that_takes_no_message_is_reported_and_asked_as_soon_as_it_does() {
    let server = Server::start();
    server.mutes(ROOM, true);
    let team = Team::on(server, |config| config).await;
    team.ask("order 1", json!({})).await;
    team.server.found(|served| served.calls.get("send").copied()).await;
    team.server.received().await;
    let state = team.state(|state| unusable(state).is_some()).await;
    let expected = "the room !approvals:example.org does not take a message of the account @board:example.org (M_FORBIDDEN: \
                    you may not send): let it send messages there";
    assert_eq!(unusable(&state), Some(expected));
    team.server.mutes(ROOM, false);
    let message = team.server.open("order 1").await;
    team.server.answer(ANN, &message, "approve").await;
    team.state(|state| unusable(state).is_none()).await;
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_room_that_the_server_cannot_use_holds_up_no_other_and_is_tried_again() {
    let (server, broken) = (Server::start(), "!broken:example.org");
    server.change(|served| {
        served.broken.insert(broken.to_owned());
        served.invited.insert(broken.to_owned());
    });
    let team = Team::on(server, |config| config.room(broken).poll_time(Duration::from_millis(10))).await;
    team.ask("order 1", json!({})).await;
    let message = team.server.open("order 1").await;
    assert_eq!(message.room, ROOM);
    let state = team.state(|state| unusable(state).is_some()).await;
    let expected = "the homeserver cannot use the room !broken:example.org (it fails with 502: M_UNKNOWN: no other server of it \
                    answers): it is tried again";
    assert_eq!(unusable(&state), Some(expected));
    team.server.change(|served| {
        served.broken.clear();
        served.invited.clear();
        served.joined.insert(broken.to_owned());
    });
    team.server.found(|served| (served.messages.len() == 2).then_some(())).await;
    team.state(|state| matches!(state, MatrixState::Reached { .. }) && unusable(state).is_none()).await;
    team.board.shutdown().await;
}

#[test]
fn settings_that_are_none_are_refused_with_what_is_wrong() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let base = || config(&server, folder.path());
    for (refused, expected) in [
        (base().room("#approvals:example.org"), "\"#approvals:example.org\" is not the id of a room"),
        (base().person("ann", "ann"), "\"ann\" is not the id of an account"),
        (base().event_type("m.room.message"), "those that begin with `m.` are Matrix's own"),
        (base().event_type("A b.c"), "is not a type of events"),
        ((0..16).fold(base(), |config, number| config.room(&format!("!{number}:example.org"))), "there are 17 rooms"),
    ] {
        let error = MatrixChannel::open(refused).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
