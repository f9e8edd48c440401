//! Which rooms are used, and what is set there for visitors.

use callboard_channels::matrix::{AgentRooms, MatrixState};
use serde_json::json;

use super::crew::{Crew, SPACE, WRITER, config, server};
use crate::fake::ANN;

const ROLE: &str = "com.aiagentchat.role";

#[tokio::test]
async fn a_room_that_others_may_enter_is_not_used_until_they_may_not() {
    let server = server();
    server.admits(WRITER, "public");
    let crew = Crew::on(server, |config| config).await;
    let text = crew.unusable("may enter").await;
    let expected = "others than those who are invited may enter the room !writer:example.org (its join rule is public): let only those \
                    who are invited enter";
    assert_eq!(text, expected);
    let looked = config(&crew.server, crew.folder.path()).look().await.unwrap();
    assert_eq!(looked.1, [expected]);
    let public = crew.writes(ANN, "public");
    crew.server.received().await;
    crew.server.admits(WRITER, "invite");
    let first = crew.writes(ANN, "look");
    crew.status(&first, "complete").await;
    crew.state(|state| matches!(state, MatrixState::Reached { unusable, .. } if unusable.is_empty())).await;
    crew.server.admits(WRITER, "knock");
    let knock = crew.writes(ANN, "look");
    crew.unusable("its join rule is knock").await;
    crew.server.received().await;
    assert!(crew.names(&public).is_empty() && crew.names(&knock).is_empty());
    crew.end().await;
}

#[tokio::test]
async fn encrypted_replaced_and_mute_rooms_are_not_used() {
    for (words, change) in [
        ("is encrypted", (|server| server.encrypts(WRITER)) as fn(&crate::fake::Server)),
        ("was replaced by !next:example.org", |server| server.replaces(WRITER, "!next:example.org")),
        ("may not send messages to the room", |server| server.mutes(WRITER, true)),
    ] {
        let server = server();
        change(&server);
        let crew = Crew::on(server, |config| config).await;
        crew.unusable(words).await;
        let event = crew.writes(ANN, "look");
        crew.server.received().await;
        assert!(crew.names(&event).is_empty() && crew.board.runs().await.unwrap().is_empty(), "{words}");
        crew.end().await;

        // Later.
        let crew = Crew::start().await;
        let event = crew.writes(ANN, "look");
        crew.status(&event, "complete").await;
        change(&crew.server);
        crew.unusable(words).await;
        let event = crew.writes(ANN, "look");
        crew.server.received().await;
        assert!(crew.names(&event).is_empty(), "{words}");
        crew.end().await;
    }
}

#[tokio::test]
async fn a_status_that_a_room_does_not_take_is_sent_as_soon_as_it_does() {
    let crew = Crew::start().await;
    let event = crew.writes(ANN, "ask");
    let run = crew.run(&crew.status(&event, "notice").await);
    crew.server.mutes(WRITER, true);
    crew.answer(&run, "done").await;
    crew.unusable("may not send messages").await;
    crew.server.received().await;
    assert_eq!(crew.names(&event), ["ack", "notice"]);
    crew.server.mutes(WRITER, false);
    assert_eq!(crew.status(&event, "complete").await["body"], "done");
    crew.end().await;
}

#[tokio::test]
async fn a_room_has_the_role_of_its_agent_now_and_the_space_has_the_room() {
    let server = server();
    server.change(|served| served.invited.insert(SPACE.to_owned()));
    let crew = Crew::on(server, |config| config.space(SPACE)).await;
    let state = |room: &str, kind: &str, key: &str| {
        let place = [room, kind, key].map(str::to_owned);
        crew.server.found(move |served| served.states.get(&place).cloned())
    };
    let role = json!({
        "role": "author", "capabilities": ["prose"], "projects": ["book"], "instance_name": "writer", "is_available": true,
    });
    assert_eq!(state(WRITER, ROLE, "").await, role);
    let via = json!({ "via": ["example.org"] });
    assert_eq!(state(SPACE, "m.space.child", WRITER).await, via);
    assert_eq!(state(WRITER, "m.space.parent", SPACE).await, json!({ "via": ["example.org"], "canonical": true }));
    crew.board.agents().stop("writer").await.unwrap();
    let place = [WRITER, ROLE, ""].map(str::to_owned);
    let is_away = |role: &serde_json::Value| role["is_available"] == false && role["role"].is_null();
    crew.server.found(|served| served.states.get(&place).filter(|role| is_away(role)).cloned()).await;
    let event = crew.writes(ANN, "look");
    let fail = crew.status(&event, "fail").await;
    assert!(fail["detail"].as_str().unwrap().contains("writer"), "{fail}");
    // What is written in the space is no request.
    let message = json!({ "msgtype": "m.text", "body": "look" });
    let event = crew.server.sends(ANN, SPACE, "m.room.message", message);
    crew.server.received().await;
    assert!(crew.names(&event).is_empty());
    crew.end().await;
}

#[tokio::test]
async fn without_the_power_to_set_states_it_is_reported_and_requests_are_taken() {
    let server = server();
    server.change(|served| served.powerless.insert(WRITER.to_owned()));
    let crew = Crew::on(server, |config| config.space(SPACE)).await;
    let expected = "the account may not set the state com.aiagentchat.role in the room !writer:example.org (M_FORBIDDEN: you may not \
                    set it): let it, or do without";
    assert_eq!(crew.unusable("com.aiagentchat.role").await, expected);
    crew.unusable("is not in the room !space:example.org").await;
    let event = crew.writes(ANN, "look");
    crew.status(&event, "complete").await;
    crew.server.change(|served| served.powerless.clear());
    crew.server.mutes(WRITER, false);
    let place = [WRITER, ROLE, ""].map(str::to_owned);
    crew.server.found(|served| served.states.get(&place).cloned()).await;
    let has_role = |state: &MatrixState| matches!(state, MatrixState::Reached { unusable, .. } if unusable.len() == 1);
    crew.state(has_role).await;
    crew.end().await;
}

#[test]
fn settings_that_are_none_are_refused_with_what_is_wrong() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let base = || config(&server, folder.path());
    for (refused, expected) in [
        (base().agent("coder", "#coder:example.org"), "is not the id of a room"),
        (base().agent("coder", WRITER), "is not the room of one agent"),
        (base().agent("a\u{200b}", "!a:example.org"), "is not the name of an agent"),
        (base().space(WRITER), "it is named twice"),
        (base().space("space"), "is not the id of a room"),
        (base().event_prefix("m.room"), "those that begin with `m.` are Matrix's own"),
        (base().person("ann", "ann"), "is not the id of an account"),
        (
            (0..64).fold(base(), |config, number| config.agent("a", &format!("!{number}:b"))),
            "there are 65 rooms of agents",
        ),
    ] {
        let error = AgentRooms::open(refused).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
